package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// modulePath is the module whose tree is checked.
const modulePath = "github.com/underlay-ccm/underlay"

// Package contains the checked properties of a package.
type Package struct {
	Path        string   // import path
	Program     bool     // package main
	Doc         string   // first sentence of its documentation
	Code        int      // number of files that are not tests
	Imports     []string // of those files
	TestImports []string // of its tests, inside and outside of the package
}

// pattern matches packages: "std" for the standard library; "./x" for a folder of this module and
// "./x/..." for it and everything below; otherwise an import path, with or without "/...".
type pattern string

func (p pattern) matches(path string) bool {
	text := string(p)
	if text == "std" {
		first, _, _ := strings.Cut(path, "/")
		return !strings.Contains(first, ".")
	}
	if rest, ok := strings.CutPrefix(text, "./"); ok {
		text = modulePath + "/" + rest
		if rest == "..." {
			text = modulePath + "/..."
		}
	}
	if base, ok := strings.CutSuffix(text, "/..."); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return path == text
}

func matchesAny(patterns []pattern, path string) bool {
	return slices.ContainsFunc(patterns, func(p pattern) bool { return p.matches(path) })
}

// rule is one row of the table. It applies to the importers except the spared ones: they import
// only allowed packages (if any are given), and no forbidden ones. It applies to tests if tests is
// set.
type rule struct {
	importer, spared   []pattern
	allowed, forbidden []pattern
	tests              bool
	reason             string
}

func (r rule) binds(path string) bool {
	return matchesAny(r.importer, path) && !matchesAny(r.spared, path)
}

func (r rule) allows(path string) bool {
	return (r.allowed == nil || matchesAny(r.allowed, path)) && !matchesAny(r.forbidden, path)
}

// CheckImports returns one line for each import that a rule forbids, in the
// order of the packages.
func CheckImports(packages []Package) []string {
	return checkImports(packages, rules())
}

func checkImports(packages []Package, rules []rule) []string {
	var found []string
	for _, p := range packages {
		for _, r := range rules {
			if !r.binds(p.Path) {
				continue
			}
			imports := p.Imports
			if r.tests {
				imports = slices.Concat(imports, p.TestImports)
			}
			for _, path := range imports {
				// An outside test imports the package that it tests.
				if path != p.Path && !r.allows(path) {
					found = append(found, violation(p.Path, path, r.reason))
				}
			}
		}
		for _, path := range p.Imports {
			// A program consists of wiring: the packages below it are its parts.
			if !p.Program && strings.HasPrefix(path, p.Path+"/") && !slices.Contains(words(), path) {
				found = append(found, violation(p.Path, path, "a folder's root is pure, its subfolders are edges: a parent never imports its children"))
			}
		}
	}
	return found
}

// words are packages that don't count as components of their parent, and import nothing with
// effects: they contain types of the parent for packages that may not import the rest of it.
func words() []string { return []string{modulePath + "/hcloudsim/profile"} }

func violation(from, to, reason string) string {
	return fmt.Sprintf("%s imports %s: %s", short(from), short(to), reason)
}

func short(path string) string { return strings.TrimPrefix(path, modulePath+"/") }

// forbiddenNames don't describe the purpose of a folder.
func forbiddenNames() []string {
	return []string{"pkg", "util", "utils", "common", "types", "constants", "mocks"}
}

// CheckNames returns one line for each package below a folder of a forbidden
// name.
func CheckNames(packages []Package) []string {
	var found []string
	for _, p := range packages {
		for name := range strings.SplitSeq(short(p.Path), "/") {
			if slices.Contains(forbiddenNames(), name) {
				found = append(found, fmt.Sprintf("%s: a folder named %q says nothing about what it is for: name the idea", short(p.Path), name))
			}
		}
	}
	return found
}

// CheckDocs returns one line for each package whose documentation doesn't describe its purpose.
func CheckDocs(packages []Package) []string {
	var found []string
	for _, p := range packages {
		if p.Code > 0 && !strings.HasPrefix(p.Doc, "Package ") && !strings.HasPrefix(p.Doc, "Command ") {
			found = append(found, fmt.Sprintf("%s: no package doc: say what it is for, what it must never do, and where its facts come from", short(p.Path)))
		}
	}
	return found
}
