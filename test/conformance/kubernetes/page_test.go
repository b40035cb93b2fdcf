//go:build linux

package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
)

// TestResults reads a report as ginkgo writes it.
func TestResults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	const content = `[{"SuiteDescription": "Kubernetes e2e suite", "SpecReports": [
{"LeafNodeType": "SynchronizedBeforeSuite", "State": "%s", "Failure": {"Message": "no Node is ready"}},
{"ContainerHierarchyTexts": ["[sig-network]", ""], "ContainerHierarchyLabels": [["sig-network"], ["Serial"]], "LeafNodeType": "It", "LeafNodeText": "one", "LeafNodeLabels": ["Conformance"], "State": "passed"},
{"ContainerHierarchyTexts": ["[sig-network]"], "ContainerHierarchyLabels": [null], "LeafNodeType": "It", "LeafNodeText": "two", "LeafNodeLabels": null, "State": "skipped", "Failure": {"Message": "no ssh"}},
{"ContainerHierarchyTexts": ["[sig-network]"], "LeafNodeType": "It", "LeafNodeText": "three", "State": "timedout", "Failure": {"Message": "too long"}}]}]`
	read := func(before string) suiteReport {
		t.Helper()
		if err := os.WriteFile(path, []byte(strings.Replace(content, "%s", before, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		report, err := readReport(path)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	report := read("passed")
	one := report.SpecReports[1].spec()
	if want := (spec{Name: "[sig-network] one", Labels: []string{"Conformance", "Serial", "sig-network"}}); cmp.Diff(want, one) != "" || !one.alone() {
		t.Errorf("the first spec is %+v, alone %t", one, one.alone())
	}
	for name, want := range map[string]result{
		"[sig-network] one":   {State: passed},
		"[sig-network] two":   {State: skipped, Reason: "no ssh"},
		"[sig-network] three": {State: failed, Reason: "timedout: too long"},
		"[sig-network] four":  {State: failed, Reason: "upstream's report doesn't have it"},
	} {
		want.Spec.Name = name
		if diff := cmp.Diff(want, report.resultOf(spec{Name: name})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	four := spec{Name: "[sig-network] four"}
	if got := read("failed").resultOf(four); got.State != failed || got.Reason != "no Node is ready" {
		t.Errorf("where the suite's set-up has failed: %+v", got)
	}
	focus := regexp.MustCompile(exactly(spec{Name: "[sig-network] a (b)"}))
	if !focus.MatchString("Kubernetes e2e suite [sig-network] a (b)") || focus.MatchString("Kubernetes e2e suite [sig-network] a (b) c") {
		t.Errorf("%q doesn't choose exactly one spec", focus)
	}
}

func TestRefusal(t *testing.T) {
	const output = `spec.ranges="10.0.0.1/32,10.0.0.2/32": no filter; spec.ports="80/UDP": TCP only`
	if got, want := withoutValues(output), "spec.ranges: no filter; spec.ports: TCP only"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProblems: a failure needs a reason, a reason a failure, and conformance can't be explained
// away by skipping.
func TestProblems(t *testing.T) {
	conformant := spec{Name: "c", Labels: []string{labelConformance}}
	slow := result{Spec: spec{Name: "slow"}, State: failed}
	known := []reason{
		{spec: regexp.MustCompile("^slow$"), setup: metal, why: "of its size"},
		{spec: regexp.MustCompile("^other$"), setup: cloud},
		{spec: regexp.MustCompile("^lucky$"), setup: metal, byChance: true},
	}
	for what, c := range map[string]struct {
		results []result
		want    []string
	}{
		"all is well":            {[]result{{Spec: conformant, State: passed}, slow, {State: skipped}, {State: refused}}, nil},
		"an unexplained one":     {[]result{{Spec: spec{Name: "x"}, State: failed}, slow}, []string{"x"}},
		"a reason for nothing":   {[]result{{Spec: slow.Spec, State: passed}}, []string{"nothing fails that matches"}},
		"conformance incomplete": {[]result{{Spec: conformant, State: skipped}, slow}, []string{"skipped: c"}},
	} {
		tested := tested{Setup: metal, Results: c.results}
		got := tested.problems(known, true)
		if len(got) != len(c.want) || len(got) > 0 && !strings.Contains(got[0], c.want[0]) {
			t.Errorf("%s: problems %q, want %q", what, got, c.want)
		}
		if part := tested.problems(known, false); what == "a reason for nothing" && len(part) > 0 {
			t.Errorf("where not everything ran: problems %q", part)
		}
	}
}

func TestPage(t *testing.T) {
	old := tested{Setup: metal, Kubernetes: "v1.2.2"}
	got := report{old}.with(tested{Setup: cloud, Kubernetes: "v1.2.3", Runtime: "containerd 4.5.6"}).with(tested{
		Setup: metal, Kubernetes: "v1.2.3", Runtime: "containerd 4.5.6",
		Results: []result{
			{Spec: spec{Name: "[sig-network] b [Conformance]", Labels: []string{labelConformance, labelDualStack}}, State: passed},
			{Spec: spec{Name: "[sig-network] d", Labels: []string{labelDualStack}}, State: skipped, Reason: "no <b>\nmore"},
		},
	}).with(tested{
		Setup:   addresses,
		Results: []result{{Spec: spec{Name: "[sig-network] e", Labels: []string{labelLoadBalancer, labelNetwork}, Families: familyIPv6}, State: passed}},
	}).markdown(nil)
	for _, want := range []string{
		"\n## cloud-dual-stack\n\nThree servers", "\n## metal-dual-stack\n\nThree machines", "Kubernetes v1.2.3, containerd 4.5.6.\n",
		"| [metal-dual-stack](../../deploy/kubeadm/metal-dual-stack) | Conformance | 1 | 0 | 0 | 0 |\n",
		"| [metal-dual-stack](../../deploy/kubeadm/metal-dual-stack) | Dual-stack | 0 | 0 | 0 | 1 |\n",
		"| [metal-addresses](../../deploy/kubeadm/metal-dual-stack) | Load balancers with IPv6 | 1 | 0 | 0 | 0 |\n",
		"| b \\[Conformance\\] | passed |\n", "| d | skipped: no \\<b\\> |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, old.Kubernetes) {
		t.Errorf("the page has what was recorded before:\n%s", got)
	}
}

var update = flag.Bool("update", false, "write the page anew from what is recorded instead of comparing it")

// TestDocument: the page says what is recorded, of the version that the tests build, and nothing of
// it is without a reason.
func TestDocument(t *testing.T) {
	const tree = "../../.."
	r, err := recorded(tree)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		for i, t := range r {
			r[i] = t.settled(reasons())
		}
		if err := r.write(tree); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(filepath.Join(tree, page))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.markdown(reasons()), string(content)); diff != "" {
		t.Errorf("%s isn't what is recorded; run \"make generate\": %s", page, diff)
	}
	version, err := kubebinary.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tested := range r {
		if tested.Kubernetes != version {
			t.Errorf("the specs of %s are recorded on %s, run \"make conformance\"", version, tested.Kubernetes)
		}
		if diff := cmp.Diff(tested.settled(reasons()), tested); diff != "" {
			t.Errorf("a failure that is explained is recorded with its message; run \"make generate\": %s", diff)
		}
		for _, p := range tested.problems(reasons(), true) {
			t.Error(p)
		}
	}
	if len(r) != len(setups()) {
		t.Errorf("%d set-ups are recorded, of %d", len(r), len(setups()))
	}
}
