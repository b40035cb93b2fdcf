package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// setting is a row of the reference: where a setting can be given, its format and its meaning.
type setting struct {
	// flag, key and env are the sources by precedence; empty if there is no such source.
	flag, key, env string
	format
	// fallback is the default, or required for a key that a file must have.
	fallback string
	meaning  string
}

const required = "required"

// row returns the setting with these names: a flag, or a key of the file and a variable.
func row(names, fallback string, f format, meaning string) setting {
	s := setting{format: f, fallback: fallback, meaning: meaning}
	for name := range strings.FieldsSeq(names) {
		switch {
		case strings.HasPrefix(name, "--"):
			s.flag = name
		case variablePrefix(name) != "":
			s.env = name
		default:
			s.key = name
		}
	}
	return s
}

// field returns the setting's name for errors if no source gives it.
func (s setting) field() string { return cmp.Or(s.key, s.flag, s.env) }

type list struct {
	key, of, meaning string
	// rows resizes the list to this number of items and returns their settings.
	rows func(items int) []setting
}

func listOf[T any](
	key, of, meaning string, into *[]T, rows func(section string, item *T) []setting,
) list {
	return list{key, of, meaning, func(items int) (all []setting) {
		*into = make([]T, items)
		for i := range *into {
			all = append(all, rows(item(key, i), &(*into)[i])...)
		}
		return all
	}}
}

// documented returns the settings of any item, as in pools[].name.
func (l list) documented() []setting {
	rows := l.rows(1)
	for i := range rows {
		rows[i].key = strings.Replace(rows[i].key, "[0]", "[]", 1)
	}
	return rows
}

