//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/routes/agent"
)

// requestTimeout bounds one request. The kernel replies in milliseconds, or its reply was lost.
const requestTimeout = 10 * time.Second

// dumps limits the tries to get a list while the table changes.
const dumps = 5

// Kernel is this machine's networking. It implements agent.Kernel.
type Kernel struct {
	handle *netlink.Handle
	// socket is for requests that handle doesn't support.
	socket *nl.SocketHandle
}

// Open opens the sockets for requests. Only changes require CAP_NET_ADMIN.
func Open() (*Kernel, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	if err := handle.SetSocketTimeout(requestTimeout); err != nil {
		handle.Close()
		return nil, fmt.Errorf("limiting the time of netlink requests: %w", err)
	}
	socket, err := openSocket()
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("opening another netlink socket: %w", err)
	}
	return &Kernel{handle: handle, socket: socket}, nil
}

// Close closes the sockets.
func (k *Kernel) Close() {
	k.handle.Close()
	k.socket.Close()
}

// List returns every route of the main table.
func (k *Kernel) List(ctx context.Context) ([]agent.Entry, error) {
	var found []agent.Entry
	err := whole(ctx, func() error {
		found = found[:0]
		return k.handle.RouteListFilteredIter(netlink.FAMILY_ALL, &netlink.Route{}, 0,
			func(r netlink.Route) bool {
				if e, ok := entryOf(r); ok {
					found = append(found, e)
				}
				return true
			})
	})
	if err != nil {
		return nil, fmt.Errorf("listing the kernel's routes: %w", err)
	}
	return found, nil
}

// whole repeats a dump until nothing changes while it is read.
func whole(ctx context.Context, dump func() error) error {
	var err error
	for range dumps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return fmt.Errorf("it changed each of %d times while it was read: %w", dumps, err)
}

// Links returns every interface with its addresses.
func (k *Kernel) Links(ctx context.Context) ([]agent.Link, error) {
	var links []agent.Link
	err := whole(ctx, func() error {
		found, err := k.handle.LinkList()
		if err != nil {
			return err
		}
		links = links[:0]
		for _, l := range found {
			attrs := l.Attrs()
			links = append(links, agent.Link{
				Index: attrs.Index, Name: attrs.Name, MTU: attrs.MTU, Up: attrs.Flags&net.FlagUp != 0,
				Carrier: attrs.Flags&net.FlagRunning != 0, Hardware: attrs.HardwareAddr,
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the network interfaces: %w", err)
	}
	if err := k.addAddresses(ctx, links); err != nil {
		return nil, fmt.Errorf("listing the addresses of the network interfaces: %w", err)
	}
	return links, nil
}

func (k *Kernel) addAddresses(ctx context.Context, links []agent.Link) error {
	var found []netlink.Addr
	err := whole(ctx, func() (err error) {
		found, err = k.handle.AddrList(nil, netlink.FAMILY_ALL)
		return err
	})
	for _, a := range found {
		for i := range links {
			if p, ok := prefixOf(a.IPNet); ok && links[i].Index == a.LinkIndex {
				links[i].Addrs = append(links[i].Addrs, p)
			}
		}
	}
	return err
}

// silent has the states of neighbors that have not replied to the kernel.
const silent = netlink.NUD_INCOMPLETE | netlink.NUD_FAILED

// Neighbors returns the kernel's neighbor entries on an interface, of both families.
func (k *Kernel) Neighbors(ctx context.Context, link int) ([]agent.Neighbor, error) {
	var known []agent.Neighbor
	err := whole(ctx, func() error {
		found, err := k.handle.NeighList(link, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		known = known[:0]
		for _, n := range found {
			if addr, ok := netip.AddrFromSlice(n.IP); ok && n.State != netlink.NUD_NONE {
				known = append(known, agent.Neighbor{
					Addr: addr.Unmap(), Silent: n.State&silent != 0, Hardware: n.HardwareAddr,
				})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the neighbors on interface %d: %w", link, err)
	}
	return known, nil
}

// Probe makes the kernel resolve a neighbor as if there were a packet for it.
func (k *Kernel) Probe(ctx context.Context, link int, addr netip.Addr) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	family := netlink.FAMILY_V6
	if addr.Is4() {
		family = netlink.FAMILY_V4
	}
	err := k.handle.NeighSet(&netlink.Neigh{
		LinkIndex: link, Family: family, IP: addr.AsSlice(), State: netlink.NUD_NONE,
		Flags: netlink.NTF_USE,
	})
	if err != nil {
		return fmt.Errorf("asking for neighbor %s on interface %d: %w", addr, link, err)
	}
	return nil
}
