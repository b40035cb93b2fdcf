package controller

import (
	"context"
	"errors"
	"slices"
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
	checked time.Time // when the admission policy was last to be checked
	refused bool      // the policy blocks the other allocator
}

// stops reports whether another allocator is active and not blocked by the policy.
func (o *otherAllocator) stops() bool { return !o.seen.IsZero() && !o.refused }

// mustStop reports whether another allocator stops the allocation for an unserved Node, which then
// is requeued until it has waited long enough as proof.
func (d *decider) mustStop(n *node) bool {
	o, u := &d.other, n.unserved()
	if !o.stops() {
		u.stopped = time.Time{}
		return false
	}
	now := time.Now()
	if u.stopped.IsZero() {
		u.stopped = now
	}
	left := proof - min(now.Sub(u.stopped), now.Sub(o.seen))
	if left <= 0 {
		o.seen, u.stopped = time.Time{}, time.Time{}
		return false
	}
	if now.Sub(o.checked) >= proof {
		o.checked = now
		d.minor = slices.Insert(d.minor, 0, request(&policyRequest{}))
	}
	d.queue.AddAfter(n.Name, max(left, time.Second))
	return true
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
