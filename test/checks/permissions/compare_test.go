package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/checks/rbac"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

var (
	getNodes   = rbac.Permission{Verb: "get", Resource: "nodes"}
	writeLease = rbac.Permission{Verb: "update", Resource: "leases.coordination.k8s.io", Namespace: "kube-system", Name: "lease"}
	patchNodes = rbac.Permission{Verb: "patch", Resource: "nodes"}
)

// use is the program's request that needs a permission of its account.
func use(p rbac.Permission) controlplane.AuditEvent {
	resource, group, _ := strings.Cut(p.Resource, ".")
	return controlplane.AuditEvent{User: ccm, UserAgent: "underlay-ccm", Verb: p.Verb, Group: group, Resource: resource, Namespace: p.Namespace, Name: p.Name, Code: 200}
}

func with(
	e controlplane.AuditEvent, change func(*controlplane.AuditEvent),
) controlplane.AuditEvent {
	change(&e)
	return e
}

func asTest(e *controlplane.AuditEvent)    { e.UserAgent = "deploy.test" }
func forbidden(e *controlplane.AuditEvent) { e.Code, e.Forbidden = 403, true }

func TestCompare(t *testing.T) {
	everything := []controlplane.AuditEvent{use(getNodes), use(writeLease)}
	refused := with(use(patchNodes), forbidden)
	times := func(n int) (planes [][]controlplane.AuditEvent) {
		return slices.Repeat([][]controlplane.AuditEvent{everything}, n)
	}
	for name, test := range map[string]struct {
		requested [][]controlplane.AuditEvent // of each control plane
		rare      []rbac.Permission
		provoked  []rbac.Permission
		want      []string // part of each complaint
	}{
		"all is in use":                      {requested: times(1)},
		"on one control plane or another":    {requested: [][]controlplane.AuditEvent{{use(getNodes)}, {use(writeLease)}}},
		"unused":                             {requested: [][]controlplane.AuditEvent{{use(getNodes)}}, want: []string{"never used: underlay-ccm: update leases.coordination.k8s.io kube-system/lease"}},
		"used by a test alone":               {requested: [][]controlplane.AuditEvent{{use(getNodes), with(use(writeLease), asTest)}}, want: []string{"never used: underlay-ccm: update leases"}},
		"of another name":                    {requested: [][]controlplane.AuditEvent{append(everything, with(use(writeLease), func(e *controlplane.AuditEvent) { e.Name = "other" }))}, want: []string{"no manifest grants it: underlay-ccm: update leases.coordination.k8s.io kube-system/other, in TestX of test/x"}},
		"forbidden":                          {requested: [][]controlplane.AuditEvent{append(everything, refused)}, want: []string{"forbidden: underlay-ccm: patch nodes by underlay-ccm, in TestX of test/x"}},
		"forbidden to a test":                {requested: [][]controlplane.AuditEvent{append(everything, with(refused, asTest))}, want: []string{"forbidden: underlay-ccm: patch nodes by deploy.test"}},
		"forbidden, and granted elsewhere":   {requested: [][]controlplane.AuditEvent{append(everything, with(use(getNodes), forbidden))}, want: []string{"forbidden: underlay-ccm: get nodes"}},
		"a path is forbidden":                {requested: [][]controlplane.AuditEvent{append(everything, controlplane.AuditEvent{User: ccm, UserAgent: "x", Verb: "get", Path: "/metrics", Code: 403, Forbidden: true})}, want: []string{"forbidden: underlay-ccm: get /metrics by x"}},
		"a path is allowed":                  {requested: [][]controlplane.AuditEvent{append(everything, controlplane.AuditEvent{User: ccm, UserAgent: "underlay-ccm", Verb: "get", Path: "/healthz", Code: 200})}},
		"refused by admission":               {requested: [][]controlplane.AuditEvent{append(everything, with(use(getNodes), func(e *controlplane.AuditEvent) { e.Code = 403 }))}},
		"forbidden on purpose":               {requested: [][]controlplane.AuditEvent{append(everything, refused)}, provoked: []rbac.Permission{patchNodes}},
		"on purpose, and no longer":          {requested: times(1), provoked: []rbac.Permission{patchNodes}, want: []string{"not provoked: underlay-ccm: patch nodes in TestX"}},
		"rare and unused":                    {requested: [][]controlplane.AuditEvent{{use(getNodes)}}, rare: []rbac.Permission{writeLease}},
		"rare and used":                      {requested: times(often), rare: []rbac.Permission{writeLease}},
		"rare and used often":                {requested: times(often + 1), rare: []rbac.Permission{writeLease}, want: []string{fmt.Sprintf("used on %d control planes: underlay-ccm: update leases", often+1)}},
		"rare and not granted":               {requested: times(1), rare: []rbac.Permission{patchNodes}, want: []string{"excused and not granted: underlay-ccm: patch nodes"}},
		"rare and granted in another extent": {requested: times(1), rare: []rbac.Permission{{Verb: "get", Resource: "nodes", Name: "one"}}, want: []string{"excused and not granted: underlay-ccm: get nodes one"}},
		"an account of nobody":               {requested: [][]controlplane.AuditEvent{append(everything, with(use(getNodes), func(e *controlplane.AuditEvent) { e.User, e.UserAgent = "x:y", "" }))}, want: []string{"no manifest grants it: y: get nodes"}},
		"borrowed":                           {requested: [][]controlplane.AuditEvent{append(everything, use(rbac.Permission{Verb: "list", Resource: "configmaps", Namespace: "kube-system", Name: "lent"}))}},
	} {
		t.Run(name, func(t *testing.T) {
			tables := tables{
				programs: map[string]string{ccm: "underlay-ccm"}, suites: map[string]int{"test/x": 1},
				rare: map[grant]string{}, provoked: map[provocation]string{},
			}
			for _, p := range test.rare {
				tables.rare[grant{ccm, p}] = "rare"
			}
			for _, p := range test.provoked {
				tables.provoked[provocation{"test/x", "TestX", ccm, p}] = "on purpose"
			}
			var records []controlplane.Record
			for _, requests := range test.requested {
				records = append(records, controlplane.Record{Package: "test/x", Test: "TestX", Requests: requests})
			}
			accounts := []rbac.Account{{
				User: ccm, Granted: []rbac.Permission{getNodes, writeLease},
				Borrowed: []rbac.Permission{{Verb: "list", Resource: "configmaps", Namespace: "kube-system", Name: "lent"}},
			}}
			expect(t, compare(records, accounts, tables).complaints(true), test.want)
		})
	}
}

