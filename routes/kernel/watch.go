//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/routes/agent"
)

// eventBuffer is the size of the receive buffer in bytes: enough for some 40,000 routes that
// are deleted at once with their interface. The kernel allocates the memory only as needed.
const eventBuffer = 16 << 20

// Watch reports every change of routes, links and addresses until the context ends. It opens
// its socket in the calling goroutine.
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

// watchOnce reads events from a new socket until an error.
func watchOnce(ctx context.Context, happened func(agent.Event)) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE,
		unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return err
	}
	defer socket.Close()
	defer context.AfterFunc(ctx, socket.Close)()
	// Exceeding the system-wide limit requires CAP_NET_ADMIN. Without it the buffer is
	// smaller, and events are lost sooner.
	if err := socket.SetReceiveBufferSize(eventBuffer, true); err != nil {
		_ = socket.SetReceiveBufferSize(eventBuffer, false)
	}
	happened(agent.Event{Kind: agent.EventsLost})
	for {
		messages, from, err := socket.Receive()
		if err != nil {
			return err
		}
		if from.Pid != nl.PidKernel {
			continue
		}
		for _, m := range messages {
			if e, ok := eventOf(m.Header.Type, m.Data); ok {
				happened(e)
			}
		}
	}
}

// eventOf parses a message. It reports false unless it is about the main table or an interface.
func eventOf(kind uint16, data []byte) (agent.Event, bool) {
	switch kind {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		route, ok, _ := readRoute(data)
		if kind == unix.RTM_DELROUTE {
			return agent.Event{Kind: agent.RouteGone, Route: route}, ok
		}
		return agent.Event{Kind: agent.RouteSet, Route: route}, ok
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		link, err := netlink.LinkDeserialize(nil, data)
		if err != nil {
			return agent.Event{Kind: agent.EventsLost}, true
		}
		return agent.Event{Kind: agent.LinkChanged, Link: link.Attrs().Index, Name: link.Attrs().Name},
			true
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return readAddress(data)
	default:
		return agent.Event{}, false
	}
}

func readAddress(data []byte) (agent.Event, bool) {
	attrs, err := attributes(data, unix.SizeofIfAddrmsg)
	if err != nil {
		return agent.Event{Kind: agent.EventsLost}, true
	}
	e := agent.Event{
		Kind: agent.AddressChanged, Link: int(nl.DeserializeIfAddrmsg(data).Index),
	}
	for _, attr := range attrs {
		// If both are present, IFA_LOCAL is the interface's own address; it is second.
		if attr.Attr.Type == unix.IFA_ADDRESS || attr.Attr.Type == unix.IFA_LOCAL {
			if addr, ok := netip.AddrFromSlice(attr.Value); ok {
				e.Addr = addr.Unmap()
			}
		}
	}
	return e, true
}
