package netfilter

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// found is the current content of a table.
type found struct {
	exists bool
	// parts maps parts, such as "chain leaving", to their lines in nft's listing; "" is the table.
	parts map[string][]string
	// sets maps names to elements; an element in a form that we never add is the zero element.
	sets map[string][]element
}

// found returns the content of a table that was just created from the rules.
func (r ruleset) found() found {
	out := found{exists: len(r.chains) > 0, parts: map[string][]string{}, sets: map[string][]element{}}
	for _, c := range r.chains {
		out.parts[chainPart+c.name] = c.lines()
	}
	for _, s := range r.sets {
		out.parts[setPart+s.name], out.sets[s.name] = s.lines(), s.elements
	}
	return out
}

const (
	chainPart = "chain "
	setPart   = "set "
)

// lines returns the chain as nft lists it.
func (c chain) lines() []string {
	var head []string
	if c.kind != nil {
		head = []string{
			fmt.Sprintf("type %s hook %s priority %s; policy %s;", c.kind.kind, c.kind.hook, c.kind.priority,
				chainPolicy),
		}
	}
	return append(head, c.rules...)
}

// lines returns a subset of the lines in nft's listing of the set without elements.
func (s set) lines() []string { return []string{"type " + s.kind, "flags interval"} }

// shown returns a prefix as nft lists it in a rule.
func shown(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// key returns the element's fields as nft takes them.
func (e element) key() []string {
	var fields []string
	if e.From.IsValid() {
		fields = append(fields, e.From.String())
	}
	if e.To.IsValid() {
		fields = append(fields, e.To.Addr().String(), strconv.Itoa(int(e.To.Port())))
	}
	return fields
}

// elementOf parses the fields of an element, which nft lists as prefixes, addresses and numbers,
// or as ranges, which we never add.
func elementOf(key []string) element {
	var e element
	if len(key)%2 == 1 {
		if e.From = prefix(key[0]); !e.From.IsValid() {
			return element{}
		}
		key = key[1:]
	}
	if len(key) == 2 {
		addr := prefix(key[0]) // nft lists an address of an interval set in either form
		port, err := strconv.ParseUint(key[1], 10, 16)
		if !addr.IsSingleIP() || err != nil {
			return element{}
		}
		e.To = netip.AddrPortFrom(addr.Addr(), uint16(port))
	}
	return e
}

// prefix parses a prefix or an address, or returns the zero Prefix.
func prefix(text string) netip.Prefix {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, addr.BitLen())
}

// partsOf parses nft's listing of a table: parts are indented by one tab, and their content by
// more. Text behind a # and the table's comment are ignored.
func partsOf(text string) map[string][]string {
	parts, part := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimRight(line, " \t\n")
		name, opens := strings.CutSuffix(line, " {")
		depth := len(line) - len(strings.TrimLeft(line, "\t"))
		switch {
		case line == "" || depth == 0:
		case depth == 1 && opens:
			part = strings.TrimSpace(name)
			parts[part] = nil
		case line == "\t}":
			part = ""
		case part != "" || !strings.HasPrefix(line, "\tcomment "):
			parts[part] = append(parts[part], strings.TrimSpace(line))
		}
	}
	return parts
}
