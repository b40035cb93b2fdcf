package controller

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// driftPeriod is the interval of reads of the cloud without a change in the cluster.
const driftPeriod = 5 * time.Minute

// watchDrift reads the cloud immediately, then periodically. The first read closes surveyed.
func (c *Controller) watchDrift(ctx context.Context, surveyed chan struct{}) {
	periodic := false // all load balancers wait for the first read
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		retry := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: driftPeriod}
		// The only possible error is ctx.Err: all other errors are retried.
		_ = retry.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			if err := c.drift(ctx, periodic); err != nil {
				klog.FromContext(ctx).Error(err, "Reading the load balancers failed, will retry")
				return false, nil
			}
			if !periodic {
				close(surveyed)
				periodic = true
			}
			return true, nil
		})
	}, driftPeriod, 0.1, true)
}

// drift lists all load balancers of the cluster, with a request for each 50 of them, and queues
// all owners. Without a difference they need no further request. It also runs without Services,
// for orphans.
func (c *Controller) drift(ctx context.Context, periodic bool) error {
	c.newest.Prune(func(svc *corev1.Service) (*corev1.Service, error) {
		return c.services.Services(svc.Namespace).Get(svc.Name)
	})
	c.nodesWritten.Prune(func(n *corev1.Node) (*corev1.Node, error) { return c.nodes.Get(n.Name) })
	before := c.allServices()
	c.refreshDedicated(ctx)
	if err := c.states.readAll(ctx, lb.Owner{}, periodic); err != nil {
		return err
	}
	states := c.states.all()
	c.reportOrphans(ctx, before, states)
	owners := make(map[lb.Owner]bool)
	for _, svc := range before {
		svc = c.newest.Of(svc)
		switch roleOf(svc, c.cfg.Defaults) {
		case wanted, departing, unmarked:
			owners[c.keyOf(svc)] = true
		}
		for _, s := range states {
			if c.owner(svc).Carries(s.Labels) {
				owners[ownerOf(s, svc, c.cfg.Defaults.Cluster)] = true
			}
		}
	}
	for owner := range owners {
		if periodic { // at the start, a Service may have changed since the last leader
			c.drifting.Store(owner, true)
		}
		c.queue.Add(owner)
	}
	if err := c.removeOrphanedAccess(ctx, before, states); err != nil {
		klog.FromContext(ctx).Error(err,
			"Closing pods to load balancers that are gone failed, will retry")
	}
	return nil
}

// refreshDedicated updates the ranges of dedicated servers' addresses if there is such a server.
// After an error, the previous ranges are used.
func (c *Controller) refreshDedicated(ctx context.Context) {
	if c.cfg.RefreshRanges == nil || !slices.ContainsFunc(c.allNodes(), dedicated) {
		return
	}
	if err := c.cfg.RefreshRanges(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Where dedicated servers have their addresses in the network was not read", "err", err)
	}
}

// rangesPeriod is the interval of checks for changed DedicatedRanges, which cost no request.
const rangesPeriod = 15 * time.Second

// watchRanges queues all owners when the ranges of dedicated servers' addresses change.
func (c *Controller) watchRanges(ctx context.Context) {
	known := c.cfg.DedicatedRanges()
	wait.UntilWithContext(ctx, func(context.Context) {
		if now := c.cfg.DedicatedRanges(); !slices.Equal(known, now) {
			known = now
			c.backoff.reset(isRefusedTarget)
			c.enqueueAll()
		}
	}, rangesPeriod)
}

// reportOrphans reports load balancers with the cluster's label and no Service. They are never
// deleted: labels can be copied, and a cluster restored from a backup.
func (c *Controller) reportOrphans(
	ctx context.Context, before []*corev1.Service, states []lb.State,
) {
	known := make(map[string]bool)
	// Some were created during the read.
	for _, svc := range slices.Concat(before, c.allServices()) {
		known[string(svc.UID)] = true
	}
	orphans := 0
	for _, have := range states {
		if !slices.ContainsFunc(have.Services(), func(uid string) bool { return known[uid] }) {
			orphans++
			klog.FromContext(ctx).Info("Load balancer belongs to no Service and is left alone: delete it if it is not needed", "loadBalancer", have.ID, "name", have.Name)
		}
	}
	c.metrics.orphaned.Set(float64(orphans))
}
