package deploy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/underlay-ccm/underlay/test/controlplane"
)

// permission is one verb on one resource, as "nodes/status" or
// "leases.coordination.k8s.io"; in all namespaces and of all names where these
// are empty.
type permission struct{ verb, resource, namespace, name string }

func (p permission) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", p.verb, p.resource, strings.Trim(p.namespace+"/"+p.name, "/")))
}

// needed is every permission that the controller manager has a use for, in a
// second place: whoever adds one to rbac.yaml says so here as well.
func needed() []permission {
	return []permission{
		{verb: "get", resource: "nodes"},
		{verb: "list", resource: "nodes"},
		{verb: "watch", resource: "nodes"},
		{verb: "patch", resource: "nodes"},
		{verb: "update", resource: "nodes"},
		{verb: "delete", resource: "nodes"},
		{verb: "patch", resource: "nodes/status"},
		{verb: "get", resource: "services"},
		{verb: "list", resource: "services"},
		{verb: "watch", resource: "services"},
		{verb: "patch", resource: "services/status"},
		{verb: "create", resource: "events"},
		{verb: "patch", resource: "events"},
		{verb: "list", resource: "endpointslices.discovery.k8s.io"},
		{verb: "watch", resource: "endpointslices.discovery.k8s.io"},
		{verb: "list", resource: "servicecidrs.networking.k8s.io"},
		{verb: "watch", resource: "servicecidrs.networking.k8s.io"},
		{verb: "get", resource: "validatingadmissionpolicies.admissionregistration.k8s.io", name: "underlay-podcidrs"},
		{verb: "get", resource: "validatingadmissionpolicybindings.admissionregistration.k8s.io", name: "underlay-podcidrs"},
		{verb: "create", resource: "configmaps", namespace: "kube-system"},
		{verb: "get", resource: "configmaps", namespace: "kube-system", name: "underlay-node-ipam"},
		{verb: "update", resource: "configmaps", namespace: "kube-system", name: "underlay-node-ipam"},
		{verb: "create", resource: "tokenreviews.authentication.k8s.io"},
		{verb: "create", resource: "subjectaccessreviews.authorization.k8s.io"},
		{verb: "create", resource: "leases.coordination.k8s.io", namespace: "kube-system"},
		{verb: "get", resource: "leases.coordination.k8s.io", namespace: "kube-system", name: "cloud-controller-manager"},
		{verb: "update", resource: "leases.coordination.k8s.io", namespace: "kube-system", name: "cloud-controller-manager"},
	}
}

// agentNeeds is the same of the agent. Which Node's status it patches is for an
// admission policy to hold.
func agentNeeds() []permission {
	return []permission{
		{verb: "list", resource: "nodes"},
		{verb: "watch", resource: "nodes"},
		{verb: "patch", resource: "nodes/status"},
		{verb: "create", resource: "events"},
		{verb: "patch", resource: "events"},
	}
}

// borrowed comes with Kubernetes' own Role extension-apiserver-authentication-reader.
func borrowed() []permission {
	var all []permission
	for _, verb := range []string{"get", "list", "watch"} {
		all = append(all, permission{verb, "configmaps", "kube-system", "extension-apiserver-authentication"})
	}
	return all
}

