// Command build makes sure that MetalLB is built, shows progress while it is not, and prints the
// path of its manifest. Makefile calls it before `go test`, which would hide the wait.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/underlay-ccm/underlay/test/testenv/metallb"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	built, err := metallb.Build(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(built.Manifest())
}
