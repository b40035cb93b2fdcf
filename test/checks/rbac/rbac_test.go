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
- {apiGroups: ["", apps], resources: [nodes, deployments/status], verbs: [get, patch]}
`
	binding = `
---
kind: ClusterRoleBinding
metadata: {name: worker}
roleRef: {kind: ClusterRole, name: worker}
subjects: [{kind: ServiceAccount, name: worker, namespace: system}]
`
	namespaced = `
kind: Role
metadata: {name: worker, namespace: kube-system}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [a, b], verbs: [get]}
---
kind: RoleBinding
metadata: {name: worker, namespace: kube-system}
roleRef: {kind: Role, name: worker}
subjects: [{kind: ServiceAccount, name: worker, namespace: system}, {kind: ServiceAccount, name: other, namespace: system}]
`
	lent = `
kind: RoleBinding
metadata: {name: lent, namespace: kube-system}
roleRef: {kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: ServiceAccount, name: worker, namespace: system}]
`
)

func TestRead(t *testing.T) {
	everywhere := []rbac.Permission{
		{Verb: "get", Resource: "nodes"},
		{Verb: "get", Resource: "deployments/status"},
		{Verb: "get", Resource: "nodes.apps"},
		{Verb: "get", Resource: "deployments.apps/status"},
		{Verb: "patch", Resource: "nodes"},
		{Verb: "patch", Resource: "deployments/status"},
		{Verb: "patch", Resource: "nodes.apps"},
		{Verb: "patch", Resource: "deployments.apps/status"},
	}
	named := []rbac.Permission{
		{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "a"},
		{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "b"},
	}
	authentication := rbac.Permission{Resource: "configmaps", Namespace: "kube-system", Name: "extension-apiserver-authentication"}
	var borrowed []rbac.Permission
	for _, verb := range []string{"get", "list", "watch"} {
		authentication.Verb = verb
		borrowed = append(borrowed, authentication)
	}
	const worker, other = "system:serviceaccount:system:worker", "system:serviceaccount:system:other"
	for name, test := range map[string]struct {
		files []string
		want  []rbac.Account
	}{
		"nothing about permissions":   {[]string{"kind: ConfigMap\n---\n# only a comment\n"}, nil},
		"a role that is bound":        {[]string{role + binding}, []rbac.Account{{User: worker, Granted: everywhere}}},
		"a role that is not":          {[]string{role}, nil},
		"names in a namespace":        {[]string{namespaced}, []rbac.Account{{User: worker, Granted: named}, {User: other, Granted: named}}},
		"the same twice":              {[]string{role + binding, role + binding}, []rbac.Account{{User: worker, Granted: everywhere}}},
		"several for one":             {[]string{role + binding, namespaced}, []rbac.Account{{User: worker, Granted: append(everywhere, named...)}, {User: other, Granted: named}}},
		"a role of Kubernetes itself": {[]string{lent}, []rbac.Account{{User: worker, Borrowed: borrowed}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := rbac.Read(files(t, test.files)...)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got\n%v, %v\nwant\n%v", got, err, test.want)
			}
		})
	}
}

// What can't be judged is refused, or it would be granted unseen.
func TestRefused(t *testing.T) {
	for name, test := range map[string]struct{ file, says string }{
		"a role from elsewhere": {strings.ReplaceAll(binding, "name: worker}\nsubjects", "name: cluster-admin}\nsubjects"), "cluster-admin"},
		"a group":               {role + strings.Replace(binding, "kind: ServiceAccount", "kind: Group", 1), "Group"},
		"a path":                {"kind: ClusterRole\nmetadata: {name: worker}\nrules: [{nonResourceURLs: [/metrics], verbs: [get]}]\n" + binding, "/metrics"},
		"no YAML":               {"kind: [", "file-0.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			if accounts, err := rbac.Read(files(t, []string{test.file})...); err == nil || !strings.Contains(err.Error(), test.says) {
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
		p, asked rbac.Permission
		want     bool
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
		if got := test.p.Covers(test.asked); got != test.want {
			t.Errorf("%q covers %q: %t", test.p, test.asked, got)
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