// dangerous lets one take over a node, a secret or the cluster, or do the work
// of somebody else.
func dangerous() []permission {
	list := []permission{
		{verb: "*", resource: "*"},
		{verb: "patch", resource: "services"}, // its spec
		{verb: "update", resource: "services"},
		{verb: "delete", resource: "services"},
		{verb: "create", resource: "nodes"},
		{verb: "deletecollection", resource: "nodes"},
		{verb: "update", resource: "nodes/status"},
		{verb: "create", resource: "tokenreviews.authentication.k8s.io/status"},
		{verb: "get", resource: "leases.coordination.k8s.io", namespace: "kube-system", name: "kube-controller-manager"},
		{verb: "update", resource: "leases.coordination.k8s.io", namespace: "kube-system", name: "kube-controller-manager"},
		{verb: "update", resource: "leases.coordination.k8s.io", namespace: "kube-node-lease"},
		{verb: "delete", resource: "leases.coordination.k8s.io", namespace: "kube-system", name: "cloud-controller-manager"},
		{verb: "get", resource: "configmaps", namespace: "kube-system", name: "kubeadm-config"},
		{verb: "update", resource: "configmaps", namespace: "kube-system", name: "extension-apiserver-authentication"},
		{verb: "create", resource: "validatingadmissionpolicies.admissionregistration.k8s.io"},
		{verb: "get", resource: "validatingadmissionpolicies.admissionregistration.k8s.io", name: "others"},
		{verb: "delete", resource: "configmaps", namespace: "kube-system", name: "underlay-node-ipam"},
		{verb: "patch", resource: "configmaps", namespace: "kube-system", name: "kube-proxy"},
		{verb: "create", resource: "serviceaccounts/token", namespace: "kube-system"},
		{verb: "create", resource: "validatingwebhookconfigurations.admissionregistration.k8s.io"},
		{verb: "create", resource: "mutatingwebhookconfigurations.admissionregistration.k8s.io"},
		{verb: "approve", resource: "signers.certificates.k8s.io"},
		{verb: "update", resource: "certificatesigningrequests.certificates.k8s.io/approval"},
	}
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
		list = append(list, permission{verb: verb, resource: "secrets", namespace: "kube-system"})
	}
	for _, verb := range []string{"get", "create"} {
		for _, resource := range []string{"pods", "pods/exec", "pods/ephemeralcontainers", "nodes/proxy", "services/proxy"} {
			list = append(list, permission{verb: verb, resource: resource, namespace: "kube-system"})
		}
	}
	for _, verb := range []string{"create", "update", "patch", "bind", "escalate"} {
		for _, resource := range []string{"clusterroles", "roles", "clusterrolebindings", "rolebindings"} {
			list = append(list, permission{verb: verb, resource: resource + ".rbac.authorization.k8s.io", namespace: "kube-system"})
		}
	}
	for _, resource := range []string{"users", "groups", "serviceaccounts"} {
		list = append(list, permission{verb: "impersonate", resource: resource})
	}
	for _, resource := range []string{"deployments", "daemonsets"} {
		list = append(list, permission{verb: "create", resource: resource + ".apps", namespace: "kube-system"})
	}
	return list
}

// granted spells out what the roles in a file allow.
func granted(t *testing.T, file string) []permission {
	t.Helper()
	var all []permission
	add := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			if len(rule.NonResourceURLs) > 0 {
				t.Errorf("paths %v: nothing here needs one", rule.NonResourceURLs)
			}
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, verb := range rule.Verbs {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, name := range names {
							all = append(all, permission{verb, qualified(resource, group), namespace, name})
						}
					}
				}
			}
		}
	}
	for _, object := range decodeFile(t, file) {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			add("", role.Rules)
		case *rbacv1.Role:
			add(role.Namespace, role.Rules)
		}
	}
	return all
}

// qualified is "nodes/status", or "leases.coordination.k8s.io" outside the core
// group.
func qualified(resource, group string) string {
	resource, sub, _ := strings.Cut(resource, "/")
	return strings.TrimSuffix(resource+"."+group, ".") + strings.TrimSuffix("/"+sub, "/")
}

func TestRolesGrantExactlyWhatIsNeeded(t *testing.T) {
	compare := func(a, b permission) int { return cmp.Compare(a.String(), b.String()) }
	for file, want := range map[string][]permission{ccmRoles: needed(), agentRoles: agentNeeds()} {
		got := granted(t, file)
		slices.SortFunc(want, compare)
		slices.SortFunc(got, compare)
		if !slices.Equal(want, got) {
			t.Errorf("%s grants:\n%v\nneeded:\n%v", file, got, want)
		}
	}
}

