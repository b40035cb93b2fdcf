package balancer

import (
	"cmp"
	"context"
	"net"
	"net/netip"
)

// Network opens a balancer's sockets.
type Network interface {
	// Listen opens a TCP listener at an address.
	Listen(ctx context.Context, at netip.AddrPort) (net.Listener, error)
	// Dial opens a TCP connection between two addresses, from any port.
	Dial(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error)
}

// Inside is the network of a namespace. do calls a function on a thread in the namespace, like the
// Do of a *netns.Namespace; sockets remain in the namespace in which they were created. The
// balancer's addresses have to be local there.
func Inside(do func(func()) error) Network { return inside{do} }

type inside struct{ do func(func()) error }

func (n inside) Listen(ctx context.Context, at netip.AddrPort) (l net.Listener, err error) {
	entered := n.do(func() { l, err = new(net.ListenConfig).Listen(ctx, "tcp", at.String()) })
	return l, cmp.Or(entered, err)
}

func (n inside) Dial(
	ctx context.Context, from netip.Addr, to netip.AddrPort,
) (c net.Conn, err error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	entered := n.do(func() { c, err = d.DialContext(ctx, "tcp", to.String()) })
	return c, cmp.Or(entered, err)
}
