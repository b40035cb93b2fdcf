//go:build linux

package kernel

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/routes/agent"
)

// batch limits the routes of one send. If the kernel rejects all of them, its replies take
// about 1 KiB each, and have to fit into a receive buffer of the default size (208 KiB).
const batch = 128

// openSocket opens the socket for routes and for proxy neighbors.
func openSocket() (*nl.SocketHandle, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	timeout := unix.NsecToTimeval(requestTimeout.Nanoseconds())
	if err := errors.Join(socket.SetSendTimeout(&timeout),
		socket.SetReceiveTimeout(&timeout)); err != nil {
		socket.Close()
		return nil, err
	}
	return &nl.SocketHandle{Socket: socket}, nil
}

// request builds a request that the library doesn't support.
func (k *Kernel) request(kind, flags int, message nl.NetlinkRequestData) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(kind, flags)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: k.socket}
	request.AddData(message)
	return request
}

// Add creates routes at free places.
func (k *Kernel) Add(ctx context.Context, entries []agent.Entry) []error {
	errs := make([]error, 0, len(entries))
	for part := range slices.Chunk(entries, batch) {
		errs = append(errs, k.write(ctx, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, part)...)
	}
	return errs
}

// Replace replaces the route at the entry's place in one step.
func (k *Kernel) Replace(ctx context.Context, to agent.Entry) error {
	return k.write(ctx, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, []agent.Entry{to})[0]
}

// Delete removes exactly this route of this protocol, if it exists.
func (k *Kernel) Delete(ctx context.Context, e agent.Entry) error {
	err := k.write(ctx, unix.RTM_DELROUTE, 0, []agent.Entry{e})[0]
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// write sends a request for each entry, all at once, and returns an error or nil for each. The
// kernel handles all of them, in order, before the send returns. It replies to each that it
// rejects, and to the last. Without that reply nothing is known about those without an error.
func (k *Kernel) write(ctx context.Context, kind, flags int, entries []agent.Entry) []error {
	errs := make([]error, len(entries))
	err := ctx.Err()
	if err == nil {
		err = k.exchange(kind, flags, entries, errs)
	}
	for i := range errs {
		if err != nil && errs[i] == nil {
			errs[i] = err
		}
	}
	return errs
}

func (k *Kernel) exchange(kind, flags int, entries []agent.Entry, errs []error) error {
	socket, count := k.socket.Socket, uint32(len(entries))
	socket.Lock()
	defer socket.Unlock()
	first := atomic.AddUint32(&k.socket.Seq, count) - count + 1
	var requests []byte
	for i, e := range entries {
		if i == len(entries)-1 {
			flags |= unix.NLM_F_ACK
		}
		request := routeRequest(kind, flags, e)
		request.Seq = first + uint32(i)
		requests = append(requests, request.Serialize()...)
	}
	err := unix.Sendto(socket.GetFd(), requests, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err != nil {
		return err
	}
	for {
		replies, from, err := socket.Receive()
		if err != nil {
			return err
		}
		for _, reply := range replies {
			at := reply.Header.Seq - first
			if from.Pid != nl.PidKernel || reply.Header.Type != unix.NLMSG_ERROR || at >= count {
				continue // at least count: to an earlier request, whose reply was not awaited
			}
			if code := int32(nl.NativeEndian().Uint32(reply.Data)); code != 0 {
				errs[at] = unix.Errno(-code)
			}
			if at == count-1 {
				return nil
			}
		}
	}
}

// routeRequest builds a request about a route of the main table. The library does that only
// for requests that it sends itself, one at a time.
func routeRequest(kind, flags int, e agent.Entry) *nl.NetlinkRequest {
	msg := nl.NewRtMsg()
	dst := e.Dst.Addr().AsSlice()
	msg.Family, msg.Dst_len = uint8(nl.GetIPFamily(dst)), uint8(e.Dst.Bits())
	msg.Protocol = e.Protocol
	request := nl.NewNetlinkRequest(kind, flags)
	request.AddData(msg)
	request.AddData(nl.NewRtAttr(unix.RTA_DST, dst))
	request.AddData(nl.NewRtAttr(unix.RTA_PRIORITY, nl.Uint32Attr(e.Metric)))
	request.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(e.Link))))
	switch {
	case e.Kind == agent.Unreachable:
		msg.Type = unix.RTN_UNREACHABLE
	case e.Via.IsValid():
		request.AddData(nl.NewRtAttr(unix.RTA_GATEWAY, e.Via.AsSlice()))
	default:
		msg.Scope = unix.RT_SCOPE_LINK
	}
	return request
}
