package connectivity

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Untried is a node whose trials could not be run.
type Untried struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// Cell is the worst result of a path between two ends in one family.
type Cell struct {
	Path   Path   `json:"path"`
	Family int    `json:"family"`
	From   string `json:"from"`
	// To is empty for a ClusterIP, and contains the address for Outside and LoadBalancer.
	To    string `json:"to,omitempty"`
	State State  `json:"state"`
	Text  string `json:"text"`
}

// Report contains results and their evaluation.
type Report struct {
	Nodes    []string  `json:"nodes"`
	Untried  []Untried `json:"untried,omitempty"`
	Cells    []Cell    `json:"cells"`
	Findings []Finding `json:"findings"`
	Results  []Result  `json:"results"`
}

const (
	AllOpen = iota
	SomethingClosed
	NotTried
)

// Outcome returns SomethingClosed if a path is closed or has a smaller MTU than the pod's
// interface, else NotTried if a trial could not be run. Slow and lossy paths count as open.
func (r Report) Outcome() int {
	switch {
	case slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.State == Closed || c.State == Narrow }):
		return SomethingClosed
	case len(r.Untried) > 0 || len(r.Results) == 0:
		return NotTried
	}
	return AllOpen
}

// NewReport evaluates results, in any order.
func NewReport(nodes []string, untried []Untried, results []Result, slow time.Duration) Report {
	r := Report{
		Nodes: slices.Sorted(slices.Values(nodes)), Untried: slices.Clone(untried),
		Results: slices.Clone(results), Cells: []Cell{},
	}
	slices.SortFunc(r.Untried, func(a, b Untried) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(r.Results, func(a, b Result) int {
		return cmp.Or(
			cmp.Compare(a.Path.rank(), b.Path.rank()), cmp.Compare(a.Family(), b.Family()),
			strings.Compare(a.From, b.From), strings.Compare(a.To, b.To),
			a.At.Compare(b.At), cmp.Compare(a.Kind.rank(), b.Kind.rank()))
	})
	r.Cells = cells(r.Results, slow)
	r.Findings = findings(r.Results, slow)
	return r
}

func (p Path) rank() int {
	return slices.Index([]Path{Pod, Service, NodePort, HealthCheck, Outside, LoadBalancer}, p)
}

func (k Kind) rank() int { return slices.Index([]Kind{TCP, UDP, MTU, HTTP, Dial}, k) }

// end returns the name of the target end.
func (r Result) end() string {
	switch r.Path {
	case Outside:
		return r.At.String()
	case LoadBalancer:
		return r.To + " at " + r.At.String()
	}
	return r.To
}

func cells(results []Result, slow time.Duration) []Cell {
	out := []Cell{}
	for _, r := range results {
		state := r.State(slow)
		c := Cell{Path: r.Path, Family: r.Family(), From: r.From, To: r.end(), State: state, Text: r.words(state)}
		last := len(out) - 1
		same := last >= 0 && out[last].Path == c.Path && out[last].Family == c.Family &&
			out[last].From == c.From && out[last].To == c.To
		switch {
		case !same:
			out = append(out, c)
		case state.rank() > out[last].State.rank():
			out[last] = c
		}
	}
	return out
}
