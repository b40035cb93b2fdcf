package controller

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

func (c *Controller) listen(cfg Config) error {
	type source struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}
	sources := []source{
		{cfg.Services.Informer(), handler(c, c.anyService, c.serviceChanged)},
		{cfg.Nodes.Informer(), handler(c, func(*corev1.Node) bool { return true }, nodeChanged)},
		{cfg.Slices.Informer(), handler(c, c.anySlice, c.sliceChanged)},
	}
	if c.namespaces != nil {
		relabeled := func(old, ns *corev1.Namespace) bool { return !maps.Equal(old.Labels, ns.Labels) }
		sources = append(sources, source{
			cfg.Namespaces.Informer(), handler(c, func(*corev1.Namespace) bool { return true }, relabeled),
		})
	}
	for _, s := range sources {
		registration, err := s.informer.AddEventHandler(s.handler)
		if err != nil {
			return fmt.Errorf("watching what addresses depend on: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return nil
}

// handler triggers a pass if an object that matters is added or deleted, or if a change matters.
func handler[T any](
	c *Controller, matters func(T) bool, changed func(old, now T) bool,
) cache.ResourceEventHandler {
	addedOrDeleted := func(obj any) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if o, ok := obj.(T); ok && matters(o) {
			c.trigger()
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: addedOrDeleted,
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(T)
			now, ok2 := after.(T)
			if ok1 && ok2 && changed(old, now) {
				c.trigger()
			}
		},
		DeleteFunc: addedOrDeleted,
	}
}

func (c *Controller) trigger() { c.queue.AddAfter(onePass, gather) }

// anyService reports whether a Service may have addresses or a condition of this controller.
func (c *Controller) anyService(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer || accepted(svc)
}

// serviceChanged reports whether a Service changed, unless the event is older than our last write.
// A status that another controller wrote counts, so that it is corrected.
func (c *Controller) serviceChanged(old, svc *corev1.Service) bool {
	return (c.anyService(old) || c.anyService(svc)) && old.ResourceVersion != svc.ResourceVersion &&
		c.newest.Of(svc).ResourceVersion == svc.ResourceVersion
}

// serviceOf returns the Service of a slice if it may have addresses.
func (c *Controller) serviceOf(slice *discoveryv1.EndpointSlice) *corev1.Service {
	svc, err := c.services.Services(slice.Namespace).Get(slice.Labels[discoveryv1.LabelServiceName])
	if err != nil || svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	return svc
}

func (c *Controller) anySlice(slice *discoveryv1.EndpointSlice) bool {
	return populated(slice) && c.serviceOf(slice) != nil
}

// sliceChanged reports whether a Service got its first or lost its last endpoint or, with policy
// Local, whether the nodes with endpoints changed.
func (c *Controller) sliceChanged(old, slice *discoveryv1.EndpointSlice) bool {
	svc := c.serviceOf(slice)
	return svc != nil &&
		(populated(old) != populated(slice) || local(svc) && servesElsewhere(old, slice))
}

func populated(slice *discoveryv1.EndpointSlice) bool { return len(slice.Endpoints) > 0 }

// servesElsewhere reports whether the sets of nodes with endpoints changed. Most events of a
// rolling update don't change them.
func servesElsewhere(old, slice *discoveryv1.EndpointSlice) bool {
	for _, f := range []addresses.Family{addresses.IPv4, addresses.IPv6} {
		was := servingOf([]*discoveryv1.EndpointSlice{old}, f)
		if !maps.Equal(was, servingOf([]*discoveryv1.EndpointSlice{slice}, f)) {
			return true
		}
	}
	return false
}

// nodeChanged reports whether a relevant part of a Node changed. Heartbeats are ignored.
func nodeChanged(old, node *corev1.Node) bool {
	return kube.Ready(old) != kube.Ready(node) ||
		old.DeletionTimestamp.IsZero() != node.DeletionTimestamp.IsZero() ||
		old.Annotations[addresses.ReportAnnotation] != node.Annotations[addresses.ReportAnnotation] ||
		unknown(old) != unknown(node) || !slices.Equal(old.Status.Addresses, node.Status.Addresses) ||
		old.Spec.Unschedulable != node.Spec.Unschedulable ||
		old.Spec.ProviderID != node.Spec.ProviderID ||
		!maps.Equal(old.Labels, node.Labels) ||
		!equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints)
}

func unknown(node *corev1.Node) bool {
	c := kube.Condition(node, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionUnknown
}
