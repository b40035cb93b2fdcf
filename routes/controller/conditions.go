package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// entry is what a node is to be told, and whether that may take back an earlier
// "reachable".
type entry struct {
	routes.Verdict
	settled bool
}

// board holds the newest verdict of every node, written by passes and read by
// the workers that tell nodes.
type board struct {
	mu       sync.Mutex
	verdicts map[types.UID]entry
	newest   *kube.Newest[*corev1.Node]
}

func newBoard() board {
	return board{verdicts: map[types.UID]entry{}, newest: kube.NewNewest[*corev1.Node]()}
}

func (b *board) post(uid types.UID, e entry) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, known := b.verdicts[uid]
	b.verdicts[uid] = e
	return !known || old != e
}

// look returns the node as new as we know it, and what it is to be told.
func (b *board) look(cached *corev1.Node) (*corev1.Node, entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.verdicts[cached.UID]
	return b.newest.Of(cached), e, ok
}

// wrote notes what a Node was told. That is its verdict if no pass has one yet,
// so that keep knows of every Node that is remembered.
func (b *board) wrote(node *corev1.Node, e entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newest.Wrote(node)
	if _, known := b.verdicts[node.UID]; !known {
		b.verdicts[node.UID] = e
	}
}

// keep forgets Nodes that are not among uids.
func (b *board) keep(uids map[string]types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	alive := make(map[types.UID]bool, len(uids))
	for _, uid := range uids {
		alive[uid] = true
	}
	for uid := range b.verdicts {
		if !alive[uid] {
			delete(b.verdicts, uid)
			b.newest.Forget(uid)
		}
	}
}

// publish posts a decision's verdicts. Only the last of a pass is settled:
// until then a route that is missing may be about to be restored. That a server
// isn't attached counts only where somebody has just looked for it.
func (c *Controller) publish(d decision, a *attempt, settled bool) {
	for _, n := range d.nodes {
		v, uid := d.verdicts[n.Name], d.uids[n.Name]
		if v.Reason == routes.NotAttached && !a.looked[uid] {
			continue
		}
		for _, dst := range n.Dsts {
			if err := c.retries.err(dst); err != nil && !v.Reachable && v.Reason == routes.NoRouteCreated && v.Event == "" {
				v.Message = err.Error()
			}
		}
		if c.board.post(uid, entry{v, settled}) {
			c.conditions.Add(n.Name)
		}
	}
	c.metrics.show(d, c.Reserve)
}

func (c *Controller) tellNodes(ctx context.Context) {
	for {
		name, stop := c.conditions.Get()
		if stop {
			return
		}
		if err := c.tell(ctx, name); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Node not told about its routes; trying again", "node", name)
			c.conditions.AddRateLimited(name)
		} else {
			c.conditions.Forget(name)
		}
		c.conditions.Done(name)
	}
}

// tell brings one Node's NetworkUnavailable condition to what is known of it. A
// Node seen for the first time is unavailable until proved otherwise.
func (c *Controller) tell(ctx context.Context, name string) error {
	cached, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	node, e, known := c.board.look(cached)
	if !known {
		e = entry{Verdict: routes.Verdict{Reason: routes.NoRouteCreated, Message: "waiting for a podCIDR and its route"}}
	}
	if !c.news(node, e, known) {
		return nil
	}
	patched, err := kube.SetCondition(ctx, c.Client, node, condition(e.Verdict), time.Now())
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c.board.wrote(patched, e)
	if e.Event != "" {
		c.Recorder.Event(node, corev1.EventTypeWarning, e.Event, e.Message)
	}
	return nil
}

// news reports whether the Node's condition differs in a way that matters: its
// status, why it is unavailable, or what people are to do about it. Who
// declared it reachable doesn't matter. What the condition says is also the
// memory of the Events that were sent, which outlives this process.
func (c *Controller) news(node *corev1.Node, e entry, known bool) bool {
	old := kube.Condition(node, corev1.NodeNetworkUnavailable)
	if old == nil || old.Status == corev1.ConditionUnknown {
		return true
	}
	if !known {
		return false
	}
	wasReachable := old.Status == corev1.ConditionFalse
	switch {
	case wasReachable && e.Reachable:
		return false
	case wasReachable:
		return e.settled && !e.Unproved
	case e.Reachable:
		return true
	default:
		// What a pass is about to try may fail, and then nothing has changed.
		return e.settled && (old.Reason != string(e.Reason) || e.Event != "" && old.Message != e.Message)
	}
}

func condition(v routes.Verdict) corev1.NodeCondition {
	status := corev1.ConditionTrue
	if v.Reachable {
		status = corev1.ConditionFalse
	}
	return corev1.NodeCondition{
		Type:    corev1.NodeNetworkUnavailable,
		Status:  status,
		Reason:  string(v.Reason),
		Message: v.Message,
	}
}
