//go:build linux

package kubeadm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// knocker is an external host that sends packets to all addresses that may be pods', and records
// replies.
type knocker struct {
	conn   net.PacketConn
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu       sync.Mutex
	sent     int
	answered map[netip.Addr]int
}

// knock sends a packet to a port of each of the first addresses of each range, repeatedly.
func knock(
	ctx context.Context, from *netns.Namespace, port uint16, ranges ...netip.Prefix,
) (*knocker, error) {
	conn, err := from.ListenPacket(ctx, "udp", "[::]:0")
	if err != nil {
		return nil, err
	}
	var doors []netip.AddrPort
	for _, r := range ranges {
		at := r.Masked().Addr()
		for range 16 {
			at = at.Next()
			doors = append(doors, netip.AddrPortFrom(at, port))
		}
	}
	k := &knocker{conn: conn, answered: map[netip.Addr]int{}}
	ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.ended.Go(func() { k.send(ctx, doors) })
	k.ended.Go(k.listen)
	return k, nil
}

func (k *knocker) send(ctx context.Context, doors []netip.AddrPort) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// An error because of a missing route counts as no reply.
		_, _ = k.conn.WriteTo([]byte("?"), net.UDPAddrFromAddrPort(doors[i%len(doors)]))
		k.mu.Lock()
		k.sent++
		k.mu.Unlock()
	}
}

func (k *knocker) listen() {
	packet := make([]byte, 2048)
	for {
		_, from, err := k.conn.ReadFrom(packet)
		switch {
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err == nil:
			at, _ := netip.ParseAddrPort(from.String())
			k.mu.Lock()
			k.answered[at.Addr()]++
			k.mu.Unlock()
		}
	}
}

// replied reports whether there was a reply.
func (k *knocker) replied() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.answered) > 0
}

// stop ends it and returns the number of packets sent, and of replies by source.
func (k *knocker) stop() (sent int, answered map[netip.Addr]int) {
	k.cancel()
	// The wait for replies to the last packets.
	_ = k.conn.SetReadDeadline(time.Now().Add(time.Second))
	k.ended.Wait()
	_ = k.conn.Close()
	return k.sent, k.answered
}
