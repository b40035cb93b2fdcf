package config

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/routes"
)

// setting is where a setting can be given, its format and its default. Its meaning is written in
// docs/reference/configuration.md; a test keeps the other columns there equal to this table.
type setting struct {
	// flag, key and env are the sources by precedence; empty if there is no such source.
	flag, key, env string
	format
	// fallback is the default, or required for a key that a file must have.
	fallback string
	// items makes a list of this length and returns its items' settings; nil for other settings.
	items func(length int) []setting
	of    string // an item
}

const required = "required"

// row returns the setting with these names: a flag, or a key of the file and a variable.
func row(names, fallback string, f format) setting {
	s := setting{format: f, fallback: fallback}
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

// rows returns the setting of a list whose items are sections.
func rows[T any](key, of string, into *[]T, one func(section string, item *T) []setting) setting {
	items := func(length int) (all []setting) {
		*into = make([]T, length)
		for i := range *into {
			all = append(all, one(item(key, i), &(*into)[i])...)
		}
		return all
	}
	return setting{key: key, of: of, items: items, format: format{describe: "list of " + of + "s"}}
}

func item(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// field returns the setting's name for errors if no source gives it.
func (s setting) field() string { return cmp.Or(s.key, s.flag, s.env) }

// documented returns all settings; those of list items appear once, as in pools[].name.
func documented() (all []setting) {
	for _, s := range settings(&loader{}) {
		all = append(all, s)
		if s.items == nil {
			continue
		}
		for _, in := range s.items(1) {
			in.key = strings.Replace(in.key, "[0]", "[]", 1)
			all = append(all, in)
		}
	}
	return all
}

// settings returns all settings except those in lists, each bound to its field in l.
func settings(l *loader) []setting {
	all := append(flagSettings(l), fileSettings(l)...)
	all = append(all, robotSettings(&l.Robot)...)
	all = append(all, loadBalancerSettings(&l.LoadBalancers)...)
	return append(all, addressSettings(&l.Addresses)...)
}

const (
	apiVersion = "underlay.dev/v1alpha1"
	kind       = "CloudConfig"

	defaultEndpoint = "https://api.hetzner.cloud/v1"
)

// flagSettings can only be given on the command line, as upstream's flags.
func flagSettings(l *loader) []setting {
	return []setting{
		row("--cloud-provider", "hcloud", oneOf(new(string), "underlay", "hcloud")),
		row("--allocate-node-cidrs", "false", boolean(&l.IPAM.Enabled)),
		row("--cidr-allocator-type", "RangeAllocator", oneOf(new(string), "RangeAllocator")),
		row("--configure-cloud-routes", "true", boolean(&l.routesFlag)),
		row(clusterFlag, "", prefixes(&l.clusterCIDRs)),
		row(serviceFlag, "", prefixes(&l.IPAM.ServiceRanges)),
		row(maskFlag, "", whole(&l.nodeMask, 1, longestNodeMask(false))),
		row(maskFlagIPv4, "24", whole(&l.nodeMask4, 1, longestNodeMask(true))),
		row(maskFlagIPv6, "64", whole(&l.nodeMask6, 1, longestNodeMask(false))),
		row("--cluster-name", "kubernetes", labelValue(&l.ClusterName)),
		row("--route-reconciliation-period", "1m0s",
			atLeast(&l.Routes.ReconciliationPeriod, time.Second)),
	}
}

func fileSettings(l *loader) []setting {
	return []setting{
		row("apiVersion", required, oneOf(new(string), apiVersion)),
		row("kind", required, oneOf(new(string), kind)),
		row("provider", string(Hcloud), oneOf(&l.Provider, Hcloud, Metal)),
		row("endpoint HCLOUD_ENDPOINT", defaultEndpoint, apiURL(&l.Endpoint, defaultEndpoint)),
		row("tokenFile HCLOUD_TOKEN_FILE", "",
			secretPath(&l.Token.File, "token", "/etc/underlay/token")),
		row("HCLOUD_TOKEN", "", secretText(&l.Token, "token")),
		row("network HCLOUD_NETWORK", "", name(&l.Network)),
		row("instancesAddressFamily HCLOUD_INSTANCES_ADDRESS_FAMILY", string(IPv4),
			oneOf(&l.InstancesAddressFamily, IPv4, IPv6, DualStack)),
		row("HCLOUD_NETWORK_ROUTES_ENABLED", "true", boolean(&l.routesVariable)),
		row(familyIPv4, string(routes.ByCloud),
			oneOf(&l.Families.IPv4, routes.ByCloud, routes.ByNodes)),
		row(familyIPv6, "", oneOf(&l.Families.IPv6, routes.Natively, routes.ByNodes, routes.Unrouted)),
		row("exclude", "", many(&l.IPAM.Exclude, "list of prefixes", parsePrefix)),
		row("networkPolicy", "auto", switches([]string{"auto", "off"}, &l.NetworkPolicy, nil)),
		row("networkPolicyLog", "", whole(&l.NetworkPolicyLog, 1, math.MaxUint16)),
		row("quarantine", "5m0s", atLeast(&l.IPAM.Quarantine, shortestQuarantine)),
		row("ipamQPS", "100", whole(&l.IPAM.QPS, 1, 10_000)),
		row("routes.limit", "100", whole(&l.Routes.Limit, 1, 1000)),
		row("routes.reserve", "0", whole(&l.Routes.Reserve, 0, 999)),
		row("routes.maxDeletions", "25%", percentage(&l.Routes.MaxDeletionsPercent)),
		row(wireGuardKey, string(NoWireGuard),
			oneOf(&l.WireGuard.Mode, NoWireGuard, WireGuardOverflow, WireGuardAlways)),
		row(wireGuardPhaseKey, string(routes.RequireTunnels),
			oneOf(&l.WireGuard.Phase, routes.AcceptTunnels, routes.PreferTunnels, routes.RequireTunnels)),
		row(wireGuardPortKey, "51820", whole(&l.WireGuard.Port, 1, 65535)),
		row(PresharedKeyFile, "",
			secretPath(&l.WireGuard.PresharedKeyFile, "key", "/etc/underlay-wireguard/key")),
		row(vSwitchSubnet, "", one(&l.VSwitch.Subnet, "prefix", parsePrefix)),
		row(vSwitchExpose, "false", boolean(&l.VSwitch.ExposeRoutes)),
		rows(poolsKey, "pool", &l.IPAM.Pools, poolSettings),
		rows(inventoryKey, "machine", &l.Inventory, machineSettings),
	}
}

// shortestQuarantine is the time for which pods of a deleted Node can remain endpoints of Services
// and attract the traffic of later pods: pod garbage collection runs every 20 s and waits for 40 s
// more (k8s.io/kubernetes/pkg/controller/podgc).
const shortestQuarantine = time.Minute

func poolSettings(section string, p *Pool) []setting {
	p.Field = section + ".cidr"
	return []setting{
		row(section+".name", required, dnsLabel(&p.Name, "edge")),
		row(section+".cidr", "", one(&p.Prefix, "prefix", parsePrefix)),
		row(section+".source", "",
			switches([]string{sourceNode, sourceVSwitch}, &p.Own, &p.VSwitch)),
		row(section+".nodeMask", "", whole(&p.NodeMask, 1, longestNodeMask(false))),
		row(section+".nodeSelector", "",
			labelSelector(&p.Selector, "size in (small, tiny)", "the pool is for all Nodes")),
		row(section+".state", "active",
			switches([]string{"active", "draining"}, nil, &p.Draining)),
	}
}

func robotSettings(r *Robot) []setting {
	const user, password = "/etc/underlay/robot/user", "/etc/underlay/robot/password"
	return []setting{
		row(robotUserFile+" ROBOT_USER_FILE", "", secretPath(&r.User.File, "user", user)),
		row(robotPasswordFile+" ROBOT_PASSWORD_FILE", "",
			secretPath(&r.Password.File, "password", password)),
		row("robot.endpoint", defaultRobotEndpoint, apiURL(&r.Endpoint, defaultRobotEndpoint)),
		row("robot.forwardInternalIPs ROBOT_FORWARD_INTERNAL_IPS", "true",
			boolean(&r.ForwardInternalIPs)),
		row(robotEnabled, "", hidden(boolean(&r.Enabled))),
		row(robotUser, "", secretText(&r.User, "user")),
		row(robotPassword, "", secretText(&r.Password, "password")),
	}
}

const inventoryKey = "inventory"

func machineSettings(section string, m *Machine) []setting {
	return []setting{
		row(section+".name", required, nodeName(&m.Name)),
		row(section+".number", "", whole(&m.Number, 1, 999_999_999)),
		row(section+".addresses", "", many(&m.Addresses, "list of addresses", parseAddress)),
		row(section+".zone", "", labelValue(&m.Zone)),
		row(section+".region", "", labelValue(&m.Region)),
		row(section+".type", "", labelValue(&m.Type)),
	}
}
