package addresses

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
)

// Report is the state of a node's addresses: those that it holds, those that it cannot hold, and
// the unresponsive ports of the nodes that it watches. Equal states have equal encodings.
type Report struct {
	// Unfit is the reason why the node should hold no address at all, such as an unhealthy
	// kube-proxy; empty if there is none.
	Unfit string `json:"unfit,omitempty"`
	// Held are the addresses that the node answers for or announces.
	Held []Hold `json:"held,omitempty"`
	// Segments are the segments on which the node can hold addresses by answering for them; nil
	// if it does not report them.
	Segments []netip.Prefix `json:"segments,omitzero"`
	// Refused are the addresses that the node does not hold although it should or could.
	Refused []Problem `json:"refused,omitempty"`
	// Silent are the ports of watched nodes that do not report that they serve.
	Silent []Endpoint `json:"silent,omitempty"`
	// Routers are the node's BGP peers, with or without a session.
	Routers []Router `json:"routers,omitempty"`
}

// Hold is an address that a node holds at an epoch of the ledger.
type Hold struct {
	Address netip.Addr `json:"address"`
	Epoch   uint64     `json:"epoch,omitempty"`
	// Young is set if the address was acquired seconds ago and no cluster member held it before.
	// The node still releases it to an external host that answers late.
	Young bool `json:"young,omitempty"`
}

// Problem is an address that a node does not hold.
type Problem struct {
	Address netip.Addr    `json:"address"`
	Reason  ProblemReason `json:"reason"`
	// By is the hardware address of the host that answers for the address instead.
	By   string `json:"by,omitempty"`
	Text string `json:"text,omitempty"` // cause and remedy
}

// ProblemReason is the reason why a node does not hold an address. It is also the reason of Events.
type ProblemReason string

const (
	// InUse means that a host outside the cluster answers for the address.
	InUse ProblemReason = "AddressInUse"
	// OffSegment means that no interface of the node is on the address's segment.
	OffSegment ProblemReason = "AddressOffSegment"
	// NoRouter means that the node has no session with a router that should learn the address.
	NoRouter ProblemReason = "NoRouter"
	// Failed means that the node tried and failed.
	Failed ProblemReason = "AddressNotHeld"
)

// Endpoint is a port of a node.
type Endpoint struct {
	Node string `json:"node"`
	Port int    `json:"port"`
}

// Router is the state of a BGP peer as observed by a node.
type Router struct {
	Name        string `json:"name"`
	Established bool   `json:"established"`
	// State is the name of the session's state in RFC 4271, such as Active.
	State string `json:"state,omitempty"`
	// Announced is the number of prefixes announced to the peer.
	Announced int `json:"announced,omitempty"`
}

// ReportAnnotation is the key of the Node annotation that contains the report.
const ReportAnnotation = "underlay.dev/addresses"

// OnSegment reports whether an address is on a segment of the node, or segments are not reported.
func (r Report) OnSegment(a netip.Addr) bool {
	return r.Segments == nil ||
		slices.ContainsFunc(r.Segments, func(p netip.Prefix) bool { return p.Contains(a) })
}

const (
	// texts limits the problems of one reason that include a text.
	texts = 8
	// rows limits the reported addresses. All annotations of a Node share 256 KiB, and each
	// change is sent to all watchers of Nodes.
	rows = 1500
)

// MarshalText encodes the report in sorted order. It truncates long lists of addresses so that
// the text fits into an annotation.
func (r Report) MarshalText() ([]byte, error) {
	type plain Report // without this method
	p := plain(r)
	p.Held = slices.SortedFunc(slices.Values(r.Held), func(a, b Hold) int {
		return a.Address.Compare(b.Address)
	})
	p.Refused = slices.SortedFunc(slices.Values(r.Refused), func(a, b Problem) int {
		return a.Address.Compare(b.Address)
	})
	shown := make(map[ProblemReason]int)
	for i := range p.Refused {
		if shown[p.Refused[i].Reason]++; shown[p.Refused[i].Reason] > texts {
			p.Refused[i].Text = ""
		}
	}
	p.Refused = p.Refused[:min(len(p.Refused), rows)]
	p.Held = p.Held[:min(len(p.Held), rows-len(p.Refused))]
	p.Silent = slices.SortedFunc(slices.Values(r.Silent), Endpoint.compare)
	p.Segments = slices.Clone(r.Segments)
	slices.SortFunc(p.Segments, netip.Prefix.Compare)
	p.Segments = slices.Compact(p.Segments)
	p.Routers = slices.SortedFunc(slices.Values(r.Routers), func(a, b Router) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return json.Marshal(p)
}

// ParseReport decodes a report. An empty text is an empty report.
func ParseReport(text string) (Report, error) {
	var r Report
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Report{}, fmt.Errorf("reading a node's report about addresses: %w", err)
	}
	return r, nil
}

func (e Endpoint) compare(other Endpoint) int {
	return cmp.Or(cmp.Compare(e.Node, other.Node), cmp.Compare(e.Port, other.Port))
}
