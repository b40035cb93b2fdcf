package controller

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/lb"
)

// nodeDelay gathers changes of nodes, so that a batch of nodes costs each load balancer one look.
const nodeDelay = time.Second

// While targets that are pods follow each other, as in a rolling update, they are gathered for
// longer: each batch costs a look and a poll, and what a second or two are to a target that comes
// is little beside the time until it is found healthy.
const (
	rollingDelay = 3 * time.Second
	rollingTime  = 10 * time.Second
)

func nameOf(svc *corev1.Service) cache.ObjectName {
	return cache.ObjectName{Namespace: svc.Namespace, Name: svc.Name}
}

// serviceHandler queues Services that we have something to do with. Those that are there at the
// start wait for the first look at the cloud, which costs one request for many of them.
func (c *Controller) serviceHandler() cache.ResourceEventHandler {
	enqueue := func(svc *corev1.Service) {
		if c.wants(svc) || c.needsCleanup(svc) {
			for _, key := range c.keysOf(svc) {
				c.add(key)
			}
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
			if ok1 && ok2 && matters(old, svc) {
				enqueue(svc)
				if c.keyOf(old) != c.keyOf(svc) && isGroup(c.keyOf(old)) {
					c.add(c.keyOf(old)) // others may get what it had
				}
			}
		},
		// A load balancer needs no deletion to be handled: the finalizer makes it an update first.
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if svc, ok := obj.(*corev1.Service); ok {
				c.newest.Forget(svc.UID)
				c.targets.Delete(nameOf(svc))
				c.unexplained.Delete(svc.UID)
				c.former.Delete(svc.UID)
				c.unserved.look(string(svc.UID), nil, time.Now())
				c.unhealthy.look(string(svc.UID), nil, time.Now())
			}
		},
	}
}

// matters leaves out what we write ourselves, so that a write does not cause another look at the
// cloud. A status that somebody else changed is found by the regular look.
func matters(old, svc *corev1.Service) bool {
	return old.UID != svc.UID ||
		old.DeletionTimestamp.IsZero() != svc.DeletionTimestamp.IsZero() ||
		helpers.HasLBFinalizer(old) && !helpers.HasLBFinalizer(svc) ||
		!maps.Equal(asked(old), asked(svc)) ||
		old.Annotations[lb.AnnotationState] != "" && svc.Annotations[lb.AnnotationState] == "" ||
		!equality.Semantic.DeepEqual(old.Spec, svc.Spec)
}

// asked are the annotations but for the one that is ours to write. That one matters when a user
// removes it.
func asked(svc *corev1.Service) map[string]string {
	if _, ok := svc.Annotations[lb.AnnotationState]; !ok {
		return svc.Annotations
	}
	others := maps.Clone(svc.Annotations)
	delete(others, lb.AnnotationState)
	return others
}

// sliceHandler queues a Service when its endpoints are the targets, or when other nodes have them and
// that decides which nodes are targets: otherwise health checks see to it.
func (c *Controller) sliceHandler() cache.ResourceEventHandler {
	enqueue := func(slice *discoveryv1.EndpointSlice, nodes bool) {
		svc, err := c.services.Services(slice.Namespace).Get(slice.Labels[discoveryv1.LabelServiceName])
		switch {
		case err != nil || !c.wants(svc):
			return
		case c.holdsPods(svc):
			c.reopens.AddAfter(nameOf(svc), nodeDelay)
			c.queue.AddAfter(c.keyOf(svc), nodeDelay)
			return
		case lb.MayMeanPods(svc.Annotations):
			c.endpointsMoved(svc)
			if c.aimed(svc).pods {
				return
			}
		}
		switch {
		case !nodes || svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal:
			return
		}
		if c.groupOf(svc) != "" {
			if c.groupCrowded(svc) {
				c.queue.AddAfter(c.keyOf(svc), nodeDelay)
			}
			return
		}
		if p, err := c.plan(svc); err == nil && p.crowded() {
			c.queue.AddAfter(nameOf(svc), nodeDelay)
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
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
				enqueue(slice, true)
			}
		},
	}
}

// nodeHandler queues the Services whose targets a node's change may alter. Heartbeats do not, and
// readiness only where the node is no target yet: health checks judge those that are.
func (c *Controller) nodeHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if node, ok := obj.(*corev1.Node); ok && !initial {
				joined := joins(node)
				c.enqueueServices(c.ofNodes(func(*corev1.Service) bool { return joined }))
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(*corev1.Node)
			node, ok2 := after.(*corev1.Node)
			if !ok1 || !ok2 {
				return
			}
			was, is := eligible(old), eligible(node)
			joined := joins(old)
			joins := joins(node)
			switch {
			case (old.Spec.ProviderID != node.Spec.ProviderID || was != is) && (was || joins) || c.addressesChanged(old, node):
				c.enqueueServices(c.ofNodes(func(*corev1.Service) bool { return true }))
			case is && !maps.Equal(old.Labels, node.Labels):
				c.enqueueServices(c.ofNodes(func(svc *corev1.Service) bool {
					return svc.Annotations[lb.AnnotationNodeSelector] != "" || joins && !joined && !c.isTarget(svc, node)
				}))
			case joins && !joined:
				c.enqueueServices(c.ofNodes(func(svc *corev1.Service) bool {
					return !c.isTarget(svc, node) && selects(svc, node)
				}))
			case podsMoved(old, node):
				c.enqueueServices(c.ofNodes(func(*corev1.Service) bool { return false }))
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if node, ok := obj.(*corev1.Node); ok {
				c.refusals.gone(node)
				c.openings.newest.Forget(node.UID)
				c.enqueueServices(c.ofNodes(func(*corev1.Service) bool { return true }))
			}
		},
	}
}

// podsMoved reports whether pods on a Node may be reached otherwise than before.
func podsMoved(old, node *corev1.Node) bool {
	return old.Spec.ProviderID != node.Spec.ProviderID || !slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs) ||
		!slices.Equal(kube.ExternalIPs(old), kube.ExternalIPs(node))
}

// ofNodes narrows down which Services a node's change matters to: where pods are the targets, to
// those whose pods have other addresses by it.
func (c *Controller) ofNodes(matches func(*corev1.Service) bool) func(*corev1.Service) bool {
	return func(svc *corev1.Service) bool {
		return !c.aimed(svc).pods && matches(svc) || lb.MayMeanPods(svc.Annotations) && c.otherEndpoints(svc)
	}
}

// endpointsMoved queues a Service whose pods are to be targets when they are others.
func (c *Controller) endpointsMoved(svc *corev1.Service) {
	if c.otherEndpoints(svc) {
		delay := nodeDelay
		if time.Since(c.aimed(svc).acted) < rollingTime {
			delay = rollingDelay
		}
		c.queue.AddAfter(nameOf(svc), delay)
	}
	c.reopens.AddAfter(nameOf(svc), nodeDelay)
}

// otherEndpoints reports whether the endpoints are not as they were at the Service's last look.
func (c *Controller) otherEndpoints(svc *corev1.Service) bool {
	p, err := c.plan(svc)
	return err == nil && p.endpoints != nil && p.endpoints.digest() != c.aimed(svc).endpoints
}

func (c *Controller) enqueueServices(matches func(*corev1.Service) bool) {
	all, err := c.services.List(labels.Everything())
	if err != nil {
		runtime.HandleError(err) // a cache in memory does not fail
		return
	}
	for _, svc := range all {
		if c.wants(svc) && matches(svc) {
			for _, key := range c.keysOf(svc) {
				c.queue.AddAfter(key, nodeDelay)
			}
		}
	}
}
