// Command underlayctl looks at a cluster that Underlay serves, and checks it. It
// reads only: get, list and watch in Kubernetes, GET in the cloud, and its transports
// refuse everything else. One command writes: connectivity starts pods, and its transport
// refuses to write outside of its namespace.
//
// The same binary under the name kubectl-underlay is a plugin of kubectl.
//
// Exit codes: 0 all is well; of doctor 1 when the worst finding is a warning and
// 2 when it is an error; of connectivity 1 when something is closed and 2 when some
// of it could not be tried; 3 when a command could not do its work, and of doctor
// also when the configuration or the Nodes could not be seen.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/underlay-ccm/underlay/internal/table"
)

// exitFailed is the exit code of a command that could not do its work. It is none
// of those that doctor and connectivity have for what they found.
const exitFailed = 3

func main() {
	told := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		told = append(told, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), told...)
	code := run(ctx, process{
		name: filepath.Base(os.Args[0]), args: os.Args[1:], getenv: os.Getenv, readFile: os.ReadFile,
		stdout: os.Stdout, stderr: os.Stderr, terminal: term.IsTerminal(int(os.Stdout.Fd())), height: terminalHeight,
	})
	stop()
	os.Exit(code)
}

// terminalHeight is asked for each frame: a person may change it.
func terminalHeight() int {
	_, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return height
}

// findings is the error of a doctor that did its work and found something.
type findings struct{ code int }

func (findings) Error() string { return "something was found" }

// run is the program without its process.
func run(ctx context.Context, w process) int {
	cmd := newCommand(w)
	cmd.SetArgs(w.args)
	cmd.SetOut(w.stdout)
	cmd.SetErr(w.stderr)
	err := cmd.ExecuteContext(ctx)
	var found findings
	switch {
	case err == nil:
		return 0
	case errors.As(err, &found):
		return found.code
	}
	fmt.Fprintln(w.stderr, "error: "+table.OneLine(strings.ReplaceAll(err.Error(), "\n", "; ")))
	return exitFailed
}
