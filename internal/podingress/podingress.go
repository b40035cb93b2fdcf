// Package podingress defines the protocol between the load balancer controller and the agents:
// which connections from outside of the cluster a node accepts to its pods' own addresses,
// because a load balancer has those pods as targets.
//
// Each Service with such a load balancer has its own annotation on each Node with its pods, so
// that updates for different Services don't conflict. Only the controller writes them. An agent
// must not accept more than its own Node's annotations allow, and nothing to addresses outside
// of its node's podCIDRs.
package podingress

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// prefix is the prefix of annotation keys; a Service's UID follows.
const prefix = "underlay.dev/targets-"

// Annotation returns the annotation key of the Service with this UID.
func Annotation(uid string) string { return prefix + uid }

// Service returns the UID in an annotation key, and reports whether it is such a key.
func Service(annotation string) (uid string, ok bool) {
	return strings.CutPrefix(annotation, prefix)
}

// Ingress is a set of accepted TCP connections, from any source to any endpoint.
type Ingress struct {
	// Sources are the addresses that a load balancer connects from, as prefixes.
	Sources []netip.Prefix `json:"from"`
	// Endpoints are addresses and ports of pods.
	Endpoints []netip.AddrPort `json:"to"`
}

// String returns the annotation's value, independent of the order of sources and endpoints.
func (i Ingress) String() string {
	i.Sources = slices.Compact(slices.SortedFunc(slices.Values(i.Sources), netip.Prefix.Compare))
	i.Endpoints = slices.Compact(slices.SortedFunc(slices.Values(i.Endpoints), netip.AddrPort.Compare))
	text, _ := json.Marshal(i) // can't fail: all fields are texts
	return string(text)
}

// Parse parses an annotation's value.
func Parse(value string) (Ingress, error) {
	var i Ingress
	if err := json.Unmarshal([]byte(value), &i); err != nil {
		return Ingress{}, fmt.Errorf("reading the destinations of load balancers: %q: %w", value, err)
	}
	for _, p := range i.Sources {
		if !p.IsValid() || p != p.Masked() {
			return Ingress{}, fmt.Errorf("reading the destinations of load balancers: source %q: not the first address of a prefix", p)
		}
	}
	for _, e := range i.Endpoints {
		if !e.IsValid() || e.Port() == 0 {
			return Ingress{}, fmt.Errorf("reading the destinations of load balancers: endpoint %q: not an address with a port", e)
		}
	}
	return i, nil
}
