package config

import (
	"errors"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/lb"
)

// loadBalancerSettings are defaults that a Service's annotations override.
func loadBalancerSettings(b *LoadBalancers) []setting {
	return []setting{
		row("loadBalancers.enabled HCLOUD_LOAD_BALANCERS_ENABLED", "true", boolean(&b.Enabled),
			"Serve Services of type LoadBalancer."),
		row("loadBalancers.classless", "true", boolean(&b.Classless),
			"Serve Services without a loadBalancerClass too."),
		row("loadBalancers.location HCLOUD_LOAD_BALANCERS_LOCATION", "", word(&b.Location, "fsn1"),
			"Location of new load balancers. Excludes `loadBalancers.networkZone`."),
		row("loadBalancers.networkZone HCLOUD_LOAD_BALANCERS_NETWORK_ZONE", "", word(&b.NetworkZone, "eu-central"),
			"Network zone of new load balancers. Excludes `loadBalancers.location`."),
		row("loadBalancers.type HCLOUD_LOAD_BALANCERS_TYPE", "lb11", word(&b.Type, "lb11"),
			"Type of new load balancers."),
		row("loadBalancers.algorithm HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE", string(lb.RoundRobin), oneOf(&b.Algorithm, lb.RoundRobin, lb.LeastConnections),
			"How connections are distributed."),
		row("loadBalancers.usePrivateIP HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", "false", boolean(&b.UsePrivateIP),
			"Reach nodes through the network. Requires `network`."),
		row("loadBalancers.disablePublicNetwork HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK", "false", boolean(&b.DisablePublicNetwork),
			"Load balancers without public addresses. Requires `network`."),
		row("loadBalancers.privateSubnetIPRange HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE", "", one(&b.PrivateSubnet, "prefix", parsePrefix),
			"Range of the network's subnet in which load balancers get their private address. Without it the cloud chooses."),
		row("loadBalancers.disableIPv6 HCLOUD_LOAD_BALANCERS_DISABLE_IPV6", "false", boolean(&b.DisableIPv6),
			"Leave the public IPv6 address out of a Service's status."),
		row("loadBalancers.disablePrivateIngress HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS", "false", boolean(&b.DisablePrivateIngress),
			"Leave the private address out of a Service's status."),
		row("loadBalancers.usesProxyProtocol HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL", "false", boolean(&b.UsesProxyProtocol),
			"Announce clients to targets with the PROXY protocol."),
		row("loadBalancers.healthCheck", string(lb.CheckKubeProxy), oneOf(&b.HealthCheck, lb.CheckKubeProxy, lb.CheckNodePort),
			"The health check with externalTrafficPolicy Cluster: kube-proxy's health on port 10256, or a TCP connection to the node port."),
		row("loadBalancers.healthCheckInterval HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL", "10s", wholeSeconds(&b.HealthCheckInterval, 3*time.Second, time.Minute),
			"Time between two health checks."),
		row("loadBalancers.healthCheckTimeout HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT", "15s", wholeSeconds(&b.HealthCheckTimeout, time.Second, time.Minute),
			"Time after which a health check has failed."),
		row("loadBalancers.healthCheckRetries HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES", "3", whole(&b.HealthCheckRetries, 1, 5),
			"Failed checks that make a target unhealthy, and good ones that make it healthy again."),
		row("loadBalancers.certificates", string(lb.CertificatesAny), oneOf(&b.Certificates, lb.CertificatesAny, lb.CertificatesLabelled),
			"Which certificates of the project a Service may name. `labelled`: those whose label `underlay.dev/namespaces` in the cloud holds the Service's namespace, several of them with dots between."),
		row("loadBalancers.podTargetSources", "", many(&b.PodTargetSources, "list of IPv6 prefixes", parseIPv6Prefix),
			"Where load balancers connect from to pods that are their targets, beside their own public addresses: nodes let these through to such pods, too. Needed only if the cloud connects from elsewhere."),
	}
}

