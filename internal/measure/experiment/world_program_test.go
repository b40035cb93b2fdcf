package experiment

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
	"github.com/underlay-ccm/underlay/test/testenv/balancer"
)

// fakeProgram does what the program in a server does, in a world. Its clock is wrong by skew.
type fakeProgram struct {
	world  *world
	name   string
	public netip.Addr
	since  time.Time

	mu          sync.Mutex
	id          int64 // 0: not known yet, like public6
	public6     netip.Addr
	added       []netip.Prefix
	mtu         map[string]int
	listeners   map[uint16]inside.Listener
	connections map[uint16][]inside.Connection
	received    map[uint16][]inside.Packet
	stopped     bool
}

// skew is how much servers' clocks are ahead.
const skew = 3 * time.Second

// oneWay is how long a packet takes.
const oneWay = time.Millisecond

func newFakeProgram(w *world, name string, public netip.Addr) *fakeProgram {
	return &fakeProgram{
		world: w, name: name, public: public, since: time.Now(), mtu: map[string]int{"eth0": 1500, "enp7s0": 1450},
		listeners: map[uint16]inside.Listener{}, connections: map[uint16][]inside.Connection{},
		received: map[uint16][]inside.Packet{},
	}
}

// given are the addresses that the cloud gave the server: public ones, then those in networks.
func (p *fakeProgram) given() []netip.Addr {
	p.mu.Lock()
	if p.id == 0 {
		if s, err := p.world.server(p.public); err == nil {
			p.id, p.public6 = s.ID, ipnet.Addr(s.PublicNet.IPv6.IP).Next()
		}
	}
	out := []netip.Addr{p.public, p.public6}
	p.mu.Unlock()
	for _, n := range p.world.told().Networks {
		for _, m := range n.Members {
			if m.Kind == "server" && m.ID == p.id {
				out = append(out, m.IP)
			}
		}
	}
	return out
}

// private is the server's address in a network; zero if it is in none.
func (p *fakeProgram) private() netip.Addr {
	for _, a := range p.given() {
		if a.Is4() && a.IsPrivate() {
			return a
		}
	}
	return netip.Addr{}
}

// has reports whether an address is the server's, given or added.
func (p *fakeProgram) has(a netip.Addr) bool {
	p.mu.Lock()
	added := slices.ContainsFunc(p.added, func(of netip.Prefix) bool { return of.Contains(a) })
	p.mu.Unlock()
	return added || slices.Contains(p.given(), a)
}

// Ready, Clock and Interfaces are those of Program, like what follows.
func (p *fakeProgram) Ready(ctx context.Context) error { return p.up(ctx) }

func (p *fakeProgram) up(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return fmt.Errorf("server %s: the program has ended", p.name)
	}
	return context.Cause(ctx)
}

func (p *fakeProgram) Clock(ctx context.Context) (inside.Clock, error) {
	return inside.Clock{Ahead: skew, Within: oneWay}, p.up(ctx)
}

func (p *fakeProgram) Interfaces(ctx context.Context) ([]inside.Interface, error) {
	p.mu.Lock()
	eth, private := p.mtu["eth0"], p.mtu["enp7s0"]
	p.mu.Unlock()
	out := []inside.Interface{{Name: "eth0", MTU: eth}}
	for _, a := range p.given() {
		switch {
		case a.Is4() && a.IsPrivate() && time.Since(p.since) < p.world.configured:
		case a.Is6():
			out[0].Addresses = append(out[0].Addresses, netip.PrefixFrom(a, 64))
		case a == p.public:
			out[0].Addresses = append(out[0].Addresses, netip.PrefixFrom(a, 32))
		default:
			out = append(out, inside.Interface{Name: "enp7s0", MTU: private, Addresses: []netip.Prefix{netip.PrefixFrom(a, 32)}})
		}
	}
	return out, p.up(ctx)
}

func (p *fakeProgram) AddAddress(ctx context.Context, a netip.Prefix, _ string) error {
	p.mu.Lock()
	p.added = append(p.added, a)
	p.mu.Unlock()
	return p.up(ctx)
}

func (p *fakeProgram) RemoveAddress(ctx context.Context, a netip.Prefix, _ string) error {
	p.mu.Lock()
	p.added = slices.DeleteFunc(p.added, func(is netip.Prefix) bool { return is == a })
	p.mu.Unlock()
	return p.up(ctx)
}

func (p *fakeProgram) SetMTU(ctx context.Context, device string, bytes int) error {
	p.mu.Lock()
	p.mtu[device] = bytes
	p.mu.Unlock()
	return p.up(ctx)
}

var errNotInWorld = errors.New("the world in memory has no routes of servers and no ARP")

func (p *fakeProgram) AddRoute(context.Context, netip.Prefix, netip.Addr, string) error {
	return errNotInWorld
}

func (p *fakeProgram) RemoveRoute(context.Context, netip.Prefix, netip.Addr, string) error {
	return errNotInWorld
}

func (p *fakeProgram) AnswerARP(context.Context, string, netip.Prefix) error { return errNotInWorld }

func (p *fakeProgram) StopARP(context.Context, string, netip.Prefix) error { return errNotInWorld }

