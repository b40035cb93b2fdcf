package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience limits a command: one that takes longer hangs.
const patience = 2 * time.Minute

// session is a shell in which the commands of one page run one after the other, so that variables
// of one are set for the next.
type session struct {
	dir     string
	shell   *exec.Cmd
	input   io.WriteCloser
	answers *bufio.Reader
	count   int
}

// outcome is the result of a command.
type outcome struct {
	status      int
	out, errors string
}

func (o outcome) String() string {
	return fmt.Sprintf("exit status %d\n%s%s", o.status, o.out, o.errors)
}

// pasted is the standard input of commands in a session's folder, as if a user had pasted it.
const pasted = "pasted"

// startSession starts a shell in a folder, with an environment of its own.
func startSession(t *testing.T, dir string, env []string) *session {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	s := &session{dir: dir, shell: exec.Command(bash, "--norc", "--noprofile", "-o", "pipefail")}
	s.shell.Dir, s.shell.Env = dir, env
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.input, err = s.shell.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.answers = bufio.NewReader(out)
	if err := s.shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.end()
		_ = s.shell.Wait() // it was killed
	})
	return s
}

// end kills the shell and the processes that it has started.
func (s *session) end() { _ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL) }

// run runs a command and returns its result.
func (s *session) run(ctx context.Context, command string) (outcome, error) {
	s.count++
	name := filepath.Join(s.dir, strconv.Itoa(s.count))
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(ctx, s.end)()
	if _, err := fmt.Fprintf(s.input, "{ %s\n} <%s >%s.out 2>%[3]s.err\necho $?\n", command, pasted, name); err != nil {
		return outcome{}, err
	}
	answer, err := s.answers.ReadString('\n')
	out, err1 := os.ReadFile(name + ".out")
	problems, err2 := os.ReadFile(name + ".err")
	o := outcome{out: string(out), errors: string(problems)}
	if err != nil {
		return o, fmt.Errorf("the shell ended, or the command did not within %s: %w\n%s", patience, err, o)
	}
	var err3 error
	o.status, err3 = strconv.Atoi(strings.TrimSpace(answer))
	return o, errors.Join(err1, err2, err3)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
