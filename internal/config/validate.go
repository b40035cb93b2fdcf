package config

import (
	"net/netip"
	"net/url"
)

// validate compares the values with each other and builds the Config, which
// is of use only if there are no problems.
func (r *resolver) validate(d *draft, readFile func(string) ([]byte, error)) Config {
	if d.provider == Metal {
		r.withoutCloud(d)
	}
	if d.provider != Metal {
		r.encrypted("endpoint", "the token", d.endpoint)
		r.encrypted("robot.endpoint", "the password", d.robot.endpoint)
	}
	candidates := r.pools(d)
	robot := r.robot(d, readFile)
	var pools []Pool
	for _, c := range candidates {
		pools = append(pools, c.Pool)
	}
	return Config{
		Provider:               d.provider,
		Robot:                  robot,
		Inventory:              r.inventory(d),
		ClusterName:            d.clusterName,
		Endpoint:               d.endpoint,
		Network:                d.network,
		Token:                  r.token(d, readFile),
		InstancesAddressFamily: d.addressFamily,
		IPAM: IPAM{
			Enabled:       d.allocateNodeCIDRs,
			Pools:         pools,
			ServiceRanges: d.serviceRanges,
			Exclude:       d.exclude,
			Quarantine:    d.quarantine,
			QPS:           d.ipamQPS,
			Shards:        d.ledgerShards == AutoShards,
		},
		Families:      r.familiesOf(d, candidates),
		Routes:        r.routes(d, candidates),
		LoadBalancers: r.loadBalancers(d),
		VSwitch:       r.vSwitch(d),
		Addresses:     r.addresses(d, candidates, robot),
		origins:       r.places(),
	}
}

// encrypted warns where a secret goes over a network as it is.
func (r *resolver) encrypted(field, secret, endpoint string) {
	parsed, err := url.Parse(endpoint)
	if err != nil || parsed.Scheme != "http" {
		return
	}
	address, err := netip.ParseAddr(parsed.Hostname())
	if parsed.Hostname() == "localhost" || err == nil && address.IsLoopback() {
		return
	}
	r.warn(field, "%s travels unencrypted to %s; use https", secret, parsed.Host)
}

// token picks the token's source. A file named by tokenFile outranks both
// variables; of those the token itself outranks the file, as its users know it.
func (r *resolver) token(d *draft, readFile func(string) ([]byte, error)) TokenSource {
	const direct, inFile = "HCLOUD_TOKEN", "tokenFile"
	origin := r.origin(inFile)
	switch {
	case d.provider == Metal:
		return TokenSource{}
	case r.onNode:
	case r.isSet(direct) && r.isSet(inFile) && origin.line == 0:
		r.warn(inFile, "is not used, %s outranks it", direct)
	case r.isSet(inFile):
		if r.isSet(direct) {
			r.warn(direct, "is not used, %s outranks it", inFile)
		}
		source := TokenSource{File: d.tokenFile, field: origin.field, readFile: readFile}
		if r.isWrong(inFile) {
			return source
		}
		if _, problem := source.read(); problem != nil {
			problem.Line = origin.line
			r.problems = append(r.problems, problem)
		}
		return source
	case !r.isSet(direct) && !r.isWrong(inFile) && !r.unread:
		r.complain(direct, "", "no token is given",
			"put a token of the project into HCLOUD_TOKEN, or into a file named by tokenFile or HCLOUD_TOKEN_FILE")
	}
	return TokenSource{field: direct, fixed: d.token}
}

func (r *resolver) routes(d *draft, pools []candidate) Routes {
	routes := Routes{
		Enabled:              r.routesWanted(d),
		Limit:                d.routeLimit,
		Reserve:              d.routeReserve,
		MaxDeletionsPercent:  d.maxDeletions,
		ReconciliationPeriod: d.reconcilePeriod,
	}
	if routes.Reserve >= routes.Limit && !r.isWrong("routes.reserve") && !r.isWrong("routes.limit") {
		r.complain("routes.reserve", itoa(routes.Reserve),
			"leaves no route of routes.limit "+itoa(routes.Limit),
			"give a reserve below the limit")
	}
	if routes.Enabled {
		r.routable(d, pools)
	}
	return routes
}

