//go:build linux

// Package kubeadm tests the shipped files by installing them as documented; see package
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

// tree is the path of the source tree.
const tree = "../../.."

func TestMain(m *testing.M) { os.Exit(kubeadm.RunTests(m)) }

// newMachine creates a machine that is off and was never booted.
func newMachine(
	ctx context.Context, name, dir string, network *netns.Namespace,
) (*machine.Machine, error) {
	programs, err := machine.Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	return machine.New(ctx, machine.Options{
		Name: name, Dir: dir, Network: network, Programs: programs,
	})
}
