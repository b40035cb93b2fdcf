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

// proof is how long a Node must have waited without anybody serving it to prove that there is no
// other allocator any more.
const proof = time.Minute

// errSecondAllocator is said to Nodes that wait because of it.
var errSecondAllocator = errors.New("another allocator gives podCIDRs to Nodes of this cluster: start kube-controller-manager with --allocate-node-cidrs=false, or apply the admission policy underlay-podcidrs, which refuses all podCIDRs but ours. Allocation goes on when a Node has waited a minute and nobody served it")

// otherAllocator is what is known of somebody else who sets podCIDRs. Two that don't know each
// other's reservations hand out the same prefixes sooner or later.
type otherAllocator struct {
	last    time.Time // the latest sign of it, on the API server's clock
	ours    time.Time // the latest sign of our own, on that clock
	seen    time.Time // when its last sign was noticed; zero: it isn't at work
	node    types.UID // the Node that has the last sign
	manager string    // under which name it shows
	ask     bool      // the API server is to be asked for the admission policy
	asked   time.Time // when it last was
	refused bool      // the policy keeps the other from doing anything
}

// stops reports whether there is another that nothing keeps from its work.
func (o *otherAllocator) stops() bool { return !o.seen.IsZero() && !o.refused }

// stop reports whether allocation must stop, and how long the Node has to wait at least, which
// proves with its waiting that there is no other any more.
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
	o.ask = o.ask || now.Sub(o.asked) >= proof
	return wait, true
}

// settle judges the signs that were there before this process: if the latest is ours, the other
// has been found to be gone already.
func (o *otherAllocator) settle() {
	if !o.ours.Before(o.last) {
		o.seen = time.Time{}
	}
}

// ancientManagers is what the API server makes of the oldest entries of more than ten managers:
// whoever set a field among them is not known.
const ancientManagers = "ancient-changes"

// IsAllocator reports whether a field manager is a program that hands out podCIDRs. People, and
// kubelets that bring theirs along, are none: what they set is adopted.
func IsAllocator(manager string) bool {
	for _, other := range []string{fieldManager, "kubectl", "kubelet", "kubeadm", ancientManagers} {
		if strings.HasPrefix(manager, other) {
			return false
		}
	}
	return true
}

// suspect looks for signs of another allocator on a Node that has podCIDRs. What was set before
// the ledger existed is the past of a cluster that moved here. The time of a manager's entry also
// moves with other fields that it sets, such as the taints of kube-controller-manager. So a Node
// that the ledger knew counts from its creation, which never moves.
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
	if d.file.empty || !IsAllocator(manager) {
		return // what is there before the ledger is the past of a cluster that moved here
	}
	if expected {
		at = live.CreationTimestamp.Time
	}
	if since := d.file.made; !at.After(since) || !at.After(o.last) {
		return
	}
	o.last, o.seen, o.refused, o.asked = at, time.Now(), false, time.Time{}
	o.node, o.manager = live.UID, manager
	if d.loaded {
		d.tellSecondAllocator(ctx)
	}
}

// tellSecondAllocator names the Node that shows the other at work.
func (d *decider) tellSecondAllocator(ctx context.Context) {
	n, ok := d.nodes[d.other.node]
	if !ok || d.other.seen.IsZero() {
		return
	}
	klog.FromContext(ctx).Error(errSecondAllocator, "Another allocator is at work", "manager", d.other.manager, "node", n.Name, "at", d.other.last)
	d.tell(n, reasonSecondAllocator, "", "the podCIDRs of this Node were set by "+d.other.manager+": "+errSecondAllocator.Error())
}
