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

// LoadBalancerClass is the class that is always ours.
const LoadBalancerClass = "underlay.dev/hcloud"

// ConditionAccepted on a Service says whether its load balancer is all that the Service asks for.
// It also marks the Service as one that we have dealt with.
const ConditionAccepted = kube.ConditionAccepted

// conditionManaged remembers, before one is asked for, that the Service has a managed certificate:
// it must not outlive the Service, and looking for one would cost every Service a request.
const conditionManaged = "underlay.dev/ManagedCertificate"

// conditionForeign says that addresses in a Service's status may be those of another controller.
const conditionForeign = "underlay.dev/AddressesOfOthers"

// Ours reports whether a Service of type LoadBalancer is for us to serve; with classless, those
// without a loadBalancerClass are.
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

// role is what a Service is to us.
type role int

const (
	// unrelated: it is another implementation's, or asks for no load balancer.
	unrelated role = iota
	// wanted: there should be a load balancer of ours.
	wanted
	// kept: it has no class, and we served it until the configuration said otherwise. A changed
	// setting must not take traffic down, so its load balancer is only removed with the Service.
	kept
	// departing: it asks for none of ours any more, and we may have left something behind.
	departing
	// unmarked: nothing of ours marks it, and it may have a load balancer all the same: the Hetzner
	// controller made it, or the status got lost, and the Service asked for none any more, or was
	// deleted, while no controller ran. Its finalizer says that there is something to clean up, and
	// an exact label that it is ours.
	unmarked
)

// roleOf finds the role of a Service. The finalizer alone proves nothing: every implementation uses
// the same one.
func roleOf(svc *corev1.Service, d lb.Defaults) role {
	deleted, finalizer := !svc.DeletionTimestamp.IsZero(), helpers.HasLBFinalizer(svc)
	switch ours := Ours(svc, d.Classless); {
	case !deleted && ours:
		return wanted
	case heldByNodes(svc) && !finalizer:
		return unrelated // the condition is of the controller that gives it addresses of nodes
	case deleted && finalizer && (ours || heldByNodes(svc)):
		return departing
	case !deleted && svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil:
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

// holds reports whether a Service may have a load balancer.
func holds(svc *corev1.Service) bool { return helpers.HasLBFinalizer(svc) }

// showsAny reports whether a Service's status shows addresses of a load balancer.
func showsAny(svc *corev1.Service) bool { return len(svc.Status.LoadBalancer.Ingress) > 0 }

// nameTaken reports whether the Service's name for a load balancer was found to be taken.
func nameTaken(svc *corev1.Service) bool {
	cond := meta.FindStatusCondition(svc.Status.Conditions, ConditionAccepted)
	return cond != nil && cond.Reason == lb.ReasonNotOwned
}

// foreign reports whether the addresses of a Service may be those of somebody else's load balancer.
func foreign(svc *corev1.Service) bool {
	return meta.IsStatusConditionTrue(svc.Status.Conditions, conditionForeign)
}

// heldByNodes reports whether a Service is of the class whose addresses nodes hold. Its condition
// is that controller's, which has no finalizer: one that is there is ours, from when the Service
// had another class or none.
func heldByNodes(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass != nil && *svc.Spec.LoadBalancerClass == kube.AddressClass
}

// handedOver reports whether a Service of type LoadBalancer is another implementation's now.
// Finalizer and addresses are theirs then, also when the Service is about to go: every
// implementation writes the same fields.
func (c *Controller) handedOver(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass != nil && !Ours(svc, c.cfg.Defaults.Classless)
}

// addresses are those that the status shows.
func addresses(svc *corev1.Service) string {
	var all []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		all = append(all, in.IP+in.Hostname)
	}
	return strings.Join(all, ", ")
}

// Owner is the Service as an owner of things in the cloud.
func Owner(svc *corev1.Service, cluster string) lb.Owner {
	return lb.Owner{Cluster: cluster, UID: string(svc.UID)}
}

func (c *Controller) owner(svc *corev1.Service) lb.Owner { return Owner(svc, c.cfg.Defaults.Cluster) }

// hadManaged reports whether a managed certificate was made for the Service, and may still be
// there.
func hadManaged(svc *corev1.Service) bool {
	return meta.FindStatusCondition(svc.Status.Conditions, conditionManaged) != nil
}

// question is what package lb needs to know of a Service.
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
		q.Ports = append(q.Ports, lb.Port{Name: p.Name, Number: int(p.Port), Protocol: string(p.Protocol), NodePort: int(p.NodePort)})
	}
	return q
}

func local(svc *corev1.Service) bool {
	return svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// sourceRanges are the field's, or those of the annotation that was there before it. They are not
// parsed: a range that nobody can read is still a wish to keep others out.
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
