//go:build linux

// Package kubeadm tests what is shipped by installing it as the documents say; see package
// test/testenv/kubeadm.
package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// tree is the source tree, seen from here.
const tree = "../../.."

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if !netlab.Entered() && machine.Supported() == nil {
		// Where tests run there is no internet, which the first build of an image needs.
		folder, err := kubeadm.Pack(context.Background(), os.Stderr)
		if err == nil {
			err = os.Setenv(packed, folder)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := netlab.Enter(); err != nil && !errors.Is(err, netlab.ErrNotRoot) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(os.Getenv(packed))
	return m.Run()
}

// needMachines skips a test where there can be no machines. CI has to be able to.
func needMachines(t *testing.T) {
	t.Helper()
	err := machine.Supported()
	switch {
	case err == nil:
	case os.Getenv("CI") != "" && os.Geteuid() == 0:
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// newMachine makes a machine that is off, and whose first boot is to come.
func newMachine(ctx context.Context, name, dir string, network *netns.Namespace) (*machine.Machine, error) {
	programs, err := machine.Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	return machine.New(ctx, machine.Options{Name: name, Dir: dir, Network: network, Programs: programs})
}