func TestRolesAreBoundToTheProgramsAccounts(t *testing.T) {
	for folder, pod := range map[string]corev1.PodSpec{
		ccmFolder:   only[*appsv1.Deployment](t, shipped(t)).Spec.Template.Spec,
		agentFolder: only[*appsv1.DaemonSet](t, shippedIn(t, agentFolder)).Spec.Template.Spec,
	} {
		account := only[*corev1.ServiceAccount](t, shippedIn(t, folder))
		if pod.ServiceAccountName != account.Name || pod.AutomountServiceAccountToken == nil || !*pod.AutomountServiceAccountToken {
			t.Errorf("%s: the pod runs as %q, the shipped ServiceAccount is %q", folder, pod.ServiceAccountName, account.Name)
		}
		want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}
		for _, object := range shippedIn(t, folder) {
			switch binding := object.(type) {
			case *rbacv1.RoleBinding:
				if !slices.Equal(binding.Subjects, want) {
					t.Errorf("RoleBinding %s is for %v", binding.Name, binding.Subjects)
				}
			case *rbacv1.ClusterRoleBinding:
				if !slices.Equal(binding.Subjects, want) {
					t.Errorf("ClusterRoleBinding %s is for %v", binding.Name, binding.Subjects)
				}
			}
		}
	}
}

func TestAPIServerTakesTheManifests(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane, whose programs take minutes to build the first time")
	}
	cp := controlplane.StartT(t, controlplane.Options{})
	ctx := t.Context()
	for range 2 { // a second time it must change nothing that can't be changed
		for _, rendering := range [][]string{{ccmFolder, agentFolder, secretExample}, {metalFolder}} {
			if err := cp.Apply(ctx, rendering...); err != nil {
				t.Fatal(err)
			}
		}
	}
	admin, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, expected := range map[string]struct {
		template corev1.PodTemplateSpec
		priority int32
		port     int32
	}{
		"underlay-ccm":   {only[*appsv1.Deployment](t, shipped(t)).Spec.Template, 2_000_000_000, 10258},
		"underlay-agent": {only[*appsv1.DaemonSet](t, shippedIn(t, agentFolder)).Spec.Template, 2_000_001_000, 10266},
	} {
		t.Run("a pod of "+name+" is admitted", func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: expected.template.ObjectMeta, Spec: expected.template.Spec}
			pod.Name = name + "-0"
			made, err := admin.CoreV1().Pods("kube-system").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Fatal(err)
			}
			if made.Spec.Priority == nil || *made.Spec.Priority != expected.priority {
				t.Errorf("its priority is %v, want %d", made.Spec.Priority, expected.priority)
			}
			if port := made.Spec.Containers[0].Ports[0].HostPort; port != expected.port {
				t.Errorf("its port on the node is %d, want %d", port, expected.port)
			}
		})
	}
	for name, needs := range map[string][]permission{"underlay-ccm": slices.Concat(needed(), borrowed()), "underlay-agent": agentNeeds()} {
		account := accountConfig(t, cp, "kube-system", name)
		for _, p := range needs {
			if !may(ctx, t, account, p) {
				t.Errorf("%s may not %s", name, p)
			}
		}
		for _, p := range dangerous() {
			if may(ctx, t, account, p) {
				t.Errorf("%s may %s", name, p)
			}
		}
	}
	agent := accountConfig(t, cp, "kube-system", "underlay-agent")
	for _, p := range needed() {
		if !slices.Contains(agentNeeds(), p) && may(ctx, t, agent, p) {
			t.Errorf("the agent may %s, as the controller manager", p)
		}
	}
}

// accountConfig is for a client with a ServiceAccount's own token.
func accountConfig(t *testing.T, cp *controlplane.ControlPlane, namespace, name string) *rest.Config {
	t.Helper()
	path, err := cp.Kubeconfig(t.Context(), namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	account, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	account.QPS = -1
	return account
}

// may asks the API server, as the account itself.
func may(ctx context.Context, t *testing.T, account *rest.Config, p permission) bool {
	t.Helper()
	client, err := kubernetes.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	whole, sub, _ := strings.Cut(p.resource, "/")
	resource, group, _ := strings.Cut(whole, ".")
	if resource == "*" {
		group = "*"
	}
	answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: p.verb, Group: group, Resource: resource, Subresource: sub, Namespace: p.namespace, Name: p.name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("asking for %s: %v", p, err)
	}
	return answer.Status.Allowed
}
