package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/test/checks/rbac"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

// grant is a permission of an account.
type grant struct {
	user       string
	permission rbac.Permission
}

func (g grant) String() string { return short(g.user) + ": " + g.permission.String() }

// short is the name of a ServiceAccount without its prefix.
func short(user string) string { return user[strings.LastIndex(user, ":")+1:] }

// findings are complaints, sorted and unique, and their evidence.
type findings struct {
	missing   []string // tests that didn't run
	forbidden []string // requests that no manifest grants
	untrue    []string // unused permissions, and rows of tables
	planes    int
	uses      map[grant]int // number of control planes
}

// complaints are the meaningful ones: unused permissions don't count if tests are missing.
func (f findings) complaints(whole bool) []string {
	switch {
	case whole && len(f.missing) > 0, f.planes == 0:
		return slices.Concat(f.missing, f.forbidden)
	case !whole:
		return f.forbidden
	}
	return slices.Concat(f.forbidden, f.untrue)
}

// summary reports how many permissions were used; the others are rare.
func (f findings) summary(accounts []rbac.Account) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d control planes\n", f.planes)
	for _, a := range accounts {
		used := 0
		for _, p := range a.Granted {
			used += min(f.uses[grant{a.User, p}], 1)
		}
		fmt.Fprintf(&out, "%s: %d permissions, %d used\n", short(a.User), len(a.Granted), used)
	}
	return out.String()
}

// compare compares records with the granted permissions.
func compare(records []controlplane.Record, accounts []rbac.Account, t tables) findings {
	f := findings{planes: len(records), uses: map[grant]int{}}
	f.missing = missing(records, t.suites)
	provoked := map[provocation]bool{}
	for _, r := range records {
		here := map[grant]bool{}
		for _, e := range r.Requests {
			requested := permissionOf(e)
			if e.Forbidden {
				p := provocation{
					r.Package, r.Test, e.User, rbac.Permission{Verb: requested.Verb, Resource: requested.Resource},
				}
				provoked[p] = true
				_, meant := t.provoked[p]
				if !meant && t.restarts[r.Test] != "" {
					_, meant = granting(accounts, grant{e.User, requested})
				}
				if !meant {
					f.forbidden = append(f.forbidden, fmt.Sprintf("forbidden: %s by %s, in %s of %s", grant{e.User, requested}, e.UserAgent, r.Test, r.Package))
				}
				continue
			}
			if e.Resource == "" || e.UserAgent != t.programs[e.User] {
				continue // a path that every client may request, or a test's request
			}
			if g, granted := granting(accounts, grant{e.User, requested}); granted {
				here[g] = true
			} else {
				f.forbidden = append(f.forbidden, fmt.Sprintf("no manifest grants it: %s, in %s of %s", grant{e.User, requested}, r.Test, r.Package))
			}
		}
		for g := range here {
			f.uses[g]++
		}
	}
	f.untrue = slices.Concat(unused(accounts, f.uses, t), untrueRows(accounts, f.uses, provoked, t))
	for _, list := range []*[]string{&f.forbidden, &f.untrue} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return f
}

func permissionOf(e controlplane.AuditEvent) rbac.Permission {
	resource := strings.TrimSuffix(e.Resource+"/"+e.Subresource, "/")
	return rbac.Permission{
		Verb: e.Verb, Resource: cmp.Or(rbac.Qualified(resource, e.Group), e.Path), Namespace: e.Namespace,
		Name: e.Name,
	}
}

// granting finds the permission of the account that covers a request.
func granting(accounts []rbac.Account, requested grant) (grant, bool) {
	for _, a := range accounts {
		for _, p := range slices.Concat(a.Granted, a.Borrowed) {
			if a.User == requested.user && p.Covers(requested.permission) {
				return grant{a.User, p}, true
			}
		}
	}
	return grant{}, false
}

// missing are packages that started fewer control planes than the table requires.
func missing(records []controlplane.Record, suites map[string]int) []string {
	started := map[string]int{}
	for _, r := range records {
		started[r.Package]++
	}
	var out []string
	for _, pkg := range slices.Sorted(maps.Keys(suites)) {
		if started[pkg] < suites[pkg] {
			out = append(out, fmt.Sprintf("not the whole suite: %s left %d records of control planes, and has at least %d; run all of it, or correct test/checks/permissions/tables.go", pkg, started[pkg], suites[pkg]))
		}
	}
	return out
}

func unused(accounts []rbac.Account, uses map[grant]int, t tables) []string {
	var out []string
	for _, a := range accounts {
		for _, p := range a.Granted {
			g := grant{a.User, p}
			if _, excused := t.rare[g]; uses[g] == 0 && !excused {
				out = append(out, fmt.Sprintf("granted and never used: %s; take it out of deploy/, or say in test/checks/permissions/tables.go why no test can bring it about", g))
			}
		}
	}
	return out
}

// untrueRows are rows of the tables that the run has refuted.
func untrueRows(
	accounts []rbac.Account, uses map[grant]int, provoked map[provocation]bool, t tables,
) []string {
	var out []string
	for g := range t.rare {
		exact, granted := granting(accounts, g)
		switch {
		case !granted || exact != g:
			out = append(out, fmt.Sprintf("excused and not granted: %s; delete its row in test/checks/permissions/tables.go", g))
		case uses[g] > often:
			out = append(out, fmt.Sprintf("excused as rare and used on %d control planes: %s; delete its row in test/checks/permissions/tables.go", uses[g], g))
		}
	}
	for p := range t.provoked {
		if !provoked[p] {
			out = append(out, fmt.Sprintf("not provoked: %s in %s of %s; delete its row in test/checks/permissions/tables.go", grant{p.user, p.requested}, p.test, p.pkg))
		}
	}
	return out
}
