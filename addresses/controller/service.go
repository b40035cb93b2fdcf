package controller

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// ConditionAccepted of a Service reports whether it has all requested addresses.
const ConditionAccepted = kube.ConditionAccepted

// Ours reports whether a Service has this controller's class, or with classless, none.
func Ours(svc *corev1.Service, classless bool) bool {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return false
	}
	if class := svc.Spec.LoadBalancerClass; class != nil {
		return *class == kube.AddressClass
	}
	return classless
}

type selection struct {
	classless bool
	balancers bool // a cloud's load balancer controller runs too
}

// wanted reports whether a Service is served. A Service without a class keeps its addresses when
// the configuration changes, unless it may get a load balancer now: a changed setting must not
// interrupt traffic.
func (w selection) wanted(svc *corev1.Service, l addresses.Ledger) bool {
	if svc.Spec.LoadBalancerClass == nil && w.balancers && helpers.HasLBFinalizer(svc) {
		return false
	}
	return Ours(svc, w.classless) || !w.balancers && Ours(svc, true) && len(l.Of(string(svc.UID))) > 0
}

// leftBehind reports whether an unserved Service still has the condition and the load balancer
// controller, which marks Services with a load balancer by it, does not need it.
func (w selection) leftBehind(svc *corev1.Service) bool {
	return meta.FindStatusCondition(svc.Status.Conditions, ConditionAccepted) != nil &&
		svc.Spec.Type != corev1.ServiceTypeLoadBalancer && !helpers.HasLBFinalizer(svc)
}

func families(svc *corev1.Service) (wanted []addresses.Family) {
	for _, f := range svc.Spec.IPFamilies {
		if f == corev1.IPv6Protocol {
			wanted = append(wanted, addresses.IPv6)
		} else {
			wanted = append(wanted, addresses.IPv4)
		}
	}
	return wanted
}

func local(svc *corev1.Service) bool {
	return svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// shown returns the addresses in a Service's status.
func shown(svc *corev1.Service) (all []netip.Addr) {
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil && !slices.Contains(all, a.Unmap()) {
			all = append(all, a.Unmap())
		}
	}
	return all
}
