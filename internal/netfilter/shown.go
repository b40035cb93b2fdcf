package netfilter

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// found is what a table holds.
type found struct {
	exists bool
	// parts are the lines that nft shows of the table, by the part that they are
	// in, such as "chain leaving"; those of the table itself by "".
	parts map[string][]string
	// sets by their names; an element that we would never have added is the zero one.
	sets map[string][]element
}

// found is what a table that was just made of the rules holds.
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

// How the names of parts begin.
const (
	chainPart = "chain "
	setPart   = "set "
)

// lines are the chain as nft shows it.
func (c chain) lines() []string {
	var head []string
	if c.kind != nil {
		head = []string{fmt.Sprintf("type %s hook %s priority %s; policy %s;", c.kind.kind, c.kind.hook, c.kind.priority, policy)}
	}
	return append(head, c.rules...)
}

// lines are among those in which nft shows the set without its elements.
func (s set) lines() []string { return []string{"type " + s.kind, "flags interval"} }

// shown is a prefix as nft shows it in a rule.
func shown(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// key is the element as it is written, a part for each field.
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

// elementOf reads the fields of an element, which nft shows as prefixes, addresses
// and numbers, or as ranges, of which we add none.
func elementOf(key []string) element {
	var e element
	if len(key)%2 == 1 {
		if e.From = prefix(key[0]); !e.From.IsValid() {
			return element{}
		}
		key = key[1:]
	}
	if len(key) == 2 {
		addr := prefix(key[0]) // nft shows an address of an interval set as either
		port, err := strconv.ParseUint(key[1], 10, 16)
		if !addr.IsSingleIP() || err != nil {
			return element{}
		}
		e.To = netip.AddrPortFrom(addr.Addr(), uint16(port))
	}
	return e
}

// prefix reads a prefix or an address; the zero Prefix is neither.
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

// partsOf reads a table as nft shows it: a part is indented by one tab, and what
// is in it by more. What follows a # is for people, like the table's comment.
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
