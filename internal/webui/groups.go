package webui

import (
	"maps"
	"slices"
	"strings"
)

// fold is how many of a kind are shown one by one. Beyond it, those that are well are
// drawn as small squares, or counted.
const fold = 24

// Group is a part of the machines.
type Group struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// Folded: they are many and are drawn as squares.
	Folded   bool      `json:"folded,omitempty"`
	Machines []Machine `json:"machines"`
}

// groupsOf folds machines if they are many: those that wait or have trouble stand
// first and by themselves, the others by where they are.
func groupsOf(all []Machine) []Group {
	if len(all) <= fold {
		if len(all) == 0 {
			return []Group{}
		}
		return []Group{{ID: "group/all", Title: "All", Machines: all}}
	}
	var trouble, gone, well []Machine
	for i := range all {
		switch m := all[i]; {
		case m.Gone:
			gone = append(gone, m)
		case m.Tone != OK:
			trouble = append(trouble, m)
		default:
			well = append(well, m)
		}
	}
	slices.SortStableFunc(trouble, func(a, b Machine) int { return worstFirst(a.Tone, b.Tone) })
	groups := []Group{}
	if len(trouble) > 0 {
		attention := Group{ID: "group/trouble", Title: "Need attention", Folded: len(trouble) > fold, Machines: trouble}
		groups = append(groups, attention)
	}
	groups = append(groups, placed(well)...)
	if len(gone) > 0 {
		quarantined := Group{ID: "group/gone", Title: "Gone, podCIDRs in quarantine", Folded: len(gone) > fold/3, Machines: gone}
		groups = append(groups, quarantined)
	}
	return groups
}

// placed groups machines by location, or where that tells nothing apart by name.
func placed(machines []Machine) []Group {
	by := func(key func(*Machine) string) map[string][]Machine {
		out := map[string][]Machine{}
		for i := range machines {
			out[key(&machines[i])] = append(out[key(&machines[i])], machines[i])
		}
		return out
	}
	sorted, title := by(func(m *Machine) string { return m.location }), func(key string) string {
		if key == "" {
			return "Elsewhere"
		}
		return "In " + key
	}
	if len(sorted) < 2 {
		if names := by(func(m *Machine) string { return stem(m.Name) }); len(names) <= fold {
			sorted, title = names, func(key string) string { return key + "…" }
		}
	}
	var out []Group
	for _, key := range slices.Sorted(maps.Keys(sorted)) {
		g := Group{ID: "group/in/" + key, Title: title(key), Folded: true, Machines: sorted[key]}
		out = append(out, g)
	}
	return out
}

// stem is a name without what numbers it: worker- of worker-17.
func stem(name string) string {
	if short := strings.TrimRight(name, "0123456789"); short != "" {
		return short
	}
	return name
}
