package controller

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// proof is how long an unserved Node must wait to prove that there is no other allocator.
const proof = time.Minute

var errSecondAllocator = errors.New("another allocator gives podCIDRs to Nodes of this cluster: start kube-controller-manager with --allocate-node-cidrs=false, or apply the admission policy underlay-podcidrs, which refuses all podCIDRs but ours. Allocation goes on when a Node has waited a minute without being served")

// otherAllocator is the evidence of another component that sets podCIDRs. Two allocators
// without each other's reservations hand out the same prefixes sooner or later.
type otherAllocator struct {
	last    time.Time // its latest write, on the API server's clock
	ours    time.Time // the latest write by this controller, on that clock
	seen    time.Time // when its last write was observed; zero: inactive
	node    types.UID // the Node of its last write
	manager string    // its field manager
	check   bool      // the admission policy is to be checked
	checked time.Time // when it was last checked
	refused bool      // the policy blocks the other allocator
}

// stops reports whether another allocator is active and not blocked by the policy.
func (o *otherAllocator) stops() bool { return !o.seen.IsZero() && !o.refused }

// stop reports whether allocation must stop, and how long the Node must wait at least as proof.
func (o *otherAllocator) stop(n *node, now time.Time) (wait time.Duration, stop bool) {
	if !o.stops() {
		n.stopped = time.Time{}
		return 0, false
	}
	if n.stopped.IsZero() {
		n.stopped = now
	}
	since := n.stopped
	if o.seen.After(since) {
		since = o.seen
	}
	if wait = proof - now.Sub(since); wait <= 0 {
		o.seen, n.stopped = time.Time{}, time.Time{}
		return 0, false
	}
	o.check = o.check || now.Sub(o.checked) >= proof
	return wait, true
}

// settle evaluates the writes from before this process started: if the latest is this
// controller's, another process has already found the other allocator to be inactive.
func (o *otherAllocator) settle() {
	if !o.ours.Before(o.last) {
		o.seen = time.Time{}
	}
}

// ancientManagers is the manager that the API server merges the oldest of more than ten
// managers into: the component that set a field is unknown then.
const ancientManagers = "ancient-changes"

// IsAllocator reports whether a field manager is a program that allocates podCIDRs. Users, and
// kubelets that set their own, are not: their podCIDRs are adopted.
func IsAllocator(manager string) bool {
	for _, other := range []string{fieldManager, "kubectl", "kubelet", "kubeadm", ancientManagers} {
		if strings.HasPrefix(manager, other) {
			return false
		}
	}
	return true
}

// suspect checks a Node with podCIDRs for writes of another allocator. podCIDRs set before the
// ledger existed are from before a migration to Underlay. The time of a manager's entry also
// changes with its other fields, such as the taints of kube-controller-manager, so for a Node
// that is in the ledger the creation time counts, which is immutable.
func (d *decider) suspect(ctx context.Context, live *corev1.Node, expected bool) {
	manager, at, ok := kube.PodCIDRSetter(live)
	if !ok {
		return
	}
	o := &d.other
	if manager == fieldManager {
		if at.After(o.ours) {
			o.ours = at
		}
		return
	}
	since, inUse := d.objects.Made()
	if !inUse || !IsAllocator(manager) {
		return // set before the migration to Underlay
	}
	if expected {
		at = live.CreationTimestamp.Time
	}
	if !at.After(since) || !at.After(o.last) {
		return
	}
	o.last, o.seen, o.refused, o.checked = at, time.Now(), false, time.Time{}
	o.node, o.manager = live.UID, manager
	if d.loaded {
		d.warnSecondAllocator(ctx)
	}
}

// warnSecondAllocator reports the Node that was written by another allocator.
func (d *decider) warnSecondAllocator(ctx context.Context) {
	n, ok := d.nodes[d.other.node]
	if !ok || d.other.seen.IsZero() {
		return
	}
	klog.FromContext(ctx).Error(errSecondAllocator, "Another allocator is at work", "manager",
		d.other.manager, "node", n.Name, "at", d.other.last)
	d.warnOnce(n, reasonSecondAllocator, "",
		"the podCIDRs of this Node were set by "+d.other.manager+": "+errSecondAllocator.Error())
}
