package socket

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"
)

// groups are the multicast groups that a wire makes its interface receive. An IPv6 socket joins
// them because that, unlike the packet socket, also sends MLD reports to snooping switches.
type groups struct {
	link int

	mu      sync.Mutex
	sockets []int // they send and receive nothing
	joined  map[netip.Addr]int
}

func openGroups(link int) (*groups, error) {
	g := &groups{link: link, joined: make(map[netip.Addr]int)}
	return g, g.open()
}

func (g *groups) open() error {
	socket, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket for multicast groups: %w", err)
	}
	g.sockets = append(g.sockets, socket)
	return nil
}

// set joins the solicited-node groups of the addresses and leaves all other groups.
func (g *groups) set(addresses []netip.Addr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sockets == nil {
		return net.ErrClosed
	}
	wanted := make(map[netip.Addr]bool, len(addresses))
	for _, address := range addresses {
		group, err := ndp.SolicitedNodeMulticast(address)
		if err != nil {
			return err
		}
		wanted[group] = true
	}
	for group, socket := range g.joined {
		if !wanted[group] {
			// A deleted interface has left its groups.
			_ = unix.SetsockoptIPv6Mreq(socket, unix.IPPROTO_IPV6, unix.IPV6_LEAVE_GROUP, g.request(group))
			delete(g.joined, group)
		}
	}
	for group := range wanted {
		if _, already := g.joined[group]; already {
			continue
		}
		if err := g.join(group); err != nil {
			return fmt.Errorf("group %s: %w: see that IPv6 is enabled on the interface", group, err)
		}
	}
	return nil
}

// join uses the newest socket, or another if that has no room (sysctl net.core.optmem_max).
func (g *groups) join(group netip.Addr) error {
	for fresh := false; ; fresh = true {
		socket := g.sockets[len(g.sockets)-1]
		err := unix.SetsockoptIPv6Mreq(socket, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, g.request(group))
		if err == nil {
			g.joined[group] = socket
			return nil
		}
		full := errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS)
		if !full || fresh {
			return err
		}
		if err := g.open(); err != nil {
			return err
		}
	}
}

func (g *groups) request(group netip.Addr) *unix.IPv6Mreq {
	return &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(g.link)}
}

func (g *groups) close() (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, socket := range g.sockets {
		err = errors.Join(err, unix.Close(socket))
	}
	g.sockets, g.joined = nil, nil
	return err
}
