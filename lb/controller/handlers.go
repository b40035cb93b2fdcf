package controller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/lb"
)

// nodeDelay batches changes of nodes and endpoints, so that each load balancer is planned once.
const nodeDelay = time.Second

// Changes of pods that are targets are batched for longer during a rolling update: each batch
// costs a read and a poll, and a new target waits longer for its health check than for the batch.
const (
	rollingDelay = 3 * time.Second
	rollingTime  = 10 * time.Second
)

// onChange returns a handler that calls change with an object before and after a change; before is
// nil for an added object, after for a deleted object. Initial objects are queued by the first
// read.
func onChange[T any](change func(before, after *T)) cache.ResourceEventHandler {
	notify := func(before, after any) {
		if last, removed := before.(cache.DeletedFinalStateUnknown); removed {
			before = last.Obj
		}
		old, _ := before.(*T)
		now, _ := after.(*T)
		if old != nil || now != nil {
			change(old, now)
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				notify(nil, obj)
			}
		},
		UpdateFunc: notify,
		DeleteFunc: func(obj any) { notify(obj, nil) },
	}
}

func (c *Controller) serviceChanged(old, svc *corev1.Service) {
	switch {
	// The finalizer ensures that the load balancer was deleted in an earlier update.
	case svc == nil:
		owner := c.owner(old)
		c.unexplained.Delete(old.UID)
		c.unserved.look(string(old.UID), nil, time.Now())
		c.unhealthy.look(owner.Key(), nil, time.Now())
		c.damper.forget(owner)
		c.backoff.forget(owner)
	case old == nil || matters(old, svc):
		role := roleOf(svc, c.cfg.Defaults)
		if role != wanted && role != departing {
			return
		}
		key, carrying := c.keyOf(svc), c.states.carrying(c.owner(svc))
		// The load balancers that it shares are reconciled first.
		leaves := role != wanted && slices.ContainsFunc(carrying, lb.State.Shared)
		if !leaves {
			c.enqueue(key)
		}
		for _, s := range carrying {
			// Queued twice, an owner would be read twice if a worker starts in between.
			if owner := ownerOf(s, svc, c.cfg.Defaults.Cluster); leaves || owner != key {
				c.enqueue(owner)
			}
		}
	case !helpers.LoadBalancerStatusEqual(&old.Status.LoadBalancer, &svc.Status.LoadBalancer):
		c.releaseOthers(svc) // load balancers that the status no longer shows
	}
}

// releaseOthers queues the owners of all other load balancers that serve a Service.
func (c *Controller) releaseOthers(svc *corev1.Service) {
	for _, s := range c.states.carrying(c.owner(svc)) {
		if other := ownerOf(s, svc, c.cfg.Defaults.Cluster); other != c.keyOf(svc) {
			c.queue.Add(other)
		}
	}
}

// matters ignores our own writes, which must not cause another read of the cloud. A status that
// another client changed is found by the periodic read.
func matters(old, svc *corev1.Service) bool {
	return old.UID != svc.UID ||
		old.DeletionTimestamp.IsZero() != svc.DeletionTimestamp.IsZero() ||
		helpers.HasLBFinalizer(old) && !helpers.HasLBFinalizer(svc) ||
		!maps.Equal(old.Annotations, svc.Annotations) ||
		!equality.Semantic.DeepEqual(old.Spec, svc.Spec)
}

// sliceChanged queues the owner of a Service if endpoints are its targets or determine which nodes
// can be healthy. Otherwise health checks suffice.
func (c *Controller) sliceChanged(old, slice *discoveryv1.EndpointSlice) {
	nodes := old == nil || slice == nil || !maps.Equal(serving(old), serving(slice))
	slice = cmp.Or(slice, old)
	svc, err := c.services.Services(slice.Namespace).Get(slice.Labels[discoveryv1.LabelServiceName])
	if err != nil || !c.wants(svc) {
		return
	}
	for _, s := range c.states.carrying(c.owner(svc)) {
		if slices.ContainsFunc(s.Targets, lb.Target.Pod) {
			c.podsChanged(ownerOf(s, svc, c.cfg.Defaults.Cluster))
		}
	}
	switch {
	case lb.MayMeanPods(svc.Annotations):
		c.podsChanged(c.keyOf(svc))
	case nodes && local(svc):
		c.queue.AddAfter(c.keyOf(svc), nodeDelay)
	}
}

func (c *Controller) podsChanged(owner lb.Owner) {
	c.states.touch(owner)
	delay := nodeDelay
	if time.Since(c.damper.acted(owner)) < rollingTime {
		delay = rollingDelay
	}
	c.queue.AddAfter(owner, delay)
}

// nodeChanged queues all owners if the change of a node can change targets, which heartbeats do
// not. If the targets are the same, no request is sent.
func (c *Controller) nodeChanged(old, node *corev1.Node) {
	switch {
	case old == nil || node == nil:
	case !equality.Semantic.DeepEqual(old.Status.Addresses, node.Status.Addresses):
		c.nodesChanged.Store(time.Now().UnixNano())
		c.backoff.reset(isRefusedTarget)
	case eligible(old) == eligible(node) && joins(old) == joins(node) &&
		maps.Equal(old.Labels, node.Labels) &&
		old.Spec.ProviderID == node.Spec.ProviderID &&
		slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs):
		return
	}
	c.enqueueAll()
}

// enqueueAll queues every owner with a Service or a load balancer.
func (c *Controller) enqueueAll() {
	c.states.event()
	for _, svc := range c.allServices() {
		if nameTaken(svc) && len(c.states.carrying(c.owner(svc))) == 0 {
			continue // it has no targets, and to look for its load balancer takes several requests
		}
		if role := roleOf(svc, c.cfg.Defaults); role == wanted || role == kept {
			c.queue.AddAfter(c.keyOf(svc), nodeDelay)
		}
	}
	for _, s := range c.states.all() {
		if s.Group() != "" {
			c.queue.AddAfter(lb.GroupOwner(c.cfg.Defaults.Cluster, s.Group()), nodeDelay)
			continue
		}
		for _, uid := range s.Services() {
			c.queue.AddAfter(lb.Owner{Cluster: c.cfg.Defaults.Cluster, UID: uid}, nodeDelay)
		}
	}
}
