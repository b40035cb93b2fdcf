package speaker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/bgp"
	"github.com/underlay-ccm/underlay/addresses/bgp/speaker"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// A Speaker opens its sessions on any thread, so one in another network namespace is a process of
// its own: this program, with this environment variable.
const asSpeaker = "UNDERLAY_TEST_SPEAKER"

func TestMain(m *testing.M) {
	if os.Getenv(asSpeaker) == "" {
		os.Exit(m.Run())
	}
	if err := obey(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// order is a line of input to such a process.
type order struct {
	Set   *wanted
	Close bool
}

// wanted is a Desired that can be encoded, with its passwords.
type wanted struct {
	bgp.Desired
	Peers []secretPeer
}

type secretPeer struct {
	bgp.Peer
	Password string
}

// answer is a line of its output: one for each order.
type answer struct {
	Error   string
	State   []addresses.Router
	Changes int64
	RSS     string
}

// obey runs a Speaker by the orders in the input.
func obey(in io.Reader, out io.Writer) error {
	var changes atomic.Int64
	s := speaker.New(klog.Background(), func() { changes.Add(1) })
	lines := json.NewDecoder(in)
	for {
		var o order
		if err := lines.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var err error
		switch {
		case o.Set != nil:
			d := o.Set.Desired
			for _, p := range o.Set.Peers {
				if p.Password != "" {
					p.Peer.Password, err = bgp.NewPassword(p.Password)
				}
				d.Peers = append(d.Peers, p.Peer)
			}
			err = errors.Join(err, s.Set(context.Background(), d))
		case o.Close:
			s.Close()
		}
		a := answer{Changes: changes.Load(), RSS: rss()}
		if err != nil {
			a.Error = err.Error()
		}
		if a.State, err = s.State(context.Background()); err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(a); err != nil {
			return err
		}
	}
}

// rss returns the process's memory as the kernel prints it.
func rss() string {
	content, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(content)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// speaking is a process with a Speaker in a node's namespace.
type speaking struct {
	t       *testing.T
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	logFile *os.File
	ended   chan struct{}
}

// speak starts one. It dies with the test.
func speak(t *testing.T, node *netns.Space) *speaking {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.CreateTemp(t.TempDir(), "speaker")
	if err != nil {
		t.Fatal(err)
	}
	s := &speaking{t: t, command: exec.Command("nsenter", "--net="+node.Path(), "--", program), logFile: log, ended: make(chan struct{})}
	s.command.Env = append(os.Environ(), asSpeaker+"=1")
	s.command.Stderr = log
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if s.in, err = s.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewScanner(out)
	s.out.Buffer(nil, 1<<20)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the kernel kills it with the thread that started it
		err := s.command.Start()
		started <- err
		if err == nil {
			<-s.ended
		}
		runtime.UnlockOSThread()
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		if text := s.log(); t.Failed() || strings.Contains(text, "DATA RACE") {
			t.Errorf("a speaker's log:\n%s", text)
		}
		_ = s.logFile.Close()
	})
	return s
}

// log returns the output for its log.
func (s *speaking) log() string {
	text, err := os.ReadFile(s.logFile.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// kill ends it without a shutdown.
func (s *speaking) kill() {
	select {
	case <-s.ended:
		return
	default:
	}
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
	close(s.ended)
}

// send sends an order, and returns the answer.
func (s *speaking) send(o order) answer {
	s.t.Helper()
	if err := json.NewEncoder(s.in).Encode(o); err != nil {
		s.t.Fatalf("a speaker has ended: %v\n%s", err, s.log())
	}
	if !s.out.Scan() {
		s.kill()
		s.t.Fatalf("a speaker has ended: %v\n%s", s.out.Err(), s.log())
	}
	var a answer
	if err := json.Unmarshal(s.out.Bytes(), &a); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// set sets its desired state.
func (s *speaking) set(w wanted) {
	s.t.Helper()
	if a := s.send(order{Set: &w}); a.Error != "" {
		s.t.Fatal(a.Error)
	}
}

// state returns the state of its session with a peer.
func (s *speaking) state(name string) addresses.Router {
	s.t.Helper()
	for _, p := range s.send(order{}).State {
		if p.Name == name {
			return p
		}
	}
	s.t.Fatalf("no peer %s", name)
	return addresses.Router{}
}
