//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// spec is one of upstream's.
type spec struct {
	Name   string
	Labels []string
	// Families are those that its Services have; empty: as it asks for them.
	Families string `json:",omitempty"`
}

// title tells the spec from itself with other families.
func (s spec) title() string {
	if s.Families == "" {
		return s.Name
	}
	return s.Name + " (" + s.Families + ")"
}

// What specs are labelled with.
const (
	labelConformance  = "Conformance"
	labelLoadBalancer = "Feature:LoadBalancer"
	labelDualStack    = "Feature:IPv6DualStack"
	labelPolicy       = "Feature:NetworkPolicy"
	labelNetwork      = "sig-network" // every spec has it
	labelSerial       = "Serial"
	labelDisruptive   = "Disruptive"
)

func (s spec) is(label string) bool { return slices.Contains(s.Labels, label) }

// alone reports whether nothing else may run beside the spec.
func (s spec) alone() bool { return s.is(labelSerial) || s.is(labelDisruptive) }

// state is what became of a spec.
type state string

const (
	passed  state = "passed"
	failed  state = "failed"
	skipped state = "skipped"
	// refused is a spec that asks for what underlay-ccm says that it doesn't do.
	refused state = "refused"
)

// result is what became of a spec, and why it isn't more.
type result struct {
	Spec   spec
	State  state
	Reason string `json:",omitempty"`
}

// suiteReport is as much of ginkgo's JSON report as is read here.
// https://pkg.go.dev/github.com/onsi/ginkgo/v2/types#Report
type suiteReport struct{ SpecReports []specReport }

type specReport struct {
	ContainerHierarchyTexts  []string
	ContainerHierarchyLabels [][]string
	LeafNodeType             string
	LeafNodeText             string
	LeafNodeLabels           []string
	State                    string
	Failure                  struct{ Message string }
}

func readReport(path string) (suiteReport, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return suiteReport{}, err
	}
	var suites []suiteReport
	if err := json.Unmarshal(content, &suites); err != nil {
		return suiteReport{}, fmt.Errorf("ginkgo's report %s: %w", path, err)
	}
	if len(suites) != 1 {
		return suiteReport{}, fmt.Errorf("ginkgo's report %s is about %d suites", path, len(suites))
	}
	return suites[0], nil
}

func (r specReport) spec() spec {
	labels := map[string]bool{}
	for _, level := range append(r.ContainerHierarchyLabels, r.LeafNodeLabels) {
		for _, l := range level {
			labels[l] = true
		}
	}
	texts := slices.DeleteFunc(append(slices.Clone(r.ContainerHierarchyTexts), r.LeafNodeText), func(t string) bool { return t == "" })
	return spec{Name: strings.Join(texts, " "), Labels: slices.Sorted(maps.Keys(labels))}
}

// resultOf is what the report of a run of one spec says about it.
func (r suiteReport) resultOf(s spec) result {
	result := result{Spec: s, State: failed, Reason: "upstream's report doesn't have it"}
	for _, report := range r.SpecReports {
		switch {
		case report.LeafNodeType == "It" && report.spec().Name == s.Name:
			return report.result(s)
		case report.LeafNodeType != "It" && report.State != "passed":
			// Before or after all specs.
			result.Reason = report.Failure.Message
		}
	}
	return result
}

func (r specReport) result(s spec) result {
	switch r.State {
	case "passed":
		return result{Spec: s, State: passed}
	case "skipped", "pending":
		return result{Spec: s, State: skipped, Reason: r.Failure.Message}
	}
	return result{Spec: s, State: failed, Reason: r.State + ": " + r.Failure.Message}
}

// imageNames are the full names of the images that specs know.
func imageNames(ctx context.Context, program string) ([]string, error) {
	out, err := exec.CommandContext(ctx, program, "--list-images").Output()
	if err != nil {
		return nil, fmt.Errorf("ask upstream's specs for their images: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// list returns the specs with these labels, without running them, sorted by their names.
func (r *runner) list(ctx context.Context, filter string) ([]spec, error) {
	file := filepath.Join(r.dir, "list.json")
	cmd := exec.CommandContext(ctx, r.program, "--ginkgo.dry-run", "--ginkgo.silence-skips", "--ginkgo.label-filter="+filter, "--ginkgo.json-report="+file,
		"--provider=skeleton", "--kubeconfig="+r.kubeconfig)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("list specs: %w\n%s", err, tail(string(out), 20))
	}
	report, err := readReport(file)
	if err != nil {
		return nil, err
	}
	var specs []spec
	for _, s := range report.SpecReports {
		if s.LeafNodeType == "It" && s.State == "passed" && r.focus.MatchString(s.spec().Name) {
			specs = append(specs, s.spec())
		}
	}
	if len(specs) == 0 {
		return nil, fmt.Errorf("no spec has the labels %q and a name that matches %q", filter, r.focus)
	}
	slices.SortFunc(specs, func(a, b spec) int { return strings.Compare(a.Name, b.Name) })
	return specs, nil
}

// exactly is the focus that chooses one spec: ginkgo looks for it in the suite's and the spec's
// names.
func exactly(s spec) string { return regexp.QuoteMeta(s.Name) + "$" }

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
