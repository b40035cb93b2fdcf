package hcloudsim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const (
	typeIPv4 = "ipv4"
	typeIPv6 = "ipv6"
)

// dnsEntry is a reverse DNS entry.
type dnsEntry = schema.ServerPublicNetIPv6DNSPtr

// publicIP is an IPv4 address or an IPv6 /64, with its changed reverse DNS entries. By default an
// IPv4 address has a generated name, and an IPv6 address has no entry.
type publicIP struct {
	net      netip.Prefix
	pointers map[netip.Addr]string
}

func newPublicIP(ip netip.Addr) publicIP {
	if ip.Is4() {
		return publicIP{net: netip.PrefixFrom(ip, ip.BitLen())}
	}
	return publicIP{net: netip.PrefixFrom(ip, 64).Masked()}
}

func (a publicIP) isIPv4() bool { return a.net.Addr().Is4() }

func (a publicIP) kind() string {
	if a.isIPv4() {
		return typeIPv4
	}
	return typeIPv6
}

// text returns the address as the API shows it.
func (a publicIP) text() string {
	if a.isIPv4() {
		return a.net.Addr().String()
	}
	return a.net.String()
}

// pointer returns the reverse DNS entry of an address, or its default.
func (a publicIP) pointer(ip netip.Addr) string {
	name, changed := a.pointers[ip]
	if !changed && ip.Is4() {
		b := ip.As4()
		return fmt.Sprintf("static.%d.%d.%d.%d.clients.your-server.de", b[3], b[2], b[1], b[0])
	}
	return name
}

// entries returns the reverse DNS entries, sorted.
func (a publicIP) entries() []dnsEntry {
	addresses := slices.SortedFunc(maps.Keys(a.pointers), netip.Addr.Compare)
	if a.isIPv4() {
		addresses = []netip.Addr{a.net.Addr()}
	}
	return rendered(addresses, func(ip netip.Addr) dnsEntry {
		return dnsEntry{IP: ip.String(), DNSPtr: a.pointer(ip)}
	})
}

// note stores an entry that differs from the default.
func (a *publicIP) note(ip netip.Addr, name string) {
	if !ip.IsValid() || a.pointer(ip) == name {
		return
	}
	if a.pointers == nil {
		a.pointers = map[netip.Addr]string{}
	}
	a.pointers[ip] = name
}

type pointerRequest struct {
	IP     string  `json:"ip"`
	DNSPtr *string `json:"dns_ptr"` // nil resets the entry
}

// changePointer returns the action change_dns_ptr for an address within net.
func (a *publicIP) changePointer(net netip.Prefix, req pointerRequest) (change, error) {
	ip, err := netip.ParseAddr(req.IP)
	if err != nil || !net.Contains(ip) {
		return change{}, errInvalid("ip", "'%s' is no public address of the resource", req.IP)
	}
	name := req.DNSPtr
	if name != nil && (len(*name) > 253 || !hostname.MatchString(*name)) {
		return change{}, errInvalid("dns_ptr",
			"must be a fully qualified domain name without a trailing dot, or null")
	}
	return change{command: "change_dns_ptr", finish: func() {
		delete(a.pointers, ip)
		if name != nil {
			a.note(ip, *name)
		}
	}}, nil
}

// nextAddresses allocates addresses from the ranges reserved for benchmarks (RFC 2544) and
// documentation (RFC 3849), so that test traffic can't reach real hosts.
func (p *project) nextAddresses() (ipv4, ipv6 publicIP) {
	p.addresses++
	n := p.addresses
	high, low := byte(n>>8), byte(n)
	return newPublicIP(netip.AddrFrom4([4]byte{198, 18 + byte(n>>16&1), high, low})),
		newPublicIP(netip.AddrFrom16([16]byte{
			0x20, 0x01, 0x0d, 0xb8, byte(n >> 24), byte(n >> 16), high, low,
		}))
}

// allocate returns a new address of a type.
func (p *project) allocate(kind string) (publicIP, error) {
	switch ipv4, ipv6 := p.nextAddresses(); kind {
	case typeIPv4:
		return ipv4, nil
	case typeIPv6:
		return ipv6, nil
	}
	return publicIP{}, errInvalid("type", "must be one of %s, %s", typeIPv4, typeIPv6)
}
