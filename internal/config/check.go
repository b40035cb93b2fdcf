package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/routes"
)

// check checks the settings against each other.
func (l *loader) check() {
	if l.Provider == Metal {
		l.withoutCloud()
	} else {
		l.encrypted("endpoint", "the token", l.Endpoint)
		l.encrypted("robot.endpoint", "the password", l.Robot.Endpoint)
	}
	l.IPAM.Pools = l.pools()
	l.Robot = l.robot()
	l.inventory()
	l.Token = l.token()
	l.Families = l.families()
	l.routes()
	l.wireGuard()
	l.loadBalancers()
	l.vSwitch()
	l.addresses()
}

// encrypted warns if a secret is sent over the network without encryption.
func (l *loader) encrypted(field, secret, endpoint string) {
	parsed, err := url.Parse(endpoint)
	if err != nil || parsed.Scheme != "http" {
		return
	}
	address, err := netip.ParseAddr(parsed.Hostname())
	if parsed.Hostname() != "localhost" && (err != nil || !address.IsLoopback()) {
		l.warn(field, "%s travels unencrypted to %s; use https", secret, parsed.Host)
	}
}

const noCloud = "takes a cloud, and with provider: metal there is none"

// withoutCloud refuses settings that need a cloud. A variable only causes a warning, because it
// may be left over from another program.
func (l *loader) withoutCloud() {
	for _, s := range l.rows {
		switch field := s.field(); {
		case !ofCloud(field) || !l.isSet(field):
		case l.inFile(field):
			l.complain(field, "", "is about a cloud, and with provider: metal there is none", "remove it")
		default:
			l.warn(field, "has no effect with provider: metal")
		}
	}
	const remedy = "write node, or remove the key"
	if l.isSet(familyIPv4) && l.Families.IPv4 == routes.ByCloud {
		l.complain(familyIPv4, string(routes.ByCloud), noCloud, remedy)
	}
	if l.Families.IPv6 == routes.Natively {
		l.complain(familyIPv6, string(routes.Natively), noCloud, remedy)
	}
}

// ofCloud reports whether the setting has an effect only with a cloud.
func ofCloud(field string) bool {
	section, _, _ := strings.Cut(field, ".")
	return slices.Contains([]string{
		"endpoint", "tokenFile", "network", "instancesAddressFamily", "HCLOUD_TOKEN",
		"HCLOUD_NETWORK_ROUTES_ENABLED", robotEnabled, robotUser, robotPassword,
		"routes", "loadBalancers", "vswitch", "robot",
	}, section)
}

// lacksNetwork reports whether no network is given, as far as the sources are readable.
func (l *loader) lacksNetwork() bool {
	return l.Network == "" && !l.isWrong("network") && !l.onNode
}

func (l *loader) inventory() {
	names, numbers, owners := map[string]string{}, map[string]string{}, map[string]string{}
	for i, m := range l.Inventory {
		section := item(inventoryKey, i)
		number, remedy := section+".number", "give each server its own"
		switch {
		case l.isWrong("provider"):
		case l.Provider == Metal && m.Number != 0:
			l.complain(number, itoa(m.Number),
				"is a dedicated server's beside a cloud, and with provider: metal there is none",
				"remove it, or set provider: hcloud")
		case l.Provider != Metal && m.Number == 0:
			l.complain(number, "",
				"is missing: the cloud lists its own servers, and the inventory is for dedicated ones",
				"give the server's number at Robot, or remove the machine, or set provider: metal")
		case m.Number != 0:
			l.unique(numbers, section, "number", itoa(m.Number), remedy)
		}
		l.unique(names, section, "name", m.Name, "give each machine the name of its Node")
		for _, a := range m.Addresses {
			l.unique(owners, section, "addresses", a.String(), "give each machine addresses of its own")
		}
	}
}

// unique refuses a value that another item of the list has. seen maps values to their items.
func (l *loader) unique(seen map[string]string, section, key, value, remedy string) {
	if twin, twice := seen[value]; twice && value != "" {
		l.complain(section+"."+key, value, "is already given in "+twin+"."+key, remedy)
		return
	}
	seen[value] = section
}

func (l *loader) loadBalancers() {
	const location, zone = "loadBalancers.location", "loadBalancers.networkZone"
	const private, noPublic = "loadBalancers.usePrivateIP", "loadBalancers.disablePublicNetwork"
	if l.Provider == Metal {
		l.LoadBalancers = LoadBalancers{}
		return
	}
	b := &l.LoadBalancers
	names := map[string]string{}
	for i, one := range b.Shared {
		l.unique(names, item(sharedKey, i), "name", one.Name, "put all namespaces into one item")
	}
	// Both are notations of one setting, so the file takes precedence over the environment.
	switch inFile := l.inFile(location); {
	case !l.isSet(location) || !l.isSet(zone):
	case inFile == l.inFile(zone):
		l.complain(location, b.Location, "excludes "+l.origin(zone), "give one of the two")
	case inFile:
		b.NetworkZone = ""
		l.warn(zone, "is not used, %s outranks it", location)
	default:
		b.Location = ""
		l.warn(location, "is not used, %s outranks it", zone)
	}
	needsNetwork := func(key string, on bool) {
		if on && l.lacksNetwork() {
			l.complain(key, "true", "needs a network",
				"give the network's ID or name in network, or set it to false")
		}
	}
	needsNetwork(private, b.UsePrivateIP)
	needsNetwork(noPublic, b.DisablePublicNetwork)
	if b.DisablePublicNetwork && !b.UsePrivateIP {
		l.warn(noPublic, "a load balancer without public network reaches nothing "+
			"unless usePrivateIP is true, here or on each Service")
	}
}

func within(prefix netip.Prefix, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return contains(r, prefix) })
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}
