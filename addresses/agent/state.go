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
)

// StateFile is the name of the file in the state directory, which is deleted by a reboot: the node
// then holds no address until it has read the ledger.
const StateFile = "addresses.json"

// Knowledge is the state that an agent passes on to its next run.
type Knowledge struct {
	Ledger addresses.Ledger
	// Cluster is the UID of the ledger's ConfigMap; empty: never read.
	Cluster string
	// Node is this machine's; nil: not read yet.
	Node *corev1.Node
	// Held are the addresses that the next run restores.
	Held []addresses.Hold
}

type stored struct {
	Name    string           `json:"name"`
	Cluster string           `json:"cluster,omitempty"`
	Ledger  json.RawMessage  `json:"ledger"`
	Held    []addresses.Hold `json:"held,omitempty"`
	Node    *corev1.Node     `json:"node,omitempty"`
}

// Load reads the state of an earlier run. It returns the zero Knowledge if the file is missing or
// another Node's.
func Load(path, node string) (Knowledge, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Knowledge{}, nil
	}
	var s stored
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && s.Name != node {
		return Knowledge{}, nil
	}
	k := Knowledge{Cluster: s.Cluster, Node: s.Node, Held: s.Held}
	if err == nil {
		k.Ledger, err = addresses.ParseLedger(s.Ledger)
	}
	if err != nil {
		return Knowledge{}, fmt.Errorf("reading the addresses that this node held, %s: %w", path, err)
	}
	return k, nil
}

func (k Knowledge) text(node string) ([]byte, error) {
	ledger, err := k.Ledger.MarshalText()
	if err != nil {
		return nil, err
	}
	return json.Marshal(stored{node, k.Cluster, ledger, k.Held, k.Node})
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
