package rbac_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/checks/rbac"
)

const (
	role = `
kind: ClusterRole
metadata: {name: worker}
rules:
- {apiGroups: ["", apps], resources: [nodes, deployments/status], verbs: [get], resourceNames: [a, b]}
`
	binding = `
---
kind: ClusterRoleBinding
metadata: {name: worker}
roleRef: {kind: ClusterRole, name: worker}
subjects: [{kind: ServiceAccount, name: worker, namespace: system}]
`
)

// test/checks/deploy tests that the shipped roles are read as an API server reads them. Permissions
// that several files grant are listed once.
func TestRead(t *testing.T) {
	var want []rbac.Permission
	for _, resource := range []string{"nodes", "deployments/status", "nodes.apps", "deployments.apps/status"} {
		for _, name := range []string{"a", "b"} {
			want = append(want, rbac.Permission{Verb: "get", Resource: resource, Name: name})
		}
	}
	got, err := rbac.Read(files(t, []string{role + binding, role + binding, role})...)
	if err != nil || !reflect.DeepEqual(got, []rbac.Account{{User: "system:serviceaccount:system:worker", Granted: want}}) {
		t.Errorf("got\n%v, %v\nwant\n%v", got, err, want)
	}
}

// Unsupported rules are an error: otherwise they would be granted unnoticed.
func TestRefused(t *testing.T) {
	for name, test := range map[string]struct{ file, says string }{
		"a role from elsewhere": {strings.ReplaceAll(binding, "name: worker}\nsubjects", "name: cluster-admin}\nsubjects"), "cluster-admin"},
		"a group":               {role + strings.Replace(binding, "kind: ServiceAccount", "kind: Group", 1), "Group"},
		"a path":                {"kind: ClusterRole\nmetadata: {name: worker}\nrules: [{nonResourceURLs: [/metrics], verbs: [get]}]\n" + binding, "/metrics"},
		"no YAML":               {"kind: [", "file-0.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			if accounts, err := rbac.Read(files(t, []string{test.file})...); err == nil ||
				!strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, %v; want an error that names %s", accounts, err, test.says)
			}
		})
	}
}

func TestCovers(t *testing.T) {
	everywhere := rbac.Permission{Verb: "get", Resource: "configmaps"}
	inside := rbac.Permission{Verb: "get", Resource: "configmaps", Namespace: "kube-system"}
	one := rbac.Permission{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "a"}
	elsewhere := rbac.Permission{Verb: "get", Resource: "configmaps", Namespace: "default", Name: "a"}
	for _, test := range []struct {
		p, requested rbac.Permission
		want         bool
	}{
		{everywhere, one, true},
		{everywhere, elsewhere, true},
		{inside, one, true},
		{inside, elsewhere, false},
		{one, one, true},
		{one, inside, false},
		{one, elsewhere, false},
		{everywhere, rbac.Permission{Verb: "list", Resource: "configmaps"}, false},
		{everywhere, rbac.Permission{Verb: "get", Resource: "configmaps/status"}, false},
	} {
		if got := test.p.Covers(test.requested); got != test.want {
			t.Errorf("%q covers %q: %t", test.p, test.requested, got)
		}
	}
}

func files(t *testing.T, contents []string) []string {
	t.Helper()
	var paths []string
	for i, content := range contents {
		path := filepath.Join(t.TempDir(), "file-"+string(rune('0'+i))+".yaml")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}
