package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Picture draws the packages of the product and their imports in Mermaid, which GitHub renders:
// without arrows that a longer path implies. The same imports give the same text.
func Picture(packages []Package) string {
	imports := productImports(packages)
	var boxes, arrows strings.Builder
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		fmt.Fprintf(&boxes, "  %s[%q]:::%s\n", id(from), from, classOf(from))
		for _, to := range withoutShortcuts(imports, from) {
			fmt.Fprintf(&arrows, "  %s --> %s\n", id(from), id(to))
		}
	}
	return "```mermaid\nflowchart TD\n" + boxes.String() + arrows.String() +
		"  classDef program fill:#e0f2fe,stroke:#0369a1,color:#0f172a\n" +
		"  classDef pure fill:#dcfce7,stroke:#15803d,stroke-width:3px,color:#0f172a\n" +
		"  classDef edge fill:#f8fafc,stroke:#94a3b8,color:#0f172a\n" +
		"  classDef simulator fill:#fef3c7,stroke:#b45309,color:#0f172a\n```"
}

// id is a package's name as a Mermaid identifier.
func id(path string) string { return strings.NewReplacer("/", "_", "-", "_").Replace(path) }

// classOf is the style of a package's box.
func classOf(path string) string {
	switch {
	case strings.HasPrefix(path, "cmd/"):
		return "program"
	case strings.HasPrefix(path, "hcloudsim"):
		return "simulator"
	case pure(path):
		return "pure"
	}
	return "edge"
}

// productImports maps each package of the programs to those of them that it imports.
func productImports(packages []Package) map[string][]string {
	imports := map[string][]string{}
	for _, p := range packages {
		if path := short(p.Path); p.Code > 0 && !strings.HasPrefix(path, "test/") && !strings.HasSuffix(path, "test") {
			imports[path] = nil
		}
	}
	for _, p := range packages {
		if _, drawn := imports[short(p.Path)]; !drawn {
			continue
		}
		for _, to := range p.Imports {
			if _, drawn := imports[short(to)]; drawn {
				imports[short(p.Path)] = append(imports[short(p.Path)], short(to))
			}
		}
	}
	return imports
}

// withoutShortcuts are a package's imports except those that others of them imply.
func withoutShortcuts(imports map[string][]string, from string) []string {
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		return from == to ||
			slices.ContainsFunc(imports[from], func(next string) bool { return reaches(next, to) })
	}
	kept := slices.DeleteFunc(slices.Clone(imports[from]), func(to string) bool {
		return slices.ContainsFunc(imports[from], func(other string) bool {
			return other != to && reaches(other, to)
		})
	})
	slices.Sort(kept)
	return kept
}
