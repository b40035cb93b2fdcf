package config

import "strings"

const (
	familyIPv4 = "families.ipv4"
	familyIPv6 = "families.ipv6"
)

// agentsWork is said of kernel routes.
const agentsWork = "kernel routes are the work of underlay-agent, which has to run on every node"

// familiesOf says how each family is routed, and where nothing does it.
func (r *resolver) familiesOf(d *draft, pools []candidate) Families {
	families := d.families
	var own bool
	var carved []candidate // IPv6 pools whose prefixes no provider routes
	for _, c := range pools {
		own = own || c.Own
		if !c.Own && !c.ipv4() {
			carved = append(carved, c)
		}
	}
	if d.provider == Metal {
		return metalFamilies(families, len(carved) > 0)
	}
	if families.IPv4 == RoutedByNodes {
		r.warn(familyIPv4, "%s", agentsWork)
	}
	if r.isSet(familyIPv4) && families.IPv4 == RoutedByCloud && !r.cloudRoutesOn(d) {
		r.warn(familyIPv4, "cloud has no effect: routes in the cloud are switched off by %s", r.cloudRoutesOff(d))
	}
	switch families.IPv6 {
	case RoutedByNodes:
		r.warn(familyIPv6, "%s", agentsWork)
	case RoutedNatively:
		if !own {
			r.warn(familyIPv6, "native has no effect: no pool has source: node, and the provider routes nothing else")
		} else if len(carved) > 0 {
			r.warn(familyIPv6, "native is not true of %s: the provider routes only what is taken from servers' own prefixes", named(carved))
		}
	case Unrouted:
		if own {
			r.warn(familyIPv6, "none is not true of pools with source: node: the provider routes servers' own prefixes")
		}
	default:
		families.IPv6 = Unrouted
		if own && len(carved) == 0 {
			families.IPv6 = RoutedNatively
		}
		for _, c := range carved {
			r.warn(c.Field, "nothing routes %v between nodes; write %s: node into the file and run underlay-agent on every node, or none to say that you know", c.Prefix, familyIPv6)
		}
	}
	return families
}

func named(pools []candidate) string {
	names := make([]string, len(pools))
	for i, c := range pools {
		names[i] = "the " + c.what()
	}
	return strings.Join(names, ", ")
}

// cloudRoutesOn reports whether routes in the cloud are switched on.
func (r *resolver) cloudRoutesOn(d *draft) bool { return d.configureCloudRoutes && d.routesEnabled }

func (r *resolver) cloudRoutesOff(d *draft) string {
	if !d.configureCloudRoutes {
		return "--configure-cloud-routes=false"
	}
	return "HCLOUD_NETWORK_ROUTES_ENABLED"
}
