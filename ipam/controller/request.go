package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

const (
	// attemptTimeout bounds a request. After it the result is unknown.
	attemptTimeout = 30 * time.Second
	// fieldManager identifies this controller in the managedFields of podCIDRs.
	fieldManager = "underlay-node-ipam"
)

// A request is sent by a worker, which stores the result in it, and is then handled by the decider.
type request interface {
	// send decides nothing and uses no state of the decider.
	send(ctx context.Context, a api)
	handle(ctx context.Context, d *decider) error
}

// api is where requests are sent to.
type api struct {
	client    kubernetes.Interface
	own       OwnPrefixes
	namespace string // of the stored ledger
}

// A nodeRequest writes a Node's podCIDRs, or reads the Node if there are none to write.
type nodeRequest struct {
	node  ipam.Node
	write []netip.Prefix
	look  bool // an earlier request may have been applied: read the Node before writing

	outcome outcome
	live    *corev1.Node // for holds
	err     error        // for the log
}

type outcome int

const (
	unknown outcome = iota // a write may or may not have been applied
	empty                  // the Node exists and has no podCIDRs
	holds                  // the Node exists and has podCIDRs
	gone                   // no Node with that UID exists
)

func (r *nodeRequest) send(ctx context.Context, a api) {
	if r.look || len(r.write) == 0 {
		if r.get(ctx, a); r.outcome != empty || len(r.write) == 0 {
			return
		}
	}
	live, err := a.client.CoreV1().Nodes().Patch(ctx, r.node.Name, types.StrategicMergePatchType,
		r.patch(), metav1.PatchOptions{
			FieldManager: fieldManager, FieldValidation: metav1.FieldValidationIgnore, // fixed fields
		})
	if r.judge(live, err); r.err == nil {
		return
	}
	r.err = fmt.Errorf("setting the podCIDRs of Node %s to %v: %w", r.node.Name, r.write, err)
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		rejected := r.err
		if r.get(ctx, a); r.err == nil {
			r.err = rejected
		}
	}
}

// get reads the live Node: a GET without a resource version is consistent.
func (r *nodeRequest) get(ctx context.Context, a api) {
	live, err := a.client.CoreV1().Nodes().Get(ctx, r.node.Name, metav1.GetOptions{})
	if r.judge(live, err); r.err != nil {
		r.err = fmt.Errorf("reading Node %s: %w", r.node.Name, err)
	}
}

// judge sets the outcome according to a reply.
func (r *nodeRequest) judge(live *corev1.Node, err error) {
	r.outcome, r.live, r.err = unknown, live, nil
	switch {
	case kube.Absent(err, "nodes", r.node.Name):
		r.outcome = gone
	case err != nil:
		r.err = err
	case string(live.UID) != r.node.UID:
		r.outcome = gone
	case kube.HasPodCIDRs(live):
		r.outcome = holds
	default:
		r.outcome = empty
	}
}

// patch sets podCIDR and podCIDRs together, because the API derives either from the other if it
// is missing. A strategic merge patch costs the API server a tenth less than a merge patch. It
// appends to a list instead of replacing it: the result is the same for a Node without podCIDRs,
// and neither can be applied to a Node with other podCIDRs, which are immutable. The UID keeps
// the patch from a Node that was recreated under the same name.
func (r *nodeRequest) patch() []byte {
	texts := make([]string, len(r.write))
	for i, p := range r.write {
		texts[i] = p.String()
	}
	patch, _ := json.Marshal(map[string]any{ // never fails for strings
		"metadata": map[string]any{"uid": r.node.UID},
		"spec":     map[string]any{"podCIDR": texts[0], "podCIDRs": texts},
	})
	return patch
}

// An ownRequest looks up the own IPv6 prefix of a Node's machine.
type ownRequest struct {
	node ipam.Node
	live *corev1.Node

	own ownPrefix
	err error
}

func (r *ownRequest) send(ctx context.Context, a api) {
	r.own.own, r.own.avoid, r.err = a.own.OwnPrefix(ctx, r.live)
	r.own.known = r.err == nil
}

// A conditionRequest sets a Node's condition.
type conditionRequest struct {
	live      *corev1.Node
	condition corev1.NodeCondition

	err error
}

func (r *conditionRequest) send(ctx context.Context, a api) {
	_, r.err = kube.SetCondition(ctx, a.client, r.live, r.condition, time.Now())
}

// policyName names the admission policy, and its binding, that allows only our podCIDRs.
const policyName = "underlay-podcidrs"

// A policyRequest checks that the admission policy exists and is bound. It doesn't check the rules
// of the policy: those that we ship are tested.
type policyRequest struct {
	refuses bool // the policy is in place
	err     error
}

func (r *policyRequest) send(ctx context.Context, a api) {
	admission := a.client.AdmissionregistrationV1()
	binding, err := admission.ValidatingAdmissionPolicyBindings().Get(ctx, policyName,
		metav1.GetOptions{})
	if err == nil {
		_, err = admission.ValidatingAdmissionPolicies().Get(ctx, policyName, metav1.GetOptions{})
	}
	r.refuses = err == nil && binding.Spec.PolicyName == policyName &&
		slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny)
	if err != nil && !apierrors.IsNotFound(err) {
		r.err = fmt.Errorf("looking for the admission policy %s: %w", policyName, err)
	}
}
