//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// NATTimeout is how long a NAT gateway keeps an entry without a packet.
const NATTimeout = 30 * time.Second

// AddBehindNAT is AddMachines for machines at home: of no provider, with an address that a gateway
// replaces by a public one.
func (f *Lab) AddBehindNAT(ctx context.Context, names ...string) error {
	return f.add(ctx, func(ctx context.Context, name string) (*Machine, error) {
		return f.rent(ctx, &Machine{Name: name, BehindNAT: true})
	}, names)
}

// connectBehindNAT gives the machine a cable to a gateway of its own.
func (m *Machine) connectBehindNAT(ctx context.Context) (err error) {
	m.Private = netip.AddrFrom4([4]byte{192, 168, 77, byte(10 + m.number)})
	if m.gateway, err = netns.Open(); err != nil {
		return err
	}
	if err := m.lab.internet.plug(ctx, m.port(), m.gateway, "outside", Public{IPv4: m.Public.IPv4}); err != nil {
		return err
	}
	if err := netns.Connect(ctx, m.Namespace, public, m.gateway, "inside"); err != nil {
		return err
	}
	_, in := m.gateway.Run(ctx, "ip", "address", "add", "192.168.77.1/24", "dev", "inside")
	_, own := m.Namespace.Feed(ctx, fmt.Sprintf("address add %s/24 dev %s\nroute add default via 192.168.77.1\n", m.Private, public), "ip", "-batch", "-")
	_, rules := m.gateway.Feed(ctx, `table ip nat {
	chain leaving { type nat hook postrouting priority srcnat; oifname outside masquerade; }
	chain entering { type filter hook forward priority filter; policy drop; iifname inside accept; ct state established,related accept; }
}`, "nft", "-f", "-")
	timeout := fmt.Sprint(int(NATTimeout.Seconds()))
	return errors.Join(in, own, rules, m.gateway.Sysctl("net/ipv4/ip_forward", "1"),
		m.gateway.Sysctl("net/netfilter/nf_conntrack_udp_timeout", timeout),
		m.gateway.Sysctl("net/netfilter/nf_conntrack_udp_timeout_stream", timeout))
}
