//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// Below the source tree: what became of the specs, and the page that is made of it.
const (
	record = "test/conformance/kubernetes/results.json"
	page   = "docs/reference/conformance.md"
)

// report is what is recorded: the last complete run on each set-up.
type report []tested

// tested is a set-up with what became of the specs on it.
type tested struct {
	Setup      string
	Kubernetes string
	// Runtime is the container runtime and its version.
	Runtime string
	Results []result
}

// tree is the source tree.
func tree(ctx context.Context) (string, error) {
	deploy, err := cluster.Manifests(ctx)
	return filepath.Dir(deploy), err
}

// recorded reads the record in a source tree. Where there is none it is empty.
func recorded(tree string) (report, error) {
	content, err := os.ReadFile(filepath.Join(tree, record))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r report
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", record, err)
	}
	return r, nil
}

// with is the report with a set-up's part replaced, in the order of the set-ups.
func (r report) with(t tested) report {
	all := append(slices.DeleteFunc(slices.Clone(r), func(old tested) bool {
		return old.Setup == t.Setup
	}), t)
	var ordered report
	for _, s := range setups() {
		for _, one := range all {
			if one.Setup == s.name {
				ordered = append(ordered, one)
			}
		}
	}
	return ordered
}

// settled is the set-up's part without the messages of failures that are explained: they have
// addresses and times in them, and would be others each time.
func (t tested) settled(known []reason) tested {
	t.Results = slices.Clone(t.Results)
	for i, r := range t.Results {
		if _, by := explain(r, t.Setup, known); r.State == failed && by >= 0 {
			t.Results[i].Reason = ""
		}
	}
	return t
}

// write puts the record and the page into a source tree.
func (r report) write(tree string) error {
	content, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(tree, record), append(content, '\n'), 0o644),
		os.WriteFile(filepath.Join(tree, page), []byte(r.markdown(reasons())), 0o644),
	)
}
