package addresses

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
)

// Report is what a node says about addresses: what it holds, what it cannot hold, and which of the
// nodes that it watches do not answer. The same state is the same text.
type Report struct {
	// Unfit says why the node should hold nothing at all, such as a kube-proxy that is not healthy;
	// empty: nothing speaks against it.
	Unfit string `json:"unfit,omitempty"`
	// Held are the addresses that it answers for, or announces.
	Held []Hold `json:"held,omitempty"`
	// Segments are those that the node can hold addresses on, where it answers for them; nil: it does
	// not say.
	Segments []netip.Prefix `json:"segments,omitzero"`
	// Refused are the addresses that it should hold, or could, and does not.
	Refused []Problem `json:"refused,omitempty"`
	// Silent are the ports of watched nodes that do not say that they serve.
	Silent []Endpoint `json:"silent,omitempty"`
	// Routers are the BGP peers that it speaks with, or should.
	Routers []Router `json:"routers,omitempty"`
}

// Hold is an address that a node holds by an epoch of the ledger.
type Hold struct {
	Address netip.Addr `json:"address"`
	Epoch   uint64     `json:"epoch,omitempty"`
	// Young: it was taken a moment ago, nobody of the cluster had it before, and it is given back to a
	// stranger that answers late.
	Young bool `json:"young,omitempty"`
}

// Problem is an address that a node does not hold.
type Problem struct {
	Address netip.Addr    `json:"address"`
	Reason  ProblemReason `json:"reason"`
	// By is who answers for the address instead: a hardware address.
	By   string `json:"by,omitempty"`
	Text string `json:"text,omitempty"` // what is wrong, and the remedy
}

// ProblemReason says why a node does not hold an address. Reasons are reasons of Events too.
type ProblemReason string

// The reasons.
const (
	// InUse: a machine that is none of the cluster's answers for it.
	InUse ProblemReason = "AddressInUse"
	// OffSegment: no interface of the node is on a segment with the address.
	OffSegment ProblemReason = "AddressOffSegment"
	// NoRouter: no router that should hear of it speaks with the node.
	NoRouter ProblemReason = "NoRouter"
	// Failed: the node tried and could not.
	Failed ProblemReason = "AddressNotHeld"
)

// Endpoint is a port of a node.
type Endpoint struct {
	Node string `json:"node"`
	Port int    `json:"port"`
}

// Router is a BGP peer as a node sees it.
type Router struct {
	Name string `json:"name"`
	// Established: they speak with each other.
	Established bool `json:"established"`
	// State is the session's as RFC 4271 names it, such as Active.
	State string `json:"state,omitempty"`
	// Announced counts the prefixes that it was told.
	Announced int `json:"announced,omitempty"`
}

// ReportAnnotation is the key of the Node's annotation that holds its report.
const ReportAnnotation = "underlay.dev/addresses"

// OnSegment reports whether an address is on one of the node's segments, as far as it says.
func (r Report) OnSegment(a netip.Addr) bool {
	return r.Segments == nil || slices.ContainsFunc(r.Segments, func(p netip.Prefix) bool { return p.Contains(a) })
}

const (
	// texts is how many problems of one reason say all that there is to say of them.
	texts = 8
	// rows bounds what is said of addresses. Annotations of a Node have 256 KiB together, and each
	// change of one goes to all who watch Nodes.
	rows = 1500
)

// MarshalText is the report's text, sorted. It is never too long for an annotation: of very many
// addresses it has not all.
func (r Report) MarshalText() ([]byte, error) {
	type plain Report // without this method
	p := plain(r)
	p.Held = slices.SortedFunc(slices.Values(r.Held), func(a, b Hold) int { return a.Address.Compare(b.Address) })
	p.Refused = slices.SortedFunc(slices.Values(r.Refused), func(a, b Problem) int { return a.Address.Compare(b.Address) })
	told := make(map[ProblemReason]int)
	for i := range p.Refused {
		if told[p.Refused[i].Reason]++; told[p.Refused[i].Reason] > texts {
			p.Refused[i].Text = ""
		}
	}
	p.Refused = p.Refused[:min(len(p.Refused), rows)]
	p.Held = p.Held[:min(len(p.Held), rows-len(p.Refused))]
	p.Silent = slices.SortedFunc(slices.Values(r.Silent), Endpoint.compare)
	p.Segments = slices.Clone(r.Segments)
	slices.SortFunc(p.Segments, netip.Prefix.Compare)
	p.Segments = slices.Compact(p.Segments)
	p.Routers = slices.SortedFunc(slices.Values(r.Routers), func(a, b Router) int { return cmp.Compare(a.Name, b.Name) })
	return json.Marshal(p)
}

// ParseReport reads a report. An empty text is an empty report.
func ParseReport(text string) (Report, error) {
	var r Report
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Report{}, fmt.Errorf("reading what a node says about addresses: %w", err)
	}
	return r, nil
}

func (e Endpoint) compare(other Endpoint) int {
	return cmp.Or(cmp.Compare(e.Node, other.Node), cmp.Compare(e.Port, other.Port))
}