const (
	adoptableKey  = "loadBalancers.adoptable"
	primaryIPsKey = "loadBalancers.primaryIPs"
	sharedKey     = "loadBalancers.shared"
)

// givenTo returns the keys that name an object in the cloud and the Service that may use it.
func givenTo(section string, named, namespace, service *string, meaning string) []setting {
	return []setting{
		row(section+".name", required, name(named), meaning),
		row(section+".namespace", required, dnsLabel(namespace, "shop"),
			"The Service's namespace."),
		row(section+".service", required, dnsLabel(service, "web"),
			"The Service's name."),
	}
}

func adoptableSettings(section string, one *lb.Adoptable) []setting {
	return givenTo(section, &one.Name, &one.Namespace, &one.Service,
		"Its name in the cloud, which the Service's annotation `load-balancer.hetzner.cloud/name` gives.")
}

func primaryIPSettings(section string, one *lb.GivenAddress) []setting {
	return givenTo(section, &one.Name, &one.Namespace, &one.Service,
		"Its ID or name in the cloud; a number is an ID.")
}

func sharedSettings(section string, one *lb.SharedName) []setting {
	return []setting{
		row(section+".name", required, dnsLabel(&one.Name, "edge"),
			"The name that Services have in their annotation `underlay.dev/shared`."),
		row(section+".namespaces", required, dnsLabels(&one.Namespaces),
			"The namespaces whose Services may share it. In other namespaces the name is rejected."),
	}
}

func addressSettings(a *Addresses) []setting {
	return []setting{
		row(addressesClassless, "", boolean(&a.Classless),
			"Serve Services without `loadBalancerClass`, too, not only those of class `underlay.dev/address`. The default is `true` with provider `metal`, and `false` with `hcloud`, where load balancers of the cloud serve them."),
		row(bgpASN, "", autonomousSystem(&a.BGP.ASN),
			"The autonomous system of the nodes. Required by pools with `mover: bgp`."),
		row(bgpPodCIDRs, "false", boolean(&a.BGP.PodCIDRs),
			"Each node announces its podCIDRs, too, for fabrics whose routers are to know where pods are."),
	}
}

func addressPoolSettings(section string, p *AddressPool) []setting {
	p.Field = section + "." + addresses.FieldRanges
	return []setting{
		row(section+".name", required, dnsLabel(&p.Name, "segment"),
			"The name for the annotation `underlay.dev/address-pool` of Services."),
		row(section+".ranges", required, addressRanges(&p.Ranges),
			"The pool's addresses: single ones, prefixes with all of their addresses, or the first and the last with a dash between. Addresses that no machine can have, such as the network and broadcast address of the nodes' segment, are left out. No machine, DHCP server or other pool may use them."),
		row(section+".mover", string(Layer2), oneOf(&p.Mover, Layer2, BGPMover, FloatingIP, Failover),
			"How an address is led to the node that holds it. `layer2`: the node replies for it on its segment. `bgp`: nodes announce it to the routers of `addresses.bgp`. `floating-ip`: the cloud routes a floating IP to the server. `failover`: Robot routes a failover address to the dedicated server."),
		row(section+".onRequest", "false", boolean(&p.OnRequest),
			"Only Services that request the pool or an address of it get one."),
		row(section+".namespaceSelector", "", labelSelector(&p.Namespaces, "team=web", "the pool is for all namespaces"),
			"Namespaces whose Services may use the pool, by their labels. Without the key: all."),
	}
}

