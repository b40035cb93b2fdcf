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
	// attemptTimeout bounds all requests of a job. After it the result of a request is unknown.
	attemptTimeout = 30 * time.Second
	// fieldManager identifies this controller in the managedFields of podCIDRs.
	fieldManager = "underlay-node-ipam"
)

// A job is a request about a Node: write its podCIDRs, read it if there are none, or one of these.
type job struct {
	node  ipam.Node
	write []netip.Prefix
	// look means that an earlier request may have been applied: read the Node before writing.
	look bool
	// locate is a Node to look up its machine's own prefix for.
	locate *corev1.Node
	notice *notice
	// policy requests a check of the admission policy.
	policy bool
}

// A finding is the result of a job.
type finding struct {
	job     job
	outcome outcome
	live    *corev1.Node // for holds
	own     *ownPrefix   // for located
	refuses bool         // the admission policy is in place
	err     error        // for the log
}

type outcome int

const (
	unknown outcome = iota // a write may or may not have been applied
	empty                  // the Node exists and has no podCIDRs
	holds                  // the Node exists and has podCIDRs
	gone                   // no Node with that UID exists
	located                // the machine's own prefix was found
)

// requester sends API requests about single Nodes. It decides nothing.
type requester struct {
	client kubernetes.Interface
	own    OwnPrefixes
}

func (r requester) attempt(ctx context.Context, j job) finding {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	switch {
	case j.policy:
		return r.policy(ctx, j)
	case j.notice != nil:
		_, err := kube.SetCondition(ctx, r.client, j.notice.live, j.notice.condition, time.Now())
		return finding{job: j, err: err}
	case j.locate != nil:
		return r.locate(ctx, j)
	}
	if j.look || len(j.write) == 0 {
		if f := r.look(ctx, j); f.outcome != empty || len(j.write) == 0 {
			return f
		}
	}
	patch, err := podCIDRPatch(j)
	if err != nil {
		return finding{job: j, err: err}
	}
	live, err := r.client.CoreV1().Nodes().Patch(ctx, j.node.Name, types.StrategicMergePatchType,
		patch, metav1.PatchOptions{
			FieldManager: fieldManager, FieldValidation: metav1.FieldValidationIgnore, // fixed fields
		})
	switch {
	case err == nil:
		return judge(j, live)
	case kube.Absent(err, "nodes", j.node.Name):
		return finding{job: j, outcome: gone}
	}
	err = fmt.Errorf("setting the podCIDRs of Node %s to %v: %w", j.node.Name, j.write, err)
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		f := r.look(ctx, j)
		if f.err == nil {
			f.err = err
		}
		return f
	}
	return finding{job: j, outcome: unknown, err: err}
}

// look reads the live Node: a GET without a resource version is consistent.
func (r requester) look(ctx context.Context, j job) finding {
	live, err := r.client.CoreV1().Nodes().Get(ctx, j.node.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		return judge(j, live)
	case kube.Absent(err, "nodes", j.node.Name):
		return finding{job: j, outcome: gone}
	}
	return finding{job: j, outcome: unknown, err: fmt.Errorf("reading Node %s: %w", j.node.Name, err)}
}

func (r requester) locate(ctx context.Context, j job) finding {
	own, avoid, err := r.own.OwnPrefix(ctx, j.locate)
	if err != nil {
		return finding{
			job: j,
			err: fmt.Errorf("finding the own IPv6 prefix of the machine of Node %s: %w", j.node.Name, err),
		}
	}
	return finding{job: j, outcome: located, own: &ownPrefix{known: true, own: own, avoid: avoid}}
}

// policyName names the admission policy, and its binding, that allows only our podCIDRs.
const policyName = "underlay-podcidrs"

// policy checks that the admission policy exists and is bound. It doesn't check the rules of
// the policy: those that we ship are tested.
func (r requester) policy(ctx context.Context, j job) finding {
	admission := r.client.AdmissionregistrationV1()
	if _, err := admission.ValidatingAdmissionPolicies().Get(ctx, policyName,
		metav1.GetOptions{}); err != nil {
		return unlessAbsent(j, err)
	}
	binding, err := admission.ValidatingAdmissionPolicyBindings().Get(ctx, policyName,
		metav1.GetOptions{})
	if err != nil {
		return unlessAbsent(j, err)
	}
	if binding.Spec.PolicyName != policyName ||
		!slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny) {
		return finding{job: j}
	}
	return finding{job: j, refuses: true}
}

func unlessAbsent(j job, err error) finding {
	if apierrors.IsNotFound(err) {
		return finding{job: j}
	}
	return finding{job: j, err: fmt.Errorf("looking for the admission policy %s: %w", policyName, err)}
}

func judge(j job, live *corev1.Node) finding {
	switch {
	case string(live.UID) != j.node.UID:
		return finding{job: j, outcome: gone}
	case kube.HasPodCIDRs(live):
		return finding{job: j, outcome: holds, live: live}
	default:
		return finding{job: j, outcome: empty}
	}
}

// podCIDRPatch sets podCIDR and podCIDRs together, because the API derives either from the
// other if it is missing. A strategic merge patch costs the API server a tenth less than a
// merge patch. It appends to a list instead of replacing it: the result is the same for a Node
// without podCIDRs, and neither can be applied to a Node with other podCIDRs, which are
// immutable. The UID keeps the patch from a Node that was recreated under the same name.
func podCIDRPatch(j job) ([]byte, error) {
	texts := make([]string, len(j.write))
	for i, p := range j.write {
		texts[i] = p.String()
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": j.node.UID},
		"spec":     map[string]any{"podCIDR": texts[0], "podCIDRs": texts},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the podCIDRs of Node %s: %w", j.node.Name, err)
	}
	return patch, nil
}
