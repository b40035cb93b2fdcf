package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/underlay-ccm/underlay/addresses"
)

// StateFile is the name of the file in the folder for state that has the last ledger. It lives as
// long as the machine runs: one that was started anew holds nothing before it has asked.
const StateFile = "addresses.json"

// state is what the file has.
type state struct {
	Node   string          `json:"node"`
	Ledger json.RawMessage `json:"ledger"`
}

// Load reads the ledger that an earlier run of a Node's agent knew. It returns false if there is
// none.
func Load(path, node string) (addresses.Ledger, bool, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return addresses.Ledger{}, false, nil
	}
	var stored state
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if err == nil && stored.Node != node {
		return addresses.Ledger{}, false, nil
	}
	var ledger addresses.Ledger
	if err == nil {
		ledger, err = addresses.ParseLedger(stored.Ledger)
	}
	if err != nil {
		return addresses.Ledger{}, false, fmt.Errorf("reading what this node held, %s: %w", path, err)
	}
	return ledger, true, nil
}

// Save writes the ledger for the next run. The file is never there in part.
func Save(path, node string, ledger addresses.Ledger) error {
	text, err := ledger.MarshalText()
	if err == nil {
		text, err = json.Marshal(state{node, text})
	}
	if err == nil {
		err = replace(path, text)
	}
	if err != nil {
		return fmt.Errorf("writing what this node holds, %s: %w", path, err)
	}
	return nil
}

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
