package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/routes"
)

const (
	familyIPv4 = "families.ipv4"
	familyIPv6 = "families.ipv6"

	vSwitchSubnet = "vswitch.subnet"
	vSwitchExpose = "vswitch.exposeRoutes"

	wireGuardKey      = "wireguard"
	wireGuardPhaseKey = "wireguardPhase"
	wireGuardPortKey  = "wireguardPort"
)

// private contains RFC 1918, the only destinations that the cloud's networks route.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
}

// families returns the routing of each family, and warns if a family is not routed.
func (l *loader) families() routes.Modes {
	families := l.Families
	var own bool
	var carved []Pool // IPv6 pools that no provider routes
	for _, p := range l.IPAM.Pools {
		own = own || p.Own
		if !p.Own && !p.ipv4() {
			carved = append(carved, p)
		}
	}
	if l.Provider == Metal { // the nodes route, unless the file disables it
		byDefault := routes.Unrouted
		if len(carved) > 0 {
			byDefault = routes.ByNodes
		}
		return routes.Modes{IPv4: routes.ByNodes, IPv6: cmp.Or(families.IPv6, byDefault)}
	}
	off := !l.routesFlag || !l.routesVariable
	if l.isSet(familyIPv4) && families.IPv4 == routes.ByCloud && off {
		l.warn(familyIPv4, "cloud has no effect: --configure-cloud-routes or "+
			"HCLOUD_NETWORK_ROUTES_ENABLED switches routes in the cloud off")
	}
	if families.IPv6 == routes.Natively && !own {
		l.warn(familyIPv6, "native has no effect: no pool has source: node, "+
			"and the provider routes nothing else")
	}
	if families.IPv6 == "" || families.IPv6 == routes.Natively && own {
		for _, p := range carved {
			l.warn(p.Field, "nothing routes %v between nodes; write %s: node into the file "+
				"and run underlay-agent on every node, or none to confirm that", p.Prefix, familyIPv6)
		}
	}
	if families.IPv6 == "" {
		families.IPv6 = routes.Unrouted
		if own && len(carved) == 0 {
			families.IPv6 = routes.Natively
		}
	}
	return families
}

// routes checks the routes in the cloud's network. Upstream's flag is true by default, so it is
// no mistake if there is nothing to route. The agent doesn't know the flag.
func (l *loader) routes() {
	const reserve, limit, off = "routes.reserve", "routes.limit", "--configure-cloud-routes=false"
	r := &l.Routes
	if r.Reserve >= r.Limit && !l.isWrong(limit) {
		l.complain(reserve, itoa(r.Reserve), "leaves no route of routes.limit "+itoa(r.Limit),
			"give a reserve below the limit")
	}
	ofFile := l.inFile(poolsKey)
	switch {
	case l.onNode, !l.routesFlag, !l.routesVariable, l.Families.IPv4 == routes.ByNodes:
		return
	case !l.IPAM.Enabled && !l.isSet(clusterFlag) && !ofFile:
		if l.Network != "" {
			l.warn("--configure-cloud-routes",
				"there are no routes to configure without --cluster-cidr or pools")
		}
		return
	}
	r.Enabled = true
	if l.lacksNetwork() {
		l.complain("network", "", "no network is given to hold the routes",
			"give the ID or the name of the network, or set "+off)
	}
	for _, p := range l.IPAM.Pools {
		if p.ipv4() && !within(p.Prefix, private) {
			l.complain(p.Field, p.Prefix.String(),
				"lies outside RFC 1918, and the cloud routes nothing else",
				"choose a prefix within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16, or set "+off)
		}
	}
	source, value := clusterFlag, l.flags[clusterFlag]
	if ofFile {
		source, value = poolsKey, ""
	}
	if len(l.IPAM.Pools) > 0 && !slices.ContainsFunc(l.IPAM.Pools, Pool.ipv4) {
		l.complain(source, value, "has no IPv4 prefix, and the cloud's networks route only IPv4",
			"add an IPv4 prefix, or set "+off)
	}
}

