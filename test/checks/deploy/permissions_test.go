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

	"github.com/underlay-ccm/underlay/internal/directory"
	"github.com/underlay-ccm/underlay/ipam"
	"github.com/underlay-ccm/underlay/test/checks/rbac"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

// needed is every permission that the controller manager has a use for, in a
// second place: whoever adds one to rbac.yaml says so here as well.
func needed() []rbac.Permission {
	list := []rbac.Permission{
		{Verb: "get", Resource: "nodes"},
		{Verb: "list", Resource: "nodes"},
		{Verb: "watch", Resource: "nodes"},
		{Verb: "patch", Resource: "nodes"},
		{Verb: "update", Resource: "nodes"},
		{Verb: "delete", Resource: "nodes"},
		{Verb: "patch", Resource: "nodes/status"},
		{Verb: "get", Resource: "services"},
		{Verb: "list", Resource: "services"},
		{Verb: "watch", Resource: "services"},
		{Verb: "patch", Resource: "services/status"},
		{Verb: "create", Resource: "events"},
		{Verb: "patch", Resource: "events"},
		{Verb: "list", Resource: "endpointslices.discovery.k8s.io"},
		{Verb: "watch", Resource: "endpointslices.discovery.k8s.io"},
		{Verb: "list", Resource: "servicecidrs.networking.k8s.io"},
		{Verb: "watch", Resource: "servicecidrs.networking.k8s.io"},
		{Verb: "get", Resource: "validatingadmissionpolicies.admissionregistration.k8s.io", Name: "underlay-podcidrs"},
		{Verb: "get", Resource: "validatingadmissionpolicybindings.admissionregistration.k8s.io", Name: "underlay-podcidrs"},
		{Verb: "create", Resource: "configmaps", Namespace: "kube-system"},
		{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "underlay-node-ipam"},
		{Verb: "update", Resource: "configmaps", Namespace: "kube-system", Name: "underlay-node-ipam"},
		{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "underlay-routes"},
		{Verb: "update", Resource: "configmaps", Namespace: "kube-system", Name: "underlay-routes"},
		{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "underlay-addresses"},
		{Verb: "update", Resource: "configmaps", Namespace: "kube-system", Name: "underlay-addresses"},
		{Verb: "create", Resource: "tokenreviews.authentication.k8s.io"},
		{Verb: "create", Resource: "subjectaccessreviews.authorization.k8s.io"},
		{Verb: "create", Resource: "leases.coordination.k8s.io", Namespace: "kube-system"},
		{Verb: "get", Resource: "leases.coordination.k8s.io", Namespace: "kube-system", Name: "cloud-controller-manager"},
		{Verb: "update", Resource: "leases.coordination.k8s.io", Namespace: "kube-system", Name: "cloud-controller-manager"},
	}
	for _, verb := range []string{"list", "watch", "create", "update", "delete"} {
		list = append(list, rbac.Permission{Verb: verb, Resource: "configmaps", Namespace: directory.Namespace})
	}
	for n := range ipam.MaxShards {
		for _, verb := range []string{"get", "update"} {
			list = append(list, rbac.Permission{Verb: verb, Resource: "configmaps", Namespace: "kube-system", Name: shard(n + 1)})
		}
	}
	return list
}

// shard is the ConfigMap of a part of the stored ledger, by number.
func shard(number int) string { return fmt.Sprintf("underlay-node-ipam-%d", number) }

// agentNeeds is the same of the agent. Admission policies keep it to its own Node
// and to Events about that.
func agentNeeds() []rbac.Permission {
	return []rbac.Permission{
		{Verb: "list", Resource: "nodes"},
		{Verb: "watch", Resource: "nodes"},
		{Verb: "patch", Resource: "nodes/status"},
		{Verb: "list", Resource: "configmaps", Namespace: directory.Namespace},
		{Verb: "watch", Resource: "configmaps", Namespace: directory.Namespace},
		{Verb: "list", Resource: "configmaps", Namespace: "kube-system", Name: "underlay-addresses"},
		{Verb: "watch", Resource: "configmaps", Namespace: "kube-system", Name: "underlay-addresses"},
		{Verb: "create", Resource: "events", Namespace: "default"},
		{Verb: "patch", Resource: "events", Namespace: "default"},
	}
}