func item(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// settings returns all settings except those in lists, each bound to its field in l.
func settings(l *loader) []setting {
	rows := flagSettings(l)
	rows = append(rows, cloudSettings(l)...)
	rows = append(rows, robotSettings(&l.Robot)...)
	rows = append(rows, podSettings(l)...)
	rows = append(rows, vSwitchSettings(&l.VSwitch)...)
	rows = append(rows, loadBalancerSettings(&l.LoadBalancers)...)
	return append(rows, addressSettings(&l.Addresses)...)
}

func lists(l *loader) []list {
	return []list{
		listOf(poolsKey, "pool", "The ranges that podCIDRs are carved from, see [Pools](#pools). None: one pool for each `--cluster-cidr`.",
			&l.IPAM.Pools, poolSettings),
		listOf(inventoryKey, "machine", "Machines that are known beforehand: those of provider `metal`, or dedicated servers beside the cloud's, see [Inventory](#inventory).",
			&l.Inventory, machineSettings),
		listOf(adoptableKey, "load balancer", "Load balancers made by others that Services may take over, see [Adoptable load balancers](#adoptable-load-balancers). None: only those with labels in the cloud that allow it.",
			&l.LoadBalancers.Adoptable, adoptableSettings),
		listOf(primaryIPsKey, "primary IP", "Primary IPs that Services may have their load balancers created with, see [Primary IPs](#primary-ips). None: only those with labels in the cloud that allow it.",
			&l.LoadBalancers.PrimaryIPs, primaryIPSettings),
		listOf(sharedKey, "load balancer", "Load balancers that Services of several namespaces may share, see [Shared load balancers](#shared-load-balancers). None: only Services of one namespace share one.",
			&l.LoadBalancers.Shared, sharedSettings),
		listOf(addressPoolsKey, "pool", "Addresses for Services that nodes hold, see [Address pools](#address-pools). None: Services get no such addresses.",
			&l.Addresses.Pools, addressPoolSettings),
		listOf(bgpPeersKey, "router", "Routers that nodes announce addresses to, see [BGP peers](#bgp-peers).",
			&l.Addresses.BGP.Peers, bgpPeerSettings),
	}
}

const (
	apiVersion = "underlay.dev/v1alpha1"
	kind       = "CloudConfig"
)

const defaultEndpoint = "https://api.hetzner.cloud/v1"

// flagSettings can only be given on the command line, as upstream's flags.
func flagSettings(l *loader) []setting {
	return []setting{
		row("--cloud-provider", "hcloud", oneOf(new(string), "underlay", "hcloud"),
			"Name of this provider. `hcloud` is accepted so that manifests of the Hetzner cloud controller manager keep working."),
		row("--allocate-node-cidrs", "false", boolean(&l.IPAM.Enabled),
			"Give every Node its podCIDRs. Requires `--cluster-cidr` or `pools`."),
		row("--cidr-allocator-type", "RangeAllocator", oneOf(new(string), "RangeAllocator"),
			"How podCIDRs are found: by carving pools. Upstream's other types are rejected."),
		row("--configure-cloud-routes", "true", boolean(&l.routesFlag),
			"Keep one route per Node in the cloud's network. Needs an IPv4 prefix in `--cluster-cidr` or `pools`, and `network`; without any pool there is nothing to route."),
		row("--cluster-cidr", "", prefixes(&l.clusterCIDRs, 2),
			"The prefixes of the cluster's pods: one, or one of each family. Without `pools` each is a pool; with them, see [Pools](#pools)."),
		row("--service-cluster-ip-range", "", prefixes(&l.IPAM.ServiceRanges, 2),
			"The API server's ranges for Service addresses; may not overlap a pool. Without them nothing keeps podCIDRs out of those ranges."),
		row("--node-cidr-mask-size", "", whole(&l.nodeMask, 1, longestNodeMask(false)),
			"Length of a Node's podCIDR in a single-stack cluster. Excludes the two flags below."),
		row("--node-cidr-mask-size-ipv4", "24", whole(&l.nodeMask4, 1, longestNodeMask(true)),
			"Length of a Node's IPv4 podCIDR, at most 16 bits longer than its pool's. A pool's `nodeMask` outranks it."),
		row("--node-cidr-mask-size-ipv6", "64", whole(&l.nodeMask6, 1, longestNodeMask(false)),
			"Length of a Node's IPv6 podCIDR, at most 48 bits longer than its pool's. A pool's `nodeMask` outranks it."),
		row("--cluster-name", "kubernetes", labelValue(&l.ClusterName),
			"Name of the cluster; a label of its resources in the cloud."),
		row("--route-reconciliation-period", "1m0s", atLeast(&l.Routes.ReconciliationPeriod, time.Second),
			"Time between two passes over the routes that no event has caused; each costs a request of the project's hourly budget."),
	}
}

func cloudSettings(l *loader) []setting {
	return []setting{
		row("apiVersion", required, oneOf(new(string), apiVersion),
			"Version of the file's form."),
		row("kind", required, oneOf(new(string), kind),
			"Kind of the file."),
		row("provider", string(Hcloud), oneOf(&l.Provider, Hcloud, Metal),
			"Where the machines come from. `hcloud`: the Hetzner Cloud. `metal`: from anywhere; no API has them, see [Inventory](#inventory), there are no routes or load balancers of a cloud, and settings of those are rejected."),
		row("endpoint HCLOUD_ENDPOINT", defaultEndpoint, apiURL(&l.Endpoint, defaultEndpoint),
			"Base of the API; only resource paths are appended."),
		row("tokenFile HCLOUD_TOKEN_FILE", "", secretPath(&l.Token.File, "token", "/etc/underlay/token"),
			"File that holds the API token; read again when it changes. `HCLOUD_TOKEN` outranks `HCLOUD_TOKEN_FILE`, the key outranks both."),
		row("HCLOUD_TOKEN", "", hidden(one(&l.Token.fixed, "secret", parseToken)),
			"The API token, with permission to read and write. The file can't hold it."),
		row("network HCLOUD_NETWORK", "", name(&l.Network),
			"The private network: source of internal addresses, home of the routes. Required with routes."),
		row("instancesAddressFamily HCLOUD_INSTANCES_ADDRESS_FAMILY", string(IPv4), oneOf(&l.InstancesAddressFamily, IPv4, IPv6, DualStack),
			"Which external addresses a Node gets."),
	}
}

func podSettings(l *loader) []setting {
	return []setting{
		row("HCLOUD_NETWORK_ROUTES_ENABLED", "true", boolean(&l.routesVariable),
			"`false` switches routes off like `--configure-cloud-routes=false`."),
		row("families.ipv4", string(RoutedByCloud), oneOf(&l.Families.IPv4, RoutedByCloud, RoutedByNodes),
			"How IPv4 is routed between the pods of different nodes. `cloud`: routes in the cloud's network, unless `--configure-cloud-routes=false`. `node`: kernel routes on every node, and no routes in the cloud; they are the work of `underlay-agent`, which has to run on every node. With provider `metal` it is always `node`."),
		row("families.ipv6", "", oneOf(&l.Families.IPv6, RoutedNatively, RoutedByNodes, Unrouted),
			"How IPv6 is routed, which the cloud's networks don't carry. `native`: the provider, which routes the prefixes of pools with `source: node` to their servers. `node`: as for IPv4. `none`: not by Underlay. Without the key: `native` where every IPv6 pool has `source: node`, else `none`; with provider `metal` `node` where there is an IPv6 pool."),
		row("exclude", "", many(&l.IPAM.Exclude, "list of prefixes", parsePrefix),
			"Prefixes that no podCIDR may touch. Pods reach every other address of the pools under their own, and excluded addresses under their node's: exclude ranges that others use, such as a VPN."),
		row("networkPolicy", "auto", switches([]string{"auto", "off"}, &l.NetworkPolicy, nil),
			"Whether the agents enforce [NetworkPolicies](../how-to/network-policy.md). `auto`: while there is a NetworkPolicy in the cluster. `off`: another program does, or none."),
		row("quarantine", "5m0s", atLeast(&l.IPAM.Quarantine, shortestQuarantine),
			"How long at least the podCIDRs of a Node that is gone are kept from others, beside the time until its route is gone. Kubernetes needs up to a minute to delete the pods of a Node that is gone; until then Services may still send to their addresses."),
		row("ipamQPS", "100", whole(&l.IPAM.QPS, 1, 10_000),
			"Requests per second that the allocator may send to the API server."),
		row("ledgerShards", "auto", switches([]string{"auto", "none"}, &l.IPAM.Shards, nil),
			"Whether the stored ledger of podCIDRs is spread over several ConfigMaps. `auto`: where there are many Nodes. `none`: no longer; all of it goes back into the one ConfigMap, which has room for some 6,000 Nodes. Needed before [going back](../how-to/upgrade.md#back) to a version without shards."),
		row("routes.limit", "100", whole(&l.Routes.Limit, 1, 1000),
			"Routes that the network takes. The cloud's limit is 100 unless support has raised it."),
		row("routes.reserve", "0", whole(&l.Routes.Reserve, 0, 999),
			"How many of them are left for others; less than `routes.limit`."),
		row("routes.maxDeletions", "25%", percentage(&l.Routes.MaxDeletionsPercent),
			"Share of the cluster's routes that may be deleted within one `--route-reconciliation-period`."),
		row(wireGuardKey, string(NoWireGuard), oneOf(&l.WireGuard.Mode, NoWireGuard, WireGuardOverflow, WireGuardAlways),
			"Which nodes WireGuard tunnels connect, see [Nodes beyond the route table](../how-to/wireguard.md). `never`: none. `overflow`: those for which the network's route table has no room, and servers outside the network whose kubelet has their public address (`--node-ip`); all other nodes keep their routes. Takes `families.ipv4: cloud`. `always`: all nodes; what pods send to other nodes, and nodes to pods, is [encrypted](../how-to/wireguard.md#encrypt-everything). Both take `underlay-agent` on every node."),
		row(wireGuardPhaseKey, string(WireGuardRequire), oneOf(&l.WireGuard.Phase, WireGuardAccept, WireGuardPrefer, WireGuardRequire),
			"How far `always` is applied, for a cluster that runs already: go through the three in this order, each on all nodes before the next. `accept`: receive through tunnels, send plainly. `prefer`: send through tunnels that work, plainly to other nodes. `require`: nothing is sent or received plainly."),
		row(wireGuardPortKey, "51820", whole(&l.WireGuard.Port, 1, 65535),
			"UDP port of the tunnels on every node. Another port has another key: changing it [replaces the keys](../how-to/wireguard.md#replace-keys) without an interruption."),
	}
}

// shortestQuarantine is the time for which pods of a deleted Node can remain endpoints of Services
// and attract the traffic of later pods: pod garbage collection runs every 20 s and waits for 40 s
// more (k8s.io/kubernetes/pkg/controller/podgc).
const shortestQuarantine = time.Minute

func poolSettings(section string, p *Pool) []setting {
	p.Field = section + ".cidr"
	return []setting{
		row(section+".name", required, dnsLabel(&p.Name, "edge"),
			"Its name in events, metrics and the stored ledger. The pools that `--cluster-cidr` makes are named `"+defaultPoolIPv4+"` and `"+defaultPoolIPv6+"`."),
		row(section+".cidr", "", one(&p.Prefix, "prefix", parsePrefix),
			"The prefix to carve. No two pools overlap. An IPv4 prefix with routes in the cloud must lie within RFC 1918. With `source: vswitch` it lies in `vswitch.subnet` and leaves out the addresses of the servers."),
		row(section+".source", "", switches([]string{sourceNode, sourceVSwitch}, &p.Own, &p.VSwitch),
			"`node`, instead of `cidr`: carve IPv6 prefixes from each server's own /64. `vswitch`, with `cidr`: carve IPv4 prefixes from inside `vswitch.subnet`, for dedicated servers, which reply for their pods there; needs no route in the cloud. Neither with provider `metal`."),
		row(section+".nodeMask", "", whole(&p.NodeMask, 1, longestNodeMask(false)),
			fmt.Sprintf("Length of a Node's prefix. IPv4: at most 16 bits longer than `cidr` and at most 30. IPv6: at most 48 bits longer and at most 126; with `source: node` %d to 126. Default: `--node-cidr-mask-size-ipv4` and `-ipv6`, so 24 and 64; with `source: node` %d.", shortestOwnMask, defaultOwnMask)),
		row(section+".nodeSelector", "", labelSelector(&p.Selector, "size in (small, tiny)", "the pool is for all Nodes"),
			"The Nodes that the pool is for, by their labels. Without it: all. Required with `source: vswitch`: those of dedicated servers, which then get their IPv4 prefix from such pools alone."),
		row(section+".state", "active", switches([]string{"active", "draining"}, nil, &p.Draining),
			"`draining`: Nodes keep their prefixes of it, and no more are handed out."),
	}
}

func robotSettings(r *Robot) []setting {
	return []setting{
		row(robotUserFile+" "+"ROBOT_USER_FILE", "", secretPath(&r.User.File, "user", "/etc/underlay/robot/user"),
			"File that holds the user of the [Robot web service](https://robot.hetzner.com/doc/webservice/en.html), for clusters with dedicated servers; read again when it changes. The key switches Robot on. `ROBOT_USER` outranks `ROBOT_USER_FILE`, the key outranks both. One user for one cluster: the quotas are the account's."),
		row(robotPasswordFile+" "+"ROBOT_PASSWORD_FILE", "", secretPath(&r.Password.File, "password", "/etc/underlay/robot/password"),
			"File that holds the user's password, as above."),
		row("robot.endpoint", defaultRobotEndpoint, apiURL(&r.Endpoint, defaultRobotEndpoint),
			"Base of the web service; only resource paths are appended."),
		row("robot.forwardInternalIPs ROBOT_FORWARD_INTERNAL_IPS", "true", boolean(&r.ForwardInternalIPs),
			"Without `network`: the private address that a dedicated server's kubelet was given (`--node-ip`) becomes the Node's internal one. With `network` that is so anyway, if the address lies in the network's range and no other machine has it."),
		row(robotEnabled, "", hidden(boolean(&r.Enabled)),
			"`true`: dedicated servers are read from Robot, with the credentials of the variables below. Not needed with credentials in the file."),
		row(robotUser, "", robotSecret(&r.User.Fixed, "user"),
			"The user of the Robot web service. The file can't hold it."),
		row(robotPassword, "", robotSecret(&r.Password.Fixed, "password"),
			"The user's password. The file can't hold it."),
	}
}

func vSwitchSettings(v *VSwitch) []setting {
	return []setting{
		row(vSwitchSubnet, "", one(&v.Subnet, "prefix", parsePrefix),
			"The subnet of `network` that is coupled with the vSwitch of the dedicated servers; of several, the one of this cluster's. Its first address is the gateway between the two. Required by pools with `source: vswitch`."),
		row(vSwitchExpose, "false", boolean(&v.ExposeRoutes),
			"Have the network expose its routes to the vSwitch (`expose_routes_to_vswitch`), if it doesn't do so yet: without that, the pods of dedicated servers don't reach those of cloud servers."),
	}
}

const inventoryKey = "inventory"

func machineSettings(section string, m *Machine) []setting {
	return []setting{
		row(section+".name", required, nodeName(&m.Name),
			"The Node's name, or the part after `underlay://` of the provider ID that its kubelet was started with."),
		row(section+".number", "", whole(&m.Number, 1, 999_999_999),
			"The dedicated server's number at Robot. Required with provider `hcloud`, and rejected with `metal`."),
		row(section+".addresses", "", many(&m.Addresses, "list of addresses", parseAddress),
			"With provider `metal`: the Node's internal addresses, by which other nodes reach it. Where a kubelet has `--node-ip`, its addresses have to be among them, and the Node gets those alone. Without the key: what the kubelet reports. With `hcloud`: addresses of the dedicated server, public and private ones, beside those that Robot lists."),
		row(section+".zone", "", labelValue(&m.Zone),
			"The Node's label `topology.kubernetes.io/zone`."),
		row(section+".region", "", labelValue(&m.Region),
			"The Node's label `topology.kubernetes.io/region`."),
		row(section+".type", "", labelValue(&m.Type),
			"The Node's label `node.kubernetes.io/instance-type`."),
	}
}

func prefixes(into *[]netip.Prefix, most int) format {
	describe := fmt.Sprintf("list of prefixes, at most %d", most)
	return sized(0, most, "prefix", many(into, describe, parsePrefix))
}
