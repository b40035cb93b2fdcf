package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

// policyName is the admission policy's name, which its error messages contain.
const policyName = "underlay-podcidrs"

// peerUser is the account of kube-controller-manager's allocator in a kubeadm cluster.
const peerUser = "system:serviceaccount:kube-system:node-controller"

// TestPolicyIsBoundToTheDeploymentsAccount compares the three files.
func TestPolicyIsBoundToTheDeploymentsAccount(t *testing.T) {
	objects := decodeFile(t, ccmFolder+"/podcidr-policy.yaml")
	policy := only[*admissionv1.ValidatingAdmissionPolicy](t, objects)
	binding := only[*admissionv1.ValidatingAdmissionPolicyBinding](t, objects)
	account := only[*corev1.ServiceAccount](t, decodeFile(t, ccmFolder+"/rbac.yaml"))
	if policy.Name != policyName || binding.Spec.PolicyName != policy.Name {
		t.Errorf("policy %q, the binding is for %q, want both %q", policy.Name, binding.Spec.PolicyName, policyName)
	}
	if !slices.Equal(binding.Spec.ValidationActions, []admissionv1.ValidationAction{
		admissionv1.Deny,
	}) {
		t.Errorf("the binding does %v, want it to deny", binding.Spec.ValidationActions)
	}
	if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionv1.Fail {
		t.Errorf("failurePolicy %v lets through what it can't decide", policy.Spec.FailurePolicy)
	}
	if policy.Spec.ParamKind != nil {
		t.Error("it depends on an object that could be missing")
	}
	user := fmt.Sprintf("%q", "system:serviceaccount:"+account.Namespace+":"+account.Name)
	if len(policy.Spec.MatchConditions) != 1 ||
		!strings.Contains(policy.Spec.MatchConditions[0].Expression, user) {
		t.Errorf("it excepts %v, the Deployment runs as %s", policy.Spec.MatchConditions, user)
	}
}

// TestOnlyWeSetPodCIDRs tests on a real API server which accounts may.
func TestOnlyWeSetPodCIDRs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane, whose programs take minutes to build the first time")
	}
	// kube-controller-manager's allocator runs too, as in a cluster where it was not disabled.
	cp := controlplane.StartT(t, controlplane.Options{ExtraControllerManagerArgs: []string{
		"--controllers=node-ipam-controller", "--allocate-node-cidrs=true", "--cluster-cidr=10.200.0.0/16,fd00:200::/56",
	}})
	if err := cp.Apply(t.Context(), ccmFolder); err != nil {
		t.Fatal(err)
	}
	admin := nodesAs(t, cp.AdminConfig())
	awaitPolicy(t, admin)
	t.Run("others are refused", func(t *testing.T) { othersAreRefused(t, cp, admin) })
	t.Run("we are not", func(t *testing.T) { weAreNot(t, cp, admin) })
	t.Run("all else goes on", func(t *testing.T) { allElseGoesOn(t, cp, admin) })
	t.Run("the peer's allocator is refused", func(t *testing.T) { peerIsRefused(t, cp, admin) })
	t.Run("kubelets name their machine", func(t *testing.T) { kubeletsNameTheirMachine(t, cp, admin) })
	for _, policy := range []string{policyName, kubeletPolicy} {
		t.Run("the expressions of "+policy+" fit the kind", func(t *testing.T) { expressionsFit(t, cp, policy) })
	}
}

// expressionsFit reads the result of kube-controller-manager's check of the expressions against the
// Node's schema.
func expressionsFit(t *testing.T, cp *controlplane.ControlPlane, name string) {
	client := clientOf(t, cp.AdminConfig())
	await(t, "the type check", func(ctx context.Context) (bool, error) {
		policy, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, name,
			metav1.GetOptions{})
		if err != nil || policy.Status.TypeChecking == nil {
			return false, err
		}
		for _, w := range policy.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s: %s", w.FieldRef, w.Warning)
		}
		return true, nil
	})
}

func nodesAs(t *testing.T, config *rest.Config) typedcorev1.NodeInterface {
	t.Helper()
	return clientOf(t, config).CoreV1().Nodes()
}

// kubeletOf returns a client with the credentials of a node's own kubelet.
func kubeletOf(t *testing.T, cp *controlplane.ControlPlane, name string) typedcorev1.NodeInterface {
	t.Helper()
	config, err := cp.KubeletConfig(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return nodesAs(t, config)
}

// peer is the allocator's account with the permissions of the default roles.
func peer(t *testing.T, cp *controlplane.ControlPlane) typedcorev1.NodeInterface {
	t.Helper()
	config := cp.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: peerUser,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
	}
	return nodesAs(t, config)
}