func (p *fakeProgram) Receive(ctx context.Context, port uint16) error {
	p.mu.Lock()
	p.received[port] = []inside.Packet{}
	p.mu.Unlock()
	return p.up(ctx)
}

func (p *fakeProgram) Packets(ctx context.Context, port uint16) ([]inside.Packet, error) {
	p.mu.Lock()
	out := slices.Clone(p.received[port])
	p.mu.Unlock()
	return out, p.up(ctx)
}

func (p *fakeProgram) Start(ctx context.Context, s inside.Stream) error {
	p.world.work.Go(func() { _ = p.send(p.world.ctx, s) })
	return p.up(ctx)
}

func (p *fakeProgram) Send(ctx context.Context, s inside.Stream) error {
	if err := p.up(ctx); err != nil {
		return err
	}
	return p.send(ctx, s)
}

// send sends the packets of a stream until ctx ends.
func (p *fakeProgram) send(ctx context.Context, s inside.Stream) error {
	size := max(s.Size, 64)
	device := "eth0"
	if s.To.Addr().Is4() && s.To.Addr().IsPrivate() {
		device = "enp7s0"
	}
	p.mu.Lock()
	tooLarge := size > p.mtu[device]
	p.mu.Unlock()
	if tooLarge && s.DontFragment {
		return inside.ErrTooLarge
	}
	for n := range s.Count {
		if err := p.up(ctx); err != nil {
			return err
		}
		target := s.To
		for range n % max(s.Spread, 1) {
			target = netip.AddrPortFrom(target.Addr().Next(), target.Port())
		}
		packet := inside.Packet{Number: n, Sent: time.Now().Add(skew), At: time.Now().Add(skew + oneWay), From: s.From, To: target, Size: size}
		lost := p.world.loss > 0 && n%p.world.loss == 0 || p.world.loses != nil && p.world.loses(packet)
		if to := p.world.forward(p, s.From.Addr(), target.Addr(), size); to != nil && !lost {
			to.get(packet)
		}
		if err := wait(ctx, s.Every); err != nil {
			return err
		}
	}
	return nil
}

func (p *fakeProgram) get(packet inside.Packet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if port := packet.To.Port(); p.received[port] != nil {
		p.received[port] = append(p.received[port], packet)
	}
}

func (p *fakeProgram) Listen(ctx context.Context, l inside.Listener) error {
	p.mu.Lock()
	p.listeners[l.Port], p.connections[l.Port] = l, nil
	p.mu.Unlock()
	return p.up(ctx)
}

func (p *fakeProgram) Connections(ctx context.Context, port uint16) ([]inside.Connection, error) {
	p.mu.Lock()
	out := slices.Clone(p.connections[port])
	p.mu.Unlock()
	return out, p.up(ctx)
}

// does is what happens to connections to a port.
func (p *fakeProgram) does(port uint16) inside.Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.world.deaf {
		return inside.Listener{Port: port, Does: inside.Drops}
	}
	if l, ok := p.listeners[port]; ok && !p.stopped {
		return l
	}
	return inside.Listener{Port: port, Does: inside.Closed}
}

// serve is the server's end of a connection.
func (p *fakeProgram) serve(l inside.Listener, from, to netip.AddrPort, c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(p.world.ctx, func() { _ = c.Close() })()
	is := inside.Connection{At: time.Now().Add(skew), From: from, To: to}
	note := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.connections[l.Port] = append(p.connections[l.Port], is)
	}
	r := bufio.NewReader(c)
	_, _ = r.Peek(1)
	first, _ := r.Peek(r.Buffered())
	is.First = slices.Clone(first)
	if header := len(first) > 0 && (first[0] == 'P' || first[0] == '\r'); header {
		is.Proxy = 1
		if first[0] == '\r' {
			is.Proxy = 2
		}
		if _, err := balancer.ReadHeader(r); err != nil {
			is.Proxy = 0
		}
		_, _ = r.Peek(1)
		rest, _ := r.Peek(r.Buffered())
		is.First = append(is.First, rest...)
	}
	note()
	if l.Does == inside.Hangs {
		_, _ = io.Copy(io.Discard, r)
		return
	}
	if _, err := http.ReadRequest(r); err == nil {
		_, _ = fmt.Fprintf(c, "HTTP/1.0 %d x\r\nConnection: close\r\n\r\n%s", l.Status, p.name)
	}
}

func (p *fakeProgram) Dial(ctx context.Context, to netip.AddrPort, within time.Duration) (inside.Outcome, error) {
	if err := p.up(ctx); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c, err := p.world.Dial(ctx, p.public, to)
	if err != nil {
		return outcomeOf(ctx, err), nil
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\nHost: x\r\n\r\n"); err != nil {
		return outcomeOf(ctx, err), nil
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return outcomeOf(ctx, err), nil
	}
	return inside.Answered, nil
}

func outcomeOf(ctx context.Context, err error) inside.Outcome {
	switch {
	case ctx.Err() != nil:
		return inside.Unanswered
	case errors.Is(err, syscall.ECONNREFUSED):
		return inside.Refused
	case errors.Is(err, syscall.ECONNRESET):
		return inside.Reset
	}
	return inside.Ended
}

func (p *fakeProgram) Stop(ctx context.Context) error {
	if err := p.up(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped, p.added = true, nil
	return nil
}
