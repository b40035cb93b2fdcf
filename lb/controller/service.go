package controller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/lb"
)

// LoadBalancerClass is the class that is always ours.
const LoadBalancerClass = "underlay.dev/hcloud"

// ConditionAccepted on a Service says whether its load balancer is all that the Service asks for. It also
// marks the Service as one that we have dealt with.
const ConditionAccepted = "underlay.dev/Accepted"

// ours reports whether a Service of type LoadBalancer is for us to serve.
func (c *Controller) ours(svc *corev1.Service) bool {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return false
	}
	if class := svc.Spec.LoadBalancerClass; class != nil {
		return *class == LoadBalancerClass
	}
	return c.defaults.Classless
}

// wants reports whether there should be a load balancer.
func (c *Controller) wants(svc *corev1.Service) bool {
	return svc.DeletionTimestamp.IsZero() && c.ours(svc)
}

// needsCleanup reports whether we may have left something behind for a Service that wants nothing of us any
// more. The finalizer alone proves nothing: every implementation uses the same one.
//
// A Service without a class that we served until the configuration said otherwise keeps its load balancer: a
// changed setting must not take traffic down. It is removed with the Service.
func (c *Controller) needsCleanup(svc *corev1.Service) bool {
	deleted := !svc.DeletionTimestamp.IsZero()
	switch {
	case c.wants(svc):
		return false
	case deleted && helpers.HasLBFinalizer(svc) && c.ours(svc):
		return true
	case !deleted && svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil:
		return false
	}
	return marked(svc)
}

func marked(svc *corev1.Service) bool {
	return meta.FindStatusCondition(svc.Status.Conditions, ConditionAccepted) != nil
}

// served reports whether the Service had our load balancer when that was last looked at: nothing else makes
// the condition true.
func served(svc *corev1.Service) bool {
	return meta.IsStatusConditionTrue(svc.Status.Conditions, ConditionAccepted)
}

// foreign reports whether the Service's name for a load balancer was found to be taken.
func foreign(svc *corev1.Service) bool {
	cond := meta.FindStatusCondition(svc.Status.Conditions, ConditionAccepted)
	return cond != nil && cond.Reason == lb.ReasonNotOwned
}

// handedOver reports whether a Service of type LoadBalancer is somebody else's now. Finalizer and addresses
// are theirs then: every implementation writes the same fields.
func (c *Controller) handedOver(svc *corev1.Service) bool {
	return svc.DeletionTimestamp.IsZero() && svc.Spec.Type == corev1.ServiceTypeLoadBalancer && !c.ours(svc)
}

// addresses are those that the status shows.
func addresses(svc *corev1.Service) string {
	var all []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		all = append(all, in.IP+in.Hostname)
	}
	return strings.Join(all, ", ")
}

func (c *Controller) owner(svc *corev1.Service) lb.Owner {
	return lb.Owner{Cluster: c.defaults.Cluster, UID: string(svc.UID)}
}

// question is what package lb needs to know of a Service.
func question(svc *corev1.Service) lb.Service {
	q := lb.Service{
		UID:                 string(svc.UID),
		Annotations:         svc.Annotations,
		Local:               svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		HealthCheckNodePort: int(svc.Spec.HealthCheckNodePort),
		ClientIPAffinity:    svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
		SourceRanges:        sourceRanges(svc),
		LoadBalancerIP:      svc.Spec.LoadBalancerIP,
		IPv6Only:            slices.Equal(svc.Spec.IPFamilies, []corev1.IPFamily{corev1.IPv6Protocol}),
	}
	for _, p := range svc.Spec.Ports {
		q.Ports = append(q.Ports, lb.Port{Number: int(p.Port), Protocol: string(p.Protocol), NodePort: int(p.NodePort)})
	}
	return q
}

// sourceRanges are the field's, or those of the annotation that was there before it. They are not parsed:
// a range that nobody can read is still a wish to keep others out.
func sourceRanges(svc *corev1.Service) []string {
	if len(svc.Spec.LoadBalancerSourceRanges) > 0 {
		return svc.Spec.LoadBalancerSourceRanges
	}
	old := strings.TrimSpace(svc.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey])
	if old == "" {
		return nil
	}
	return strings.Split(old, ",")
}
