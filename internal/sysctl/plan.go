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

type change struct{ key, from, to, why string }

func (c change) String() string {
	return fmt.Sprintf("%s was %s, is to be %s: %s", c.key, c.from, c.to, c.why)
}

// plan returns the writes in their order. It skips interfaces that don't exist; a family that
// the kernel doesn't support is an error.
func plan(
	want Desired, read func(key string) (value string, exists bool),
) (changes []change, err error) {
	// Before forwarding, which removes routes advertised on interfaces with accept_ra 1.
	for _, link := range want.RouterAdvertised {
		// 0 means that a program such as systemd-networkd processes them itself.
		if now, _ := read(acceptRA(link)); now == "1" {
			changes = append(changes, change{
				acceptRA(link), now, "2",
				"router advertisements give this uplink its routes, also while the node forwards",
			})
		}
	}
	all, _ := read(strictAll)
	for _, link := range want.Asymmetric {
		// The kernel uses the maximum of the values of the interface and of all.
		if own, exists := read(strict(link)); exists && max(own, all) == "1" {
			changes = append(changes, change{
				strict(link), own, "2", "replies may leave by another interface than this one",
			})
		}
	}
	for _, link := range want.ProxyARP {
		if now, exists := read(delay(link)); exists && now != "0" {
			changes = append(changes, change{delay(link), now, "0", "pods are answered for at once, and not after a random wait of up to that many hundredths of a second"})
		}
	}
	for _, family := range []struct {
		wanted    bool
		key, name string
	}{{want.IPv4, forwardIPv4, "IPv4"}, {want.IPv6, forwardIPv6, "IPv6"}} {
		switch now, exists := read(family.key); {
		case !family.wanted || now == "1":
		case !exists:
			return nil, fmt.Errorf("this node is to forward %s, and its kernel has no %s: switch %[1]s on, or give its Node no %[1]s podCIDR", family.name, family.key)
		default:
			changes = append(changes, change{
				family.key, now, "1", "the node forwards pods' " + family.name + " packets",
			})
		}
	}
	return changes, nil
}
