package controller

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/lb"
)

// nodeDelay gathers changes of nodes and endpoints, so that a batch of them costs each load balancer
// one plan.
const nodeDelay = time.Second

// While targets that are pods follow each other, as in a rolling update, they are gathered for
// longer: each batch costs a read and a poll, and what a second or two are to a target that comes
// is little beside the time until it is found healthy.
const (
	rollingDelay = 3 * time.Second
	rollingTime  = 10 * time.Second
)

// serviceHandler queues the balancers that a Service has to do with. Those that are there at the
// start wait for the first reading of the cloud.
func (c *Controller) serviceHandler() cache.ResourceEventHandler {
	enqueue := func(svc *corev1.Service) {
		if !c.wants(svc) && !needsCleanup(svc, c.defaults) {
			return
		}
		carrying := c.states.carrying(c.owner(svc))
		if c.wants(svc) || !slices.ContainsFunc(carrying, lb.State.Shared) { // it leaves what it shares first
			c.enqueue(c.keyOf(svc))
		}
		for _, s := range carrying {
			c.enqueue(ownerOf(s, svc, c.defaults.Cluster))
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if svc, ok := obj.(*corev1.Service); ok && !initial {
				enqueue(svc)
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(*corev1.Service)
			svc, ok2 := after.(*corev1.Service)
			switch {
			case !ok1 || !ok2:
			case matters(old, svc):
				enqueue(svc)
			case !helpers.LoadBalancerStatusEqual(&old.Status.LoadBalancer, &svc.Status.LoadBalancer):
				c.releaseOthers(svc) // one that it shows no more
			}
		},
		// A load balancer needs no deletion to be handled: the finalizer makes it an update first.
		DeleteFunc: func(obj any) {
			if svc, ok := deleted(obj).(*corev1.Service); ok {
				owner := c.owner(svc)
				c.newest.Forget(svc.UID)
				c.unexplained.Delete(svc.UID)
				c.unserved.look(string(svc.UID), nil, time.Now())
				c.unhealthy.look(owner.Key(), nil, time.Now())
				c.damper.forget(owner)
				c.backoff.forget(owner)
			}
		},
	}
}

// releaseOthers queues the balancers that serve a Service beside the one that it asks for.
func (c *Controller) releaseOthers(svc *corev1.Service) {
	for _, s := range c.states.carrying(c.owner(svc)) {
		if other := ownerOf(s, svc, c.defaults.Cluster); other != c.keyOf(svc) {
			c.queue.Add(other)
		}
	}
}

// deleted is the object that a deletion is about.
func deleted(obj any) any {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return gone.Obj
	}
	return obj
}

// matters leaves out what we write ourselves, so that a write does not cause another reading of the
// cloud. A status that somebody else changed is found by the regular one.
func matters(old, svc *corev1.Service) bool {
	return old.UID != svc.UID ||
		old.DeletionTimestamp.IsZero() != svc.DeletionTimestamp.IsZero() ||
		helpers.HasLBFinalizer(old) && !helpers.HasLBFinalizer(svc) ||
		!maps.Equal(old.Annotations, svc.Annotations) ||
		!equality.Semantic.DeepEqual(old.Spec, svc.Spec)
}

// sliceHandler queues the balancer of a Service whose endpoints are its targets, or say which nodes
// can be healthy: otherwise health checks see to it.
func (c *Controller) sliceHandler() cache.ResourceEventHandler {
	enqueue := func(slice *discoveryv1.EndpointSlice, nodes bool) {
		svc, err := c.services.Services(slice.Namespace).Get(slice.Labels[discoveryv1.LabelServiceName])
		if err != nil || !c.wants(svc) {
			return
		}
		for _, s := range c.states.carrying(c.owner(svc)) {
			if slices.ContainsFunc(s.Targets, lb.Target.Pod) {
				c.podsChanged(ownerOf(s, svc, c.defaults.Cluster))
			}
		}
		switch {
		case lb.MayMeanPods(svc.Annotations):
			c.podsChanged(c.keyOf(svc))
		case nodes && local(svc):
			c.queue.AddAfter(c.keyOf(svc), nodeDelay)
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if slice, ok := obj.(*discoveryv1.EndpointSlice); ok && !initial {
				enqueue(slice, true)
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(*discoveryv1.EndpointSlice)
			slice, ok2 := after.(*discoveryv1.EndpointSlice)
			if ok1 && ok2 {
				enqueue(slice, !maps.Equal(serving(old), serving(slice)))
			}
		},
		DeleteFunc: func(obj any) {
			if slice, ok := deleted(obj).(*discoveryv1.EndpointSlice); ok {
				enqueue(slice, true)
			}
		},
	}
}

// podsChanged queues a balancer whose targets are pods.
func (c *Controller) podsChanged(owner lb.Owner) {
	c.states.touch(owner)
	delay := nodeDelay
	if time.Since(c.damper.acted(owner)) < rollingTime {
		delay = rollingDelay
	}
	c.queue.AddAfter(owner, delay)
}

// nodeHandler queues the balancers when a node changes so that targets may be others. Heartbeats are
// no such change. Where targets stay as they are, the plan says so, and no request is sent.
func (c *Controller) nodeHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if node, ok := obj.(*corev1.Node); ok {
				c.nodeAddresses(node)
				if !initial {
					c.enqueueAll()
				}
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(*corev1.Node)
			node, ok2 := after.(*corev1.Node)
			if !ok1 || !ok2 {
				return
			}
			moved := !equality.Semantic.DeepEqual(old.Status.Addresses, node.Status.Addresses)
			if moved {
				c.nodeAddresses(node)
				c.nodesChanged.Store(time.Now().UnixNano())
				c.backoff.askAgain()
			}
			if moved || eligible(old) != eligible(node) || joins(old) != joins(node) || !maps.Equal(old.Labels, node.Labels) ||
				old.Spec.ProviderID != node.Spec.ProviderID || !slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs) {
				c.enqueueAll()
			}
		},
		DeleteFunc: func(obj any) {
			if node, ok := deleted(obj).(*corev1.Node); ok {
				c.openings.newest.Forget(node.UID)
				c.enqueueAll()
			}
		},
	}
}

// nodeAddresses takes in which addresses a Node has.
func (c *Controller) nodeAddresses(node *corev1.Node) {
	if dedicated(node) {
		for _, a := range reported(node) {
			c.addresses.Store(a, true)
		}
	}
}

// enqueueAll queues every balancer that a Service asks for, or that serves one.
func (c *Controller) enqueueAll() {
	c.states.event()
	all, _ := c.services.List(labels.Everything()) // a cache in memory does not fail
	for _, svc := range all {
		if c.wants(svc) || keeps(svc) {
			c.queue.AddAfter(c.keyOf(svc), nodeDelay)
		}
	}
	for _, s := range c.states.all() {
		if s.Group() != "" {
			c.queue.AddAfter(lb.GroupOwner(c.defaults.Cluster, s.Group()), nodeDelay)
			continue
		}
		for _, uid := range s.Services() {
			c.queue.AddAfter(lb.Owner{Cluster: c.defaults.Cluster, UID: uid}, nodeDelay)
		}
	}
}

// strangers are the addresses among removed targets that no Node has had.
func (c *Controller) strangers(removed []lb.Target) (strangers []lb.Target) {
	for _, t := range removed {
		if _, known := c.addresses.Load(t.Address); t.Address.IsValid() && !t.Pod() && !known {
			strangers = append(strangers, t)
		}
	}
	return strangers
}
