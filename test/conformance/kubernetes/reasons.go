//go:build linux

package main

import "regexp"

// reason explains why specs fail that nobody expects to pass, until somebody changes what it names.
type reason struct {
	spec  *regexp.Regexp
	setup string
	why   string
}

func reasons() []reason {
	return []reason{
		{
			setup: cloud, spec: regexp.MustCompile(`ExternalTrafficPolicy: Local .* should work for type=LoadBalancer`),
			why: "It wants a pod to see the client's address. A load balancer of the Hetzner Cloud is a proxy with an address of its own in the network; " +
				"it tells the client's by the PROXY protocol alone, which `load-balancer.hetzner.cloud/uses-proxyprotocol` switches on and agnhost doesn't read.",
		},
		{
			setup: cloud, spec: regexp.MustCompile(`ExternalTrafficPolicy: Local .* should only target nodes with endpoints`),
			why: "It asks kube-proxy's health check at every InternalIP of a Node. kube-proxy opens that check in the Service's families alone, and this Service is IPv4 only, " +
				"so there is none at a dual-stack Node's IPv6 address, whatever `nodePortAddresses` says. Load balancers ask at the IPv4 address in the network.",
		},
		{
			setup: cloud, spec: regexp.MustCompile(`IPv6DualStack.* should function for ((endpoint|node|pod)-Service: (http|udp)|service endpoints using hostNetwork)$`),
			why: "It asks at a NodePort of a Node's IPv6 address, which is the server's public one. The example opens node ports in the network only (`nodePortAddresses`).",
		},
	}
}

// explain is why a spec fails on a set-up, and by which reason; -1: nobody knows.
func explain(r result, setup string, from []reason) (why string, by int) {
	for i, known := range from {
		if known.setup == setup && known.spec.MatchString(r.Spec.Name) {
			return known.why, i
		}
	}
	return "", -1
}
