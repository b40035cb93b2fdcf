package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// attempt is the state of a running pass.
type attempt struct {
	// stood has the routes that existed when the servers were listed for this pass, so that
	// all of them are older than the information about servers: only these may be deleted or
	// replaced. nil means that the servers weren't listed, and allows none.
	stood map[routes.Route]bool
	// by is when the information becomes too old for deletions and replacements, counted from
	// the list of routes that followed those of servers and Nodes.
	by time.Time
	// looked has the Nodes whose servers were looked up in this pass.
	looked map[types.UID]bool
	// podCIDRs are those of a live list of Nodes; nil: not listed, and nothing is deleted.
	podCIDRs []netip.Prefix
	// removed is the number of routes that the pass deleted or replaced.
	removed int
}

var errNotLeading = errors.New("this process may not lead any more")

// maxListAge limits the age of lists for deletions: well below the time until another may lead.
func (c *Controller) maxListAge() time.Duration { return c.Lease / 2 }

// certain reports whether lists of routes and servers are new enough to delete and replace.
func (a *attempt) certain() bool { return a.stood != nil && time.Now().Before(a.by) }

// mayDelete reports whether routes may be deleted. If not, only free room can be used.
func (a *attempt) mayDelete() bool { return a.certain() && a.podCIDRs != nil }

// pass reconciles the table with the Nodes. It sends no request if the last list needs no change.
func (c *Controller) pass(ctx context.Context, why trigger) error {
	c.record.load(ctx, time.Now())
	if _, err := c.nodes(); err != nil {
		return err
	}
	listed := why == resync || c.table == nil
	if listed {
		if err := c.list(ctx); err != nil {
			return err
		}
	}
	d, err := c.decide(ctx, nil, false)
	if err != nil {
		return err
	}
	if err := c.admit(d); err != nil {
		return err
	}
	a := attempt{looked: map[types.UID]bool{}}
	// A deletion depends on the owner of a gateway, a replacement on the correct one.
	if d.Plan.Count(routes.Delete)+d.Plan.Count(routes.Replace) > 0 {
		err = c.lookForServers(ctx, d, &a)
	} else {
		d, err = c.lookForWaiting(ctx, d, &a)
	}
	if err != nil {
		return err
	}
	// Deletions require the routes to be in a list that follows the one of servers. And a
	// route missing in an old list may have been added since.
	var notLeading error
	if a.stood != nil || !listed && (len(d.Plan.Steps) > 0 || d.lookAgain || len(a.looked) > 0) {
		if err := c.list(ctx); err != nil {
			return err
		}
		a.by = c.requested.Add(c.maxListAge())
		if a.stood != nil { // after all lists: this process may have been suspended before
			if err := c.Leading(ctx); err != nil { // then routes are only added
				notLeading = fmt.Errorf("before routes are deleted or replaced: %w: %w", errNotLeading, err)
				a.stood, a.podCIDRs, a.by = map[routes.Route]bool{}, nil, time.Time{}
			}
		}
		if d, err = c.decide(ctx, &a, false); err != nil {
			return err
		}
	}
	return errors.Join(c.converge(ctx, d, &a), notLeading)
}

// admit returns an error if another cluster uses this cluster's pod range.
func (c *Controller) admit(d decision) error {
	if !c.admitted && d.Ownership.AnotherCluster() {
		if _, known := c.Departed(); !known || !c.record.loaded {
			return errors.New("routes in the pod range lead to servers that are no Nodes, and the record of routes and the Nodes that left are not known yet")
		}
		var ranges []string
		for _, r := range c.Ranges {
			ranges = append(ranges, r.Prefix.String())
		}
		return fmt.Errorf("--cluster-cidr %s: %w: %d of its routes stand in the network, such as %s, and this cluster wrote or adopted none there; give each cluster on a network a range of its own, or remove those routes if nothing uses them",
			strings.Join(ranges, ","), errAnotherCluster, len(d.Ownership.Ambiguous),
			d.Ownership.Ambiguous[0])
	}
	c.admitted = true
	return nil
}

// lookForServers lists servers for a pass that deletes or replaces, and Nodes if it deletes: a
// cache may be older than a Node with a route that another manager wrote.
func (c *Controller) lookForServers(ctx context.Context, d decision, a *attempt) error {
	a.stood = make(map[routes.Route]bool, len(c.table))
	for _, r := range c.table {
		a.stood[r] = true
	}
	deleting := d.Plan.Count(routes.Delete) > 0
	d, err := c.decide(ctx, nil, true)
	if err != nil {
		return err
	}
	for _, name := range d.Waiting() {
		c.poll.polled(d.uids[name], time.Now())
		a.looked[d.uids[name]] = true
	}
	if !deleting {
		return nil
	}
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Nodes before routes are deleted: %w", err)
	}
	a.podCIDRs = []netip.Prefix{}
	for i := range nodes.Items {
		// podCIDRs that can't be parsed have no route either: see RouteNode.
		prefixes, _ := kube.PodCIDRs(&nodes.Items[i])
		a.podCIDRs = append(a.podCIDRs, prefixes...)
	}
	return nil
}