func (l *loader) wireGuard() {
	mode, phase := l.WireGuard.Mode, l.WireGuard.Phase
	switch {
	case mode == WireGuardAlways || l.isWrong(wireGuardKey):
	case phase != routes.RequireTunnels:
		l.complain(wireGuardPhaseKey, string(phase),
			"applies only to "+wireGuardKey+": "+string(WireGuardAlways), "remove it")
	case mode == NoWireGuard:
	case l.Provider == Metal:
		l.complain(wireGuardKey, string(mode),
			"is for nodes without a route in a cloud's network, and with provider: metal there is none",
			"remove the key")
	case l.Families.IPv4 != routes.ByCloud || !l.onNode && !l.Routes.Enabled:
		l.complain(wireGuardKey, string(mode),
			"is for nodes without a route in the cloud's network, which has none of this cluster's",
			"remove the key, or set "+familyIPv4+": "+string(routes.ByCloud))
	}
}

func (l *loader) vSwitch() {
	const remedy = "give the range of the network's subnet of type vswitch"
	v := l.VSwitch
	wrong := func(problem, remedy string) {
		l.complain(vSwitchSubnet, v.Subnet.String(), problem, remedy)
	}
	switch {
	case l.Provider == Metal:
		l.VSwitch = VSwitch{}
	case !l.isSet(vSwitchSubnet):
		if v.ExposeRoutes {
			l.complain(vSwitchExpose, "true", "is about a subnet that is not given",
				"give "+vSwitchSubnet+", or remove it")
		}
	case !within(v.Subnet, private):
		wrong("lies outside RFC 1918, and the cloud's networks hold nothing else", remedy)
	case v.Subnet.Bits() > longestNodeMask(true):
		wrong("has no room for a gateway and a server", remedy)
	case l.lacksNetwork():
		wrong("needs a network", "give the network's ID or name in network")
	}
}

// inVSwitch checks that the pools of dedicated servers lie within the vSwitch's subnet, and that
// all other pools don't overlap it.
func (l *loader) inVSwitch(p Pool) {
	subnet, gateway := l.VSwitch.Subnet, l.VSwitch.Gateway()
	wrong := func(remedy, problem string, arguments ...any) {
		l.complain(p.Field, p.Prefix.String(), fmt.Sprintf(problem, arguments...), remedy)
	}
	if !p.VSwitch {
		if subnet.IsValid() && p.Prefix.Overlaps(subnet) {
			wrong("choose ranges that lie apart, "+
				"or add source: vswitch if the pool is for dedicated servers",
				"overlaps %v of %s, which is the dedicated servers'", subnet, vSwitchSubnet)
		}
		return
	}
	source := p.key("source")
	switch {
	case l.Provider == Metal:
		l.complain(source, sourceVSwitch, noCloud, "remove it")
		return
	case l.Families.IPv4 != routes.ByCloud:
		l.complain(source, sourceVSwitch,
			"is for networks of the cloud, and "+familyIPv4+" is "+string(l.Families.IPv4),
			"remove it, or set "+familyIPv4+": "+string(routes.ByCloud))
	}
	if p.Selector == nil {
		l.complain(p.key("nodeSelector"), "", "is missing, and the pool is for dedicated servers alone",
			"give the label that their Nodes have, such as node.underlay.dev/dedicated: \"true\", "+
				"and start their kubelets with it in --node-labels")
	}
	const remedy = "give a part of the subnet that leaves out its beginning, " +
		"where the gateway and the servers are"
	switch {
	case !l.isSet(vSwitchSubnet):
		l.complain(source, sourceVSwitch, "needs the subnet that it is carved from",
			"give the range of the network's subnet of type vswitch in "+vSwitchSubnet)
	case !subnet.IsValid():
	case !contains(subnet, p.Prefix):
		wrong(remedy, "lies outside %v of %s", subnet, vSwitchSubnet)
	case p.Prefix.Contains(gateway):
		wrong(remedy, "holds %v, the gateway of %s", gateway, vSwitchSubnet)
	}
}