// While an API server starts, granted permissions may be denied; others are denied always.
func TestRestartExcusesGrantedPermissions(t *testing.T) {
	tables := tables{suites: map[string]int{"test/x": 1}, programs: map[string]string{ccm: "underlay-ccm"}, restarts: map[string]string{"TestX": "restarts"}}
	accounts := []rbac.Account{{User: ccm, Granted: []rbac.Permission{getNodes}}}
	record := controlplane.Record{Package: "test/x", Test: "TestX", Requests: []controlplane.AuditEvent{
		use(getNodes), with(use(getNodes), forbidden), with(use(patchNodes), forbidden),
	}}
	expect(t, compare([]controlplane.Record{record}, accounts, tables).complaints(true), []string{"forbidden: underlay-ccm: patch nodes"})
}

func expect(t *testing.T, got, want []string) {
	t.Helper()
	fits := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		fits = fits && strings.Contains(got[i], want[i])
	}
	if !fits {
		t.Errorf("complaints:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A partial run shows nothing about unused permissions, and doesn't pass.
func TestPartOfTheSuite(t *testing.T) {
	tables := tables{suites: map[string]int{"test/x": 2, "test/y": 1}, programs: map[string]string{ccm: "underlay-ccm"}}
	accounts := []rbac.Account{{User: ccm, Granted: []rbac.Permission{getNodes, writeLease}}}
	record := func(pkg string, requests ...controlplane.AuditEvent) controlplane.Record {
		return controlplane.Record{Package: pkg, Requests: requests}
	}
	all := []controlplane.Record{record("test/x", use(getNodes)), record("test/x"), record("test/y", with(use(patchNodes), forbidden))}
	for name, test := range map[string]struct {
		records []controlplane.Record
		whole   bool
		want    []string
	}{
		"nothing ran":                {nil, true, []string{"test/x left 0 records", "test/y left 0 records"}},
		"nothing ran without root":   {nil, false, []string{"test/x left 0 records", "test/y left 0 records"}},
		"one package is missing":     {all[:2], true, []string{"test/y left 0 records"}},
		"one test is missing":        {all[1:], true, []string{"test/x left 1 records", "forbidden: underlay-ccm: patch nodes"}},
		"nothing is missing":         {all, true, []string{"forbidden: underlay-ccm: patch nodes", "never used: underlay-ccm: update leases"}},
		"without root":               {all[2:], false, []string{"forbidden: underlay-ccm: patch nodes"}},
		"without root, and all well": {all[:1], false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, compare(test.records, accounts, tables).complaints(test.whole), test.want)
		})
	}
}

// TestTablesFitTheManifests finds mistakes in the tables without a run.
func TestTablesFitTheManifests(t *testing.T) {
	accounts, err := shipped("../../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	var users []string
	for _, a := range accounts {
		users = append(users, a.User)
	}
	tables := ourTables()
	slices.Sort(users)
	if programs := slices.Sorted(maps.Keys(tables.programs)); !slices.Equal(users, programs) {
		t.Errorf("the manifests have accounts %v, the tables programs of %v", users, programs)
	}
	for g, reason := range tables.rare {
		if exact, granted := granting(accounts, g); !granted || exact != g || reason == "" {
			t.Errorf("%s: granted is %q, the reason %q", g, exact, reason)
		}
	}
	for p := range tables.provoked {
		if tables.suites[p.pkg] == 0 {
			t.Errorf("%s of %s provokes, and no control planes are expected of it", p.test, p.pkg)
		}
	}
}
