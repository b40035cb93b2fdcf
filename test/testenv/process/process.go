// Package process runs the programs that tests and the demo need, each with a log file of its own,
// and never leaves one behind: a program is stopped by its own process ID, and on Linux the kernel
// ends it if its parent dies without a cleanup.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// tailLines is how much of a program's log an error about it quotes.
const tailLines = 15

// Command describes a program to run. Its environment is PATH, HOME and Env, and nothing else of
// the caller's: etcd, for one, reads every ETCD_* variable as a flag.
type Command struct {
	// Name names the program in errors and its log, <Name>.log in Dir.
	Name string
	Path string
	Args []string
	Dir  string
	Env  []string
}

// Process is a program that was started.
type Process struct {
	Name string
	// Log is the path of its output.
	Log string

	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // error of its end; set before done is closed
}

// Start runs a program. Its output is appended to its log.
func Start(c Command) (*Process, error) {
	p := &Process{Name: c.Name, Log: filepath.Join(c.Dir, c.Name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	defer log.Close() // the program has its own copy by then

	p.cmd = exec.Command(c.Path, c.Args...)
	p.cmd.Dir = c.Dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir}, c.Env...)
	p.cmd.SysProcAttr = OwnGroup()

	started := make(chan error)
	go func() {
		runtime.LockOSThread() // see OwnGroup
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

// PID is the program's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports without waiting whether the program has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ExitCode is the program's exit code once Done is closed; -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends a signal; that the program has just ended by itself is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Kill kills the program, and waits until it has ended.
func (p *Process) Kill() {
	if !p.Ended() {
		// The only error is that it has just ended by itself.
		_ = p.cmd.Process.Kill()
	}
	<-p.done
}

// Died is the error of a program that ended unexpectedly.
func (p *Process) Died() error {
	if p.err == nil {
		return errors.New("it ended by itself")
	}
	return fmt.Errorf("it ended by itself: %w", p.err)
}

// Failure describes a program that failed, or is about to be given up, with the end of its log.
func (p *Process) Failure(what error) error {
	return fmt.Errorf("%s: %w\nlast lines of %s:\n%s", p.Name, what, p.Log, tail(p.Log, tailLines))
}

func tail(path string, n int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
