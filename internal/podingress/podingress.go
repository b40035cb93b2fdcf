// Package podingress is what the controller of load balancers and the agents agree upon: which
// connections from outside of the cluster a node lets through to its pods' own addresses, because
// a load balancer has those pods as targets.
//
// Each Service with such a load balancer has one annotation on each Node where it has pods, so that
// whoever changes what is written for one Service can't undo what is written for another. Only the
// controller writes them. An agent must not open more than its own Node's annotations say, and
// nothing to an address outside of its node's podCIDRs.
package podingress

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// prefix begins the keys of the annotations; a Service's UID follows.
const prefix = "underlay.dev/targets-"

// Annotation is the key of the annotation for the Service with this UID.
func Annotation(uid string) string { return prefix + uid }

// Service is the UID of the Service that an annotation is about, and whether it is one of ours.
func Service(annotation string) (uid string, ok bool) { return strings.CutPrefix(annotation, prefix) }

// Ingress are the connections to be let through: TCP, from each of the sources to each of the
// endpoints.
type Ingress struct {
	// Sources are where a load balancer connects from; a single address is a prefix as well.
	Sources []netip.Prefix `json:"from"`
	// Endpoints are pods' addresses and ports.
	Endpoints []netip.AddrPort `json:"to"`
}

// String is the annotation's value: the same for the same connections, in whatever order.
func (i Ingress) String() string {
	i.Sources = slices.Compact(slices.SortedFunc(slices.Values(i.Sources), netip.Prefix.Compare))
	i.Endpoints = slices.Compact(slices.SortedFunc(slices.Values(i.Endpoints), netip.AddrPort.Compare))
	text, err := json.Marshal(i)
	if err != nil {
		return "" // addresses are texts
	}
	return string(text)
}

// Parse reads an annotation's value.
func Parse(value string) (Ingress, error) {
	var i Ingress
	if err := json.Unmarshal([]byte(value), &i); err != nil {
		return Ingress{}, fmt.Errorf("reading what load balancers may reach: %q: %w", value, err)
	}
	for _, p := range i.Sources {
		if !p.IsValid() || p != p.Masked() {
			return Ingress{}, fmt.Errorf("reading what load balancers may reach: source %q: not the first address of a prefix", p)
		}
	}
	for _, e := range i.Endpoints {
		if !e.IsValid() || e.Port() == 0 {
			return Ingress{}, fmt.Errorf("reading what load balancers may reach: endpoint %q: not an address with a port", e)
		}
	}
	return i, nil
}