// routesWanted decides whether there shall be routes in the cloud. Upstream's
// flag is true by default, also where nothing has been configured that could
// be routed; that is no mistake.
func (r *resolver) routesWanted(d *draft) bool {
	switch {
	case d.provider == Metal, !r.cloudRoutesOn(d), d.families.IPv4 == RoutedByNodes:
		return false
	case d.allocateNodeCIDRs || r.isSet(clusterFlag) || len(d.pools) > 0:
		return true
	}
	if d.network != "" {
		r.warn("--configure-cloud-routes", "there are no routes to configure without --cluster-cidr or pools")
	}
	return false
}

// routable checks what the routes of a network need.
func (r *resolver) routable(d *draft, pools []candidate) {
	const off = "--configure-cloud-routes=false"
	if d.network == "" && !r.isWrong("network") && !r.unread && !r.onNode {
		r.complain("network", "", "no network is given to hold the routes",
			"give the ID or the name of the network, or set "+off)
	}
	hasIPv4 := false
	for _, c := range pools {
		if !c.ipv4() {
			continue
		}
		hasIPv4 = true
		if !within(c.Prefix, private) {
			r.complain(c.Field, c.Prefix.String(), "lies outside RFC 1918, and the cloud routes nothing else",
				"choose a prefix within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16, or set "+off)
		}
	}
	switch {
	case hasIPv4 || len(pools) == 0 || r.isWrongIn(poolsKey):
	case len(d.pools) > 0:
		r.complain(poolsKey, "", "no pool has an IPv4 prefix, and the cloud's networks route only IPv4",
			"add an IPv4 pool, or set "+off)
	case r.isWhole(clusterFlag, d.clusterCIDRs):
		r.complain(clusterFlag, r.flags.ClusterCIDR, "has no IPv4 prefix, and the cloud's networks route only IPv4",
			"add an IPv4 prefix, or set "+off)
	}
}

func (r *resolver) loadBalancers(d *draft) LoadBalancers {
	if d.provider == Metal {
		return LoadBalancers{}
	}
	b := d.loadBalancers
	for _, one := range d.adoptable {
		b.Adoptable = append(b.Adoptable, *one)
	}
	for _, one := range d.primaryIPs {
		b.PrimaryIPs = append(b.PrimaryIPs, *one)
	}
	first := make(map[string]string)
	for _, one := range d.shared {
		if section, twice := first[one.Name]; twice && one.Name != "" {
			r.complain(one.section+".name", one.Name, "is there twice, the first time in "+section, "put all namespaces into one item")
			continue
		}
		first[one.Name] = one.section
		b.Shared = append(b.Shared, one.SharedName)
	}
	const location, zone = "loadBalancers.location", "loadBalancers.networkZone"
	if r.isSet(location) && r.isSet(zone) {
		// The two are one setting in two notations, so the file's outranks
		// the environment's.
		switch inFile, zoneInFile := r.origin(location).line > 0, r.origin(zone).line > 0; {
		case inFile == zoneInFile:
			r.complain(location, b.Location, "excludes "+r.origin(zone).field, "give one of the two")
		case inFile:
			b.NetworkZone = ""
			r.warn(zone, "is not used, %s outranks it", location)
		default:
			b.Location = ""
			r.warn(location, "is not used, %s outranks it", zone)
		}
	}
	for _, needsNetwork := range []struct {
		key string
		on  bool
	}{
		{"loadBalancers.usePrivateIP", b.UsePrivateIP},
		{"loadBalancers.disablePublicNetwork", b.DisablePublicNetwork},
	} {
		if needsNetwork.on && d.network == "" && !r.isWrong("network") && !r.unread && !r.onNode {
			r.complain(needsNetwork.key, "true", "needs a network", "give the network's ID or name in network, or set it to false")
		}
	}
	if b.DisablePublicNetwork && !b.UsePrivateIP {
		r.warn("loadBalancers.disablePublicNetwork",
			"a load balancer without public network reaches nothing unless usePrivateIP is true, here or on each Service")
	}
	return b
}
