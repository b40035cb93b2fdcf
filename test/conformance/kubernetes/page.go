//go:build linux

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// group is a kind of specs, which the page has together.
type group struct{ title, label, families string }

func groups() []group {
	return []group{
		{title: "Conformance", label: labelConformance},
		{title: "Load balancers", label: labelLoadBalancer},
		{title: "Load balancers with IPv6", label: labelLoadBalancer, families: familyIPv6},
		{title: "Load balancers with both families", label: labelLoadBalancer, families: familiesDualStack},
		{title: "Dual-stack", label: labelDualStack},
		{title: "NetworkPolicy", label: labelPolicy},
		{title: "Others", label: labelNetwork},
	}
}

// of are the results of a group: a spec is in the first that it fits.
func (t tested) of(g group) []result {
	return slices.DeleteFunc(slices.Clone(t.Results), func(r result) bool {
		for _, other := range groups() {
			if r.Spec.is(other.label) && r.Spec.Families == other.families {
				return other != g
			}
		}
		return true
	})
}

func count(results []result, s state) (n int) {
	for _, r := range results {
		if r.State == s {
			n++
		}
	}
	return n
}

func states() []state { return []state{passed, refused, failed, skipped} }

func (t tested) counts() string {
	var output []string
	for _, s := range states() {
		output = append(output, fmt.Sprintf("%d %s", count(t.Results, s), s))
	}
	return strings.Join(output, ", ")
}

// problems are what somebody has to look at in a set-up's results: failures without a reason,
// conformance that isn't complete and, if every spec ran, reasons that explain nothing.
func (t tested) problems(known []reason, everything bool) (problems []string) {
	used := make([]bool, len(known))
	for _, result := range t.Results {
		_, by := explain(result, t.Setup, known)
		switch {
		case result.State == failed && by >= 0:
			used[by] = true
		case result.State == failed, result.State != passed && result.Spec.is(labelConformance):
			problems = append(problems, fmt.Sprintf("%s: %s: %s: %s", t.Setup, result.State, result.Spec.title(), result.Reason))
		}
	}
	for i, k := range known {
		if everything && k.setup == t.Setup && !used[i] && !k.byChance {
			problems = append(problems, fmt.Sprintf("%s: reasons.go: nothing fails that matches %q", t.Setup, k.spec))
		}
	}
	return problems
}

const heading = `<!-- Written by "make conformance". Do not edit. -->

# Conformance

The results of Kubernetes' own end-to-end specs on clusters with Underlay. %[1]s runs the specs of the network (%[2]s) that every cluster must pass (%[3]s), those of three features of cloud providers and networks: load balancers, dual-stack and NetworkPolicy; and on machines without a cloud those without a feature.

kubeadm installs the clusters with the files of [deploy/kubeadm](../../deploy/kubeadm), on machines in namespaces of one Linux host: real control plane, kubelet, containerd, kube-proxy with nftables, CoreDNS and packets; the cloud is [simulated](../how-to/hcloud-sim.md). Each has a control-plane node and two workers. The specs run on a host outside the cluster.

Images are built on that host from upstream's sources and Debian's packages: agnhost (with dash, curl, dig and OpenBSD's netcat from Debian instead of Alpine), glibc-dns-testing, busybox and distroless-iptables (with the same programs of Debian), regression-issue-74839, and in place of nginx, to which no spec sends requests, a program that waits. No node has ssh, which none of these specs requires.

- *refused*: underlay-ccm rejects the spec's Service, because a load balancer of the Hetzner Cloud does not support it. The reason is the Service's message; the spec is stopped then, because it would time out or pass by chance.
- *skipped*: the spec doesn't apply here, or the host lacks a requirement.

`

func (r report) markdown(known []reason) string {
	var out strings.Builder
	fmt.Fprintf(&out, heading, "`make conformance`", "`sig-network`", "`[Conformance]`")
	out.WriteString("| set-up | specs |")
	for _, s := range states() {
		fmt.Fprintf(&out, " %s |", s)
	}
	out.WriteString("\n|---|---|" + strings.Repeat("---|", len(states())) + "\n")
	for _, t := range r {
		for _, g := range groups() {
			if results := t.of(g); len(results) > 0 {
				fmt.Fprintf(&out, "| [%s](../../deploy/kubeadm/%s) | %s |", t.Setup, t.setup().example, g.title)
				for _, s := range states() {
					fmt.Fprintf(&out, " %d |", count(results, s))
				}
				out.WriteString("\n")
			}
		}
	}
	for _, t := range r {
		t.write(&out, known)
	}
	return out.String()
}

// setup is that on which the specs ran.
func (t tested) setup() setup {
	for _, s := range setups() {
		if s.name == t.Setup {
			return s
		}
	}
	return setup{example: t.Setup, what: t.Setup}
}

// write tells about each spec, and why it didn't pass.
func (t tested) write(out *strings.Builder, known []reason) {
	runtime, _, _ := strings.Cut(t.Runtime, "+") // behind it is the commit, or that it is unknown
	fmt.Fprintf(out, "\n## %s\n\n%s. Kubernetes %s, %s.\n", t.Setup, t.setup().what, t.Kubernetes, runtime)
	for _, g := range groups() {
		results := t.of(g)
		if len(results) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n### %s: %s\n\n| spec | result |\n|---|---|\n", g.title, t.Setup)
		for _, r := range results {
			fmt.Fprintf(out, "| %s | %s |\n", cell(strings.TrimPrefix(r.Spec.Name, "[sig-network] ")), t.reported(r, known))
		}
	}
}

func (t tested) reported(r result, known []reason) string {
	switch r.State {
	case passed:
		return "passed"
	case failed:
		if why, by := explain(r, t.Setup, known); by >= 0 {
			return "failed: " + why
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(r.Reason), "\n")
	return fmt.Sprintf("%s: %s", r.State, cell(first))
}

// special are characters that Markdown would read as its own.
var special = regexp.MustCompile("[|<>*_`\\[\\]\\\\]")

func cell(text string) string { return special.ReplaceAllString(text, `\$0`) }
