package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/routes"
)

// mostFailures in a row end a pass: the cause then is not the destination, and
// going on would spend the request budget on finding that out again.
const mostFailures = 3

// attempt is one pass under way.
type attempt struct {
	// fresh: the servers were listed for this pass, so that routes may be
	// deleted or replaced on what is known of them.
	fresh bool
	// looked are the Nodes whose servers were looked for in that list.
	looked map[types.UID]bool
	// inARow is the number of failures without a success between them.
	inARow int
}

// pass brings the table to what the Nodes need, as far as it can. It costs no
// request where the table as last seen leaves nothing to do.
func (c *Controller) pass(ctx context.Context, why trigger) error {
	listed := why == resync || c.table == nil
	if listed {
		if err := c.list(ctx); err != nil {
			return err
		}
	}
	d, err := c.decide(ctx, false, true)
	if err != nil {
		return err
	}
	var a attempt
	if c.worthALook(d) {
		if !listed {
			if err := c.list(ctx); err != nil {
				return err
			}
		}
		if d.needsServers() {
			if err := c.lookForServers(ctx, &a); err != nil {
				return err
			}
		}
	}
	return c.converge(ctx, &a)
}

// lookForServers gets a new list of servers for the pass.
func (c *Controller) lookForServers(ctx context.Context, a *attempt) error {
	d, err := c.decide(ctx, true, true)
	if err != nil {
		return err
	}
	c.looks.looked(d.missing(), time.Now())
	a.fresh, a.looked = true, make(map[types.UID]bool, len(d.uids))
	for _, uid := range d.uids {
		a.looked[uid] = true
	}
	return nil
}

// worthALook says whether a decision, made on the table as last seen, is a
// reason to look at the real one.
func (c *Controller) worthALook(d decision) bool {
	return !d.plan.Empty() || d.detached && c.looks.due(d.missing(), time.Now())
}

// needsServers says whether a decision rests on where servers are: a deletion
// on whose a gateway is, a replacement on which one is right.
func (d decision) needsServers() bool {
	return d.detached || len(d.plan.Delete)+len(d.plan.Replace) > 0
}

// converge writes one step after the other, deciding anew after each. A
// destination that fails is left for later; the others go on.
func (c *Controller) converge(ctx context.Context, a *attempt) error {
	for {
		d, err := c.decide(ctx, false, a.fresh)
		if err != nil {
			return err
		}
		if d.detached && c.looks.due(d.missing(), time.Now()) {
			// Nodes that joined since the pass began.
			if err := c.lookForServers(ctx, a); err != nil {
				return err
			}
			continue
		}
		step, more := next(d.plan, a.fresh)
		more = more && a.inARow < mostFailures
		c.publish(d, a, !more)
		if !more {
			c.finish(ctx, d, a)
			return nil
		}
		if err := c.take(ctx, step, a); err != nil {
			return err
		}
	}
}

// next is the plan's first step that what is known suffices for.
func next(p routes.Plan, fresh bool) (routes.Step, bool) {
	for _, s := range p.Steps() {
		if fresh || s.Verb == routes.Add {
			return s, true
		}
	}
	return routes.Step{}, false
}

// take does one step. Its error is one that ends the pass.
func (c *Controller) take(ctx context.Context, step routes.Step, a *attempt) error {
	log := klog.FromContext(ctx).WithValues("verb", step.Verb, "route", step.Route(), "node", step.Node)
	if step.Verb == routes.Delete {
		c.brake.spend()
	}
	err := c.write(ctx, step)
	c.metrics.wrote(step, err)
	if err == nil {
		c.table = step.Apply(c.table)
		c.retries.succeeded(step.Route().Dst)
		a.inARow = 0
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
		a.inARow++
	}
	// Whether a failed write was applied is unknown: look.
	if err := c.list(ctx); err != nil {
		return err
	}
	if full {
		c.latched = len(c.table)
	}
	return nil
}

func (c *Controller) write(ctx context.Context, s routes.Step) error {
	switch s.Verb {
	case routes.Delete:
		return c.Table.Delete(ctx, s.Old)
	case routes.Replace:
		return c.Table.Replace(ctx, s.Old, s.New)
	default:
		return c.Table.Add(ctx, s.New)
	}
}

// list looks at the table. Without a successful look there is no table to
// decide on.
func (c *Controller) list(ctx context.Context) error {
	table, err := c.Table.List(ctx)
	if err != nil {
		c.table = nil
		return fmt.Errorf("listing the network's routes: %w", err)
	}
	if c.latched > 0 && len(table) < c.latched {
		c.latched = 0
	}
	c.table = append([]routes.Route{}, table...)
	return nil
}

// finish ends a pass and asks for another where time alone, or a newer server
// list, may change the outcome.
func (c *Controller) finish(ctx context.Context, d decision, a *attempt) {
	now := time.Now()
	c.board.keep(d.uids)
	if len(d.plan.Postponed) > 0 && a.fresh {
		klog.FromContext(ctx).Info("Deletions are capped; more will follow", "reason", "RouteDeletionsCapped", "postponed", len(d.plan.Postponed))
	}
	if !a.fresh && (len(d.plan.Replace) > 0 || len(d.plan.Postponed) > 0 && c.brake.left(now, len(d.census.Ours)) > 0) {
		c.passes.Add(change)
	}
	if d.detached {
		c.passes.AddAfter(change, c.looks.wait(d.missing(), now))
	}
	if a.inARow >= mostFailures {
		c.retries.pause(now)
		klog.FromContext(ctx).Info("Routes can't be written; pausing", "until", c.retries.paused, "failures", a.inARow)
	}
	if wait, any := c.retries.wait(now); any {
		c.passes.AddAfter(change, wait)
	}
}
