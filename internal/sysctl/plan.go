package sysctl

import "fmt"

// Desired is the input of a plan.
type Desired struct {
	// IPv4 and IPv6 enable forwarding in the family.
	IPv4, IPv6 bool
	// RouterAdvertised are uplinks with routes from router advertisements, off while forwarding.
	RouterAdvertised []string
	// Asymmetric are interfaces whose replies may leave by another interface.
	Asymmetric []string
	// ProxyARP are interfaces on which the kernel answers ARP requests for pods.
	ProxyARP []string
}

// Paths of sysctls below /proc/sys.
const (
	forwardIPv4 = "net/ipv4/ip_forward"
	forwardIPv6 = "net/ipv6/conf/all/forwarding"
	strictAll   = "net/ipv4/conf/all/rp_filter"
)

func acceptRA(link string) string { return "net/ipv6/conf/" + link + "/accept_ra" }
func strict(link string) string   { return "net/ipv4/conf/" + link + "/rp_filter" }
func delay(link string) string    { return "net/ipv4/neigh/" + link + "/proxy_delay" }

// along returns globs of the sysctls that the kernel changes when key is written.
func along(key string) []string {
	switch key {
	case forwardIPv4:
		return []string{"net/ipv4/conf/*/forwarding", "net/ipv4/conf/all/accept_redirects"}
	case forwardIPv6:
		return []string{"net/ipv6/conf/*/forwarding"}
	default:
		return nil
	}
}

// values maps the paths of existing sysctls to their values.
type values map[string]string

type change struct{ key, from, to, why string }

func (c change) String() string {
	return fmt.Sprintf("%s was %s, is to be %s: %s", c.key, c.from, c.to, c.why)
}

// needed returns the sysctls that a plan depends on.
func needed(want Desired) []string {
	keys := []string{forwardIPv4, forwardIPv6, strictAll}
	for _, link := range want.RouterAdvertised {
		keys = append(keys, acceptRA(link))
	}
	for _, link := range want.Asymmetric {
		keys = append(keys, strict(link))
	}
	for _, link := range want.ProxyARP {
		keys = append(keys, delay(link))
	}
	return keys
}

// plan returns the writes in their order. It skips interfaces that don't exist; a family that
// the kernel doesn't support is an error.
func plan(want Desired, have values) ([]change, error) {
	var changes []change
	// Before forwarding, which removes routes advertised on interfaces with accept_ra 1.
	for _, link := range want.RouterAdvertised {
		// 0 means that a program such as systemd-networkd processes them itself.
		if key := acceptRA(link); have[key] == "1" {
			changes = append(changes, change{
				key, "1", "2",
				"router advertisements give this uplink its routes, also while the node forwards",
			})
		}
	}
	for _, link := range want.Asymmetric {
		key := strict(link)
		own, exists := have[key]
		// The kernel uses the maximum of the values of the interface and of all.
		if exists && max(own, have[strictAll]) == "1" {
			changes = append(changes, change{
				key, own, "2", "replies may leave by another interface than this one",
			})
		}
	}
	for _, link := range want.ProxyARP {
		key := delay(link)
		if now, exists := have[key]; exists && now != "0" {
			changes = append(changes, change{key, now, "0", "pods are answered for at once, and not after a random wait of up to that many hundredths of a second"})
		}
	}
	for _, family := range []struct {
		wanted    bool
		key, name string
	}{{want.IPv4, forwardIPv4, "IPv4"}, {want.IPv6, forwardIPv6, "IPv6"}} {
		value, exists := have[family.key]
		switch {
		case !family.wanted || value == "1":
		case !exists:
			return nil, fmt.Errorf("this node is to forward %s, and its kernel has no %s: switch %[1]s on, or give its Node no %[1]s podCIDR", family.name, family.key)
		default:
			changes = append(changes, change{
				family.key, value, "1", "the node forwards pods' " + family.name + " packets",
			})
		}
	}
	return changes, nil
}
