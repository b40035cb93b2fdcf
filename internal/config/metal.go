package config

import (
	"cmp"
	"net/netip"
	"regexp"
	"strings"
)

const inventoryKey = "inventory"

// machineSettings are the keys of one machine.
func machineSettings(section string, m *Machine) []setting {
	return []setting{
		{
			key: section + ".name", format: nodeName(&m.Name), required: true,
			meaning: "The Node's name, or what stands behind `underlay://` in the provider ID that its kubelet was started with.",
		},
		{
			key: section + ".number", format: whole(&m.Number, 1, 999_999_999),
			meaning: "The dedicated server's number at Robot. Required with provider `hcloud`, and refused with `metal`.",
		},
		{
			key: section + ".addresses", format: ownAddresses(&m.Addresses),
			meaning: "With provider `metal`: the Node's internal addresses, by which other nodes reach it. Where a kubelet has `--node-ip`, its addresses have to be among them, and the Node gets those alone. Without the key: what the kubelet reports. With `hcloud`: addresses of the dedicated server, public and private ones, beside those that Robot tells.",
		},
		{
			key: section + ".zone", format: labelValue(&m.Zone),
			meaning: "The Node's label `topology.kubernetes.io/zone`.",
		},
		{
			key: section + ".region", format: labelValue(&m.Region),
			meaning: "The Node's label `topology.kubernetes.io/region`.",
		},
		{
			key: section + ".type", format: labelValue(&m.Type),
			meaning: "The Node's label `node.kubernetes.io/instance-type`.",
		},
	}
}

var subdomainPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// nodeName reads a name that a Node can have.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
func nodeName(into *string) format {
	return scalar("name of a Node", func(text string) *Error {
		if !subdomainPattern.MatchString(text) || len(text) > 253 {
			return &Error{
				Problem: "can't be the name of a Node",
				Remedy:  "use at most 253 lower-case letters, digits, dashes and dots, with a letter or digit at both ends",
			}
		}
		*into = text
		return nil
	})
}

// ownAddresses reads addresses that one machine can have for itself.
func ownAddresses(into *[]netip.Addr) format {
	return format{describe: "list of addresses", list: true, read: func(items []string) []*Error {
		var problems []*Error
		for _, item := range items {
			addr, err := netip.ParseAddr(strings.TrimSpace(item))
			switch {
			case err != nil:
				problems = append(problems, &Error{Value: item, Problem: "is not an address", Remedy: "write it without a length, such as 192.0.2.7 or 2001:db8::7"})
			case !addr.IsGlobalUnicast() || addr.Is4In6() || addr.Zone() != "":
				problems = append(problems, &Error{Value: item, Problem: "is no address that other machines could reach one machine by", Remedy: "give the address of the machine's uplink"})
			default:
				*into = append(*into, addr)
			}
		}
		return problems
	}}
}

// inventory checks the machines against each other.
func (r *resolver) inventory(d *draft) []Machine {
	var machines []Machine
	names, numbers, owners := map[string]string{}, map[int]string{}, map[netip.Addr]string{}
	for _, m := range d.inventory {
		r.number(d, m)
		if twin, twice := numbers[m.Number]; twice && m.Number != 0 {
			r.complain(m.section+".number", itoa(m.Number), "is also the number of "+twin, "give each server its own")
		}
		numbers[m.Number] = m.section
		if twin, twice := names[m.Name]; twice && m.Name != "" {
			r.complain(m.section+".name", m.Name, "is also the name of "+twin, "give each machine the name of its Node")
		}
		names[m.Name] = m.section
		for _, a := range m.Addresses {
			if other, twice := owners[a]; twice {
				r.complain(m.section+".addresses", a.String(), "is already an address of "+other, "give each machine addresses of its own")
			}
			owners[a] = m.section
		}
		machines = append(machines, m.Machine)
	}
	return machines
}

// number checks whether a machine has a number, which makes it a dedicated server.
func (r *resolver) number(d *draft, m *machineDraft) {
	field := m.section + ".number"
	switch {
	case r.isWrong("provider") || r.isWrong(field):
	case d.provider == Metal && m.Number != 0:
		r.complain(field, itoa(m.Number), "is a dedicated server's beside a cloud, and with provider: metal there is none", "remove it, or set provider: hcloud")
	case d.provider != Metal && m.Number == 0:
		r.complain(field, "", "is missing: beside the cloud's own servers, which it tells of, the inventory is for dedicated ones", "give the server's number at Robot, or remove the machine, or set provider: metal")
	}
}

// withoutCloud refuses what only a cloud could do. What the file says was meant;
// a variable may be left over from elsewhere.
func (r *resolver) withoutCloud(d *draft) {
	for _, row := range r.file.rows {
		field := row.field()
		if !r.isSet(field) || !ofCloud(field) && (field != familyIPv4 || d.families.IPv4 != RoutedByCloud) && (field != familyIPv6 || d.families.IPv6 != RoutedNatively) {
			continue
		}
		switch origin := r.origin(field); {
		case r.isWrong(field): // said already
		case origin.line == 0:
			r.warn(field, "has no effect with provider: metal")
		case field == familyIPv4 || field == familyIPv6:
			r.complain(field, strings.Join(origin.items, ","), "takes a cloud, and with provider: metal there is none",
				"write node, or remove the key")
		default:
			r.complain(field, "", "is about a cloud, and with provider: metal there is none", "remove it")
		}
	}
}

// ofCloud reports whether a setting is about a cloud and nothing else.
func ofCloud(field string) bool {
	section, _, nested := strings.Cut(field, ".")
	switch section {
	case "endpoint", "tokenFile", "network", "instancesAddressFamily", "HCLOUD_TOKEN", "HCLOUD_NETWORK_ROUTES_ENABLED",
		robotEnabled, robotUser, robotPassword:
		return true
	case "routes", "loadBalancers", "vswitch", "robot":
		return nested
	default:
		return false
	}
}

// metalFamilies are routed by the nodes unless the file says that IPv6 isn't.
func metalFamilies(given Families, anyIPv6 bool) Families {
	byDefault := Unrouted
	if anyIPv6 {
		byDefault = RoutedByNodes
	}
	return Families{IPv4: RoutedByNodes, IPv6: cmp.Or(given.IPv6, byDefault)}
}
