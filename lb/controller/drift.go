package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// driftPeriod is how often the cloud is read although nothing happened in the cluster.
const driftPeriod = 5 * time.Minute

// watchDrift reads the cloud at once, and then regularly. Surveyed is closed when it was read.
func (c *Controller) watchDrift(ctx context.Context, surveyed chan struct{}) {
	first := sync.OnceFunc(func() { close(surveyed) })
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		retry := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: driftPeriod}
		// The error is the context's end: everything else is retried.
		_ = retry.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			if err := c.drift(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Reading the load balancers failed, will retry")
				return false, nil
			}
			first()
			return true, nil
		})
	}, driftPeriod, 0.1, true)
}

// drift reads all our load balancers, which costs one request for 50 of them, and queues every
// balancer: those that are as they should be cost no other. It reads without Services too, for what
// may have been left behind.
func (c *Controller) drift(ctx context.Context) error {
	before := c.allServices()
	c.refreshDedicated(ctx)
	if err := c.states.readAll(ctx, lb.Owner{}); err != nil {
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
		c.drifting.Store(owner, true)
	}
	if err := c.removeOrphanedAccess(ctx, before, states); err != nil {
		klog.FromContext(ctx).Error(err,
			"Closing pods to load balancers that are gone failed, will retry")
	}
	for owner := range owners {
		c.queue.Add(owner)
	}
	return nil
}

// refreshDedicated updates where dedicated servers have their addresses in the network, if there is
// any. What is known of that is good enough until the next time.
func (c *Controller) refreshDedicated(ctx context.Context) {
	if c.cfg.RefreshRanges == nil || !slices.ContainsFunc(c.allNodes(), dedicated) {
		return
	}
	if err := c.cfg.RefreshRanges(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Where dedicated servers have their addresses in the network was not read", "err", err)
	}
}

// rangesPeriod is how often it is looked whether the network has got other subnets for dedicated
// servers, which costs no request.
const rangesPeriod = 15 * time.Second

// watchRanges has targets asked for again when the network has got other subnets for them.
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

// reportOrphans reports load balancers that carry our cluster's label and belong to no Service.
// They stay: a label can be copied, and a cluster be restored from a backup.
func (c *Controller) reportOrphans(ctx context.Context, before []*corev1.Service, states []lb.State) {
	known := make(map[string]bool)
	for _, svc := range slices.Concat(before, c.allServices()) { // some were created while the cloud was read
		known[string(svc.UID)] = true
	}
	orphans := 0
	for _, have := range states {
		if !slices.ContainsFunc(have.Services(), func(uid string) bool { return known[uid] }) {
			orphans++
			klog.FromContext(ctx).Info("Load balancer belongs to no Service and is left alone: delete it if nobody needs it", "loadBalancer", have.ID, "name", have.Name)
		}
	}
	c.metrics.orphaned.Set(float64(orphans))
}
