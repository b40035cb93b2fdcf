//go:build linux

// Command build makes sure that the programs of machines are built, shows progress while they are
// not, and prints their folder. Makefile and CI call it before `go test`, which would hide the
// wait. On a host that can't run machines it prints the reason and builds nothing; if no test may
// be skipped, that is a failure.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/underlay-ccm/underlay/test/testenv/complete"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := machine.Supported(); err != nil {
		if complete.Promised() {
			fmt.Fprintf(os.Stderr, "tests on machines can't run, and %s promises that they do: %v\n", complete.Variable, err)
			os.Exit(1)
		}
		fmt.Println("skipped: tests on machines:", err)
		return
	}
	programs, err := machine.Build(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(programs.Folder)
}