func bgpPeerSettings(section string, p *BGPPeer) []setting {
	return []setting{
		row(section+".name", required, dnsLabel(&p.Name, "router"),
			"Name of the router in reports and metrics."),
		row(section+".address", required, one(&p.Address, "address", parseAddress),
			"The router's address."),
		row(section+".port", "179", whole(&p.Port, 1, 65535),
			"The TCP port that it listens on."),
		row(section+".asn", required, autonomousSystem(&p.ASN),
			"Its autonomous system; that of the nodes for internal BGP."),
		row(section+".nodeSelector", "", labelSelector(&p.Nodes, "rack=1", "all Nodes speak with the router"),
			"Nodes that speak with it, by their labels. Without the key: all."),
		row(section+".passwordFile", "", secretPath(&p.PasswordFile, "password", "/etc/underlay-bgp/router"),
			"File on the nodes that holds the password for the router (TCP MD5)."),
		row(section+".holdTime", "9s", wholeSeconds(&p.HoldTime, 3*time.Second, time.Hour),
			"Time without a word after which each side takes the other for gone; the smaller one of both sides counts."),
		row(section+".communities", "", communities(&p.Communities),
			"Communities of the routes that are announced to it."),
		row(section+".multihop", "false", boolean(&p.Multihop),
			"The router is not on a segment of the nodes."),
		row(section+".bfd", "false", boolean(&p.BFD),
			"Watch each other by BFD, which notices within a second that the other side is gone. The router needs it, too, and has to be on a segment of the nodes."),
	}
}

func addressRanges(into *[]addresses.Range) format {
	const describe = "list of addresses, prefixes and ranges, such as `[192.0.2.16-192.0.2.31]`"
	parse := func(text string) (addresses.Range, *Error) {
		r, err := addresses.ParseRange(text)
		var mistake *addresses.Mistake
		if errors.As(err, &mistake) {
			return r, wrong(mistake.Problem, mistake.Remedy)
		}
		if never := neverOfServices(r); never != "" {
			return r, wrong("holds addresses of "+never+", which no client reaches a Service by",
				"give unicast addresses of the nodes' segment, or such as routers lead to them")
		}
		return r, nil
	}
	return sized(1, math.MaxInt, "range, such as 192.0.2.16-192.0.2.31", many(into, describe, parse))
}

// neverOfServices returns a prefix that overlaps the range and can't be used by Services, or "":
// the loopback, link-local and multicast ranges and above.
func neverOfServices(r addresses.Range) string {
	for _, text := range []string{
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/64", "fe80::/10", "ff00::/8",
	} {
		if r.Overlaps(addresses.RangeOf(netip.MustParsePrefix(text))) {
			return text
		}
	}
	return ""
}

// autonomousSystem reads a number (RFC 6793) that is not reserved (RFC 7607, RFC 7300).
func autonomousSystem(into *uint32) format {
	const describe, transition = "number of an autonomous system, such as `64512`", 23456
	return one(into, describe, func(text string) (uint32, *Error) {
		number, err := strconv.ParseUint(text, 10, 32)
		if err != nil || number == 0 || number == transition || number == 1<<16-1 || number == 1<<32-1 {
			return 0, wrong("is not the number of an autonomous system",
				"give one from 1 to 4294967294, for private use from 64512 to 65534")
		}
		return uint32(number), nil
	})
}

// communities reads standard communities, including well-known names (RFC 1997). Their number is
// limited because all of them must fit into one message (RFC 4271: 4096 bytes).
func communities(into *[]uint32) format {
	const describe = "list of communities, such as `[64512:100, no-export]`"
	known := map[string]uint32{"no-export": 0xFFFFFF01, "no-advertise": 0xFFFFFF02}
	return sized(0, 100, "community", many(into, describe, func(text string) (uint32, *Error) {
		if value, named := known[text]; named {
			return value, nil
		}
		high, low, two := strings.Cut(text, ":")
		first, err1 := strconv.ParseUint(high, 10, 16)
		second, err2 := strconv.ParseUint(low, 10, 16)
		if !two || err1 != nil || err2 != nil {
			return 0, wrong("is not a community",
				"write two numbers up to 65535 with a colon between, or no-export or no-advertise")
		}
		return uint32(first)<<16 | uint32(second), nil
	}))
}

func dnsLabels(into *[]string) format {
	const describe = "list of names, such as `[shop, blog]`"
	return sized(1, math.MaxInt, "name", many(into, describe, parseLabel))
}