// awaitPolicy waits until the API server enforces the policy, which takes a moment after it was
// stored.
func awaitPolicy(t *testing.T, admin typedcorev1.NodeInterface) {
	t.Helper()
	probe := bare("policy-probe")
	probe.Spec.PodCIDR = "10.99.0.0/24"
	await(t, "the policy", func(ctx context.Context) (bool, error) {
		_, err := admin.Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return false, nil
		}
		t.Logf("others are told: %v", err)
		return true, refusal(err)
	})
}

// refusal returns nil if the policy rejected the request, with a message that contains a remedy.
func refusal(err error) error {
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("want it forbidden, got: %w", err)
	}
	for _, want := range []string{policyName, "--allocate-node-cidrs=false", "Leave spec.podCIDR"} {
		if !strings.Contains(err.Error(), want) {
			return fmt.Errorf("the refusal doesn't say %q: %w", want, err)
		}
	}
	return nil
}

func bare(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func register(t *testing.T, as typedcorev1.NodeInterface, name string) *corev1.Node {
	t.Helper()
	node, err := as.Create(t.Context(), bare(name), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

const bothFamilies = `{"spec":{"podCIDR":"10.99.0.0/24","podCIDRs":["10.99.0.0/24","fd00:99::/64"]}}`

func patch(
	ctx context.Context, as typedcorev1.NodeInterface, name string, kind types.PatchType, body string,
	subresources ...string,
) error {
	_, err := as.Patch(ctx, name, kind, []byte(body), metav1.PatchOptions{}, subresources...)
	return err
}

// setter sets the podCIDRs of an existing Node without any.
type setter func(ctx context.Context, as typedcorev1.NodeInterface, name string) error

// setters are all ways to do that.
func setters() map[string]setter {
	by := func(kind types.PatchType, body string) setter {
		return func(ctx context.Context, as typedcorev1.NodeInterface, name string) error {
			return patch(ctx, as, name, kind, body)
		}
	}
	return map[string]setter{
		"merge patch":           by(types.MergePatchType, bothFamilies),
		"strategic merge patch": by(types.StrategicMergePatchType, bothFamilies),
		"JSON patch": by(types.JSONPatchType,
			`[{"op":"add","path":"/spec/podCIDR","value":"10.99.0.0/24"}]`),
		"only podCIDR":  by(types.MergePatchType, `{"spec":{"podCIDR":"10.99.0.0/24"}}`),
		"only podCIDRs": by(types.MergePatchType, `{"spec":{"podCIDRs":["10.99.0.0/24"]}}`),
		"apply": func(ctx context.Context, as typedcorev1.NodeInterface, name string) error {
			spec := corev1apply.NodeSpec().WithPodCIDR("10.99.0.0/24").WithPodCIDRs("10.99.0.0/24")
			_, err := as.Apply(ctx, corev1apply.Node(name).WithSpec(spec), metav1.ApplyOptions{FieldManager: "somebody", Force: true})
			return err
		},
		"update": func(ctx context.Context, as typedcorev1.NodeInterface, name string) error {
			return update(ctx, as, name, func(node *corev1.Node) {
				node.Spec.PodCIDR, node.Spec.PodCIDRs = "10.99.0.0/24", []string{"10.99.0.0/24"}
			})
		},
	}
}

func othersAreRefused(
	t *testing.T, cp *controlplane.ControlPlane, admin typedcorev1.NodeInterface,
) {
	register(t, admin, "other")
	for who, as := range map[string]typedcorev1.NodeInterface{
		"an administrator": admin, "the node's kubelet": kubeletOf(t, cp, "other"), "the peer's allocator": peer(t, cp),
	} {
		for how, set := range setters() {
			if err := refusal(set(t.Context(), as, "other")); err != nil {
				t.Errorf("%s by %s: %v", who, how, err)
			}
		}
	}
	for who, as := range map[string]typedcorev1.NodeInterface{"an administrator": admin, "the node's kubelet": kubeletOf(t, cp, "new")} {
		born := bare("new")
		born.Spec.PodCIDRs = []string{"10.99.0.0/24", "fd00:99::/64"}
		_, err := as.Create(t.Context(), born, metav1.CreateOptions{})
		if err := refusal(err); err != nil {
			t.Errorf("%s creates a Node that has podCIDRs: %v", who, err)
		}
	}
	// Applying would create a missing Node.
	spec := corev1apply.NodeSpec().WithPodCIDR("10.99.0.0/24")
	_, err := admin.Apply(t.Context(), corev1apply.Node("applied").WithSpec(spec), metav1.ApplyOptions{FieldManager: "somebody"})
	if err := refusal(err); err != nil {
		t.Errorf("an administrator applies a new Node that has podCIDRs: %v", err)
	}
	expectPodCIDRs(t, admin, "other")
}

func weAreNot(t *testing.T, cp *controlplane.ControlPlane, admin typedcorev1.NodeInterface) {
	ours := nodesAs(t, accountConfig(t, cp, "kube-system", "underlay-ccm"))
	register(t, admin, "ours")
	if err := patch(t.Context(), ours, "ours", types.MergePatchType, bothFamilies); err != nil {
		t.Errorf("we may not set podCIDRs: %v", err)
	}
	expectPodCIDRs(t, admin, "ours", "10.99.0.0/24", "fd00:99::/64")
}

// allElseGoesOn tests requests that the policy must not affect: those of a kubelet, Nodes with
// podCIDRs, and their deletion.
func allElseGoesOn(t *testing.T, cp *controlplane.ControlPlane, admin typedcorev1.NodeInterface) {
	ctx := t.Context()
	kubelet := kubeletOf(t, cp, "alive")
	register(t, kubelet, "alive") // as a kubelet does: no podCIDR
	ours := nodesAs(t, accountConfig(t, cp, "kube-system", "underlay-ccm"))
	for _, has := range []bool{false, true} {
		if has {
			if err := patch(ctx, ours, "alive", types.MergePatchType, bothFamilies); err != nil {
				t.Fatal(err)
			}
		}
		for what, err := range map[string]error{
			"a kubelet's heartbeat":       patch(ctx, kubelet, "alive", types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status"),
			"a kubelet's label":           patch(ctx, kubelet, "alive", types.StrategicMergePatchType, fmt.Sprintf(`{"metadata":{"labels":{"example.com/has":"%t"}}}`, has)),
			"an administrator's cordon":   patch(ctx, admin, "alive", types.MergePatchType, fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, !has)),
			"the peer's taint":            patch(ctx, peer(t, cp), "alive", types.MergePatchType, fmt.Sprintf(`{"spec":{"taints":[{"key":"example.com/t","value":"%t","effect":"NoSchedule"}]}}`, has)),
			"an update of what was read":  updateAsRead(ctx, admin, "alive"),
			"podCIDRs through the status": patch(ctx, admin, "alive", types.MergePatchType, bothFamilies, "status"),
		} {
			if err != nil {
				t.Errorf("%s, podCIDRs set: %t: %v", what, has, err)
			}
		}
		want := []string{"10.99.0.0/24", "fd00:99::/64"}
		if !has {
			want = nil // the status subresource has not set them
		}
		expectPodCIDRs(t, admin, "alive", want...)
	}
	if err := patch(ctx, admin, "alive", types.MergePatchType, bothFamilies); err != nil {
		t.Errorf("an administrator sends the podCIDRs that are there: %v", err)
	}
	if err := admin.Delete(ctx, "alive", metav1.DeleteOptions{}); err != nil {
		t.Errorf("an administrator deletes a Node: %v", err)
	}
	register(t, kubelet, "alive") // and its kubelet registers again
}

func updateAsRead(ctx context.Context, as typedcorev1.NodeInterface, name string) error {
	return update(ctx, as, name, func(node *corev1.Node) {
		node.Annotations = map[string]string{"example.com/touched": node.ResourceVersion}
	})
}

// update replaces the whole Node, and retries after a conflict: kube-controller-manager taints new
// Nodes.
func update(
	ctx context.Context, as typedcorev1.NodeInterface, name string, change func(*corev1.Node),
) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := as.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(node)
		_, err = as.Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// peerIsRefused checks that kube-controller-manager's attempts have failed in the meantime.
func peerIsRefused(t *testing.T, cp *controlplane.ControlPlane, admin typedcorev1.NodeInterface) {
	register(t, admin, "tempting")
	await(t, "a refusal of kube-controller-manager's allocator", func(context.Context) (bool, error) {
		events, err := cp.Audit()
		return slices.ContainsFunc(events, func(e controlplane.AuditEvent) bool {
			return e.User == peerUser && e.Verb == "patch" && e.Resource == "nodes" && e.Name == "tempting" && e.Code == 403
		}), err
	})
	expectPodCIDRs(t, admin, "tempting")
}

func expectPodCIDRs(t *testing.T, admin typedcorev1.NodeInterface, name string, want ...string) {
	t.Helper()
	node, err := admin.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(node.Spec.PodCIDRs, want) {
		t.Errorf("Node %s has podCIDRs %v, want %v", name, node.Spec.PodCIDRs, want)
	}
}
