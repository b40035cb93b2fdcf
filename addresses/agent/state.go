package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// StateFile is the name of the file in the state directory, which is deleted by a reboot: the node
// then holds no address until it has read the ledger.
const StateFile = "addresses.json"

// Knowledge is the state that an agent passes on to its next run.
type Knowledge struct {
	// Name is the name of this machine's Node.
	Name   string           `json:"name"`
	Ledger addresses.Ledger `json:"ledger"`
	// Cluster is the UID of the ledger's ConfigMap; empty: never read.
	Cluster string `json:"cluster,omitempty"`
	// Node is this machine's; nil: not read yet.
	Node *addresses.Node `json:"machine,omitempty"`
	// Held are the addresses that the next run restores.
	Held []addresses.Hold `json:"held,omitempty"`
}

// NodeOf converts a Node. It skips unreadable podCIDRs.
func NodeOf(n *corev1.Node) *addresses.Node {
	podCIDRs, _ := kube.PodCIDRs(n)
	return &addresses.Node{
		UID: string(n.UID), ProviderID: n.Spec.ProviderID, Labels: n.Labels,
		InternalIPs: kube.InternalIPs(n), PodCIDRs: podCIDRs,
	}
}

// Load reads the state of an earlier run. The state of another Node, as of a missing file, is
// empty.
func Load(path, node string) (Knowledge, error) {
	var k Knowledge
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return Knowledge{Name: node},
			fmt.Errorf("reading the addresses that this node held, %s: %w", path, err)
	case k.Name != node:
		return Knowledge{Name: node}, nil
	}
	return k, nil
}

// replace writes a file atomically.
func replace(path string, text []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	_, err = temporary.Write(text)
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
