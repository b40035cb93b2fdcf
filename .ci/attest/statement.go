package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// statementFile is the file that writeStatement writes.
const statementFile = "provenance.intoto.json"

// statement is a Statement of in-toto, version 1, with SLSA's provenance, version 1, as predicate
// (https://slsa.dev/spec/v1.0/provenance).
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

// resource is in-toto's ResourceDescriptor.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type provenance struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string            `json:"buildType"`
	ExternalParameters   map[string]string `json:"externalParameters"`
	InternalParameters   map[string]string `json:"internalParameters"`
	ResolvedDependencies []resource        `json:"resolvedDependencies"`
}

type runDetails struct {
	Builder struct {
		ID string `json:"id"`
	} `json:"builder"`
}

// writeStatement covers every file of the folder, and the images.
func (r release) writeStatement(folder string, programs []program) error {
	subjects, err := r.subjects(folder)
	if err != nil {
		return err
	}
	s := statement{
		Type: "https://in-toto.io/Statement/v1", Subject: subjects,
		PredicateType: "https://slsa.dev/provenance/v1",
	}
	s.Predicate.RunDetails.Builder.ID = r.builder
	s.Predicate.BuildDefinition = buildDefinition{
		// The script is the definition of the build, at the commit that was built.
		BuildType:            r.source + "/blob/" + r.commit + "/.ci/release",
		ExternalParameters:   map[string]string{"source": "git+" + r.source, "version": r.version},
		InternalParameters:   map[string]string{"go": programs[0].GoVersion},
		ResolvedDependencies: r.dependencies(programs),
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, statementFile), append(content, '\n'), 0o644)
}

func (r release) subjects(folder string) ([]resource, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var all []resource
	for _, entry := range entries {
		sum, err := sumOf(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, resource{Name: entry.Name(), Digest: map[string]string{"sha256": sum}})
	}
	images, err := r.readImages()
	return append(all, images...), err
}

// readImages reads lines such as "ghcr.io/underlay-ccm/underlay-ccm sha256:…".
func (r release) readImages() ([]resource, error) {
	if r.images == "" {
		return nil, nil
	}
	file, err := os.Open(r.images)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []resource
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, digest, _ := strings.Cut(lines.Text(), " ")
		sum, ok := strings.CutPrefix(digest, "sha256:")
		if !ok || len(sum) != 64 {
			return nil,
				fmt.Errorf("%s: line %q: want a name and a digest such as sha256:…", r.images, lines.Text())
		}
		all = append(all, resource{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	return all, lines.Err()
}

// dependencies returns the commit and all modules of the programs, sorted.
func (r release) dependencies(programs []program) []resource {
	var modules []module
	for _, p := range programs {
		modules = append(modules, p.modules()...)
	}
	slices.SortFunc(modules, func(a, b module) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.version, b.version))
	})
	all := []resource{{URI: "git+" + r.source, Digest: map[string]string{"gitCommit": r.commit}}}
	for _, m := range slices.Compact(modules) {
		d := resource{URI: m.purl()}
		if m.sum != "" {
			d.Digest = map[string]string{"dirHash": m.dirHash()}
		}
		all = append(all, d)
	}
	return all
}
