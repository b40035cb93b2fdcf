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

// StateFile is the name of the file in the folder for state that says what the node holds. It lives
// as long as the machine runs: one that was started anew holds nothing before it has asked.
const StateFile = "addresses.json"

// Knowledge is what a node knows of addresses, and what it holds.
type Knowledge struct {
	Ledger addresses.Ledger
	// Cluster is the UID of the ledger's ConfigMap; empty: nothing was read ever.
	Cluster string
	// Node is this machine's, as the informer keeps it; nil: not known.
	Node *corev1.Node
	// Held is what its movers hold.
	Held []addresses.Hold
}

// stored is the file.
type stored struct {
	Name    string           `json:"name"`
	Cluster string           `json:"cluster,omitempty"`
	Ledger  json.RawMessage  `json:"ledger"`
	Held    []addresses.Hold `json:"held,omitempty"`
	Node    *corev1.Node     `json:"node,omitempty"`
}

// Load reads what an earlier run of a Node's agent knew. Where there is nothing of this Node it
// returns the zero Knowledge.
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
		return Knowledge{}, fmt.Errorf("reading what this node held, %s: %w", path, err)
	}
	return k, nil
}

// text is the content of the file.
func (k Knowledge) text(node string) ([]byte, error) {
	ledger, err := k.Ledger.MarshalText()
	if err != nil {
		return nil, err
	}
	return json.Marshal(stored{node, k.Cluster, ledger, k.Held, k.Node})
}

// replace writes a file that is never there in part.
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
