// Command build makes sure that the control plane's binary is built, shows
// progress while it is not, and prints its path. Makefile and CI call it before
// `go test`, which would hide the wait:
//
//	$(go run ./test/testenv/kubebinary/build) kubectl version --client
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	path, err := kubebinary.Path(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
