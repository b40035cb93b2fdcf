package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/converge"
)

// plan reads a Service together with what the caches know of nodes and endpoints.
func (c *Controller) plan(svc *corev1.Service) (converge.Plan, error) {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return converge.Plan{}, fmt.Errorf("listing nodes: %w", err)
	}
	endpoints, err := c.endpoints(svc)
	if err != nil {
		return converge.Plan{}, err
	}
	defaults := c.defaults
	defaults.Network = c.network()
	return converge.NewPlan(converge.Input{
		Service: svc, Nodes: nodes, Endpoints: endpoints, Defaults: defaults,
		Memory: converge.Recall(svc), HadManaged: hadManaged(svc), Now: time.Now(), Repeats: true,
		Refusals: c.converger.Refusals, Unhealthy: c.converger.Unhealthy,
	}), nil
}

// Survey reads a Service as the controller does, for whoever wants to know what it would do. Slices are those of
// the Service.
func Survey(svc *corev1.Service, nodes []*corev1.Node, slices []*discoveryv1.EndpointSlice, defaults lb.Defaults, now time.Time) converge.Plan {
	in := converge.Input{
		Service: svc, Nodes: nodes, Defaults: defaults,
		Memory: converge.Recall(svc), HadManaged: hadManaged(svc), Now: now,
	}
	if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		in.Endpoints = converge.Endpoints{Known: true, Nodes: serving(slices...)}
	}
	return converge.NewPlan(in)
}

// endpoints matter with policy Local only.
func (c *Controller) endpoints(svc *corev1.Service) (converge.Endpoints, error) {
	if c.slices == nil || svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return converge.Endpoints{}, nil
	}
	slices, err := c.slices.EndpointSlices(svc.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: svc.Name}))
	if err != nil {
		return converge.Endpoints{}, fmt.Errorf("listing endpoints of Service %s: %w", klog.KObj(svc), err)
	}
	return converge.Endpoints{Known: true, Nodes: serving(slices...)}, nil
}

// serving are the nodes with an endpoint that takes traffic, as kube-proxy's health check node port counts
// them: ready is unknown means yes.
func serving(slices ...*discoveryv1.EndpointSlice) map[string]bool {
	nodes := make(map[string]bool)
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			if e.NodeName != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				nodes[*e.NodeName] = true
			}
		}
	}
	return nodes
}

// stillWanted asks the API server itself, before a creation, whether the Service is still there and ours. A
// cache can be older than that: a new leader may fill it from an API server that lags behind, and a load
// balancer for a Service that is gone would be left for good.
func (c *Controller) stillWanted(ctx context.Context, svc *corev1.Service) (bool, error) {
	live, err := c.client.Services(svc.Namespace).Get(ctx, svc.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading Service %s before creating its load balancer: %w", klog.KObj(svc), err)
	}
	return live.UID == svc.UID && c.wants(live), nil
}
