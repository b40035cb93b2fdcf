package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/lb"
)

// A token of another project sees nothing of this cluster, and that it sees nothing is true and
// proves nothing. So what the cloud lacks is believed only of the cluster's own project. That is
// proved by a load balancer whose labels name a Service, and by a creation that names servers, as
// UIDs and servers' IDs are nobody else's: what works as it should costs no request for this. Where
// there is no such proof, [Config.Doubt] is asked after the look that found nothing, since the token
// may just have been changed. If it doubts, any other Service's load balancer is the proof: all of
// the cluster's cloud servers may really be gone, while others go on. It is asked before
//
//	a Service that shows addresses is taken to have no load balancer
//	a load balancer is created without servers, or a certificate before its load balancer
//	a load balancer is adopted by its name
//	a finalizer is removed without a load balancer, or with one that is not there to be deleted
//	nodes close pods to a load balancer that is gone
//
// Its error passes: nothing is written, and the Service is tried again.

// doubted returns an error unless the cloud is the cluster's own project.
func (c converger) doubted(ctx context.Context) error {
	if c.doubt == nil {
		return nil
	}
	if err := c.doubt(ctx); err != nil {
		return fmt.Errorf("what the cloud lacks is not taken for gone: %w", err)
	}
	return nil
}

// unlessProved returns what asks doubt, and then looks for a load balancer of any Service.
func (c *Controller) unlessProved(doubt func(context.Context) error) func(context.Context) error {
	if doubt == nil {
		return nil
	}
	return func(ctx context.Context) error {
		err := doubt(ctx)
		if err == nil || c.proved(ctx) {
			return nil
		}
		return err
	}
}

// proved reports whether the cloud has a load balancer that carries the UID of a Service.
func (c *Controller) proved(ctx context.Context) bool {
	states, err := c.backend.List(ctx, c.defaults.Cluster)
	if err != nil {
		return false // there is an error already
	}
	all, err := c.services.List(labels.Everything())
	carries := func(svc *corev1.Service) bool { return len(carriedBy(c.owner(svc), states)) > 0 }
	return err == nil && slices.ContainsFunc(all, carries)
}

// doubt takes in that what was seen may be another project.
func (o *outcome) doubt(err error) {
	o.Seen = false
	o.add(err)
}

// proves reports whether an op that makes something fails in any project but the cluster's own.
func proves(op lb.Op) bool {
	create, ok := op.(lb.Create)
	return ok && slices.ContainsFunc(create.Spec.Targets, func(t lb.Target) bool { return t.Server != 0 })
}

// doubtGroup is asked of a group's load balancer, or that it has none.
func (c *Controller) doubtGroup(ctx context.Context, g *group, have lb.State) error {
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	for _, svc := range all {
		if c.owner(svc).Carries(have.Labels) {
			return nil
		}
	}
	shows := func(m member) bool { return m.plan.served }
	atStake := have.Exists() || len(g.departing) > 0 || c.carriers.known(g.name) || slices.ContainsFunc(g.members, shows)
	if !atStake {
		return nil
	}
	return c.doubted(ctx)
}
