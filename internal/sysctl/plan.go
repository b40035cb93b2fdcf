package sysctl

import "fmt"

// Desired is what the node is to do.
type Desired struct {
	// IPv4 and IPv6 are the families in which it forwards.
	IPv4, IPv6 bool
	// RouterAdvertised are uplinks with routes from router advertisements, which
	// the kernel stops hearing when it forwards.
	RouterAdvertised []string
	// Asymmetric are interfaces whose replies may leave by another one.
	Asymmetric []string
	// ProxyARP are interfaces on which the kernel answers ARP for pods.
	ProxyARP []string
}

// Sysctls by their paths below /proc/sys.
const (
	forwardIPv4 = "net/ipv4/ip_forward"
	forwardIPv6 = "net/ipv6/conf/all/forwarding"
	strictAll   = "net/ipv4/conf/all/rp_filter"
)

func acceptRA(link string) string { return "net/ipv6/conf/" + link + "/accept_ra" }
func strict(link string) string   { return "net/ipv4/conf/" + link + "/rp_filter" }
func delay(link string) string    { return "net/ipv4/neigh/" + link + "/proxy_delay" }

// along are the sysctls that the kernel changes when one is written, as globs.
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

// values are sysctls by their paths; those that don't exist are absent.
type values map[string]string

// change is one write.
type change struct{ key, from, to, why string }

func (c change) String() string {
	return fmt.Sprintf("%s was %s, is to be %s: %s", c.key, c.from, c.to, c.why)
}

// needed are the sysctls that a plan looks at.
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

// plan lists the writes in their order. What an interface that is gone would
// need is left out; a family that the kernel doesn't have is an error.
func plan(want Desired, have values) ([]change, error) {
	var changes []change
	// Before forwarding is switched on, because that throws away the routes that
	// were advertised on interfaces without it.
	for _, link := range want.RouterAdvertised {
		// 0 is a program's, such as systemd-networkd, that hears them itself.
		if key := acceptRA(link); have[key] == "1" {
			changes = append(changes, change{key, "1", "2", "router advertisements give this uplink its routes, also while the node forwards"})
		}
	}
	for _, link := range want.Asymmetric {
		key := strict(link)
		own, exists := have[key]
		// The kernel goes by the larger of the interface's value and all's.
		if exists && max(own, have[strictAll]) == "1" {
			changes = append(changes, change{key, own, "2", "replies may leave by another interface than this one"})
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
			changes = append(changes, change{family.key, value, "1", "the node forwards pods' " + family.name + " packets"})
		}
	}
	return changes, nil
}
