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

const (
	adoptableKey  = "loadBalancers.adoptable"
	primaryIPsKey = "loadBalancers.primaryIPs"
	sharedKey     = "loadBalancers.shared"
)

// loadBalancerSettings are defaults that a Service's annotations override.
func loadBalancerSettings(b *LoadBalancers) []setting {
	return []setting{
		row("loadBalancers.enabled HCLOUD_LOAD_BALANCERS_ENABLED", "true", boolean(&b.Enabled)),
		row("loadBalancers.classless", "true", boolean(&b.Classless)),
		row("loadBalancers.location HCLOUD_LOAD_BALANCERS_LOCATION", "", dnsLabel(&b.Location, "fsn1")),
		row("loadBalancers.networkZone HCLOUD_LOAD_BALANCERS_NETWORK_ZONE", "",
			dnsLabel(&b.NetworkZone, "eu-central")),
		row("loadBalancers.type HCLOUD_LOAD_BALANCERS_TYPE", "lb11", dnsLabel(&b.Type, "lb11")),
		row("loadBalancers.algorithm HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE", string(lb.RoundRobin),
			oneOf(&b.Algorithm, lb.RoundRobin, lb.LeastConnections)),
		row("loadBalancers.usePrivateIP HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", "false",
			boolean(&b.UsePrivateIP)),
		row("loadBalancers.disablePublicNetwork HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK", "false",
			boolean(&b.DisablePublicNetwork)),
		row("loadBalancers.privateSubnetIPRange HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE", "",
			one(&b.PrivateSubnet, "prefix", parsePrefix)),
		row("loadBalancers.disableIPv6 HCLOUD_LOAD_BALANCERS_DISABLE_IPV6", "false",
			boolean(&b.DisableIPv6)),
		row("loadBalancers.disablePrivateIngress HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS", "false",
			boolean(&b.DisablePrivateIngress)),
		row("loadBalancers.usesProxyProtocol HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL", "false",
			boolean(&b.UsesProxyProtocol)),
		row("loadBalancers.healthCheck", string(lb.CheckKubeProxy),
			oneOf(&b.HealthCheck, lb.CheckKubeProxy, lb.CheckNodePort)),
		row("loadBalancers.healthCheckInterval HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL", "10s",
			wholeSeconds(&b.HealthCheckInterval, 3*time.Second, time.Minute)),
		row("loadBalancers.healthCheckTimeout HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT", "15s",
			wholeSeconds(&b.HealthCheckTimeout, time.Second, time.Minute)),
		row("loadBalancers.healthCheckRetries HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES", "3",
			whole(&b.HealthCheckRetries, 1, 5)),
		row("loadBalancers.certificates", string(lb.CertificatesAny),
			oneOf(&b.Certificates, lb.CertificatesAny, lb.CertificatesLabelled)),
		row("loadBalancers.podTargetSources", "",
			many(&b.PodTargetSources, "list of IPv6 prefixes", parseIPv6Prefix)),
		rows(adoptableKey, "load balancer", &b.Adoptable, func(at string, one *lb.Adoptable) []setting {
			return givenTo(at, &one.Name, &one.Namespace, &one.Service)
		}),
		rows(primaryIPsKey, "primary IP", &b.PrimaryIPs, func(at string, one *lb.GivenAddress) []setting {
			return givenTo(at, &one.Name, &one.Namespace, &one.Service)
		}),
		rows(sharedKey, "load balancer", &b.Shared, func(at string, one *lb.SharedName) []setting {
			return []setting{
				row(at+".name", required, dnsLabel(&one.Name, "edge")),
				row(at+".namespaces", required, dnsLabels(&one.Namespaces)),
			}
		}),
	}
}

// givenTo returns the keys that name an object in the cloud and the Service that may use it.
func givenTo(at string, named, namespace, service *string) []setting {
	return []setting{
		row(at+".name", required, name(named)),
		row(at+".namespace", required, dnsLabel(namespace, "shop")),
		row(at+".service", required, dnsLabel(service, "web")),
	}
}

func addressSettings(a *Addresses) []setting {
	return []setting{
		row(addressesClassless, "", boolean(&a.Classless)),
		rows(addressPoolsKey, "pool", &a.Pools, addressPoolSettings),
		row(bgpASN, "", autonomousSystem(&a.BGP.ASN)),
		row(bgpPodCIDRs, "false", boolean(&a.BGP.PodCIDRs)),
		rows(bgpPeersKey, "router", &a.BGP.Peers, bgpPeerSettings),
	}
}

func addressPoolSettings(section string, p *AddressPool) []setting {
	p.Field = section + "." + addresses.FieldRanges
	return []setting{
		row(section+".name", required, dnsLabel(&p.Name, "segment")),
		row(section+".ranges", required, addressRanges(&p.Ranges)),
		row(section+".mover", string(addresses.Layer2),
			oneOf(&p.Mover, addresses.Layer2, addresses.BGP, addresses.FloatingIP, addresses.Failover)),
		row(section+".onRequest", "false", boolean(&p.OnRequest)),
		row(section+".namespaceSelector", "",
			labelSelector(&p.Namespaces, "team=web", "the pool is for all namespaces")),
	}
}

func bgpPeerSettings(section string, p *BGPPeer) []setting {
	return []setting{
		row(section+".name", required, dnsLabel(&p.Name, "router")),
		row(section+".address", required, one(&p.Address, "address", parseAddress)),
		row(section+".port", "179", whole(&p.Port, 1, 65535)),
		row(section+".asn", required, autonomousSystem(&p.ASN)),
		row(section+".nodeSelector", "",
			labelSelector(&p.Nodes, "rack=1", "all Nodes speak with the router")),
		row(section+".passwordFile", "",
			secretPath(&p.PasswordFile, "password", "/etc/underlay-bgp/router")),
		row(section+".holdTime", "9s", wholeSeconds(&p.HoldTime, 3*time.Second, time.Hour)),
		row(section+".communities", "", communities(&p.Communities)),
		row(section+".multihop", "false", boolean(&p.Multihop)),
		row(section+".bfd", "false", boolean(&p.BFD)),
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
		for _, never := range []string{ // loopback, link-local, multicast and above
			"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/64", "fe80::/10", "ff00::/8",
		} {
			if r.Overlaps(addresses.RangeOf(netip.MustParsePrefix(never))) {
				return r, wrong("holds addresses of "+never+", which no client reaches a Service by",
					"give unicast addresses of the nodes' segment, or such as routers lead to them")
			}
		}
		return r, nil
	}
	return sized(1, math.MaxInt, "range, such as 192.0.2.16-192.0.2.31", many(into, describe, parse))
}

// autonomousSystem reads a number (RFC 6793) that is not reserved (RFC 7607, RFC 7300).
func autonomousSystem(into *uint32) format {
	const describe, transition = "number of an autonomous system, such as `64512`", 23456
	return one(into, describe, func(text string) (uint32, *Error) {
		number, err := strconv.ParseUint(text, 10, 32)
		reserved := number == 0 || number == transition || number == 1<<16-1 || number == 1<<32-1
		return uint32(number), wrongIf(err != nil || reserved,
			"is not the number of an autonomous system",
			"give one from 1 to 4294967294, for private use from 64512 to 65534")
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
		return uint32(first)<<16 | uint32(second), wrongIf(!two || err1 != nil || err2 != nil,
			"is not a community",
			"write two numbers up to 65535 with a colon between, or no-export or no-advertise")
	}))
}
