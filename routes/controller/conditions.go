package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// posted is a status, whether it may withdraw an earlier Reachable, and whether its message is the
// error of a write.
type posted struct {
	routes.NodeStatus
	final, failed bool
}

// overwrittenPause is how long this process leaves a condition that another process has
// overwritten: a former leader that has not noticed the loss of its lease would otherwise
// overwrite its successor at once.
const overwrittenPause = time.Second

// post sets a Node's status, and reports whether it has changed.
func (c *Controller) post(uid types.UID, p posted) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.posted[uid]
	c.posted[uid] = p
	return !known || old != p
}

// status returns a Node's status. A new Node is unavailable at first.
func (c *Controller) status(uid types.UID) posted {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, known := c.posted[uid]; known {
		return p
	}
	return posted{NodeStatus: routes.NodeStatus{
		Reason: routes.NoRouteCreated, Message: "waiting for a podCIDR and its route",
	}}
}

// publish posts a decision's statuses. Only those at the end of a pass are final: before, a
// missing route may be about to be restored. NotAttached counts only if this pass looked up
// the server.
func (c *Controller) publish(d decision, a *attempt, final bool) {
	for _, n := range d.Nodes {
		v, uid, failed := d.statuses[n.Name], d.uids[n.Name], false
		if v.Reason == routes.NotAttached && !a.looked[uid] {
			continue
		}
		for _, dst := range n.Dsts {
			err := c.retries.failures[dst].err
			if err != nil && !v.Reachable && v.Reason == routes.NoRouteCreated && v.Event == "" {
				v.Message, failed = err.Error(), true
			}
		}
		if c.post(uid, posted{v, final, failed}) {
			c.conditions.Add(n.Name)
		}
	}
	c.metrics.show(d)
}

// report updates a Node's NetworkUnavailable condition.
func (c *Controller) report(ctx context.Context, name string) error {
	cached, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	node, p := c.newest.Of(cached), c.status(cached.UID)
	if !news(node, p) {
		return nil
	}
	condition := corev1.NodeCondition{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: string(p.Reason),
		Message: p.Message,
	}
	if p.Reachable {
		condition.Status = corev1.ConditionFalse
	}
	patched, err := kube.SetCondition(ctx, c.Client, node, condition, time.Now())
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c.newest.Wrote(patched)
	if p.Event != "" {
		c.Recorder.Event(node, corev1.EventTypeWarning, p.Event, p.Message)
	}
	return nil
}

// news reports whether the Node's condition differs in its status, its reason for being
// unavailable, the remedy, or the error. Which component declared the Node reachable doesn't
// matter. The condition also records which Events were sent, and outlives this process.
func news(node *corev1.Node, p posted) bool {
	old := kube.Condition(node, corev1.NodeNetworkUnavailable)
	if old == nil || old.Status == corev1.ConditionUnknown {
		return true
	}
	wasReachable := old.Status == corev1.ConditionFalse
	switch {
	case p.Reachable:
		return !wasReachable
	case wasReachable:
		return p.final && !p.Unproved
	default:
		// A planned write may fail, and then nothing has changed.
		return p.final && (old.Reason != string(p.Reason) ||
			(p.Event != "" || p.failed) && old.Message != p.Message)
	}
}
