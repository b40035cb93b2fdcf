package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/addresses"
)

// Addresses configures the addresses that nodes hold for Services.
type Addresses struct {
	// Classless makes Services without loadBalancerClass ours; never together with
	// LoadBalancers.Enabled and its Classless.
	Classless bool
	// Pools are where Services get addresses from. No two overlap, and none holds an address of a
	// pod, a Service, a machine of the inventory or a BGP peer.
	Pools []AddressPool
	BGP   BGP
}

// Enabled reports whether there is anything that Services could get.
func (a Addresses) Enabled() bool { return len(a.Pools) > 0 }

// Mover is what brings an address to the node that holds it.
type Mover string

// The movers.
const (
	// Layer2: the node's agent answers ARP and neighbor solicitations.
	Layer2 Mover = "layer2"
	// BGPMover: the agents announce the address to routers. It implies BGP.ASN and BGP.Peers.
	BGPMover Mover = "bgp"
	// FloatingIP: the cloud routes the address to a server. It implies the provider Hcloud.
	FloatingIP Mover = "floating-ip"
	// Failover: Robot routes it to a dedicated server. It implies that Robot is Enabled.
	Failover Mover = "failover"
)

// AddressPool is a pool of addresses for Services.
type AddressPool struct {
	addresses.Pool
	Mover Mover
	// Namespaces are those whose Services may use the pool; nil: all.
	Namespaces labels.Selector
	// Field is the setting that the ranges stand in, such as addresses.pools[1].ranges.
	Field string
}

// BGP configures what agents tell routers. The zero BGP has no Peers.
type BGP struct {
	// ASN is the nodes' autonomous system; not 0 with Peers.
	ASN   uint32
	Peers []BGPPeer
	// PodCIDRs: each node announces its podCIDRs too. It implies Peers.
	PodCIDRs bool
}

// BGPPeer is a router that agents speak with.
type BGPPeer struct {
	// Name is unique, and so is Address.
	Name    string
	Address netip.Addr
	Port    uint16
	ASN     uint32
	// Nodes are those that speak with it; nil: all.
	Nodes labels.Selector
	// PasswordFile is the absolute path of the file on the nodes that holds the password (TCP MD5,
	// RFC 2385); empty: none.
	PasswordFile string
	// HoldTime is at least 3 seconds.
	HoldTime time.Duration
	// Communities go with what is announced (RFC 1997).
	Communities []uint32
	// Multihop: the router is not on a segment of the node's.
	Multihop bool
	// BFD notices within a second that the other side is gone (RFC 5880).
	BFD bool
}

const (
	addressesClassless = "addresses.classless"
	addressPoolsKey    = "addresses.pools"
	bgpASN             = "addresses.bgp.asn"
	bgpPodCIDRs        = "addresses.bgp.podCIDRs"
	bgpPeersKey        = "addresses.bgp.peers"
)

// addressPoolDraft is an item of addresses.pools.
type addressPoolDraft struct {
	section string
	AddressPool
}

// bgpPeerDraft is an item of addresses.bgp.peers.
type bgpPeerDraft struct {
	section string
	port    int
	BGPPeer
}

// addressSettings say how Services get addresses that nodes hold.
func addressSettings(a *Addresses) []setting {
	return []setting{
		{
			key: addressesClassless, format: boolean(&a.Classless),
			meaning: "Serve Services without `loadBalancerClass`, too, not only those of class `underlay.dev/address`. The default is `true` with provider `metal`, and `false` with `hcloud`, where load balancers of the cloud serve them.",
		},
		{
			key: bgpASN, format: autonomousSystem(&a.BGP.ASN),
			meaning: "The autonomous system of the nodes. Required by pools with `mover: bgp`.",
		},
		{
			key: bgpPodCIDRs, format: boolean(&a.BGP.PodCIDRs), fallback: "false",
			meaning: "Each node announces its podCIDRs, too, for fabrics whose routers are to know where pods are.",
		},
	}
}

// addressPoolSettings are the keys of one pool of addresses.
func addressPoolSettings(section string, p *AddressPool) []setting {
	return []setting{
		{
			key: section + ".name", format: dnsLabel(&p.Name, "segment"), required: true,
			meaning: "What a Service names in its annotation `underlay.dev/address-pool`.",
		},
		{
			key: section + ".ranges", format: addressRanges(&p.Ranges), required: true,
			meaning: "The pool's addresses: single ones, prefixes with all of their addresses, or the first and the last with a dash between. What no machine can have, such as the network and broadcast address of the nodes' segment, is left out. They are nobody else's: no machine, DHCP server or other pool may use them.",
		},
		{
			key: section + ".mover", format: oneOf(&p.Mover, []Mover{Layer2, BGPMover, FloatingIP, Failover}), fallback: string(Layer2),
			meaning: "What brings an address to the node that holds it. `layer2`: the node answers for it on its segment. `bgp`: nodes announce it to the routers of `addresses.bgp`. `floating-ip`: the cloud routes a floating IP to the server. `failover`: Robot routes a failover address to the dedicated server.",
		},
		{
			key: section + ".onRequest", format: boolean(&p.OnRequest), fallback: "false",
			meaning: "Only Services that ask for the pool or for an address of it get one.",
		},
		{
			key: section + ".namespaceSelector", format: labelSelector(&p.Namespaces, "team=web", "remove the key if the pool is for all namespaces"),
			meaning: "Namespaces whose Services may use the pool, by their labels. Without the key: all.",
		},
	}
}

