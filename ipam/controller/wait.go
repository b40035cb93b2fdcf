package controller

import (
	"context"
	"errors"
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

// wait lets an unserved Node wait, and sets its condition.
func (d *decider) wait(ctx context.Context, n *node, reason string, err error) {
	if u := n.unserved(); u.turn == nil {
		u.turn = d.waiting.PushBack(n)
		klog.FromContext(ctx).Info("Node waits for podCIDRs", "node", n.Name, "reason", reason, "err",
			err)
	}
	d.warnOnce(n, reason, "", strings.ReplaceAll(err.Error(), "\n", "; "))
	if len(d.routes.strange) > 0 {
		d.expireIn(quarantineLook)
	}
	if n.own.known && (errors.Is(err, ipam.ErrNoOwn) || errors.Is(err, ipam.ErrSharedOwn)) {
		// The machine may be given a prefix later, without a notification.
		n.own = ownPrefix{}
		d.queue.AddAfter(n.Name, ownAgain)
	}
	if live := d.cachedNode(n.Node); live != nil {
		d.setCondition(n, live, reason)
	}
}

// wake retries the waiting Nodes if capacity was freed, the longest waiting first.
func (d *decider) wake(ctx context.Context) {
	if !d.freed {
		return
	}
	d.freed = false
	for e := d.waiting.Front(); e != nil; {
		n := e.Value.(*node)
		e = e.Next()
		if !n.busy {
			d.reserve(ctx, n)
		}
	}
}

func (d *decider) stopWaiting(n *node) {
	if u := n.unserved(); u != nil && u.turn != nil {
		d.waiting.Remove(u.turn)
		u.turn = nil
	}
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
		if has == nil && n.condition.reason == "" {
			return
		}
	}
	if n.condition.writing || n.condition.reason == want.Reason ||
		has != nil && has.Status == want.Status && has.Reason == want.Reason {
		return
	}
	n.condition.reason, n.condition.writing = want.Reason, true
	d.minor = append(d.minor, &conditionRequest{live: live, condition: want})
}
