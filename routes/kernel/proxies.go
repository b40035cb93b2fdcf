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

// Proxies returns every IPv4 proxy neighbor entry.
func (k *Kernel) Proxies(ctx context.Context) ([]agent.Proxy, error) {
	messages, err := dump(ctx, "the proxy neighbors", func() ([][]byte, error) {
		request := k.request(unix.RTM_GETNEIGH, unix.NLM_F_DUMP, &netlink.Ndmsg{
			Family: unix.AF_INET, Flags: netlink.NTF_PROXY,
		})
		return request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	})
	if err != nil {
		return nil, err
	}
	found := make([]agent.Proxy, len(messages))
	for i, m := range messages {
		if found[i], err = readProxy(m); err != nil {
			return nil, fmt.Errorf("listing the proxy neighbors: %w", err)
		}
	}
	return found, nil
}

// AddProxy creates an entry.
func (k *Kernel) AddProxy(ctx context.Context, p agent.Proxy) error {
	return k.setProxy(ctx, unix.RTM_NEWNEIGH, unix.NLM_F_CREATE, p)
}

// DeleteProxy removes an entry, if it exists.
func (k *Kernel) DeleteProxy(ctx context.Context, p agent.Proxy) error {
	err := k.setProxy(ctx, unix.RTM_DELNEIGH, 0, p)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) { // entry or interface is missing
		return nil
	}
	return err
}

// setProxy sends a request. The state is permanent because some kernels keep such entries when an
// interface loses its carrier; in other kernels it has no effect.
func (k *Kernel) setProxy(ctx context.Context, kind, flags int, p agent.Proxy) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	request := k.request(kind, flags|unix.NLM_F_ACK, &netlink.Ndmsg{
		Family: unix.AF_INET, Index: uint32(p.Link), State: netlink.NUD_PERMANENT,
		Flags: netlink.NTF_PROXY,
	})
	request.AddData(nl.NewRtAttr(netlink.NDA_DST, p.Addr.AsSlice()))
	request.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, []byte{p.Protocol}))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// readProxy parses a message: a struct ndmsg and its attributes.
func readProxy(data []byte) (agent.Proxy, error) {
	attrs, err := attributes(data, unix.SizeofNdMsg)
	if err != nil {
		return agent.Proxy{}, err
	}
	p := agent.Proxy{Link: int(int32(nl.NativeEndian().Uint32(data[4:])))}
	for _, attr := range attrs {
		switch {
		case attr.Attr.Type == netlink.NDA_DST:
			p.Addr, _ = netip.AddrFromSlice(attr.Value)
		case attr.Attr.Type == netlink.NDA_PROTOCOL && len(attr.Value) > 0:
			p.Protocol = attr.Value[0]
		}
	}
	return p, nil
}
