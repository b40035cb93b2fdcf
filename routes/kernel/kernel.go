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
	socket, err := openSocket()
	if err = errors.Join(err, handle.SetSocketTimeout(requestTimeout)); err != nil {
		handle.Close()
		return nil, fmt.Errorf("opening the netlink sockets: %w", err)
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
	return dump(ctx, "the kernel's routes", func() (found []agent.Entry, err error) {
		request := k.request(unix.RTM_GETROUTE, unix.NLM_F_DUMP, &nl.RtMsg{})
		var unreadable error
		err = request.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, func(m []byte) bool {
			e, ok, err := readRoute(m)
			if unreadable = err; ok {
				found = append(found, e)
			}
			return err == nil
		})
		return found, errors.Join(err, unreadable)
	})
}

// dump reads a list again until nothing changes while it is read.
func dump[T any](
	ctx context.Context, what string, read func() ([]T, error),
) (list []T, err error) {
	for range dumps {
		if err = ctx.Err(); err == nil {
			list, err = read()
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", what, err)
	}
	return list, nil
}

// Links returns every interface with its addresses.
func (k *Kernel) Links(ctx context.Context) ([]agent.Link, error) {
	found, err := dump(ctx, "the network interfaces", k.handle.LinkList)
	if err != nil {
		return nil, err
	}
	addrs, err := dump(ctx, "the addresses of the network interfaces", func() ([]netlink.Addr, error) {
		return k.handle.AddrList(nil, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	links := make([]agent.Link, len(found))
	for i, l := range found {
		attrs := l.Attrs()
		links[i] = agent.Link{
			Index: attrs.Index, Name: attrs.Name, MTU: attrs.MTU, Up: attrs.Flags&net.FlagUp != 0,
			Carrier: attrs.Flags&net.FlagRunning != 0, Hardware: attrs.HardwareAddr,
		}
		for _, a := range addrs {
			if p, ok := prefixOf(a.IPNet); ok && attrs.Index == a.LinkIndex {
				links[i].Addrs = append(links[i].Addrs, p)
			}
		}
	}
	return links, nil
}

// silent has the states of neighbors that have not replied to the kernel.
const silent = netlink.NUD_INCOMPLETE | netlink.NUD_FAILED

// Neighbors returns the kernel's neighbor entries on an interface, of both families.
func (k *Kernel) Neighbors(ctx context.Context, link int) ([]agent.Neighbor, error) {
	what := fmt.Sprint("the neighbors on interface ", link)
	found, err := dump(ctx, what, func() ([]netlink.Neigh, error) {
		return k.handle.NeighList(link, netlink.FAMILY_ALL)
	})
	known := make([]agent.Neighbor, 0, len(found))
	for _, n := range found {
		if addr, ok := netip.AddrFromSlice(n.IP); ok && n.State != netlink.NUD_NONE {
			known = append(known, agent.Neighbor{
				Addr: addr.Unmap(), Silent: n.State&silent != 0, Hardware: n.HardwareAddr,
			})
		}
	}
	return known, err
}

// Probe makes the kernel resolve a neighbor as if there were a packet for it.
func (k *Kernel) Probe(ctx context.Context, link int, addr netip.Addr) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := k.handle.NeighSet(&netlink.Neigh{
		LinkIndex: link, IP: addr.AsSlice(), State: netlink.NUD_NONE, Flags: netlink.NTF_USE,
	})
	if err != nil {
		return fmt.Errorf("asking for neighbor %s on interface %d: %w", addr, link, err)
	}
	return nil
}
