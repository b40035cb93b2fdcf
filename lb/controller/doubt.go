package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// With a token of another project, the cluster's objects appear to be missing. So a missing object
// counts only if the token belongs to the cluster's own project. Proof of that is a load balancer
// with a Service's label, or a successful creation with servers as targets, because UIDs and
// server IDs are unique: in normal operation this needs no extra request. Without such proof,
// [Config.Doubt] is called after the read that found nothing, since the token may have changed
// just then. If it returns an error, a load balancer of any other Service is proof too: all of the
// cluster's cloud servers may be deleted while other servers exist. The check precedes
//
//	the conclusion that a Service with addresses has no load balancer
//	the creation of a load balancer without servers, or of a certificate before its load balancer
//	the takeover of a load balancer by its name
//	the removal of a finalizer without a load balancer, or after its deletion returned lb.ErrGone
//	the removal of a deleted load balancer's access to pods
//
// Its error is transient: nothing is written, and the Service is retried.

// checkProject returns an error unless the token belongs to the cluster's own project.
func (c *Controller) checkProject(ctx context.Context) error {
	if c.cfg.Doubt == nil {
		return nil
	}
	err := c.cfg.Doubt(ctx)
	if err == nil {
		return nil
	}
	if states, listErr := c.backend.List(ctx, c.cfg.Defaults.Cluster, false); listErr == nil &&
		c.servesAny(states) {
		return nil
	}
	return fmt.Errorf("an object missing in the cloud is not taken for deleted: %w", err)
}

// checkAbsent returns an error unless it is certain that an owner has no load balancer, after the
// last read returned no result. Other Services' load balancers in the same list are proof.
func (c *Controller) checkAbsent(ctx context.Context, owner lb.Owner) error {
	if !c.states.listedFor(owner) {
		if err := c.states.readAll(ctx, owner, false); err != nil {
			return err
		}
	}
	if len(c.states.carrying(owner)) == 0 && c.servesAny(c.states.all()) {
		return nil
	}
	return c.checkProject(ctx)
}

// servesAny reports whether a load balancer has the label of a Service of the cluster.
func (c *Controller) servesAny(states []lb.State) bool {
	return slices.ContainsFunc(c.allServices(), func(svc *corev1.Service) bool {
		return slices.ContainsFunc(states, func(s lb.State) bool {
			return c.owner(svc).Carries(s.Labels)
		})
	})
}

// proves reports whether an op can succeed only in the cluster's own project.
func proves(op lb.Op) bool {
	create, ok := op.(lb.Create)
	return ok &&
		slices.ContainsFunc(create.Spec.Targets, func(t lb.Target) bool { return t.Server != 0 })
}
