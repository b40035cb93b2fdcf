// Package rbac reads the permissions of the ServiceAccounts in the manifests of deploy/, one by
// one, so that tests can compare them with the needed and the used ones.
package rbac

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Permission is one verb on one resource, as "nodes/status" or "leases.coordination.k8s.io"; in all
// namespaces and of all names if these are empty.
type Permission struct{ Verb, Resource, Namespace, Name string }

func (p Permission) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", p.Verb, p.Resource, strings.Trim(p.Namespace+"/"+p.Name, "/")))
}

// Covers reports whether p allows a request.
func (p Permission) Covers(requested Permission) bool {
	return p.Verb == requested.Verb && p.Resource == requested.Resource &&
		(p.Namespace == "" || p.Namespace == requested.Namespace) && (p.Name == "" || p.Name == requested.Name)
}

// Qualified is "nodes/status", or "leases.coordination.k8s.io" outside the core
// group.
func Qualified(resource, group string) string {
	resource, sub, _ := strings.Cut(resource, "/")
	return strings.TrimSuffix(resource+"."+group, ".") + strings.TrimSuffix("/"+sub, "/")
}

// Account is a ServiceAccount with the permissions of its roles.
type Account struct {
	User     string       // such as system:serviceaccount:kube-system:underlay-ccm
	Granted  []Permission // by roles of the manifests
	Borrowed []Permission // by roles that every cluster has
}

// borrowed are the roles of Kubernetes that manifests may bind.
func borrowed() map[string][]Permission {
	var reader []Permission
	for _, verb := range []string{"get", "list", "watch"} {
		reader = append(reader, Permission{verb, "configmaps", "kube-system", "extension-apiserver-authentication"})
	}
	return map[string][]Permission{"extension-apiserver-authentication-reader": reader}
}

// Read reads the accounts that manifests bind roles to, in the order of the bindings. Permissions
// that several files grant are listed once.
func Read(files ...string) ([]Account, error) {
	var accounts []Account
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read permissions: %w", err)
		}
		objects, err := parse(content)
		if err == nil {
			accounts, err = objects.bind(accounts)
		}
		if err != nil {
			return nil, fmt.Errorf("read permissions: %s: %w", file, err)
		}
	}
	return accounts, nil
}

// objects are the RBAC objects of a manifest. A binding of a Role has a namespace, one of a
// ClusterRole for all namespaces has none.
type objects struct {
	roles    map[string][]rbacv1.PolicyRule // by kind and name
	bindings []rbacv1.RoleBinding
}

func parse(content []byte) (objects, error) {
	found := objects{roles: map[string][]rbacv1.PolicyRule{}}
	documents := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		if err := found.add(document); err != nil {
			return found, err
		}
	}
}

func (o *objects) add(document []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "Role", "ClusterRole": // the same for this purpose
		var role rbacv1.Role
		if err := yaml.Unmarshal(document, &role); err != nil {
			return err
		}
		o.roles[kind.Kind+" "+role.Name] = role.Rules
	case "RoleBinding", "ClusterRoleBinding":
		var binding rbacv1.RoleBinding
		if err := yaml.Unmarshal(document, &binding); err != nil {
			return err
		}
		o.bindings = append(o.bindings, binding)
	}
	return nil
}

// bind adds the permissions of the bindings to the accounts.
func (o objects) bind(accounts []Account) ([]Account, error) {
	for _, b := range o.bindings {
		rules, shipped := o.roles[b.RoleRef.Kind+" "+b.RoleRef.Name]
		lent, known := borrowed()[b.RoleRef.Name]
		if !shipped && !known {
			return nil, fmt.Errorf("binding %s: %s %s is neither among the manifests nor a role of Kubernetes that they may bind", b.Name, b.RoleRef.Kind, b.RoleRef.Name)
		}
		granted, err := spellOut(b.Namespace, rules)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", b.RoleRef.Kind, b.RoleRef.Name, err)
		}
		for _, s := range b.Subjects {
			if s.Kind != rbacv1.ServiceAccountKind {
				return nil, fmt.Errorf("binding %s: a %s, where ServiceAccounts alone are given permissions", b.Name, s.Kind)
			}
			user := "system:serviceaccount:" + s.Namespace + ":" + s.Name
			i := slices.IndexFunc(accounts, func(a Account) bool { return a.User == user })
			if i < 0 {
				i = len(accounts)
				accounts = append(accounts, Account{User: user})
			}
			accounts[i].Granted = union(accounts[i].Granted, granted)
			if !shipped {
				accounts[i].Borrowed = union(accounts[i].Borrowed, lent)
			}
		}
	}
	return accounts, nil
}

func union(have, more []Permission) []Permission {
	for _, p := range more {
		if !slices.Contains(have, p) {
			have = append(have, p)
		}
	}
	return have
}

// spellOut returns a permission for each verb, resource and name of the rules.
func spellOut(namespace string, rules []rbacv1.PolicyRule) ([]Permission, error) {
	var all []Permission
	for _, rule := range rules {
		if len(rule.NonResourceURLs) > 0 {
			return nil, fmt.Errorf("paths %v: nothing here needs one", rule.NonResourceURLs)
		}
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						all = append(all, Permission{verb, Qualified(resource, group), namespace, name})
					}
				}
			}
		}
	}
	return all, nil
}
