package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// posted is a status, and whether it may take back an earlier "reachable".
type posted struct {
	routes.NodeStatus
	final bool
}

// statuses holds the newest status of every node, written by passes and read by
// the workers that write conditions.
type statuses struct {
	mu     sync.Mutex
	of     map[types.UID]posted
	last   map[types.UID]written
	newest *kube.Newest[*corev1.Node]
}

// written is a status that this process has written.
type written struct {
	posted
	at time.Time
}

// overwrittenPause is how long a status stays that somebody has written over this process's: a former
// leader that does not know yet that it is one, and would write over the next one at once.
const overwrittenPause = time.Second

func newStatuses() statuses {
	return statuses{
		of: map[types.UID]posted{}, last: map[types.UID]written{}, newest: kube.NewNewest[*corev1.Node](),
	}
}

// pause is how long to wait before a status is written again that was written before.
func (v *statuses) pause(uid types.UID, p posted, now time.Time) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	last, known := v.last[uid]
	if !known || last.NodeStatus != p.NodeStatus {
		return 0
	}
	return max(0, last.at.Add(overwrittenPause).Sub(now))
}

func (v *statuses) post(uid types.UID, p posted) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old, known := v.of[uid]
	v.of[uid] = p
	return !known || old != p
}

// get returns the node as new as we know it, and its status.
func (v *statuses) get(cached *corev1.Node) (node *corev1.Node, p posted, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, known = v.of[cached.UID]
	return v.newest.Of(cached), p, known
}

// wrote notes what a Node was told. That is its status if no pass has one yet,
// so that keep knows of every Node that is remembered.
func (v *statuses) wrote(node *corev1.Node, p posted) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.newest.Wrote(node)
	v.last[node.UID] = written{p, time.Now()}
	if _, known := v.of[node.UID]; !known {
		v.of[node.UID] = p
	}
}

// keep forgets Nodes that are not alive.
func (v *statuses) keep(alive map[types.UID]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for uid := range v.of {
		if !alive[uid] {
			delete(v.of, uid)
			delete(v.last, uid)
			v.newest.Forget(uid)
		}
	}
}

// publish posts a decision's statuses. Only the last ones of a pass are final:
// until then a route that is missing may be about to be restored. That a server
// isn't attached counts only if this pass looked for it.
func (c *Controller) publish(d decision, a *attempt, final bool) {
	for _, n := range d.Nodes {
		v, uid := d.statuses[n.Name], d.uids[n.Name]
		if v.Reason == routes.NotAttached && !a.looked[uid] {
			continue
		}
		for _, dst := range n.Dsts {
			if err := c.retries.err(dst); err != nil && !v.Reachable && v.Reason == routes.NoRouteCreated && v.Event == "" {
				v.Message = err.Error()
			}
		}
		if c.statuses.post(uid, posted{v, final}) {
			c.conditions.Add(n.Name)
		}
	}
	c.metrics.show(d)
}

func (c *Controller) tellNodes(ctx context.Context) {
	kube.Work(ctx, c.conditions, "Node not told about its routes; trying again", c.tell)
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
	node, p, known := c.statuses.get(cached)
	if !known {
		p = posted{NodeStatus: routes.NodeStatus{Reason: routes.NoRouteCreated, Message: "waiting for a podCIDR and its route"}}
	}
	if !c.news(node, p, known) {
		return nil
	}
	if rest := c.statuses.pause(node.UID, p, time.Now()); rest > 0 {
		c.conditions.AddAfter(name, rest)
		return nil
	}
	patched, err := kube.SetCondition(ctx, c.Client, node, condition(p.NodeStatus), time.Now())
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c.statuses.wrote(patched, p)
	if p.Event != "" {
		c.Recorder.Event(node, corev1.EventTypeWarning, p.Event, p.Message)
	}
	return nil
}

// news reports whether the Node's condition differs in a way that matters: its
// status, why it is unavailable, or what people are to do about it. Who
// declared it reachable doesn't matter. What the condition says is also the
// memory of the Events that were sent, which outlives this process.
func (c *Controller) news(node *corev1.Node, p posted, known bool) bool {
	old := kube.Condition(node, corev1.NodeNetworkUnavailable)
	if old == nil || old.Status == corev1.ConditionUnknown {
		return true
	}
	if !known {
		return false
	}
	wasReachable := old.Status == corev1.ConditionFalse
	switch {
	case wasReachable && p.Reachable:
		return false
	case wasReachable:
		return p.final && !p.Unproved
	case p.Reachable:
		return true
	default:
		// What a pass is about to try may fail, and then nothing has changed.
		return p.final && (old.Reason != string(p.Reason) || p.Event != "" && old.Message != p.Message)
	}
}

func condition(v routes.NodeStatus) corev1.NodeCondition {
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
