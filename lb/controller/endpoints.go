package controller

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/lb"
)

// endpoints are the pods of a Service that may be targets, from EndpointSlices and Nodes.
type endpoints struct {
	pods lb.Pods
	// ports are the target ports of the Service's ports, in the Service's order.
	ports [][]int
	// unready are pods that are not ready and not terminating.
	unready []lb.Target
	// known maps all pods that can be targets, in any state, to their Nodes' names.
	known map[lb.Target]string
}

// backend is a pod; with a dual-stack Service its addresses are in two slices.
type backend struct {
	name, key          string // key contains the pod's UID, which differs after it is recreated
	ready, terminating bool   // terminating: used if no other pod is ready
	ends               bool   // it is terminating
	target             lb.Target
}

// readEndpoints reads the slices of a Service. As in kube-proxy, ready endpoints receive traffic,
// or, if no endpoint is ready, serving endpoints that are terminating.
func readEndpoints(
	svc *corev1.Service, all []*discoveryv1.EndpointSlice, nodes []*corev1.Node, pools bool,
) endpoints {
	byName := make(map[string]*corev1.Node, len(nodes))
	for _, n := range nodes {
		byName[n.Name] = n
	}
	e := endpoints{known: make(map[lb.Target]string)}
	e.pods.IPv4Only = !slices.Contains(svc.Spec.IPFamilies, corev1.IPv6Protocol)
	e.pods.NoPool = !pools
	found := make(map[string]*backend)
	for _, slice := range all {
		for _, at := range slice.Endpoints {
			for _, b := range backendsOf(slice, at, byName) {
				if b.target.Pod() {
					e.known[b.target] = *at.NodeName
				}
				if known := found[b.key]; known != nil {
					b.ready, b.terminating, b.ends = b.ready || known.ready, b.terminating ||
						known.terminating, b.ends || known.ends
					if !b.target.Pod() {
						b.target = known.target
					}
				}
				found[b.key] = &b
			}
		}
	}
	takes := func(b *backend) bool { return b.ready }
	if !slices.ContainsFunc(slices.Collect(maps.Values(found)), takes) {
		takes = func(b *backend) bool { return b.terminating }
	}
	for _, b := range found {
		switch {
		case !takes(b):
			if b.target.Pod() && !b.ends {
				e.unready = append(e.unready, b.target)
			}
		case b.target.Pod():
			e.pods.Targets = append(e.pods.Targets, b.target)
		default:
			e.pods.Others = append(e.pods.Others, b.name)
		}
	}
	slices.SortFunc(e.pods.Targets, lb.Target.Compare)
	e.pods.Targets = slices.Compact(e.pods.Targets)
	slices.Sort(e.pods.Others)
	e.ports = portsOf(svc, all, e.pods.Targets)
	return e
}

// backendsOf returns the pod of an endpoint. Endpoints by other controllers may have no pod, and
// several addresses.
func backendsOf(
	slice *discoveryv1.EndpointSlice, at discoveryv1.Endpoint, nodes map[string]*corev1.Node,
) (all []backend) {
	ends := ptr.Deref(at.Conditions.Terminating, false)
	serves := ptr.Deref(at.Conditions.Serving, true)
	for _, text := range at.Addresses {
		b := backend{
			name: text, key: text,
			ready: ptr.Deref(at.Conditions.Ready, true), terminating: serves && ends, ends: ends,
		}
		if ref := at.TargetRef; ref != nil && ref.Kind == "Pod" {
			b.name, b.key = ref.Name, ref.Name+"/"+string(ref.UID)
		}
		address, err := netip.ParseAddr(text)
		if node := nodes[ptr.Deref(at.NodeName, "")]; err == nil && node != nil &&
			slice.AddressType == discoveryv1.AddressTypeIPv6 {
			b.target = podOn(node, address)
		}
		all = append(all, b)
	}
	return all
}

// shortestOwn is the minimum prefix length of a pool with source: node, within a server's /64.
const shortestOwn = 65

// podOn returns the target of a pod on a cloud server, or the zero Target if the cloud does not
// route its address to the server. It does if the address is in a public IPv6 podCIDR within the
// server's /64. If the Node has an external IPv6 address, it must be in the same /64; the cloud
// checks the rest.
func podOn(node *corev1.Node, address netip.Addr) lb.Target {
	server, err := kube.ParseProviderID(node.Spec.ProviderID)
	if err != nil || !address.Is6() || !address.IsGlobalUnicast() || address.IsPrivate() {
		return lb.Target{}
	}
	own := netip.PrefixFrom(address, 64).Masked()
	for _, a := range kube.ExternalIPs(node) {
		if a.Is6() && !own.Contains(a) {
			return lb.Target{}
		}
	}
	for _, text := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && p.Bits() >= shortestOwn &&
			p.Contains(address) {
			return lb.Target{Server: server, Address: address}
		}
	}
	return lb.Target{}
}

// portsOf returns the target ports of the Service's ports: on the given pods, else on any pod,
// else as the Service specifies.
func portsOf(svc *corev1.Service, all []*discoveryv1.EndpointSlice, pods []lb.Target) [][]int {
	taken := make(map[netip.Addr]bool, len(pods))
	for _, t := range pods {
		taken[t.Address] = true
	}
	counts := func(slice *discoveryv1.EndpointSlice) bool {
		return slice.AddressType == discoveryv1.AddressTypeIPv6 &&
			slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
				return len(pods) == 0 || slices.ContainsFunc(e.Addresses, func(text string) bool {
					address, err := netip.ParseAddr(text)
					return err == nil && taken[address]
				})
			})
	}
	numbers := make(map[string][]int)
	for _, slice := range all {
		for _, p := range slice.Ports {
			if p.Port != nil && counts(slice) {
				name := ptr.Deref(p.Name, "")
				numbers[name] = append(numbers[name], int(*p.Port))
			}
		}
	}
	ports := make([][]int, len(svc.Spec.Ports))
	for i, p := range svc.Spec.Ports {
		ports[i] = slices.Compact(slices.Sorted(slices.Values(numbers[p.Name])))
		if len(ports[i]) == 0 && p.TargetPort.Type == intstr.Int {
			ports[i] = []int{cmp.Or(p.TargetPort.IntValue(), int(p.Port))}
		}
	}
	return ports
}
