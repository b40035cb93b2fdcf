package connectivity

import (
	"cmp"
	"slices"
	"strings"
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
	// To is empty for a ClusterIP, and the address for Outside.
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
}

const (
	AllOpen = iota
	SomethingClosed
	NotTried
)

// Outcome returns SomethingClosed if a path is closed or has a smaller MTU than the pod's
// interface, else NotTried if a trial could not be run.
func (r Report) Outcome() int {
	switch {
	case slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.State != Open }):
		return SomethingClosed
	case len(r.Untried) > 0 || len(r.Cells) == 0:
		return NotTried
	}
	return AllOpen
}

// NewReport evaluates results, in any order.
func NewReport(nodes []string, untried []Untried, results []Result) Report {
	untried, results = slices.Clone(untried), slices.Clone(results)
	slices.SortFunc(untried, func(a, b Untried) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Reason, b.Reason))
	})
	paths, kinds := []Path{Pod, Service, NodePort, HealthCheck, Outside}, []Kind{
		TCP, UDP, MTU, HTTP, Dial,
	}
	slices.SortFunc(results, func(a, b Result) int {
		return cmp.Or(
			cmp.Compare(slices.Index(paths, a.Path), slices.Index(paths, b.Path)),
			cmp.Compare(a.Family(), b.Family()),
			strings.Compare(a.From, b.From), strings.Compare(a.To, b.To), a.At.Compare(b.At),
			cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)))
	})
	return Report{
		Nodes: slices.Sorted(slices.Values(nodes)), Untried: untried,
		Cells: cells(results), Findings: findings(results),
	}
}

// end returns the name of the target end.
func (r Result) end() string {
	if r.Path == Outside {
		return r.At.String()
	}
	return r.To
}

func cells(results []Result) []Cell {
	states := []State{Open, Narrow, Closed} // the best first
	out := []Cell{}
	for _, r := range results {
		c := Cell{
			Path: r.Path, Family: r.Family(), From: r.From, To: r.end(), State: r.State(), Text: r.words(),
		}
		last := len(out) - 1
		same := last >= 0 && out[last].Path == c.Path && out[last].Family == c.Family &&
			out[last].From == c.From && out[last].To == c.To
		switch {
		case !same:
			out = append(out, c)
		case slices.Index(states, c.State) > slices.Index(states, out[last].State):
			out[last] = c
		}
	}
	return out
}
