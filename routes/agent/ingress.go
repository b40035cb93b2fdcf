package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/podingress"
)

// Targets returns a Node's annotations of pods that load balancers may reach.
func Targets(node *corev1.Node) map[string]string {
	found := maps.Clone(node.Annotations)
	maps.DeleteFunc(found, func(key, _ string) bool {
		_, ok := podingress.Service(key)
		return !ok
	})
	return found
}

// ingress returns what the own Node's annotations let load balancers reach. Write access to a
// Node must open neither another node's pods nor addresses outside of pods.
func (d *decider) ingress() []podingress.Ingress {
	var all []podingress.Ingress
	for _, key := range slices.Sorted(maps.Keys(d.Targets)) {
		parsed, err := podingress.Parse(d.Targets[key])
		if err != nil {
			d.distrustTargets(key, err.Error())
			continue
		}
		endpoints, sources := len(parsed.Endpoints), len(parsed.Sources)
		parsed.Endpoints = slices.DeleteFunc(parsed.Endpoints, func(e netip.AddrPort) bool {
			return !d.ownPublic(e.Addr())
		})
		parsed.Sources = slices.DeleteFunc(parsed.Sources, func(p netip.Prefix) bool {
			return !p.Addr().Is6() || p.Addr().Is4In6()
		})
		if refused := endpoints - len(parsed.Endpoints); refused > 0 {
			d.distrustTargets(key, fmt.Sprintf(
				"%d of %d endpoints are no public IPv6 addresses in this node's podCIDRs", refused, endpoints))
		}
		if refused := sources - len(parsed.Sources); refused > 0 {
			d.distrustTargets(key, fmt.Sprintf("%d of %d sources are not of IPv6", refused, sources))
		}
		if len(parsed.Sources) > 0 && len(parsed.Endpoints) > 0 {
			all = append(all, parsed)
		}
	}
	return all
}

// ownPublic reports whether the address may be one of this node's pods and be routed from outside.
func (d *decider) ownPublic(addr netip.Addr) bool {
	return addr.Is6() && !addr.Is4In6() && !addr.IsPrivate() && contain(d.Node.PodCIDRs, addr)
}

func (d *decider) distrustTargets(annotation, why string) {
	d.warn("annotation %s of this Node is not followed: %s; underlay-ccm writes it: delete it, and find the other program that does", annotation, why)
}
