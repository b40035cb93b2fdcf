package netfilter

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// found is the current content of a table.
type found struct {
	// parts maps parts, such as "chain leaving", to their lines in nft's listing; "" is the table.
	// It is nil without a table.
	parts map[string][]string
	// sets maps names to elements; one that can't be deleted by its key is "".
	sets map[string][]string
}

// found returns the content of a table that was just created from the rules.
func (r ruleset) found() found {
	if len(r.chains) == 0 {
		return found{}
	}
	out := found{parts: map[string][]string{}, sets: map[string][]string{}}
	for _, c := range r.chains {
		out.parts[chainPart+c.Name] = c.lines()
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
	if c.Type != nil {
		head = []string{
			fmt.Sprintf("type %s hook %s priority %s; policy %s;", *c.Type, *c.Hook, *c.Priority, *c.Policy),
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

// elementOf returns an element with these fields as it would be added: nft lists an address of an
// interval set in either form. A range, which we never add, has the field "".
func elementOf(key []string) string {
	fields := slices.Clone(key)
	for i, field := range fields {
		if field == "" {
			return ""
		}
		if p, err := netip.ParsePrefix(field); err == nil {
			fields[i] = shown(p)
		} else if a, err := netip.ParseAddr(field); err == nil {
			fields[i] = a.String()
		}
	}
	return strings.Join(fields, " . ")
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
