package deploy

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/underlay-ccm/underlay/internal/directory"
	"github.com/underlay-ccm/underlay/ipam"
	"github.com/underlay-ccm/underlay/test/checks/rbac"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

// permissions parses lines of verbs, resources and a namespace with names, in all combinations.
func permissions(lines string) []rbac.Permission {
	var list []rbac.Permission
	for line := range strings.Lines(lines) {
		words := append(strings.Fields(line), "")
		if len(words) < 3 {
			continue
		}
		namespace, names, _ := strings.Cut(words[2], "/")
		for verb := range strings.SplitSeq(words[0], ",") {
			for resource := range strings.SplitSeq(words[1], ",") {
				for name := range strings.SplitSeq(names, ",") {
					list = append(list, rbac.Permission{
						Verb: verb, Resource: resource, Namespace: namespace, Name: name,
					})
				}
			}
		}
	}
	return list
}

// needed are all permissions that the controller manager uses, listed a second time: a contributor
// who adds one to rbac.yaml must add it here as well.
func needed() []rbac.Permission {
	list := permissions(`
		get,list,watch,patch,update,delete nodes
		get,list,watch services
		patch nodes/status,services/status
		create,patch events
		list,watch endpointslices.discovery.k8s.io,servicecidrs.networking.k8s.io
		get validatingadmissionpolicies.admissionregistration.k8s.io /underlay-podcidrs
		get validatingadmissionpolicybindings.admissionregistration.k8s.io /underlay-podcidrs
		create configmaps,leases.coordination.k8s.io kube-system
		get,update configmaps kube-system/underlay-node-ipam,underlay-routes,underlay-addresses
		list,watch,create,update,delete configmaps ` + directory.Namespace + `
		create tokenreviews.authentication.k8s.io,subjectaccessreviews.authorization.k8s.io
		get,update leases.coordination.k8s.io kube-system/cloud-controller-manager`)
	for n := 1; n < ipam.Shards; n++ {
		list = append(list, permissions("get,update configmaps kube-system/"+shard(n))...)
	}
	return list
}

// shard is the ConfigMap of a part of the stored ledger, by number.
func shard(number int) string { return fmt.Sprintf("underlay-node-ipam-%d", number) }

// agentNeeds are those of the agent. Admission policies limit it to its own Node and to Events
// about it.
func agentNeeds() []rbac.Permission {
	return permissions(`
		list,watch nodes
		patch nodes/status
		list,watch configmaps ` + directory.Namespace + `
		list,watch configmaps kube-system/underlay-addresses
		list,watch networkpolicies.networking.k8s.io
		list,watch pods
		list,watch namespaces
		create,patch events default`)
}

// dangerous permissions allow taking over a node, a secret or the cluster, or the work of another
// controller.
func dangerous() []rbac.Permission {
	const rbac, admission = ".rbac.authorization.k8s.io", ".admissionregistration.k8s.io"
	return permissions(`
		* *
		patch,update,delete services
		create,deletecollection nodes
		update nodes/status
		create tokenreviews.authentication.k8s.io/status
		get,update leases.coordination.k8s.io kube-system/kube-controller-manager
		update leases.coordination.k8s.io kube-node-lease
		delete leases.coordination.k8s.io kube-system/cloud-controller-manager
		get configmaps kube-system/kubeadm-config
		update configmaps kube-system/extension-apiserver-authentication
		delete configmaps kube-system/underlay-node-ipam,` + shard(1) + `
		update configmaps kube-system/` + shard(ipam.Shards) + `
		patch configmaps kube-system/kube-proxy
		create serviceaccounts/token kube-system
		create validatingadmissionpolicies` + admission + `
		get validatingadmissionpolicies` + admission + ` /others
		create validatingwebhookconfigurations` + admission + `
		create mutatingwebhookconfigurations` + admission + `
		approve signers.certificates.k8s.io
		update certificatesigningrequests.certificates.k8s.io/approval
		get,list,watch,create,update,patch,delete secrets kube-system
		get,create pods,pods/exec,pods/ephemeralcontainers,nodes/proxy,services/proxy kube-system
		create,update,patch,bind,escalate clusterroles` + rbac + `,clusterrolebindings` + rbac + ` kube-system
		create,update,patch,bind,escalate roles` + rbac + `,rolebindings` + rbac + ` kube-system
		impersonate users,groups,serviceaccounts
		create deployments.apps,daemonsets.apps kube-system`)
}

// granted is the permissions of an account of kube-system by all roles. There are no others.
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

func TestRolesGrantExactlyTheNeededPermissions(t *testing.T) {
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

func TestAPIServerTakesTheManifests(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane, whose programs take minutes to build the first time")
	}
	cp := controlplane.StartT(t, controlplane.Options{})
	ctx := t.Context()
	for range 2 { // a second time, as it must not change immutable fields
		for _, rendering := range [][]string{{ccmFolder, agentFolder, secretExample}, {metalFolder}} {
			if err := cp.Apply(ctx, rendering...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, values := range []string{"three", "more", "everything"} { // of the chart
		if err := cp.Apply(ctx, withoutMonitors(t, repository+"/test/checks/chart/testdata/"+values+".yaml")); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
	admin := clientOf(t, cp.AdminConfig())
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

// withoutMonitors returns a copy of a manifest without the kinds of the Prometheus operator, which
// isn't installed.
func withoutMonitors(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	documents := slices.DeleteFunc(strings.Split(string(content), "\n---\n"), func(document string) bool {
		return strings.Contains(document, "kind: PodMonitor") || strings.Contains(document, "kind: ServiceMonitor")
	})
	left := filepath.Join(t.TempDir(), "manifest.yaml")
	write(t, left, strings.Join(documents, "\n---\n"))
	return left
}

// accountConfig is for a client with a ServiceAccount's own token.
func accountConfig(
	t *testing.T, cp *controlplane.ControlPlane, namespace, name string,
) *rest.Config {
	t.Helper()
	path, err := cp.Kubeconfig(t.Context(), namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	account, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return account
}

// may checks a permission at the API server, as the account itself.
func may(ctx context.Context, t *testing.T, account *rest.Config, p rbac.Permission) bool {
	t.Helper()
	whole, sub, _ := strings.Cut(p.Resource, "/")
	resource, group, _ := strings.Cut(whole, ".")
	if resource == "*" {
		group = "*"
	}
	answer, err := clientOf(t, account).AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: p.Verb, Group: group, Resource: resource, Subresource: sub,
					Namespace: p.Namespace, Name: p.Name,
				},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("asking for %s: %v", p, err)
	}
	return answer.Status.Allowed
}
