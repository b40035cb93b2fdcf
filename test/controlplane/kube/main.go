// Command kube makes sure that the control plane's binary is built, shows
// progress while it is not, and prints its path. Makefile and CI call it before
// `go test`, which would hide the wait:
//
//	$(go run ./test/controlplane/kube) kubectl version --client
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/underlay-ccm/underlay/test/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	path, err := controlplane.Binary(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
