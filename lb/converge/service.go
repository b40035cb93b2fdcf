package converge

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

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
		q.Ports = append(q.Ports, lb.Port{Number: int(p.Port), Protocol: string(p.Protocol), NodePort: int(p.NodePort)})
	}
	return q
}

func local(svc *corev1.Service) bool {
	return svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
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
