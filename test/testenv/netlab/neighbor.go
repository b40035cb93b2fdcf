//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// Neighbor is a host on the segment of bare metal that is no machine of the cluster. Its interface
// is "eth0", and its kernel caches the hardware addresses of others.
type Neighbor struct {
	Name      string
	Namespace *netns.Namespace
	Public    Public

	port string
}

// firstNeighbor is the last byte of the first neighbor's addresses, after those of all machines.
const firstNeighbor = 221

// AddNeighbor connects a host to the segment, at 192.0.2.221 and 2001:db8:1::dd or after.
func (f *Lab) AddNeighbor(ctx context.Context, name string) (*Neighbor, error) {
	if !f.options.Metal {
		return nil, fmt.Errorf("neighbor %s: only bare metal has a segment", name)
	}
	ns, err := netns.Open()
	if err != nil {
		return nil, fmt.Errorf("neighbor %s: %w", name, err)
	}
	f.mu.Lock()
	number := byte(firstNeighbor + len(f.neighbors))
	n := &Neighbor{Name: name, Namespace: ns, port: fmt.Sprintf("n%d", number), Public: Public{
		IPv4: netip.AddrFrom4([4]byte{192, 0, 2, number}),
		IPv6: netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%x", number)),
	}}
	f.neighbors = append(f.neighbors, n)
	f.mu.Unlock()
	if err := f.internet.join(ctx, n.port, ns, "eth0", n.Public); err != nil {
		return nil, fmt.Errorf("neighbor %s: %w", name, err)
	}
	return n, nil
}

// Knows returns the hardware address of an address of the segment in the host's neighbor table; ""
// if there is none.
func (n *Neighbor) Knows(ctx context.Context, addr netip.Addr) (string, error) {
	out, err := n.Namespace.Run(ctx, "ip", "neighbor", "show", "to", addr.String(), "dev", "eth0")
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(out, "lladdr ")
	hardware, _, _ := strings.Cut(rest, " ")
	return hardware, nil
}

// Inquire makes the host forget the owner of an address and resolve it again.
func (n *Neighbor) Inquire(ctx context.Context, addr netip.Addr) error {
	_, err := n.Namespace.Run(ctx, "ip", "neighbor", "flush", "to", addr.String(), "dev", "eth0")
	conn, dialed := n.Namespace.Dial(ctx, "udp", netip.AddrPortFrom(addr, 9).String())
	if err := errors.Join(err, dialed); err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("?"))
	return err
}

// Claim gives the host an additional address of the segment, like a host that uses an address which
// is already taken; Renounce removes it.
func (n *Neighbor) Claim(ctx context.Context, addr netip.Addr) error {
	args := []string{"address", "add", netip.PrefixFrom(addr, addr.BitLen()).String(), "dev", "eth0"}
	if addr.Is6() {
		args = append(args, "nodad")
	}
	_, err := n.Namespace.Run(ctx, "ip", args...)
	return err
}

// Renounce removes an address that Claim added.
func (n *Neighbor) Renounce(ctx context.Context, addr netip.Addr) error {
	_, err := n.Namespace.Run(ctx, "ip", "address", "del", netip.PrefixFrom(addr, addr.BitLen()).String(), "dev", "eth0")
	return err
}