// bgpPeerSettings are the keys of one router.
func bgpPeerSettings(section string, p *bgpPeerDraft) []setting {
	return []setting{
		{
			key: section + ".name", format: dnsLabel(&p.Name, "router"), required: true,
			meaning: "What the router is called in reports and metrics.",
		},
		{
			key: section + ".address", format: oneAddress(&p.Address), required: true,
			meaning: "The router's address.",
		},
		{
			key: section + ".port", format: whole(&p.port, 1, 65535), fallback: "179",
			meaning: "The TCP port that it listens on.",
		},
		{
			key: section + ".asn", format: autonomousSystem(&p.ASN), required: true,
			meaning: "Its autonomous system; that of the nodes for internal BGP.",
		},
		{
			key: section + ".nodeSelector", format: labelSelector(&p.Nodes, "rack=1", "remove the key if all Nodes speak with the router"),
			meaning: "Nodes that speak with it, by their labels. Without the key: all.",
		},
		{
			key: section + ".passwordFile", format: secretPath(&p.PasswordFile, "password", "/etc/underlay-bgp/router"), secret: true,
			meaning: "File on the nodes that holds the password for the router (TCP MD5).",
		},
		{
			key: section + ".holdTime", format: wholeSeconds(&p.HoldTime, 3*time.Second, time.Hour), fallback: "9s",
			meaning: "Time without a word after which each side takes the other for gone; the smaller one of both sides counts.",
		},
		{
			key: section + ".communities", format: communities(&p.Communities),
			meaning: "Communities that go with what is announced to it.",
		},
		{
			key: section + ".multihop", format: boolean(&p.Multihop), fallback: "false",
			meaning: "The router is not on a segment of the nodes.",
		},
		{
			key: section + ".bfd", format: boolean(&p.BFD), fallback: "false",
			meaning: "Watch each other by BFD, which notices within a second that the other side is gone. The router needs it, too, and has to be on a segment of the nodes.",
		},
	}
}

// addressRanges reads ranges of addresses.
func addressRanges(into *[]addresses.Range) format {
	return format{describe: "list of addresses, prefixes and ranges, such as `[192.0.2.16-192.0.2.31]`", list: true, read: func(items []string) []*Error {
		var problems []*Error
		if len(items) == 0 {
			problems = append(problems, &Error{Problem: "is empty", Remedy: "write at least one range, such as 192.0.2.16-192.0.2.31"})
		}
		for _, item := range items {
			r, err := addresses.ParseRange(strings.TrimSpace(item))
			var wrong *addresses.Mistake
			switch {
			case errors.As(err, &wrong):
				problems = append(problems, &Error{Value: item, Problem: wrong.Problem, Remedy: wrong.Remedy})
			case neverOfServices(r) != "":
				problems = append(problems, &Error{Value: item, Problem: "holds addresses of " + neverOfServices(r) + ", which no client reaches a Service by", Remedy: "give unicast addresses of the nodes' segment, or such as routers lead to them"})
			default:
				*into = append(*into, r)
			}
		}
		return problems
	}}
}

// neverOfServices is a prefix that the range has a part of, and that no Service can be reached by;
// empty: none. The loopback and link-local ranges, and what begins where multicast does.
func neverOfServices(r addresses.Range) string {
	for _, text := range []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/64", "fe80::/10", "ff00::/8"} {
		if r.Overlaps(addresses.RangeOf(netip.MustParsePrefix(text))) {
			return text
		}
	}
	return ""
}

// oneAddress reads an address that one machine has.
func oneAddress(into *netip.Addr) format {
	return scalar("address", func(text string) *Error {
		var all []netip.Addr
		if problems := ownAddresses(&all).read([]string{text}); len(problems) > 0 {
			return &Error{Value: text, Problem: problems[0].Problem, Remedy: "give the router's, such as 192.0.2.1 or 2001:db8::1"}
		}
		*into = all[0]
		return nil
	})
}

// autonomousSystem reads a number of one, RFC 6793; some are nobody's (RFC 7607, RFC 7300).
func autonomousSystem(into *uint32) format {
	return scalar("number of an autonomous system, such as `64512`", func(text string) *Error {
		const transition = 23456
		number, err := strconv.ParseUint(text, 10, 32)
		if err != nil || number == 0 || number == transition || number == 1<<16-1 || number == 1<<32-1 {
			return &Error{
				Problem: "is not the number of an autonomous system",
				Remedy:  "give one from 1 to 4294967294, for private use from 64512 to 65534",
			}
		}
		*into = uint32(number)
		return nil
	})
}

// communities reads standard communities, of which some have names (RFC 1997).
func communities(into *[]uint32) format {
	const noExport, noAdvertise = 0xFFFFFF01, 0xFFFFFF02
	const most = 100 // one message has to hold all of them (RFC 4271: 4096 bytes)
	return format{describe: "list of communities, such as `[64512:100, no-export]`", list: true, read: func(items []string) []*Error {
		var problems []*Error
		if len(items) > most {
			problems = append(problems, &Error{Problem: fmt.Sprintf("has %d items", len(items)), Remedy: fmt.Sprintf("give at most %d", most)})
			items = nil
		}
		for _, item := range items {
			high, low, two := strings.Cut(strings.TrimSpace(item), ":")
			first, err1 := strconv.ParseUint(high, 10, 16)
			second, err2 := strconv.ParseUint(low, 10, 16)
			switch {
			case high == "no-export" && !two:
				*into = append(*into, noExport)
			case high == "no-advertise" && !two:
				*into = append(*into, noAdvertise)
			case !two || err1 != nil || err2 != nil:
				problems = append(problems, &Error{Value: item, Problem: "is not a community", Remedy: fmt.Sprintf("write two numbers up to %d with a colon between, or no-export or no-advertise", 1<<16-1)})
			default:
				*into = append(*into, uint32(first)<<16|uint32(second))
			}
		}
		return problems
	}}
}