// lookForWaiting looks up the servers of waiting Nodes until none is due, and decides again.
func (c *Controller) lookForWaiting(ctx context.Context, d decision, a *attempt) (decision, error) {
	for {
		var due []*corev1.Node
		turn, now := false, time.Now()
		for _, name := range d.Waiting() {
			node, err := c.lister.Get(name)
			if err == nil && c.poll.soon(node.UID, now) {
				due = append(due, node)
				turn = turn || c.poll.wait(node.UID, now) == 0
			}
		}
		if !turn {
			return d, nil
		}
		if err := c.Gateways.Look(ctx, due); err != nil {
			return d, fmt.Errorf("looking for the servers of Nodes that wait: %w", err)
		}
		for _, node := range due {
			c.poll.polled(node.UID, time.Now())
			a.looked[node.UID] = true
		}
		var err error
		if d, err = c.decide(ctx, a, false); err != nil {
			return d, err
		}
	}
}

// converge applies one step after the other. Failed destinations are retried later.
func (c *Controller) converge(ctx context.Context, d decision, a *attempt) error {
	for {
		var err error
		// Nodes may have joined since the pass began.
		if d, err = c.lookForWaiting(ctx, d, a); err != nil {
			return err
		}
		step, more := next(d.Plan, a.certain())
		c.publish(d, a, !more)
		c.remember(ctx, d)
		if !more {
			c.finish(ctx, d, a)
			return d.Gateways.Doubt
		}
		if err := c.carryOut(ctx, step, a); err != nil {
			return err
		}
		if d, err = c.decide(ctx, a, false); err != nil {
			return err
		}
	}
}

// remember records the adopted routes and all that the plan will write, in a single request.
func (c *Controller) remember(ctx context.Context, d decision) {
	wanted := slices.Clone(d.Ownership.Adopted)
	for _, step := range d.Plan.Steps {
		if step.Verb != routes.Delete {
			wanted = append(wanted, step.New.Route)
		}
	}
	c.record.keep(ctx, wanted, time.Now())
	if err := c.record.err; err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Routes can't be recorded; trying again")
	}
	c.events.unrecorded(c.record.err)
}

// next returns the plan's first step that the available information allows.
func next(p routes.Plan, fresh bool) (routes.Step, bool) {
	for _, s := range p.Steps {
		if fresh || s.Verb == routes.Add {
			return s, true
		}
	}
	return routes.Step{}, false
}

// carryOut applies one step. It returns an error only if the pass must end.
func (c *Controller) carryOut(ctx context.Context, step routes.Step, a *attempt) error {
	log := klog.FromContext(ctx).WithValues("verb", step.Verb, "route", step.Route(), "node",
		step.New.Node)
	if step.Verb == routes.Delete {
		c.deleted++
	}
	requested := time.Now()
	err := c.write(ctx, step, a.by)
	c.metrics.wrote(step, err)
	if err == nil {
		c.table = step.Apply(c.table)
		c.retries.succeeded(step.Route().Dst)
		if step.Verb != routes.Delete {
			// Not the time of the reply, which may be late and after the route was deleted.
			c.written[step.New.Dst] = requested
			c.learned.grew(len(c.table))
		}
		if step.Verb != routes.Add {
			a.removed++
		}
		log.V(1).Info("Route written")
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	log.Info("Route not written", "err", err)
	full := errors.Is(err, routes.ErrFull)
	if !full {
		c.retries.failed(step.Route().Dst, err, time.Now())
	}
	if step.Verb == routes.Delete {
		c.unsettled[step.Old.Dst] = a.by.Add(c.maxListAge())
	}
	// Whether a failed write was applied is unknown, so list the table. A route that is new in
	// this list is newer than the list of servers, and so not in a.stood.
	if err := c.list(ctx); err != nil {
		return err
	}
	if full {
		c.learned.refused(len(c.table), time.Now())
	}
	return nil
}

// finish ends a pass. It schedules another if time or a newer list of servers may matter.
func (c *Controller) finish(ctx context.Context, d decision, a *attempt) {
	now := time.Now()
	c.forgetGone(d.uids)
	c.markReach(ctx, d)
	c.events.decided(d)
	mayDelete, certain := a.mayDelete(), a.certain()
	if mayDelete || len(d.Plan.Postponed) == 0 {
		c.events.capped(len(d.Plan.Postponed), c.MaxDeletions)
	}
	// Deletions may be postponed only because this pass listed no servers. If its lists became
	// too old to be used, another pass at once would never end.
	left := !certain && d.Plan.Count(routes.Replace) > 0 || !mayDelete &&
		len(d.Plan.Postponed) > 0 && c.budget(true, now).Deletions(len(d.Ownership.Ours)) > 0
	switch {
	case d.lookAgain, left && (a.stood == nil || a.removed > 0):
		c.passes.Add(change)
	case left && !certain:
		klog.FromContext(ctx).Info("Stale or wrong routes are neither deleted nor replaced: since they were listed, requests to the cloud took too long", "listed", c.requested, "limit", c.maxListAge())
	}
	waiting := map[types.UID]bool{}
	for _, name := range d.Waiting() {
		waiting[d.uids[name]] = true
		c.passes.AddAfter(change, c.poll.wait(d.uids[name], now))
	}
	c.poll.keep(waiting)
	waits := []time.Duration{c.retries.left(now), c.record.left(now)}
	if d.Plan.Refusals(routes.Full) > 0 {
		waits = append(waits, c.learned.left(now))
	}
	for _, wait := range waits {
		if wait > 0 {
			c.passes.AddAfter(change, wait)
		}
	}
}
