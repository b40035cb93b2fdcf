//go:build linux

package socket_test

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses/layer2"
)

// stream is a client that sends a datagram every other millisecond from one socket, and counts the
// replies.
type stream struct {
	sent, back atomic.Int64
	last       atomic.Int64 // time of the last reply, in nanoseconds of Unix time
	stop       func()
}

func (h *host) stream(address netip.Addr) *stream {
	var conn *net.UDPConn
	var err error
	h.Do(func() { conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 7))) })
	if err != nil {
		h.t.Fatal(err)
	}
	s := &stream{}
	var running sync.WaitGroup
	done := make(chan struct{})
	running.Go(func() {
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				n := s.sent.Add(1)
				_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
			}
		}
	})
	running.Go(func() {
		buffer := make([]byte, 100)
		for {
			if _, err := conn.Read(buffer); err != nil && errors.Is(err, net.ErrClosed) {
				return
			} else if err == nil {
				s.back.Add(1)
				s.last.Store(time.Now().UnixNano())
			}
		}
	})
	s.stop = sync.OnceFunc(func() {
		close(done)
		ticker := time.NewTimer(200 * time.Millisecond) // packets in flight
		<-ticker.C
		_ = conn.Close()
		running.Wait()
	})
	h.t.Cleanup(s.stop)
	return s
}

// A planned move from one machine to another loses no packet, whichever of them gets the change
// first.
func TestAMoveLosesNothing(t *testing.T) {
	s := newSegment(t)
	a, b, client := s.host("a", "1"), s.host("b", "2"), s.host("client", "9")
	a.serve()
	b.serve()
	ra, _ := a.responder()
	rb, _ := b.responder()
	ra.Set(a.hold(1))
	rb.Set(b.elsewhere())
	awaitPhase(t, ra, layer2.Holding)
	for _, address := range []netip.Addr{address4, address6} {
		client.poke(address)
		client.finds(address, a)
	}
	four, six := client.stream(address4), client.stream(address6)
	await(t, 5*time.Second, "an echo of both", func() bool { return four.back.Load() > 10 && six.back.Load() > 10 })

	move := func(epoch uint64, from, to *host, rfrom, rto *layer2.Responder, fromFirst bool) {
		t.Helper()
		apart := time.NewTimer(30 * time.Millisecond)
		if fromFirst {
			rfrom.Set(from.elsewhere())
			<-apart.C
			rto.Set(to.hold(epoch))
		} else {
			rto.Set(to.hold(epoch))
			<-apart.C
			rfrom.Set(from.elsewhere())
		}
		client.finds(address4, to)
		client.finds(address6, to)
		awaitPhase(t, rto, layer2.Holding)
		await(t, time.Second, from.name+" lets go", func() bool { return len(rfrom.State()) == 0 })
	}
	for epoch := uint64(2); epoch <= 8; epoch += 2 {
		move(epoch, a, b, ra, rb, epoch%4 == 0)
		move(epoch+1, b, a, rb, ra, epoch%4 == 0)
	}
	for name, s := range map[string]*stream{"IPv4": four, "IPv6": six} {
		s.stop()
		sent, back := s.sent.Load(), s.back.Load()
		t.Logf("%s: %d sent, %d came back", name, sent, back)
		if back != sent {
			t.Errorf("%s: %d of %d were lost in eight moves", name, sent-back, sent)
		}
	}
	for _, r := range []*layer2.Responder{ra, rb} {
		t.Logf("sent: %+v", r.State())
	}
}

// A machine becomes unresponsive, and another one takes its addresses: clients reach it as soon as
// it has announced them.
func TestATakeover(t *testing.T) {
	s := newSegment(t)
	a, b, client := s.host("a", "1"), s.host("b", "2"), s.host("client", "9")
	a.serve()
	b.serve()
	ra, _ := a.responder()
	rb, _ := b.responder()
	ra.Set(a.hold(1))
	awaitPhase(t, ra, layer2.Holding)
	for _, address := range []netip.Addr{address4, address6} {
		client.poke(address)
		client.finds(address, a)
	}
	four, six := client.stream(address4), client.stream(address6)
	await(t, 5*time.Second, "an echo of both", func() bool { return four.back.Load() > 10 && six.back.Load() > 10 })
	s.bridge.Run("ip", "link", "set", "to-a", "down")
	began := time.Now()
	rb.Set(b.hold(2))
	await(t, 5*time.Second, "echoes by the next machine", func() bool {
		return four.last.Load() > began.Add(50*time.Millisecond).UnixNano() &&
			six.last.Load() > began.Add(50*time.Millisecond).UnixNano()
	})
	took := time.Since(began)
	t.Logf("after %s both answer again", took)
	if took > time.Second {
		t.Errorf("the takeover took %s", took)
	}

	// The former holder, which has the old ledger, observes the new one as soon as its link is
	// back.
	s.bridge.Run("ip", "link", "set", "to-a", "up")
	old := a.hold(1)
	old.Doubt = true
	ra.Set(old)
	awaitPhase(t, ra, layer2.Yielded)
	awaitPhase(t, rb, layer2.Holding)
	client.finds(address4, b)
	client.finds(address6, b)
}
