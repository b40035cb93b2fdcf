package ipam

import (
	"net/netip"
	"slices"
	"strings"
)

func pfx(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, pfx(text))
	}
	return out
}

// recordOf returns the whole record of a UID, of all shards.
func recordOf(l *Ledger, uid string) string {
	h, ok := l.Lookup(uid)
	if !ok {
		return ""
	}
	return h.Record()
}

// recordsOf returns the whole records of a name.
func recordsOf(l *Ledger, name string) string {
	var lines []string
	for _, h := range l.Holdings() {
		if h.Node.Name == name {
			lines = append(lines, h.Record())
		}
	}
	return strings.Join(lines, "\n")
}

// roomFor returns the error of Assign for a new Node with this offer, and reserves nothing.
func roomFor(l *Ledger, offer Offer) error {
	_, err := l.plan(nil, Node{}, offer)
	return err
}

// foreign reports whether a holding has a prefix of no pool.
func foreign(h Holding) bool {
	return slices.ContainsFunc(h.Prefixes, func(p netip.Prefix) bool { return h.Pools[p] == "" })
}
