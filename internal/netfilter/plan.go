package netfilter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"
)

// plan is the change from the current to the desired table.
type plan struct {
	// rebuild, if not empty, is the reason to recreate the whole table. Packets pass unfiltered
	// while its chains are unhooked, so it is only for tables that don't work.
	rebuild string
	remove  bool
	// rules, if not empty, is the reason to replace the rules within their chains. The surplus
	// chains and sets are deleted together with the old rules.
	rules        string
	chains, sets []string
	edits        []edit
}

// edit changes the elements of a set, which is created if missing.
type edit struct {
	set set
	// flush removes all elements, because one of them can't be deleted by its key.
	flush       bool
	gone, added []string
}

func (p plan) lines() []string {
	switch {
	case p.remove:
		return []string{"nftables table " + tableName + " is removed"}
	case p.rebuild != "":
		return []string{"nftables table " + tableName + " is made anew: " + p.rebuild}
	case p.rules != "":
		return []string{"nftables table " + tableName + " has its rules replaced: " + p.rules}
	}
	var out []string
	for _, e := range p.edits {
		what := "prefixes"
		switch {
		case e.set.kind == openings6:
			what = "openings"
		case strings.HasSuffix(e.set.kind, portType):
			what = "ports"
		}
		out = append(out, fmt.Sprintf("nftables set %s of table %s: %d %s added, %d removed", e.set.name,
			tableName, len(e.added), what, len(e.gone)))
	}
	return out
}

func diff(want ruleset, have found) plan {
	switch {
	case len(want.chains) == 0:
		return plan{remove: have.parts != nil}
	case have.parts == nil:
		return plan{rebuild: "it was missing"}
	}
	if problem := compareFrame(want, have); problem != "" {
		return plan{rebuild: problem}
	}
	p := plan{rules: compareChains(want, have)}
	should := want.found().parts
	for _, part := range slices.Sorted(maps.Keys(have.parts)) {
		if _, wanted := should[part]; wanted {
			continue
		}
		if name, ok := strings.CutPrefix(part, chainPart); ok {
			p.chains = append(p.chains, name)
			p.rules = cmp.Or(p.rules, fmt.Sprintf("its chain %s should not be there", name))
		}
		if name, ok := strings.CutPrefix(part, setPart); ok {
			p.sets = append(p.sets, name)
		}
	}
	for _, s := range want.sets {
		is, exists := have.sets[s.name]
		slices.Sort(is)
		e := edit{set: s, flush: slices.Contains(is, "")}
		if e.gone, e.added = is, s.elements; !e.flush {
			e.gone, e.added = compareSorted(is, s.elements, strings.Compare)
		}
		if !exists || len(e.gone)+len(e.added) > 0 {
			p.edits = append(p.edits, e)
		}
	}
	return p
}

// compareFrame returns why the table can't be amended, or "". The chains of a dormant table are
// unhooked, and the type of a set can't be changed.
func compareFrame(want ruleset, have found) string {
	if flags := have.parts[""]; len(flags) > 0 {
		return "it had " + strings.Join(flags, ", ")
	}
	for _, s := range want.sets {
		is, exists := have.parts[setPart+s.name]
		for _, line := range s.lines() {
			if exists && !slices.Contains(is, line) {
				return fmt.Sprintf("its set %s was another: %s", s.name, strings.Join(is, ", "))
			}
		}
	}
	return ""
}

// stands reports whether a table filters: it is not dormant, and all chains exist and have
// rules. The rules themselves are not compared, since they may be an earlier version's.
func stands(want ruleset, have found) bool {
	empty := func(c chain) bool {
		heads := len(c.lines()) - len(c.rules)
		return len(have.parts[chainPart+c.Name]) <= heads
	}
	return have.parts != nil && len(have.parts[""]) == 0 && !slices.ContainsFunc(want.chains, empty)
}

// compareChains returns how the chains and their rules differ, or "".
func compareChains(want ruleset, have found) string {
	for _, c := range want.chains {
		is, exists := have.parts[chainPart+c.Name]
		if !exists {
			return fmt.Sprintf("its chain %s was missing", c.Name)
		}
		if should := c.lines(); !slices.Equal(is, should) {
			return fmt.Sprintf("its chain %s was another: %s", c.Name, firstDifference(is, should))
		}
	}
	return ""
}

func firstDifference(is, should []string) string {
	for i, line := range should {
		switch {
		case i >= len(is):
			return fmt.Sprintf("%q was missing", line)
		case is[i] != line:
			return fmt.Sprintf("it had %q, not %q", is[i], line)
		}
	}
	return fmt.Sprintf("it had %q too", is[len(should)])
}

func compareSorted[T any](a, b []T, compare func(T, T) int) (onlyA, onlyB []T) {
	for len(a) > 0 && len(b) > 0 {
		switch order := compare(a[0], b[0]); {
		case order < 0:
			onlyA, a = append(onlyA, a[0]), a[1:]
		case order > 0:
			onlyB, b = append(onlyB, b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return append(onlyA, a...), append(onlyB, b...)
}

// fill fills a transaction that applies a plan. Unless it recreates the table, the chains stay
// hooked, so each packet passes either the old rules or the new ones.
func (p plan) fill(tx *knftables.Transaction, want ruleset) {
	if p.remove || p.rebuild != "" {
		// A deletion fails if there is no table, so it is added first.
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
	}
	if p.rebuild != "" {
		tx.Add(&knftables.Table{Comment: knftables.PtrTo("pod network, kept by underlay-agent")})
		p = diff(want, found{parts: map[string][]string{}})
	}
	for _, e := range p.edits {
		tx.Add(&knftables.Set{
			Name: e.set.name, Type: e.set.kind, Flags: []knftables.SetFlag{knftables.IntervalFlag},
		})
		// Removals first: an added element may overlap a removed one.
		if e.flush {
			tx.Flush(&knftables.Set{Name: e.set.name})
			e.gone = nil
		}
		for _, gone := range e.gone {
			tx.Delete(&knftables.Element{Set: e.set.name, Key: []string{gone}})
		}
		for _, added := range e.added {
			tx.Add(&knftables.Element{Set: e.set.name, Key: []string{added}})
		}
	}
	if p.rules == "" {
		return
	}
	// A chain or set can't be deleted while a rule refers to it, so flush all of them first.
	for _, name := range p.chains {
		tx.Flush(&knftables.Chain{Name: name})
	}
	for _, c := range want.chains {
		c.addTo(tx)
	}
	for _, name := range p.chains {
		tx.Delete(&knftables.Chain{Name: name})
	}
	for _, name := range p.sets {
		tx.Delete(&knftables.Set{Name: name})
	}
}

// addTo adds the chain, or flushes an existing one, and adds its rules.
func (c chain) addTo(tx *knftables.Transaction) {
	tx.Add(&c.Chain)
	tx.Flush(&knftables.Chain{Name: c.Name})
	for _, rule := range c.rules {
		tx.Add(&knftables.Rule{Chain: c.Name, Rule: rule})
	}
}
