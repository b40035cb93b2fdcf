//go:build linux

package main

import "regexp"

// reason explains why specs fail that nobody expects to pass, until somebody changes what it names.
type reason struct {
	spec  *regexp.Regexp // of titles
	setup string
	why   string
	// byChance reports whether the specs sometimes pass.
	byChance bool
}

func reasons() []reason {
	onlyTarget := regexp.MustCompile(`ExternalTrafficPolicy: Local .* should only target nodes with endpoints \[Slow\]( \(ipv6\))?$`)
	const oneFamily = "It requests kube-proxy's health check at every InternalIP of a Node. kube-proxy serves it only in the Service's families, and this Service has one, " +
		"so a dual-stack Node's address of the other family has none, whatever `nodePortAddresses`. Load balancers and other nodes use an address of the Service's family."
	return []reason{
		{
			setup: cloud, spec: regexp.MustCompile(`ExternalTrafficPolicy: Local .* should work for type=LoadBalancer`),
			why: "It requires that a pod sees the client's address. A load balancer of the Hetzner Cloud is a proxy with its own address in the network; " +
				"it sends the client's only by the PROXY protocol, which `load-balancer.hetzner.cloud/uses-proxyprotocol` enables and agnhost doesn't support.",
		},
		{setup: cloud, spec: onlyTarget, why: oneFamily},
		{setup: addresses, spec: onlyTarget, why: oneFamily},
		{
			setup: addresses, spec: regexp.MustCompile(`should handle load balancer cleanup finalizer`),
			why: "It waits for the finalizer `service.kubernetes.io/load-balancer-cleanup`. A Service with an address that nodes hold has none, " +
				"because nothing outside the cluster has to be removed before it.",
		},
		{
			setup: addresses, spec: regexp.MustCompile(`should be able to switch session affinity .* with Local traffic policy`), byChance: true,
			why: "It requires replies of two of three pods. One node holds the address, with policy Local only its own pods get the packets, and one of the two workers has a single pod. " +
				"The spec passes if the other one holds the address.",
		},
		{
			setup: addresses, spec: regexp.MustCompile(`ExternalTrafficPolicy: Local .* should work from pods .*\(ipv6\)$`),
			why: "It parses the text before the first colon as the client's address, and uses `status.podIP` as the pod's, which is IPv4. Pods see the client's address here, too.",
		},
		{
			setup: addresses, spec: regexp.MustCompile(`should only allow access from service loadbalancer source ranges .*\(ipv6\)$`),
			why: "It passes wget an IPv6 address without brackets, which busybox' accepts and GNU's doesn't. Its ranges are `status.podIP` and `status.hostIP`, which are IPv4.",
		},
		{
			setup: cloud, spec: regexp.MustCompile(`IPv6DualStack.* should function for ((endpoint|node|pod)-Service: (http|udp)|service endpoints using hostNetwork)$`),
			why: "It connects to a NodePort of a Node's IPv6 address, which is the server's public one. The example opens node ports only in the network (`nodePortAddresses`).",
		},
	}
}

// explain is why a spec fails on a set-up, and by which reason; -1: nobody knows.
func explain(r result, setup string, from []reason) (why string, by int) {
	for i, known := range from {
		if known.setup == setup && known.spec.MatchString(r.Spec.title()) {
			return known.why, i
		}
	}
	return "", -1
}
