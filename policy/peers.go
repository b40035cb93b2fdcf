package policy

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// peers are the addresses that a peer of a rule matches, as a set. Those of pods are kept up to
// date with the index while a ruleset refers to them.
type peers struct {
	name      string
	kind      Kind
	Peer             // without a field: all pods
	namespace string // the only one, or ""
	// port makes the elements endpoints: the port of this name and protocol.
	port *Port

	elements [2][]Element
	pending  map[Element]bool // whether the element exists now, since elements was made
}

// peersOf returns the peers of a rule in a policy of the namespace; port is a named one or nil.
func peersOf(namespace string, peer Peer, port *Port) *peers {
	g := &peers{Peer: peer, port: port}
	if g.Pods != nil && g.Namespaces == nil {
		g.namespace = namespace
	}
	except := slices.SortedFunc(slices.Values(g.Except), netip.Prefix.Compare)
	definition := fmt.Sprintf("%s %s %q %s %s", g.Block, except, g.namespace,
		g.Namespaces.canonical(), g.Pods.canonical())
	if g.Block.IsValid() {
		g.kind = Blocks
	}
	if port != nil {
		g.kind = Endpoints
		definition += fmt.Sprintf(" %q %d", port.Name, port.Protocol)
	}
	g.name = digest(definition)
	return g
}

// digest returns a short text for which no other definition can be found. It is part of names in
// the kernel.
func digest(definition string) string {
	sum := sha256.Sum256([]byte(definition))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20]))
}

// selects reports whether the peers include a pod, by its labels, unless they are a block.
func (g *peers) selects(x *Index, p *pod) bool {
	if g.namespace != "" && p.Namespace != g.namespace {
		return false
	}
	if g.Namespaces != nil {
		labels, known := x.namespaces[p.Namespace]
		if !known || !g.Namespaces.Matches(labels) {
			return false
		}
	}
	return g.Pods == nil || g.Pods.Matches(p.Labels)
}

// change notes that the elements of a pod exist or not.
func (g *peers) change(x *Index, p *pod, exist bool) {
	if len(p.held) == 0 || g.kind == Blocks || !g.selects(x, p) {
		return
	}
	for _, a := range p.held {
		switch {
		case g.kind == Addresses:
			g.pending[Element{Prefix: host(a)}] = exist
		case !g.Block.IsValid() || g.Block.Contains(a) && !contains(g.Except, a):
			for _, port := range p.Ports {
				if g.port.names(port) {
					g.pending[Element{host(a), port.Protocol, port.Port}] = exist
				}
			}
		}
	}
}

// fill computes the elements from the whole index.
func (g *peers) fill(x *Index) {
	g.elements, g.pending = [2][]Element{}, map[Element]bool{}
	if g.kind == Blocks {
		f := family(g.Block.Addr())
		for _, p := range subtract(g.Block, g.Except) {
			g.elements[f] = append(g.elements[f], Element{Prefix: p})
		}
		return
	}
	candidates := x.pods
	if g.namespace != "" {
		candidates = x.byNS[g.namespace]
	}
	for _, p := range candidates {
		g.change(x, p, true)
	}
}

// set returns the set with all changes. Elements of an earlier set stay as they were.
func (g *peers) set() Set {
	changes := slices.SortedFunc(maps.Keys(g.pending), Element.Compare)
	for f := range g.elements {
		ofFamily := slices.DeleteFunc(slices.Clone(changes), func(e Element) bool {
			return family(e.Prefix.Addr()) != f
		})
		g.elements[f] = merge(g.elements[f], ofFamily, g.pending)
	}
	clear(g.pending)
	return Set{Name: g.name, Kind: g.kind, Elements: g.elements}
}

// merge returns the elements with the changes applied. Both are in order. Without an effective
// change it returns the same slice.
func merge(elements, changes []Element, exists map[Element]bool) []Element {
	changes = slices.DeleteFunc(changes, func(e Element) bool {
		_, found := slices.BinarySearchFunc(elements, e, Element.Compare)
		return found == exists[e]
	})
	if len(changes) == 0 {
		return elements
	}
	out := make([]Element, 0, len(elements)+len(changes))
	for _, change := range changes {
		at, _ := slices.BinarySearchFunc(elements, change, Element.Compare)
		out, elements = append(out, elements[:at]...), elements[at:]
		if exists[change] {
			out = append(out, change)
		} else {
			elements = elements[1:]
		}
	}
	return append(out, elements...)
}

// subtract returns the prefixes of a block without the exceptions, in order. There is one for
// each bit by which an exception is longer, so that no more are needed than the block has bits.
func subtract(block netip.Prefix, except []netip.Prefix) []netip.Prefix {
	block = block.Masked()
	var within []netip.Prefix
	for _, e := range except {
		if e.Overlaps(block) {
			if e.Bits() <= block.Bits() {
				return nil
			}
			within = append(within, e)
		}
	}
	if len(within) == 0 {
		return []netip.Prefix{block}
	}
	low, high := halves(block)
	return append(subtract(low, within), subtract(high, within)...)
}

func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits()
	low = netip.PrefixFrom(p.Addr(), bits+1)
	raw := p.Addr().AsSlice()
	raw[bits/8] |= 0x80 >> (bits % 8)
	addr, _ := netip.AddrFromSlice(raw)
	return low, netip.PrefixFrom(addr, bits+1)
}
