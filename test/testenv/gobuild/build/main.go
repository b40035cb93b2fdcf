// Command build runs a go command that compiles and reports its progress, which go itself does not:
//
//	go run ./test/testenv/gobuild/build build -trimpath -o bin/ ./cmd/...
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/underlay-ccm/underlay/test/testenv/gobuild"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: build COMMAND [ARGUMENT...], with a command of go such as build or install")
		os.Exit(2)
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{os.Args[1], "-v"}, os.Args[2:]...)...)
	if err := (gobuild.Report{Name: "build", To: os.Stderr}).Compile(ctx, cmd, "build", 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
