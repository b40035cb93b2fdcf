package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cloud-provider/service/helpers"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// driftPeriod is how often the cloud is looked at although nothing happened in the cluster.
const driftPeriod = 5 * time.Minute

// watchDrift looks at once, so that after a restart Services that are as they should be cost no
// request of their own, and then regularly.
func (c *Controller) watchDrift(ctx context.Context) {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		retry := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: driftPeriod}
		// The error is the context's end: everything else is retried.
		_ = retry.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			if err := c.drift(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Comparing load balancers with Services failed, will retry")
				return false, nil
			}
			return true, nil
		})
	}, driftPeriod, 0.1, true)
}

// drift reads all our load balancers and queues the Services that are not as they should be. It
// reads them without Services too, for what may have been left behind.
func (c *Controller) drift(ctx context.Context) error {
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	var involved []*corev1.Service
	groups := make(map[string]bool)
	for _, svc := range all {
		svc = c.newest.Of(svc)
		switch group := c.groupOf(svc); {
		case !c.wants(svc) && !c.needsCleanup(svc):
		case group != "":
			groups[group] = true
		default:
			involved = append(involved, svc)
		}
	}
	c.lookAtRanges(ctx)
	states, err := c.backend.List(ctx, c.defaults.Cluster)
	if err != nil {
		return fmt.Errorf("listing load balancers: %w", err)
	}
	if err := c.reportOrphans(ctx, all, states); err != nil {
		return err
	}
	for _, svc := range all {
		svc = c.newest.Of(svc)
		carrying := carriedBy(c.owner(svc), states)
		if c.leftover(svc, carrying) {
			c.queue.Add(nameOf(svc))
		}
		for _, s := range carrying {
			groups[s.Group()] = true
		}
	}
	delete(groups, "")
	for _, s := range states {
		if s.Group() != "" {
			c.carriers.set(s.Group(), s.Services())
		}
	}
	certificates := sync.OnceValues(func() ([]lb.Certificate, error) { return c.backend.Certificates(ctx) })
	c.closeOrphans(ctx, involved, states)
	for _, svc := range involved {
		owned := ownedBy(c.owner(svc), states)
		settled, err := c.settled(ctx, svc, owned, certificates)
		if settled {
			c.reopens.Add(nameOf(svc))
			continue
		}
		if err != nil {
			// One Service's trouble must not keep the others from being looked at; its own look
			// tells what it is.
			klog.FromContext(ctx).Error(err, "Comparing a load balancer with its Service failed", "service", klog.KObj(svc))
		} else if len(owned) > 0 && c.wants(svc) {
			c.metrics.drifted.Inc()
		}
		c.queue.Add(nameOf(svc))
	}
	c.driftOfGroups(ctx, groups, states, certificates)
	c.surveyed.Store(true)
	return nil
}

// lookAtRanges has the network looked at for where dedicated servers have their addresses, if there
// is any. What is known of that is good enough until the next look.
func (c *Controller) lookAtRanges(ctx context.Context) {
	if c.refreshRanges == nil {
		return
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err == nil && slices.ContainsFunc(nodes, dedicated) {
		err = c.refreshRanges(ctx)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Where dedicated servers have their addresses in the network is not known anew", "err", err)
	}
}

// reportOrphans tells of load balancers that carry our cluster's label and belong to no Service.
// They stay: a label can be copied, and a cluster be restored from a backup.
func (c *Controller) reportOrphans(ctx context.Context, before []*corev1.Service, states []lb.State) error {
	// Services may have come and gone while the cloud answered; those are not meant.
	after, err := c.services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	known := make(map[string]bool)
	for _, svc := range slices.Concat(before, after) {
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
	return nil
}

func ownedBy(owner lb.Owner, states []lb.State) []lb.State {
	var owned []lb.State
	for _, s := range states {
		if owner.Owns(s.Labels) {
			owned = append(owned, s)
		}
	}
	return owned
}

// carriedBy are those whose labels name a Service, alone or among those that share.
func carriedBy(owner lb.Owner, states []lb.State) []lb.State {
	return slices.DeleteFunc(slices.Clone(states), func(s lb.State) bool { return !owner.Carries(s.Labels) })
}

// takeable reports whether a Service without a load balancer of ours may have one of another
// controller's.
func takeable(svc *corev1.Service) bool {
	return helpers.HasLBFinalizer(svc) && len(svc.Status.LoadBalancer.Ingress) > 0
}

// settled reports whether a reconciliation would find nothing to do.
func (c *Controller) settled(ctx context.Context, svc *corev1.Service, owned []lb.State, certificates func() ([]lb.Certificate, error)) (bool, error) {
	if c.needsCleanup(svc) {
		return false, nil
	}
	p, err := c.plan(svc)
	if err != nil {
		return false, err
	}
	if len(owned) == 1 {
		p = p.choose(owned[0])
	} else {
		p = p.choose(lb.State{})
	}
	t := telling{notes: p.Notes, status: svc.Status.LoadBalancer, memory: p.memory, managed: hadManaged(svc)}
	if p.impossible() && len(owned) == 0 {
		t.notes = p.Against(lb.State{}, nil).Notes
		return !takeable(svc) && equality.Semantic.DeepEqual(svc, told(svc, t)), nil
	}
	if len(owned) != 1 || !helpers.HasLBFinalizer(svc) || p.memory.open() || p.hadManaged && p.Spec.Managed == nil && !p.Refused {
		return false, nil
	}
	var known []lb.Certificate
	if !p.Refused && p.Spec.NeedsCertificates() {
		if known, err = certificates(); err != nil {
			return false, fmt.Errorf("listing certificates: %w", err)
		}
	}
	have, readable := owned[0], !p.Refused
	if p.addresses, err = c.primaryIPs(ctx, p, have); err != nil {
		return false, err
	}
	if p = p.Against(have, known); len(p.Ops) > 0 || p.waits {
		return false, nil
	}
	c.aims(svc, p, p.nodes, have)
	c.aimOpening(svc, openingAt(p, have, p.opens, nil))
	t.notes, t.memory = slices.Concat(p.Notes, c.targetsHealth(svc, p.Spec, have, p.idle())), p.memory
	if readable {
		t.status = ingressStatus(p.Spec, have)
	}
	return equality.Semantic.DeepEqual(svc, told(svc, t)), nil
}
