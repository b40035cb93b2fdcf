package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

// PodCIDRsAllocated is the Node condition that is False while a Node can't be given podCIDRs.
// Nodes that never had to wait don't have it, which saves a write for each.
const PodCIDRsAllocated corev1.NodeConditionType = "underlay.dev/PodCIDRsAllocated"

// ownAgain is the interval for looking up an own IPv6 prefix that a machine doesn't have yet.
const ownAgain = time.Minute

var errLedgerFull = errors.New("a ConfigMap of the stored ledger is as large as one can be: " +
	"delete Nodes that are gone, or run more and smaller clusters")

// wait lets a Node wait, and sets its condition.
func (d *decider) wait(ctx context.Context, n *node, reason string, err error) {
	if d.startWaiting(n) {
		klog.FromContext(ctx).Info("Node waits for podCIDRs", "node", n.Name, "reason", reason, "err",
			err)
	}
	d.warnOnce(n, reason, "", strings.ReplaceAll(err.Error(), "\n", "; "))
	if len(d.routes.warned) > 0 {
		d.expireIn(quarantineLook)
	}
	if n.own.known && (errors.Is(err, ipam.ErrNoOwn) || errors.Is(err, ipam.ErrSharedOwn)) {
		// The machine may be given a prefix later, without a notification.
		n.own = ownPrefix{}
		d.queue.AddAfter(n.Name, ownAgain)
	}
	if live, gone := d.lister.Get(n.Name); gone == nil && string(live.UID) == n.UID {
		d.setCondition(n, live, reason)
	}
}

// wake retries the waiting Nodes if capacity was freed, the longest waiting first.
func (d *decider) wake(ctx context.Context) {
	if !d.freed {
		return
	}
	d.freed = false
	var waiting []*node
	for _, n := range d.nodes {
		if n.turn > 0 && !n.busy && !n.gone() {
			waiting = append(waiting, n)
		}
	}
	slices.SortFunc(waiting, func(a, b *node) int { return cmp.Compare(a.turn, b.turn) })
	for _, n := range waiting {
		d.reserve(ctx, n)
	}
}

// startWaiting appends a Node to the waiting ones. It reports false if it waits already.
func (d *decider) startWaiting(n *node) bool {
	if n.turn > 0 {
		return false
	}
	d.turns++
	n.turn = d.turns
	d.waiting++
	return true
}

func (d *decider) stopWaiting(n *node) {
	if n.turn > 0 {
		n.turn = 0
		d.waiting--
	}
}

// A notice is a condition to be set on a Node.
type notice struct {
	node      *node
	live      *corev1.Node
	condition corev1.NodeCondition
}

// setCondition sets the Node's condition to the reason why it waits. Without a reason it sets the
// condition to True, but only on a Node that had to wait.
func (d *decider) setCondition(n *node, live *corev1.Node, reason string) {
	has := kube.Condition(live, PodCIDRsAllocated)
	want := corev1.NodeCondition{
		Type: PodCIDRsAllocated, Status: corev1.ConditionFalse, Reason: reason,
		Message: conditionMessages[reason],
	}
	if reason == "" {
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, reasonPodCIDRAllocated, "The Node has its podCIDRs"
		if has == nil && n.shownReason == "" {
			return
		}
	}
	if n.writingCondition || n.shownReason == want.Reason ||
		has != nil && has.Status == want.Status && has.Reason == want.Reason {
		return
	}
	n.shownReason, n.writingCondition = want.Reason, true
	d.notices = append(d.notices, notice{n, live, want})
}
