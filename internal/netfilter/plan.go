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
	// rules, if not empty, is the reason to replace the rules within their chains.
	rules string
	// chains and sets are deleted together with the old rules.
	chains, sets []string
	edits        []edit
}

// edit changes the elements of a set, which is created if missing.
type edit struct {
	set set
	// flush removes all elements, because one of them can't be deleted by its key.
	flush       bool
	gone, added []element
}

func (p plan) lines() []string {
	switch {
	case p.remove:
		return []string{"nftables table " + tableName + " is removed: this node has no use for it"}
	case p.rebuild != "":
		return []string{"nftables table " + tableName + " is made anew: " + p.rebuild}
	case p.rules != "":
		return []string{"nftables table " + tableName + " has its rules replaced: " + p.rules}
	}
	var out []string
	for _, e := range p.edits {
		what := "prefixes"
		switch e.set.kind {
		case openings6:
			what = "openings"
		case served4, served6:
			what = "ports"
		}
		out = append(out, fmt.Sprintf("nftables set %s of table %s: %d %s added, %d removed", e.set.name,
			tableName, len(e.added), what, len(e.gone)))
	}
	return out
}

func diff(want ruleset, have found) plan {
	if len(want.chains) == 0 {
		return plan{remove: have.exists}
	}
	if !have.exists {
		return plan{rebuild: "it was missing"}
	}
	if problem := compareFrame(want, have); problem != "" {
		return plan{rebuild: problem}
	}
	p := plan{rules: compareChains(want, have)}
	if p.rules != "" {
		p.chains, p.sets = surplus(want, have)
	}
	for _, s := range want.sets {
		is := slices.SortedFunc(slices.Values(have.sets[s.name]), element.compare)
		e := edit{set: s}
		if slices.Contains(is, element{}) {
			e.flush, e.gone, e.added = true, is, s.elements
		} else {
			e.gone, e.added = compareSorted(is, s.elements, element.compare)
		}
		if _, exists := have.sets[s.name]; !exists || len(e.gone)+len(e.added) > 0 {
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
	if !have.exists || len(have.parts[""]) > 0 {
		return false
	}
	for _, c := range want.chains {
		heads := len(c.lines()) - len(c.rules)
		if len(have.parts[chainPart+c.name]) <= heads {
			return false
		}
	}
	return true
}

// compareChains returns how the chains and their rules differ, or "".
func compareChains(want ruleset, have found) string {
	for _, c := range want.chains {
		is, exists := have.parts[chainPart+c.name]
		if !exists {
			return fmt.Sprintf("its chain %s was missing", c.name)
		}
		if should := c.lines(); !slices.Equal(is, should) {
			return fmt.Sprintf("its chain %s was another: %s", c.name, firstDifference(is, should))
		}
	}
	if chains, _ := surplus(want, have); len(chains) > 0 {
		return fmt.Sprintf("its chain %s should not be there", chains[0])
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

// surplus returns the chains and sets that are not in want, sorted.
func surplus(want ruleset, have found) (chains, sets []string) {
	for _, part := range slices.Sorted(maps.Keys(have.parts)) {
		if name, ok := strings.CutPrefix(part, chainPart); ok &&
			!slices.ContainsFunc(want.chains, func(c chain) bool { return c.name == name }) {
			chains = append(chains, name)
		}
		if name, ok := strings.CutPrefix(part, setPart); ok &&
			!slices.ContainsFunc(want.sets, func(s set) bool { return s.name == name }) {
			sets = append(sets, name)
		}
	}
	return chains, sets
}

func compareSorted[T any](a, b []T, compare func(T, T) int) (onlyA, onlyB []T) {
	for len(a) > 0 && len(b) > 0 {
		switch order := compare(a[0], b[0]); cmp.Compare(order, 0) {
		case -1:
			onlyA, a = append(onlyA, a[0]), a[1:]
		case 1:
			onlyB, b = append(onlyB, b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return append(onlyA, a...), append(onlyB, b...)
}

// build fills a transaction that recreates the table from any state.
func build(tx *knftables.Transaction, want ruleset) {
	// A deletion fails if there is no table, so it is added first.
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("pod network, kept by underlay-agent")})
	for _, s := range want.sets {
		addSet(tx, s)
		addElements(tx, s.name, s.elements)
	}
	for _, c := range want.chains {
		addChain(tx, c)
	}
}

// amend fills a transaction that applies a plan to an existing table. The chains stay hooked, so
// each packet passes either the old rules or the new ones.
func amend(tx *knftables.Transaction, want ruleset, p plan) {
	for _, e := range p.edits {
		// Removals first: an added element may overlap a removed one.
		addSet(tx, e.set)
		if e.flush {
			tx.Flush(&knftables.Set{Name: e.set.name})
		} else {
			for _, gone := range e.gone {
				tx.Delete(&knftables.Element{Set: e.set.name, Key: gone.key()})
			}
		}
		addElements(tx, e.set.name, e.added)
	}
	if p.rules == "" {
		return
	}
	// A chain or set can't be deleted while a rule refers to it, so flush all of them first.
	for _, name := range p.chains {
		tx.Flush(&knftables.Chain{Name: name})
	}
	for _, c := range want.chains {
		addChain(tx, c)
	}
	for _, name := range p.chains {
		tx.Delete(&knftables.Chain{Name: name})
	}
	for _, name := range p.sets {
		tx.Delete(&knftables.Set{Name: name})
	}
}

func addSet(tx *knftables.Transaction, s set) {
	tx.Add(&knftables.Set{
		Name: s.name, Type: s.kind, Flags: []knftables.SetFlag{knftables.IntervalFlag},
	})
}

func addElements(tx *knftables.Transaction, set string, all []element) {
	for _, e := range all {
		tx.Add(&knftables.Element{Set: set, Key: e.key()})
	}
}

// addChain adds a chain, or flushes an existing one, and adds its rules.
func addChain(tx *knftables.Transaction, c chain) {
	made := &knftables.Chain{Name: c.name}
	if c.kind != nil {
		made.Type, made.Hook, made.Priority = &c.kind.kind, &c.kind.hook, &c.kind.priority
		made.Policy = knftables.PtrTo(chainPolicy)
	}
	tx.Add(made)
	tx.Flush(&knftables.Chain{Name: c.name})
	for _, rule := range c.rules {
		tx.Add(&knftables.Rule{Chain: c.name, Rule: rule})
	}
}
