package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// asProgram in the environment makes the tests' binary underlayctl itself.
const asProgram = "UNDERLAYCTL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// program is underlayctl in a process of its own.
type program struct {
	*exec.Cmd
	said *os.File // what it writes
}

// start starts measure with these arguments. What it writes goes into one pipe.
func (c *measuredCloud) start(args ...string) program {
	c.t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], append([]string{"measure"}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "HCLOUD_TOKEN="+measureToken, "HCLOUD_ENDPOINT="+c.endpoint)
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	_ = write.Close()
	c.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = read.Close() })
	return program{cmd, read}
}

// sayThrough returns everything that it says until it has ended. When a word comes it calls then.
func (p program) sayThrough(word string, then func()) string {
	var all bytes.Buffer
	for part := make([]byte, 4096); ; {
		n, err := p.said.Read(part)
		all.Write(part[:n])
		if then != nil && strings.Contains(all.String(), word) {
			then()
			then = nil
		}
		if err != nil {
			_ = p.Wait()
			return all.String()
		}
	}
}

// A terminal that closes hangs up twice, and what was made is removed all the same.
func TestMeasureSurvivesAClosedTerminal(t *testing.T) {
	var p program
	hangUp := func() { _ = p.Process.Signal(syscall.SIGHUP) }
	started := make(chan struct{})
	once := sync.OnceFunc(func() { <-started; hangUp() })
	c := newMeasuredCloud(t, hcloudsim.Options{ActionTime: 20 * time.Millisecond, OnRequest: func(r hcloudsim.Request) {
		if hasMade(r) && r.Path == "/v1/load_balancers" {
			once()
		}
	}})
	p = c.start("--api-only", "--yes")
	close(started)
	text := p.sayThrough("Interrupted:", hangUp)
	if code := p.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(text, "Nothing of this run is left") {
		t.Errorf("%s:\n%s", p.ProcessState, text)
	}
	c.expectUntouched()
}

// Every sequence of signals, and what is made of it.
func TestHeed(t *testing.T) {
	type at struct {
		after  time.Duration // the signal before
		signal syscall.Signal
	}
	for name, test := range map[string]struct {
		sent  []at
		again int // which of them counts as another one; 0: none
	}{
		"Ctrl-C":                      {sent: []at{{0, syscall.SIGINT}}},
		"Ctrl-C twice":                {sent: []at{{0, syscall.SIGINT}, {2 * time.Second, syscall.SIGINT}}, again: 1},
		"passed on by a wrapper":      {sent: []at{{0, syscall.SIGINT}, {5 * time.Millisecond, syscall.SIGINT}}},
		"impatient":                   {sent: []at{{0, syscall.SIGINT}, {0, syscall.SIGINT}, {moment, syscall.SIGTERM}}, again: 2},
		"a terminal and its shell":    {sent: []at{{0, syscall.SIGHUP}, {time.Minute, syscall.SIGHUP}}},
		"Ctrl-C, and then closed":     {sent: []at{{0, syscall.SIGINT}, {time.Minute, syscall.SIGHUP}}},
		"closed, and then told":       {sent: []at{{0, syscall.SIGHUP}, {time.Minute, syscall.SIGHUP}, {0, syscall.SIGTERM}}, again: 2},
		"a session that ends at once": {sent: []at{{0, syscall.SIGTERM}, {0, syscall.SIGHUP}, {0, syscall.SIGHUP}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				told := make(chan os.Signal, 4)
				defer close(told)
				ended := false
				go heed(told, end, func() { ended = true })
				for i, s := range test.sent {
					time.Sleep(s.after)
					told <- s.signal
					synctest.Wait()
					if want := test.again > 0 && i == test.again; ctx.Err() == nil || ended != want {
						t.Errorf("after signal %d: ended %t, and once more %t, want %t", i, ctx.Err() != nil, ended, want)
					}
				}
			})
		})
	}
}
