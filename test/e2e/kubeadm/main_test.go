//go:build linux

// Package kubeadm tests what is shipped by installing it as the documents say; see package
// test/testenv/kubeadm.
package kubeadm

import (
	"context"
	"os"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// tree is the source tree, seen from here.
const tree = "../../.."

func TestMain(m *testing.M) { os.Exit(kubeadm.RunTests(m)) }

// newMachine makes a machine that is off, and whose first boot is to come.
func newMachine(ctx context.Context, name, dir string, network *netns.Namespace) (*machine.Machine, error) {
	programs, err := machine.Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	return machine.New(ctx, machine.Options{Name: name, Dir: dir, Network: network, Programs: programs})
}
