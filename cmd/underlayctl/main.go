// Command underlayctl inspects and checks a cluster that Underlay serves. It reads only: get and
// list in Kubernetes, GET in the cloud, and its transports reject all other requests. One
// command writes: connectivity starts pods, and its transport rejects writes outside of its
// namespace.
//
// The same binary with the name kubectl-underlay is a kubectl plugin.
//
// Exit codes: 0 if all is well; doctor 1 if the worst finding is a warning, 2 if it is an error;
// connectivity 1 if a path is closed, 2 if some paths could not be tried; 3 if a command failed,
// or if doctor could not read the configuration or the Nodes.
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

// exitFailed differs from the exit codes of doctor and connectivity for their findings.
const exitFailed = 3

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	code := run(ctx, process{
		name: filepath.Base(os.Args[0]), args: os.Args[1:], getenv: os.Getenv, readFile: os.ReadFile,
		stdout: os.Stdout, stderr: os.Stderr, terminal: term.IsTerminal(int(os.Stdout.Fd())),
	})
	stop()
	os.Exit(code)
}

// findings is the error of a successful doctor with findings.
type findings struct{ code int }

func (findings) Error() string { return "something was found" }

// run runs the program without accessing its process.
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
