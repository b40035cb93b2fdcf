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
func (a actor) doubted(ctx context.Context) error {
	if a.doubt == nil {
		return nil
	}
	if err := a.doubt(ctx); err != nil {
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

// absent returns an error unless an owner, of which the last read found nothing, has really nothing:
// other load balancers of the cluster's Services that the same list found are proof.
func (c *Controller) absent(ctx context.Context, owner lb.Owner) error {
	if !c.states.listedFor(owner) {
		if err := c.states.readAll(ctx, owner); err != nil {
			return err
		}
	}
	if len(c.states.carrying(owner)) == 0 {
		all, err := c.services.List(labels.Everything())
		carried := func(svc *corev1.Service) bool { return len(c.states.carrying(c.owner(svc))) > 0 }
		if err == nil && slices.ContainsFunc(all, carried) {
			return nil
		}
	}
	return c.doubted(ctx)
}

// proved reports whether the cloud has a load balancer that carries the UID of a Service.
func (c *Controller) proved(ctx context.Context) bool {
	states, err := c.backend.List(ctx, c.defaults.Cluster)
	if err != nil {
		return false // there is an error already
	}
	all, err := c.services.List(labels.Everything())
	carries := func(svc *corev1.Service) bool {
		return slices.ContainsFunc(states, func(s lb.State) bool { return c.owner(svc).Carries(s.Labels) })
	}
	return err == nil && slices.ContainsFunc(all, carries)
}

// proves reports whether an op that makes something fails in any project but the cluster's own.
func proves(op lb.Op) bool {
	create, ok := op.(lb.Create)
	return ok && slices.ContainsFunc(create.Spec.Targets, func(t lb.Target) bool { return t.Server != 0 })
}
