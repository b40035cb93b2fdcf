//go:build linux

package kubeadm

import (
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
)

// world is a cluster that a test installs.
type world struct{ *kubeadm.TestCluster }

// startWorld starts the cloud, without servers.
func startWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		kubeadm.StartT(t, kubeadm.Tutorial, kubeadm.Options{Dir: t.TempDir(), Packed: kubeadm.Packed()}),
	}
}
