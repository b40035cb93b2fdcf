package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	poll "k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

// Ports of the servers, one for each thing that is looked at. Those of UDP have no listener of TCP
// behind them, and the other way round.
const (
	sentFrom    = 7001 // UDP, the source of all streams
	sourcePort  = 7002 // UDP, for packets from two sources
	mtuPort     = 7003 // UDP, for packets of all sizes
	routePort   = 7010 // UDP, the first of those for routes
	servedPort  = 9001 // TCP, where load balancers send clients
	checkedPort = 9002 // TCP, the first of those that are only checked
)

// arrives is how long a packet may take that was sent, at most.
const arrives = 2 * time.Second

// configures is how long an image may take to set up the interface of a network.
const configures = time.Minute

// look is the time between two looks whether something has come.
const look = 200 * time.Millisecond

// pair returns two servers in the shared network whose programs answer.
func (b *Bench) pair(ctx context.Context) (from, to *Server, err error) {
	if from, err = b.inNetwork(ctx, 0); err != nil {
		return nil, nil, err
	}
	if to, err = b.inNetwork(ctx, 1); err != nil {
		return nil, nil, err
	}
	return from, to, nil
}

// inNetwork returns the n-th of the shared servers once it has its address in the network. Images
// see to that themselves, some time after the server has booted.
func (b *Bench) inNetwork(ctx context.Context, n int) (*Server, error) {
	s, err := b.Inside(ctx, n)
	if err != nil {
		return nil, err
	}
	err = lookFor(ctx, configures, time.Second, func() (bool, error) {
		_, err := interfaceOf(ctx, s, s.Private)
		if errors.Is(err, errNoInterface) {
			return false, nil
		}
		return err == nil, err
	})
	if errors.Is(err, errLate) {
		return nil, fmt.Errorf("server %d has no interface with its address in the network after %s: "+
			"choose an image that sets up private networks by itself", n, configures)
	}
	return s, err
}

// outside returns the n-th address, from 0, of a network that is in none of its subnets: nobody has
// it, and every server sends packets for it to the gateway.
func (n *Network) outside(nth int) (netip.Addr, error) {
	// From the end, without the last address, or else from the start, without the gateway.
	at := last(n.Range).Prev()
	step := netip.Addr.Prev
	if n.Subnet.Contains(at) {
		at, step = n.Range.Masked().Addr().Next().Next(), netip.Addr.Next
	}
	for range nth {
		at = step(at)
	}
	if !n.Range.Contains(at) || n.Subnet.Contains(at) {
		return netip.Addr{}, fmt.Errorf("network %s has no address outside its subnet %s", n.Range, n.Subnet)
	}
	return at, nil
}

// last is the last address of a prefix of IPv4.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(bytes)
}

// errLate is that something didn't come in time.
var errLate = errors.New("not in time")

// lookFor looks again and again until found reports true. After within it is errLate.
func lookFor(ctx context.Context, within, every time.Duration, found func() (bool, error)) error {
	err := poll.PollUntilContextTimeout(ctx, every, within, true,
		func(context.Context) (bool, error) { return found() })
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case poll.Interrupted(err):
		return errLate
	}
	return err
}

// came are the packets that came to a port from one address to another.
func came(ctx context.Context, at *Server, port uint16, from, to netip.Addr) ([]inside.Packet, error) {
	all, err := at.Program.Packets(ctx, port)
	var out []inside.Packet
	for _, p := range all {
		if p.From.Addr().Unmap() == from && p.To.Addr().Unmap() == to {
			out = append(out, p)
		}
	}
	return out, err
}
