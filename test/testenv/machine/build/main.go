//go:build linux

// Command build makes sure that what machines run is built, shows progress while it is not, and
// prints its folder. Makefile and CI call it before `go test`, which would hide the wait. Where no
// machine can be it says why, and builds nothing; in CI as root that is a failure.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/underlay-ccm/underlay/test/testenv/machine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := machine.Supported(); err != nil && (os.Getenv("CI") == "" || os.Geteuid() != 0) {
		fmt.Println("tests on machines will be skipped:", err)
		return
	}
	programs, err := machine.Build(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(programs.Folder)
}
