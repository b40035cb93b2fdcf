package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

const (
	// attemptTimeout bounds all requests of one job. What happened to a request that ran out of
	// it is unknown, like with any other failure.
	attemptTimeout = 30 * time.Second
	// fieldManager is the name under which managedFields show who set the podCIDRs.
	fieldManager = "underlay-node-ipam"
)

// A job is to write one Node's podCIDRs, or, with nothing to write, to find out what became of it.
type job struct {
	node  ipam.Node
	write []netip.Prefix
	// look says that an earlier request may have been applied: a live GET comes first and
	// decides whether to write again.
	look bool
}

// A finding is what a job learned about its Node.
type finding struct {
	job     job
	outcome outcome
	live    *corev1.Node // for holds
	err     error        // what went wrong, for the log
}

type outcome int

const (
	unknown outcome = iota // nothing certain: a write may or may not have been applied
	empty                  // the Node is there and has no podCIDRs
	holds                  // the Node is there and has podCIDRs
	gone                   // no Node with that UID exists any more
)

// requester asks the API about single Nodes. It decides nothing.
type requester struct{ client kubernetes.Interface }

func (r requester) attempt(ctx context.Context, j job) finding {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if j.look || len(j.write) == 0 {
		if f := r.look(ctx, j); f.outcome != empty || len(j.write) == 0 {
			return f
		}
	}
	patch, err := podCIDRPatch(j)
	if err != nil {
		return finding{job: j, err: err}
	}
	live, err := r.client.CoreV1().Nodes().Patch(ctx, j.node.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	switch {
	case err == nil:
		return judge(j, live)
	case absent(err, j.node.Name):
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
	case absent(err, j.node.Name):
		return finding{job: j, outcome: gone}
	}
	return finding{job: j, outcome: unknown, err: fmt.Errorf("reading Node %s: %w", j.node.Name, err)}
}

// absent tells whether an API server said that there is no Node of that name. A 404 alone does
// not: proxies and load balancers on the way send it too, and client-go makes a NotFound of it
// that names what was asked for. That one is marked by its cause, and one made by others lacks
// the name.
func absent(err error, name string) bool {
	var answer apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &answer) {
		return false
	}
	about := answer.Status().Details
	return about != nil && about.Group == "" && about.Kind == "nodes" && about.Name == name &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
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

// podCIDRPatch sets podCIDR and podCIDRs together: apart, the API would derive one from the
// other. A merge patch replaces the list, where a strategic one would add to it. The UID keeps
// it from a Node that was created anew under the same name.
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
