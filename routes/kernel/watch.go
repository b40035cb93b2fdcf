//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/routes/agent"
)

// eventBuffer holds events that nobody has read yet: some 40,000 routes that go
// at once with their interface. The kernel takes the memory as it needs it.
const eventBuffer = 16 << 20

// Watch reports every change of routes, links and addresses until the context
// ends. It opens its socket in the calling goroutine.
func (k *Kernel) Watch(ctx context.Context, happened func(agent.Event)) error {
	for {
		err := watchOnce(ctx, happened)
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, unix.ENOBUFS):
			return fmt.Errorf("reading the kernel's events: %w", err)
		}
	}
}

// watchOnce reads events from a socket of its own until there is an error.
func watchOnce(ctx context.Context, happened func(agent.Event)) error {
	socket, err := subscribe(unix.RTNLGRP_LINK,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return err
	}
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })()
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	happened(agent.Event{Kind: agent.EventsLost})
	buffer := make([]byte, answerBuffer)
	for {
		n, fromKernel, err := receiveEvent(raw, buffer)
		if err != nil {
			return err
		}
		if !fromKernel {
			continue
		}
		err = eachMessage(buffer[:n], func(m message) error {
			if e, ok := eventOf(m.kind, m.data); ok {
				happened(e)
			}
			return nil
		})
		if err != nil { // nobody knows what it was about
			happened(agent.Event{Kind: agent.EventsLost})
		}
	}
}

// subscribe opens a socket for what the kernel tells the groups.
func subscribe(groups ...int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	// Beyond the limit for everybody only with CAP_NET_ADMIN. Without it there is
	// less room, and events are lost sooner.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, eventBuffer); err != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, eventBuffer)
	}
	local := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	for _, g := range groups {
		local.Groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, local); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "netlink events"), nil
}

// receiveEvent waits for a datagram.
func receiveEvent(raw syscall.RawConn, buffer []byte) (n int, fromKernel bool, err error) {
	var from unix.Sockaddr
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, from, failed = unix.Recvfrom(int(fd), buffer, 0)
		return !errors.Is(failed, unix.EAGAIN)
	})
	sender, ok := from.(*unix.SockaddrNetlink)
	return n, ok && sender.Pid == 0, errors.Join(err, failed)
}

// eventOf reads a message; not ok are those that concern no main table and no
// interface.
func eventOf(kind uint16, data []byte) (agent.Event, bool) {
	switch kind {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		e := agent.Event{Kind: agent.RouteSet}
		if kind == unix.RTM_DELROUTE {
			e.Kind = agent.RouteGone
		}
		var ok bool
		e.Route, ok = readRoute(data)
		return e, ok
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		link, err := netlink.LinkDeserialize(nil, data)
		if err != nil {
			return agent.Event{Kind: agent.EventsLost}, true
		}
		return agent.Event{Kind: agent.LinkChanged, Link: link.Attrs().Index, Name: link.Attrs().Name}, true
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return readAddress(data)
	default:
		return agent.Event{}, false
	}
}

func readAddress(data []byte) (agent.Event, bool) {
	if len(data) < unix.SizeofIfAddrmsg {
		return agent.Event{}, false
	}
	msg := nl.DeserializeIfAddrmsg(data)
	attrs, err := nl.ParseRouteAttr(data[msg.Len():])
	if err != nil {
		return agent.Event{Kind: agent.EventsLost}, true
	}
	e := agent.Event{Kind: agent.AddressChanged, Link: int(msg.Index)}
	for _, attr := range attrs {
		// IFA_LOCAL is the interface's own where both are given; it comes second.
		if attr.Attr.Type == unix.IFA_ADDRESS || attr.Attr.Type == unix.IFA_LOCAL {
			if addr, ok := netip.AddrFromSlice(attr.Value); ok {
				e.Addr = addr.Unmap()
			}
		}
	}
	return e, true
}
