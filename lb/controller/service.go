package controller

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/lb"
)

// LoadBalancerClass is the class that this controller always serves.
const LoadBalancerClass = "underlay.dev/hcloud"

// ConditionAccepted reports on a Service whether its load balancer fulfills all requests. It also
// marks Services that this controller has handled.
const ConditionAccepted = kube.ConditionAccepted

// conditionManaged records, before the request, that the Service has a managed certificate: it
// must be deleted with the Service, and a lookup for every Service would cost a request.
const conditionManaged = "underlay.dev/ManagedCertificate"

// conditionForeign marks that addresses in a Service's status may belong to another controller.
const conditionForeign = "underlay.dev/AddressesOfOthers"

// Ours reports whether this controller serves a Service of type LoadBalancer; with classless, also
// without a loadBalancerClass.
func Ours(svc *corev1.Service, classless bool) bool {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return false
	}
	if class := svc.Spec.LoadBalancerClass; class != nil {
		return *class == LoadBalancerClass
	}
	return classless
}

func (c *Controller) wants(svc *corev1.Service) bool { return wants(svc, c.cfg.Defaults) }

func (c *Controller) keyOf(svc *corev1.Service) lb.Owner { return KeyOf(svc, c.cfg.Defaults) }

// role is a Service's relation to this controller.
type role int

const (
	// unrelated: another implementation serves it, or it requests no load balancer.
	unrelated role = iota
	// wanted: it should have a load balancer of this controller.
	wanted
	// kept: it has no class, and this controller served it before the configuration changed. A
	// setting must not interrupt traffic, so its load balancer is deleted only with the Service.
	kept
	// departing: it no longer requests a load balancer here, but may own cloud objects.
	departing
	// unmarked: it is not marked, but may have a load balancer: the Hetzner controller created it,
	// or the status was lost, and the Service was changed or deleted while no controller ran. Its
	// finalizer means that there may be something to delete; only an exact label proves ownership.
	unmarked
)

// roleOf returns the role of a Service. The finalizer proves nothing: all implementations use it.
func roleOf(svc *corev1.Service, d lb.Defaults) role {
	deleted, finalizer := !svc.DeletionTimestamp.IsZero(), helpers.HasLBFinalizer(svc)
	switch ours := Ours(svc, d.Classless); {
	case !deleted && ours:
		return wanted
	case heldByNodes(svc) && !finalizer:
		return unrelated // the condition is that of the controller that gives it addresses of nodes
	case deleted && finalizer && (ours || heldByNodes(svc)):
		return departing
	case !deleted && svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		svc.Spec.LoadBalancerClass == nil:
		return kept
	case marked(svc):
		return departing
	case finalizer:
		return unmarked
	}
	return unrelated
}

func marked(svc *corev1.Service) bool {
	return meta.FindStatusCondition(svc.Status.Conditions, ConditionAccepted) != nil
}

// holds reports whether a Service may have a load balancer, by its finalizer.
func holds(svc *corev1.Service) bool { return helpers.HasLBFinalizer(svc) }

func showsAny(svc *corev1.Service) bool { return len(svc.Status.LoadBalancer.Ingress) > 0 }

func nameTaken(svc *corev1.Service) bool {
	cond := meta.FindStatusCondition(svc.Status.Conditions, ConditionAccepted)
	return cond != nil && cond.Reason == lb.ReasonNotOwned
}

func foreign(svc *corev1.Service) bool {
	return meta.IsStatusConditionTrue(svc.Status.Conditions, conditionForeign)
}

// heldByNodes reports whether a Service has the class of addresses on nodes. Its condition is from
// that controller, which uses no finalizer: a finalizer is from before the Service had the class.
func heldByNodes(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass != nil &&
		*svc.Spec.LoadBalancerClass == kube.AddressClass
}

// transferred reports whether another implementation serves a Service of type LoadBalancer now.
// Then it owns finalizer and addresses, even during deletion: all write the same fields.
func (c *Controller) transferred(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass != nil &&
		!Ours(svc, c.cfg.Defaults.Classless)
}

func addresses(svc *corev1.Service) string {
	var all []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		all = append(all, in.IP+in.Hostname)
	}
	return strings.Join(all, ", ")
}

// Owner returns the Service as an owner of objects in the cloud.
func Owner(svc *corev1.Service, cluster string) lb.Owner {
	return lb.Owner{Cluster: cluster, UID: string(svc.UID)}
}

func (c *Controller) owner(
	svc *corev1.Service,
) lb.Owner {
	return Owner(svc, c.cfg.Defaults.Cluster)
}

func hadManaged(svc *corev1.Service) bool {
	return meta.FindStatusCondition(svc.Status.Conditions, conditionManaged) != nil
}

// question converts a Service for package lb.
func question(svc *corev1.Service) lb.Service {
	families := svc.Spec.IPFamilies
	q := lb.Service{
		Namespace:           svc.Namespace,
		Name:                svc.Name,
		UID:                 string(svc.UID),
		Annotations:         svc.Annotations,
		Local:               local(svc),
		HealthCheckNodePort: int(svc.Spec.HealthCheckNodePort),
		ClientIPAffinity:    svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
		SourceRanges:        sourceRanges(svc),
		LoadBalancerIP:      svc.Spec.LoadBalancerIP,
		IPv4Only:            slices.Equal(families, []corev1.IPFamily{corev1.IPv4Protocol}),
		IPv6Only:            slices.Equal(families, []corev1.IPFamily{corev1.IPv6Protocol}),
		IPv6First:           len(families) > 0 && families[0] == corev1.IPv6Protocol,
	}
	for _, p := range svc.Spec.Ports {
		q.Ports = append(q.Ports, lb.Port{
			Name: p.Name, Number: int(p.Port), Protocol: string(p.Protocol), NodePort: int(p.NodePort),
		})
	}
	return q
}

func local(svc *corev1.Service) bool {
	return svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// sourceRanges returns the field, or the older annotation. They are not parsed: an unreadable
// range is still meant to restrict clients.
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
