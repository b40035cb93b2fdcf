package config

import (
	"fmt"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

// flagSettings can only be given on the command line, as upstream's flags.
func flagSettings(d *draft) []setting {
	return []setting{
		{
			flag: "--cloud-provider", format: oneOf(&d.cloudProvider, []string{"underlay", "hcloud"}),
			fallback: "hcloud",
			meaning:  "Name of this provider. `hcloud` is accepted so that manifests of the Hetzner cloud controller manager keep working.",
		},
		{
			flag: "--allocate-node-cidrs", format: boolean(&d.allocateNodeCIDRs), fallback: "false",
			meaning: "Give every Node its podCIDRs. Requires `--cluster-cidr` or `pools`.",
		},
		{
			flag: "--cidr-allocator-type", format: oneOf(&d.cidrAllocatorType, []string{"RangeAllocator"}),
			fallback: "RangeAllocator",
			meaning:  "How podCIDRs are found: by carving pools. Upstream's other types are refused.",
		},
		{
			flag: "--configure-cloud-routes", format: boolean(&d.configureCloudRoutes), fallback: "true",
			meaning: "Keep one route per Node in the cloud's network. Needs an IPv4 prefix in `--cluster-cidr` or `pools`, and `network`; without any pool there is nothing to route.",
		},
		{
			flag: "--cluster-cidr", format: upTo(2, prefixes(&d.clusterCIDRs)),
			meaning: "The prefixes of the cluster's pods: one, or one of each family. Without `pools` each is a pool; with them, see [Pools](#pools).",
		},
		{
			flag: "--service-cluster-ip-range", format: upTo(2, prefixes(&d.serviceRanges)),
			meaning: "The API server's ranges for Service addresses; may not overlap a pool. Without them nothing keeps podCIDRs out of those ranges.",
		},
		{
			flag: "--node-cidr-mask-size", format: whole(&d.nodeMask, 1, longestNodeMask(false)),
			meaning: "Length of a Node's podCIDR in a single-stack cluster. Excludes the two flags below.",
		},
		{
			flag: "--node-cidr-mask-size-ipv4", format: whole(&d.nodeMask4, 1, longestNodeMask(true)), fallback: "24",
			meaning: "Length of a Node's IPv4 podCIDR, at most 16 bits longer than its pool's. A pool's `nodeMask` outranks it.",
		},
		{
			flag: "--node-cidr-mask-size-ipv6", format: whole(&d.nodeMask6, 1, longestNodeMask(false)), fallback: "64",
			meaning: "Length of a Node's IPv6 podCIDR, at most 48 bits longer than its pool's. A pool's `nodeMask` outranks it.",
		},
		{
			flag: "--cluster-name", format: labelValue(&d.clusterName), fallback: "kubernetes",
			meaning: "Name of the cluster; labels what is created in the cloud.",
		},
		{
			flag: "--route-reconciliation-period", format: atLeast(&d.reconcilePeriod, time.Second), fallback: "1m0s",
			meaning: "Time between two passes over the routes that no event has caused; each costs a request of the project's hourly budget.",
		},
	}
}

// cloudSettings say which cloud it is and how to reach it.
func cloudSettings(d *draft) []setting {
	return []setting{
		{
			key: "apiVersion", format: oneOf(&d.apiVersion, []string{apiVersion}), required: true,
			meaning: "Version of the file's form.",
		},
		{
			key: "kind", format: oneOf(&d.kind, []string{kind}), required: true,
			meaning: "Kind of the file.",
		},
		{
			key: "provider", format: oneOf(&d.provider, []Provider{Hcloud, Metal}), fallback: string(Hcloud),
			meaning: "Where the machines come from. `hcloud`: the Hetzner Cloud. `metal`: from anywhere; nothing is asked about them, see [Inventory](#inventory), there are no routes or load balancers of a cloud, and settings of those are refused.",
		},
		{
			key: "endpoint", env: "HCLOUD_ENDPOINT", format: baseURL(&d.endpoint), fallback: defaultEndpoint,
			meaning: "Base of the API; only resource paths are appended.",
		},
		{
			key: "tokenFile", env: "HCLOUD_TOKEN_FILE", format: secretPath(&d.tokenFile, "token", "/etc/underlay/token"), secret: true,
			meaning: "File that holds the API token; read again when it changes. `HCLOUD_TOKEN` outranks `HCLOUD_TOKEN_FILE`, the key outranks both.",
		},
		{
			env: "HCLOUD_TOKEN", format: secretToken(&d.token), secret: true,
			meaning: "The API token, with permission to read and write. The file can't hold it.",
		},
		{
			key: "network", env: "HCLOUD_NETWORK", format: name(&d.network),
			meaning: "The private network: source of internal addresses, home of the routes. Required with routes.",
		},
		{
			key: "instancesAddressFamily", env: "HCLOUD_INSTANCES_ADDRESS_FAMILY",
			format: oneOf(&d.addressFamily, []AddressFamily{IPv4, IPv6, DualStack}), fallback: string(IPv4),
			meaning: "Which external addresses a Node gets.",
		},
	}
}

// podSettings say how pods get addresses and routes.
func podSettings(d *draft) []setting {
	return []setting{
		{
			env: "HCLOUD_NETWORK_ROUTES_ENABLED", format: boolean(&d.routesEnabled), fallback: "true",
			meaning: "`false` switches routes off like `--configure-cloud-routes=false`.",
		},
		{
			key: "families.ipv4", format: oneOf(&d.families.IPv4, []Routing{RoutedByCloud, RoutedByNodes}),
			fallback: string(RoutedByCloud),
			meaning:  "What routes IPv4 between the pods of different nodes. `cloud`: routes in the cloud's network, unless `--configure-cloud-routes=false`. `node`: kernel routes on every node, and no routes in the cloud; they are the work of `underlay-agent`, which has to run on every node. With provider `metal` it is always `node`.",
		},
		{
			key: "families.ipv6", format: oneOf(&d.families.IPv6, []Routing{RoutedNatively, RoutedByNodes, Unrouted}),
			meaning: "What routes IPv6, which the cloud's networks don't carry. `native`: the provider, which routes the prefixes of pools with `source: node` to their servers. `node`: as for IPv4. `none`: nothing of Underlay's. Without the key: `native` where every IPv6 pool has `source: node`, else `none`; with provider `metal` `node` where there is an IPv6 pool.",
		},
		{
			key: "exclude", format: prefixes(&d.exclude),
			meaning: "Prefixes that no podCIDR may touch. Pods reach every other address of the pools under their own, and what is excluded under their node's: exclude what is somebody else's, such as a VPN.",
		},
		{
			key: "quarantine", format: atLeast(&d.quarantine, shortestQuarantine), fallback: "5m0s",
			meaning: "How long at least the podCIDRs of a Node that is gone are kept from others, beside the time until its route is gone. Kubernetes needs up to a minute to delete the pods of a Node that is gone; until then Services may still send to their addresses.",
		},
		{
			key: "ipamQPS", format: whole(&d.ipamQPS, 1, 10_000), fallback: "100",
			meaning: "Requests per second that the allocator may send to the API server.",
		},
		{
			key: "ledgerShards", format: oneOf(&d.ledgerShards, []LedgerShards{AutoShards, NoShards}), fallback: string(AutoShards),
			meaning: "Whether the stored ledger of podCIDRs is spread over several ConfigMaps. `auto`: where there are many Nodes. `none`: no longer; all of it goes back into the one ConfigMap, which has room for some 6,000 Nodes. Needed before [going back](../how-to/upgrade.md#back) to a version without shards.",
		},
		{
			key: "routes.limit", format: whole(&d.routeLimit, 1, 1000), fallback: "100",
			meaning: "Routes that the network takes. The cloud's limit is 100 unless support has raised it.",
		},
		{
			key: "routes.reserve", format: whole(&d.routeReserve, 0, 999), fallback: "0",
			meaning: "How many of them are left for others; less than `routes.limit`.",
		},
		{
			key: "routes.maxDeletions", format: percentage(&d.maxDeletions), fallback: "25%",
			meaning: "Share of the cluster's routes that may be deleted within one `--route-reconciliation-period`.",
		},
	}
}

// shortestQuarantine is how long the pods of a Node that is gone can go on
// being endpoints of Services: pod garbage collection looks every 20 s and waits
// for 40 s more (k8s.io/kubernetes/pkg/controller/podgc). Another Node's pods
// with their addresses would get their traffic.
const shortestQuarantine = time.Minute

// poolSettings are the keys of one pool.
func poolSettings(section string, p *poolDraft) []setting {
	return []setting{
		{
			key: section + ".name", format: poolName(&p.name), required: true,
			meaning: "Its name in events, metrics and the stored ledger. The pools that `--cluster-cidr` makes are named `" + defaultPoolIPv4 + "` and `" + defaultPoolIPv6 + "`.",
		},
		{
			key: section + ".cidr", format: onePrefix(&p.cidr),
			meaning: "The prefix to carve. No two pools overlap. An IPv4 prefix with routes in the cloud must lie within RFC 1918. With `source: vswitch` it lies in `vswitch.subnet` and leaves out the addresses of the servers.",
		},
		{
			key: section + ".source", format: oneOf(&p.source, []string{sourceNode, sourceVSwitch}),
			meaning: "`node`, instead of `cidr`: carve IPv6 prefixes from each server's own /64. `vswitch`, with `cidr`: carve IPv4 prefixes from inside `vswitch.subnet`, for dedicated servers, which answer for their pods there; needs no route in the cloud. Neither with provider `metal`.",
		},
		{
			key: section + ".nodeMask", format: whole(&p.nodeMask, 1, longestNodeMask(false)),
			meaning: fmt.Sprintf("Length of a Node's prefix. IPv4: at most 16 bits longer than `cidr` and at most 30. IPv6: at most 48 bits longer and at most 126; with `source: node` %d to 126. Default: what `--node-cidr-mask-size-ipv4` and `-ipv6` say, so 24 and 64; with `source: node` %d.", shortestOwnMask, defaultOwnMask),
		},
		{
			key: section + ".nodeSelector", format: labelSelector(&p.selector, "size in (small, tiny)", "remove the key if the pool is for all Nodes"),
			meaning: "The Nodes that the pool is for, by their labels. Without it: all. Required with `source: vswitch`: those of dedicated servers, which then get their IPv4 prefix from such pools alone.",
		},
		{
			key: section + ".state", format: oneOf(&p.state, []string{stateActive, stateDraining}), fallback: stateActive,
			meaning: "`draining`: Nodes keep what they have from it, and nothing new is handed out.",
		},
	}
}

// loadBalancerSettings are defaults that a Service's annotations override.
func loadBalancerSettings(b *LoadBalancers) []setting {
	return []setting{
		{
			key: "loadBalancers.enabled", env: "HCLOUD_LOAD_BALANCERS_ENABLED", format: boolean(&b.Enabled),
			fallback: "true",
			meaning:  "Serve Services of type LoadBalancer.",
		},
		{
			key: "loadBalancers.classless", format: boolean(&b.Classless), fallback: "true",
			meaning: "Serve Services without a loadBalancerClass too.",
		},
		{
			key: "loadBalancers.location", env: "HCLOUD_LOAD_BALANCERS_LOCATION", format: word(&b.Location, "fsn1"),
			meaning: "Location of new load balancers. Excludes `loadBalancers.networkZone`.",
		},
		{
			key: "loadBalancers.networkZone", env: "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE",
			format:  word(&b.NetworkZone, "eu-central"),
			meaning: "Network zone of new load balancers. Excludes `loadBalancers.location`.",
		},
		{
			key: "loadBalancers.type", env: "HCLOUD_LOAD_BALANCERS_TYPE", format: word(&b.Type, "lb11"),
			fallback: "lb11",
			meaning:  "Type of new load balancers.",
		},
		{
			key: "loadBalancers.algorithm", env: "HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE",
			format:   oneOf(&b.Algorithm, []lb.Algorithm{lb.RoundRobin, lb.LeastConnections}),
			fallback: string(lb.RoundRobin),
			meaning:  "How connections are distributed.",
		},
		{
			key: "loadBalancers.usePrivateIP", env: "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP",
			format: boolean(&b.UsePrivateIP), fallback: "false",
			meaning: "Reach nodes through the network. Requires `network`.",
		},
		{
			key: "loadBalancers.disablePublicNetwork", env: "HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK",
			format: boolean(&b.DisablePublicNetwork), fallback: "false",
			meaning: "Load balancers without public addresses. Requires `network`.",
		},
		{
			key: "loadBalancers.privateSubnetIPRange", env: "HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE",
			format:  onePrefix(&b.PrivateSubnet),
			meaning: "Range of the network's subnet in which load balancers get their private address. Without it the cloud chooses.",
		},
		{
			key: "loadBalancers.disableIPv6", env: "HCLOUD_LOAD_BALANCERS_DISABLE_IPV6",
			format: boolean(&b.DisableIPv6), fallback: "false",
			meaning: "Leave the public IPv6 address out of a Service's status.",
		},
		{
			key: "loadBalancers.disablePrivateIngress", env: "HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS",
			format: boolean(&b.DisablePrivateIngress), fallback: "false",
			meaning: "Leave the private address out of a Service's status.",
		},
		{
			key: "loadBalancers.usesProxyProtocol", env: "HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL",
			format: boolean(&b.UsesProxyProtocol), fallback: "false",
			meaning: "Announce clients to targets with the PROXY protocol.",
		},
		{
			key:      "loadBalancers.healthCheck",
			format:   oneOf(&b.HealthCheck, []lb.CheckMode{lb.CheckKubeProxy, lb.CheckNodePort}),
			fallback: string(lb.CheckKubeProxy),
			meaning:  "What is checked with externalTrafficPolicy Cluster: kube-proxy's health on port 10256, or a TCP connection to the node port.",
		},
		{
			key: "loadBalancers.healthCheckInterval", env: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL",
			format: wholeSeconds(&b.HealthCheckInterval, 3*time.Second, time.Minute), fallback: "10s",
			meaning: "Time between two health checks.",
		},
		{
			key: "loadBalancers.healthCheckTimeout", env: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT",
			format: wholeSeconds(&b.HealthCheckTimeout, time.Second, time.Minute), fallback: "15s",
			meaning: "Time after which a health check has failed.",
		},
		{
			key: "loadBalancers.healthCheckRetries", env: "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES",
			format: whole(&b.HealthCheckRetries, 1, 5), fallback: "3",
			meaning: "Failed checks that make a target unhealthy, and good ones that make it healthy again.",
		},
		{
			key:      "loadBalancers.certificates",
			format:   oneOf(&b.Certificates, []lb.CertificateUse{lb.CertificatesAny, lb.CertificatesLabelled}),
			fallback: string(lb.CertificatesAny),
			meaning:  "Which certificates of the project a Service may name. `labelled`: those whose label `underlay.dev/namespaces` in the cloud holds the Service's namespace, several of them with dots between.",
		},
		{
			key: "loadBalancers.podTargetSources", format: ipv6Prefixes(&b.PodTargetSources),
			meaning: "Where load balancers connect from to pods that are their targets, beside their own public addresses: nodes let these through to such pods, too. Needed only if the cloud connects from elsewhere.",
		},
	}
}

const adoptableKey = "loadBalancers.adoptable"

// adoptableSettings are the keys of one load balancer that a Service may take over.
func adoptableSettings(section string, one *lb.Adoptable) []setting {
	return givenSettings(section, &one.Name, &one.Namespace, &one.Service, "Its name in the cloud, which the Service's annotation `load-balancer.hetzner.cloud/name` gives.")
}

const primaryIPsKey = "loadBalancers.primaryIPs"

// primaryIPSettings are the keys of one primary IP that a Service may have.
func primaryIPSettings(section string, one *lb.GivenAddress) []setting {
	return givenSettings(section, &one.Name, &one.Namespace, &one.Service, "Its ID or name in the cloud; a number is an ID.")
}

// givenSettings are the keys of one thing in the cloud and the Service that it is given to.
func givenSettings(section string, named, namespace, service *string, meaning string) []setting {
	return []setting{
		{key: section + ".name", format: name(named), required: true, meaning: meaning},
		{
			key: section + ".namespace", format: dnsLabel(namespace, "shop"), required: true,
			meaning: "The Service's namespace.",
		},
		{
			key: section + ".service", format: dnsLabel(service, "web"), required: true,
			meaning: "The Service's name.",
		},
	}
}

const sharedKey = "loadBalancers.shared"

// sharedSettings are the keys of one load balancer that several namespaces may share.
func sharedSettings(section string, one *lb.SharedName) []setting {
	return []setting{
		{
			key: section + ".name", format: dnsLabel(&one.Name, "edge"), required: true,
			meaning: "What Services give in their annotation `underlay.dev/shared`.",
		},
		{
			key: section + ".namespaces", format: dnsLabels(&one.Namespaces), required: true,
			meaning: "The namespaces whose Services may share it. In others the name is refused.",
		},
	}
}
