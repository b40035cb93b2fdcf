package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// A token of another project sees nothing of this cluster, and that it sees nothing is true and
// proves nothing. So what the cloud lacks is believed only of the cluster's own project. That is
// proved by a load balancer whose labels name a Service, and by a creation that names servers, as
// UIDs and servers' IDs are unique: what works as it should costs no request for this. Where there
// is no such proof, [Config.Doubt] is called after the read that found nothing, since the token may
// just have been changed. If it returns an error, any other Service's load balancer is the proof:
// all of the cluster's cloud servers may really be gone, while others exist. It is called before
//
//	a Service that shows addresses is taken to have no load balancer
//	a load balancer is created without servers, or a certificate before its load balancer
//	a load balancer is adopted by its name
//	a finalizer is removed without a load balancer, or with one that is not there to be deleted
//	nodes close pods to a load balancer that is gone
//
// Its error passes: nothing is written, and the Service is tried again.

// checkProject returns an error unless the cloud is the cluster's own project.
func (c *Controller) checkProject(ctx context.Context) error {
	if c.cfg.Doubt == nil {
		return nil
	}
	err := c.cfg.Doubt(ctx)
	if err == nil {
		return nil
	}
	if states, listErr := c.backend.List(ctx, c.cfg.Defaults.Cluster); listErr == nil && c.servesAny(states) {
		return nil
	}
	return fmt.Errorf("what the cloud lacks is not taken for gone: %w", err)
}

// checkAbsent returns an error unless an owner, of which the last read found nothing, has really
// nothing: other load balancers of the cluster's Services that the same list found are proof.
func (c *Controller) checkAbsent(ctx context.Context, owner lb.Owner) error {
	if !c.states.listedFor(owner) {
		if err := c.states.readAll(ctx, owner); err != nil {
			return err
		}
	}
	if len(c.states.carrying(owner)) == 0 && c.servesAny(c.states.all()) {
		return nil
	}
	return c.checkProject(ctx)
}

// servesAny reports whether a load balancer carries the UID of a Service of the cluster.
func (c *Controller) servesAny(states []lb.State) bool {
	return slices.ContainsFunc(c.allServices(), func(svc *corev1.Service) bool {
		return slices.ContainsFunc(states, func(s lb.State) bool { return c.owner(svc).Carries(s.Labels) })
	})
}

// proves reports whether an op that makes something fails in any project but the cluster's own.
func proves(op lb.Op) bool {
	create, ok := op.(lb.Create)
	return ok && slices.ContainsFunc(create.Spec.Targets, func(t lb.Target) bool { return t.Server != 0 })
}
