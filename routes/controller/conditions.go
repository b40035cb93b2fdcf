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

// posted is a status, and whether it may withdraw an earlier Reachable.
type posted struct {
	routes.NodeStatus
	final bool
}

// statuses holds the latest status of every node. Passes write it, condition workers read it.
type statuses struct {
	mu     sync.Mutex
	of     map[types.UID]posted
	last   map[types.UID]written
	newest *kube.Newest[*corev1.Node]
}

type written struct {
	posted
	at time.Time
}

// overwrittenPause is how long this process leaves a status that another process has
// overwritten: a former leader that has not noticed the loss of its lease would otherwise
// overwrite its successor at once.
const overwrittenPause = time.Second

func newStatuses() statuses {
	return statuses{
		of: map[types.UID]posted{}, last: map[types.UID]written{}, newest: kube.NewNewest[*corev1.Node](),
	}
}

// pause returns how long to wait before the same status is written again.
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

// get returns the newest observed version of the node, and its status.
func (v *statuses) get(cached *corev1.Node) (node *corev1.Node, p posted, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, known = v.of[cached.UID]
	return v.newest.Of(cached), p, known
}

// wrote records the status that was written to a Node. It becomes the Node's status if no pass
// has set one yet, so that keep covers every Node.
func (v *statuses) wrote(node *corev1.Node, p posted) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.newest.Wrote(node)
	v.last[node.UID] = written{p, time.Now()}
	if _, known := v.of[node.UID]; !known {
		v.of[node.UID] = p
	}
}

// keep drops the state of Nodes that don't exist.
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

// publish posts a decision's statuses. Only those at the end of a pass are final: before, a
// missing route may be about to be restored. NotAttached counts only if this pass looked up
// the server.
func (c *Controller) publish(d decision, a *attempt, final bool) {
	for _, n := range d.Nodes {
		v, uid := d.statuses[n.Name], d.uids[n.Name]
		if v.Reason == routes.NotAttached && !a.looked[uid] {
			continue
		}
		for _, dst := range n.Dsts {
			if err := c.retries.err(dst); err != nil && !v.Reachable && v.Reason == routes.NoRouteCreated &&
				v.Event == "" {
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
	kube.Work(ctx, c.conditions, "The state of its routes is not written to a Node; trying again",
		c.report)
}

// report updates a Node's NetworkUnavailable condition. A new Node is unavailable at first.
func (c *Controller) report(ctx context.Context, name string) error {
	cached, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	node, p, known := c.statuses.get(cached)
	if !known {
		p = posted{
			NodeStatus: routes.NodeStatus{
				Reason: routes.NoRouteCreated, Message: "waiting for a podCIDR and its route",
			},
		}
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

// news reports whether the Node's condition differs in its status, its reason for being
// unavailable, or the remedy. Which component declared the Node reachable doesn't matter. The
// condition also records which Events were sent, and outlives this process.
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
		// A planned write may fail, and then nothing has changed.
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
