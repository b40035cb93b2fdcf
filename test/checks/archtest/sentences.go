package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Importers is a Markdown table of the modules that only some packages may import, one row for each
// such rule.
func Importers() string { return importers(rules()) }

func importers(rules []rule) string {
	var table strings.Builder
	table.WriteString("| only | may import | because |\n|---|---|---|\n")
	for _, r := range rules {
		foreign := !slices.ContainsFunc(r.forbidden, func(p pattern) bool { return strings.HasPrefix(string(p), "./") })
		if slices.Equal(r.importer, []pattern{"./..."}) && len(r.spared) > 0 && foreign {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", names(r.spared), names(r.forbidden), r.reason)
		}
	}
	return table.String()
}

// Deciding lists the pure packages, as code in Markdown.
func Deciding(packages []Package) string {
	var found []pattern
	for _, p := range packages {
		if pure(short(p.Path)) {
			found = append(found, pattern(short(p.Path)))
		}
	}
	slices.Sort(found)
	return names(found)
}

// pure reports whether a rule forbids a package all imports with effects.
func pure(path string) bool {
	return slices.ContainsFunc(rules(), func(r rule) bool {
		return r.binds(modulePath+"/"+path) && !slices.ContainsFunc(patterns(impure), func(p pattern) bool {
			return !slices.Contains(r.forbidden, p)
		})
	})
}

func names(patterns []pattern) string {
	all := make([]string, len(patterns))
	for i, p := range patterns {
		all[i] = "`" + strings.TrimSuffix(strings.TrimPrefix(string(p), "./"), "/...") + "`"
	}
	return strings.Join(all, ", ")
}
