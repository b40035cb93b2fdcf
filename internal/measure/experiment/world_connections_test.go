package experiment

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

// fakeListener is a load balancer's listener in memory.
type fakeListener struct {
	at     netip.AddrPort
	came   chan net.Conn
	closed chan struct{}
	close  func()
}

// Listen is that of a balancer's network.
func (w *world) Listen(_ context.Context, at netip.AddrPort) (net.Listener, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &fakeListener{at: at, came: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() {
		close(l.closed)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.listeners[at] == l {
			delete(w.listeners, at)
		}
	})
	w.listeners[at] = l
	return l, nil
}

func (l *fakeListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

func (l *fakeListener) Close() error {
	l.close()
	return nil
}

func (l *fakeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.came:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// fakePort is the port that connections in memory come from.
const fakePort = 40000

// Dial is that of a balancer's network, and of servers.
func (w *world) Dial(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	source := netip.AddrPortFrom(from, fakePort)
	w.mu.Lock()
	listener := w.listeners[to]
	w.mu.Unlock()
	if listener != nil {
		client, server := connect(source, to)
		select {
		case listener.came <- server:
			return client, nil
		case <-listener.closed:
			return nil, syscall.ECONNREFUSED
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for _, lb := range w.told().LoadBalancers {
		if slices.Contains([]netip.Addr{lb.IPv4, lb.IPv6, lb.PrivateIP}, to.Addr()) {
			return nil, syscall.ECONNREFUSED
		}
	}
	target := w.at(to.Addr())
	if target == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	switch does := target.does(to.Port()); does.Does {
	case inside.Closed:
		return nil, syscall.ECONNREFUSED
	case inside.Drops:
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		client, server := connect(source, to)
		w.work.Go(func() { target.serve(does, source, to, server) })
		return client, nil
	}
}

// fakeConn is an end of a connection in memory.
type fakeConn struct {
	net.Conn
	local, remote netip.AddrPort
	peer          *fakeConn
	reset         atomic.Bool // by the peer
}

func connect(from, to netip.AddrPort) (client, server *fakeConn) {
	a, b := net.Pipe()
	client = &fakeConn{Conn: a, local: from, remote: to}
	server = &fakeConn{Conn: b, local: to, remote: from, peer: client}
	client.peer = server
	return client, server
}

func (c *fakeConn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.local) }
func (c *fakeConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// SetLinger with 0 lets the peer see a reset in place of an end.
func (c *fakeConn) SetLinger(int) error {
	c.peer.reset.Store(true)
	return nil
}

func (c *fakeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.broken(err)
}

func (c *fakeConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.broken(err)
}

func (c *fakeConn) broken(err error) error {
	if c.reset.Load() && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe)) {
		return syscall.ECONNRESET
	}
	return err
}