// dangerous lets one take over a node, a secret or the cluster, or do the work
// of somebody else.
func dangerous() []rbac.Permission {
	list := []rbac.Permission{
		{Verb: "*", Resource: "*"},
		{Verb: "patch", Resource: "services"}, // its spec
		{Verb: "update", Resource: "services"},
		{Verb: "delete", Resource: "services"},
		{Verb: "create", Resource: "nodes"},
		{Verb: "deletecollection", Resource: "nodes"},
		{Verb: "update", Resource: "nodes/status"},
		{Verb: "create", Resource: "tokenreviews.authentication.k8s.io/status"},
		{Verb: "get", Resource: "leases.coordination.k8s.io", Namespace: "kube-system", Name: "kube-controller-manager"},
		{Verb: "update", Resource: "leases.coordination.k8s.io", Namespace: "kube-system", Name: "kube-controller-manager"},
		{Verb: "update", Resource: "leases.coordination.k8s.io", Namespace: "kube-node-lease"},
		{Verb: "delete", Resource: "leases.coordination.k8s.io", Namespace: "kube-system", Name: "cloud-controller-manager"},
		{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "kubeadm-config"},
		{Verb: "update", Resource: "configmaps", Namespace: "kube-system", Name: "extension-apiserver-authentication"},
		{Verb: "create", Resource: "validatingadmissionpolicies.admissionregistration.k8s.io"},
		{Verb: "get", Resource: "validatingadmissionpolicies.admissionregistration.k8s.io", Name: "others"},
		{Verb: "delete", Resource: "configmaps", Namespace: "kube-system", Name: "underlay-node-ipam"},
		{Verb: "delete", Resource: "configmaps", Namespace: "kube-system", Name: shard(1)},
		{Verb: "update", Resource: "configmaps", Namespace: "kube-system", Name: shard(ipam.MaxShards + 1)},
		{Verb: "patch", Resource: "configmaps", Namespace: "kube-system", Name: "kube-proxy"},
		{Verb: "create", Resource: "serviceaccounts/token", Namespace: "kube-system"},
		{Verb: "create", Resource: "validatingwebhookconfigurations.admissionregistration.k8s.io"},
		{Verb: "create", Resource: "mutatingwebhookconfigurations.admissionregistration.k8s.io"},
		{Verb: "approve", Resource: "signers.certificates.k8s.io"},
		{Verb: "update", Resource: "certificatesigningrequests.certificates.k8s.io/approval"},
	}
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
		list = append(list, rbac.Permission{Verb: verb, Resource: "secrets", Namespace: "kube-system"})
	}
	for _, verb := range []string{"get", "create"} {
		for _, resource := range []string{"pods", "pods/exec", "pods/ephemeralcontainers", "nodes/proxy", "services/proxy"} {
			list = append(list, rbac.Permission{Verb: verb, Resource: resource, Namespace: "kube-system"})
		}
	}
	for _, verb := range []string{"create", "update", "patch", "bind", "escalate"} {
		for _, resource := range []string{"clusterroles", "roles", "clusterrolebindings", "rolebindings"} {
			list = append(list, rbac.Permission{Verb: verb, Resource: resource + ".rbac.authorization.k8s.io", Namespace: "kube-system"})
		}
	}
	for _, resource := range []string{"users", "groups", "serviceaccounts"} {
		list = append(list, rbac.Permission{Verb: "impersonate", Resource: resource})
	}
	for _, resource := range []string{"deployments", "daemonsets"} {
		list = append(list, rbac.Permission{Verb: "create", Resource: resource + ".apps", Namespace: "kube-system"})
	}
	return list
}

// granted is what all roles allow an account of kube-system.
func granted(t *testing.T, account string) rbac.Account {
	t.Helper()
	accounts, err := rbac.Read(ccmRoles, agentRoles, directoryRoles)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(accounts, func(a rbac.Account) bool { return a.User == "system:serviceaccount:kube-system:"+account })
	if i < 0 || len(accounts) != 2 {
		t.Fatalf("the roles are about %v, want the accounts of the two programs", accounts)
	}
	return accounts[i]
}

func TestRolesGrantExactlyWhatIsNeeded(t *testing.T) {
	compare := func(a, b rbac.Permission) int { return cmp.Compare(a.String(), b.String()) }
	for account, want := range map[string][]rbac.Permission{"underlay-ccm": needed(), "underlay-agent": agentNeeds()} {
		got := granted(t, account).Granted
		slices.SortFunc(want, compare)
		slices.SortFunc(got, compare)
		if !slices.Equal(want, got) {
			t.Errorf("%s is granted:\n%v\nneeded:\n%v", account, got, want)
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
				if !slices.Equal(binding.Subjects, want) && binding.Name != "underlay-directory-reader" {
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
	for name, needs := range map[string][]rbac.Permission{"underlay-ccm": slices.Concat(needed(), granted(t, "underlay-ccm").Borrowed), "underlay-agent": agentNeeds()} {
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
func may(ctx context.Context, t *testing.T, account *rest.Config, p rbac.Permission) bool {
	t.Helper()
	client, err := kubernetes.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	whole, sub, _ := strings.Cut(p.Resource, "/")
	resource, group, _ := strings.Cut(whole, ".")
	if resource == "*" {
		group = "*"
	}
	answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: p.Verb, Group: group, Resource: resource, Subresource: sub, Namespace: p.Namespace, Name: p.Name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("asking for %s: %v", p, err)
	}
	return answer.Status.Allowed
}
