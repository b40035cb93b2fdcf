// Package gobuild runs the go command where it may take minutes, and reports its progress.
package gobuild

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// A build that takes longer than firstReport is reported, and again every nextReport.
const (
	firstReport = 2 * time.Second
	nextReport  = 10 * time.Second
)

// Report configures the output of progress.
type Report struct {
	// Name is the prefix of each line.
	Name string
	To   io.Writer
}

// Compile runs a "go build -v" or similar command of a number of packages; 0: unknown.
func (r Report) Compile(ctx context.Context, cmd *exec.Cmd, what string, packages int) error {
	compiled, last := 0, ""
	return r.Watch(ctx, cmd, what,
		func(line string) {
			// -v names a package when its compilation begins; cached packages are never named.
			if !strings.Contains(line, " ") {
				compiled++
				last = line
			}
		},
		func() string {
			switch {
			case compiled == 0:
				return "linking, or looking for what is compiled already"
			case packages == 0:
				return fmt.Sprintf("package %d to compile: %s", compiled, last)
			}
			return fmt.Sprintf("package %d to compile, of at most %d: %s", compiled, packages, last)
		})
}

// Watch runs a go command, passes each line of its standard error to saw, and reports status from
// time to time. Its error ends with the last lines of the command's output.
func (r Report) Watch(
	ctx context.Context, cmd *exec.Cmd, what string, saw func(line string), status func() string,
) error {
	var mu sync.Mutex // saw is called while the command writes, status by the ticker
	var last []string
	cmd.Stderr = NewLines(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		saw(line)
		if strings.Contains(line, " ") { // otherwise a package's name, by -v
			last = append(last, line)[max(0, len(last)-19):]
		}
	})
	// go's compilers are its children: end the group, not only go itself.
	cmd.SysProcAttr = process.OwnGroup()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second

	began := time.Now()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // see process.OwnGroup
		defer runtime.UnlockOSThread()
		done <- cmd.Run()
	}()
	tick := time.NewTimer(firstReport)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s: %w", what, context.Cause(ctx))
			}
			return fmt.Errorf("%s: %s: %w\n%s", what, strings.Join(cmd.Args[:2], " "), err, strings.Join(last, "\n"))
		case <-tick.C:
			mu.Lock()
			fmt.Fprintf(r.To, "%s: %7s  %s\n", r.Name, Since(began), status())
			mu.Unlock()
			tick.Reset(nextReport)
		}
	}
}

// Since is the time since t, in whole seconds.
func Since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }

// NewLines is a writer that calls saw with each complete line.
func NewLines(saw func(line string)) io.Writer {
	return &lines{saw: saw}
}

type lines struct {
	saw     func(string)
	pending []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.pending = append(l.pending, p...)
	for {
		advance, line, _ := bufio.ScanLines(l.pending, false)
		if advance == 0 {
			return len(p), nil
		}
		l.saw(string(line))
		l.pending = l.pending[advance:]
	}
}
