package balancer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// connectTimeout is how long a target may take to accept a connection.
const connectTimeout = 5 * time.Second

// frontend is a listener of a service with the connections that came through it.
type frontend struct {
	listener net.Listener // nil: clients are refused
	ctx      context.Context
	cut      context.CancelFunc // its connections
	service  atomic.Pointer[service]
}

func newFrontend(ctx context.Context) *frontend {
	f := &frontend{}
	f.ctx, f.cut = context.WithCancel(ctx)
	return f
}

// admit starts or stops listening for clients. Existing connections are kept.
func (b *balancer) admit(f *frontend, at netip.AddrPort, wanted bool) (err error) {
	switch {
	case wanted && f.listener == nil:
		listener, err := b.Network.Listen(f.ctx, at)
		if err != nil {
			return err
		}
		f.listener = listener
		b.work.Go(func() { b.accept(f.ctx, f, listener) })
	case !wanted && f.listener != nil:
		err = f.listener.Close()
		f.listener = nil
	}
	return err
}

func (f *frontend) close() {
	f.cut()
	if f.listener != nil {
		_ = f.listener.Close()
	}
}

func (b *balancer) accept(ctx context.Context, f *frontend, listener net.Listener) {
	for ctx.Err() == nil {
		client, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // for example, out of file descriptors
			b.Logger.Warn("a service can't accept a connection", "address", listener.Addr(), "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(b.Retry):
			}
		default:
			b.work.Go(func() { b.carry(ctx, f.service.Load(), client) })
		}
	}
}

// carry serves one connection by the service's state at the time it was accepted.
func (b *balancer) carry(ctx context.Context, s *service, client net.Conn) {
	if s.Protocol == "https" {
		config := &tls.Config{Certificates: b.Cloud.KeyPairs(s.balancer.ID, s.ListenPort)}
		client = encrypted{tls.Server(client, config)}
	}
	defer client.Close()
	targets := b.Cloud.HealthyTargets(s.balancer.ID, s.ListenPort)
	if len(targets) == 0 {
		reset(client)
		return
	}
	target, done := s.turns.take(s.balancer.Algorithm, targets)
	defer done()
	server, err := b.connect(ctx, s, target.Address, client)
	if err != nil {
		b.Logger.Warn("a healthy target can't be reached", "loadBalancer", s.balancer.ID, "port", s.ListenPort, "target", target.Address, "err", err)
		reset(client)
		return
	}
	defer server.Close()
	defer atEnd(ctx, func() { reset(client, server) })()
	join(client, server)
}

// atEnd calls f when ctx ends before the returned function is called; that function waits for f.
func atEnd(ctx context.Context, f func()) (done func()) {
	called := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(called)
		f()
	})
	return func() {
		if !stop() {
			<-called
		}
	}
}

// connect opens the connection to a target, and sends a PROXY header if the service uses it.
func (b *balancer) connect(
	ctx context.Context, s *service, target netip.Addr, client net.Conn,
) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	to := netip.AddrPortFrom(target, uint16(s.DestinationPort))
	server, err := b.Network.Dial(ctx, sourceOf(s.balancer, target), to)
	if err != nil || !s.Proxyprotocol {
		return server, err
	}
	h := Header{Source: addrPort(client.RemoteAddr()), Destination: addrPort(client.LocalAddr())}
	if _, err := server.Write(h.Append(nil, b.Header)); err != nil {
		reset(server)
		return nil, fmt.Errorf("sending the PROXY header: %w", err)
	}
	return server, nil
}

// addrPort returns a TCP address, with an IPv4-mapped address as IPv4.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// join copies data in both directions until both sides have finished sending. A side that has
// finished still receives. If one side fails, the other gets a reset, so that it doesn't take a
// part for the whole.
func join(a, b net.Conn) {
	var back sync.WaitGroup
	back.Go(func() { pass(a, b) })
	pass(b, a)
	back.Wait()
}

func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		err = half.CloseWrite()
	}
	if err != nil {
		reset(to, from)
	}
}

// encrypted is a client's connection behind TLS.
type encrypted struct{ *tls.Conn }

// SetLinger sets the option of the connection below TLS.
func (e encrypted) SetLinger(seconds int) error {
	if below, ok := e.NetConn().(interface{ SetLinger(seconds int) error }); ok {
		return below.SetLinger(seconds)
	}
	return nil
}

// reset closes connections such that the peers get an error instead of an end of file.
func reset(connections ...net.Conn) {
	for _, c := range connections {
		if lingering, ok := c.(interface{ SetLinger(seconds int) error }); ok {
			_ = lingering.SetLinger(0)
		}
		_ = c.Close()
	}
}
