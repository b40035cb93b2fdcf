//go:build linux

package netlab

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/echo"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// latest limits the wait for the replies to a stream's last packets.
const latest = 2 * time.Second

// Stream sends packets to an Echo over UDP repeatedly, each with a number.
type Stream struct {
	conn      net.Conn
	cancel    context.CancelFunc
	sending   sync.WaitGroup
	receiving sync.WaitGroup

	mu      sync.Mutex
	sent    int
	replied map[uint64]int // number of replies by the packet's number
	sources map[netip.Addr]int
	gap
}

// Traffic is the outcome of a stream.
type Traffic struct {
	// Sent counts packets, also those that the sender's own kernel rejected.
	Sent int
	// Lost packets had no reply, Repeated ones had more than one.
	Lost, Repeated int
	// Gap is the longest time without a reply, which began at GapAt.
	Gap   time.Duration
	GapAt time.Time
	// Sources are the source addresses that the echo observed, with their numbers of packets.
	Sources map[netip.Addr]int
}

// StartStream sends a packet at every tick until Stop.
func StartStream(
	ctx context.Context, from *netns.Namespace, to netip.AddrPort, every time.Duration,
) (*Stream, error) {
	conn, err := from.Dial(ctx, "udp", to.String())
	if err != nil {
		return nil, err
	}
	if err := echo.Roomy(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	s := &Stream{
		conn: conn, replied: map[uint64]int{}, sources: map[netip.Addr]int{}, gap: gap{last: time.Now()},
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.sending.Go(func() { s.send(ctx, every) })
	s.receiving.Go(s.receive)
	return s, nil
}

func (s *Stream) send(ctx context.Context, every time.Duration) {
	repeat(ctx, every, func() bool {
		s.mu.Lock()
		number := uint64(s.sent)
		s.sent++
		s.mu.Unlock()
		// A packet that the kernel rejects has no reply. The error may also belong to an earlier
		// packet, in which case this one is not sent and is lost as well.
		_, _ = s.conn.Write(binary.BigEndian.AppendUint64(nil, number))
		return true
	})
}

// repeat calls next at every tick, until it returns false or the context ends.
func repeat(ctx context.Context, every time.Duration, next func() bool) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !next() {
			return
		}
	}
}

func (s *Stream) receive() {
	packet := make([]byte, 2048)
	for {
		n, err := s.conn.Read(packet)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			s.note(packet[:n])
		}
	}
}

func (s *Stream) note(packet []byte) {
	line, rest, found := bytes.Cut(packet, []byte("\n"))
	reported, err := echo.Parse(string(line))
	if !found || err != nil || len(rest) != 8 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replied[binary.BigEndian.Uint64(rest)]++
	s.sources[reported.Source.Addr()]++
	s.reply(time.Now())
}

// gap measures the longest time between two replies.
type gap struct {
	last    time.Time
	longest time.Duration
	began   time.Time // start of the longest gap
}

// reply records that a reply was received, or that none is expected any more.
func (g *gap) reply(now time.Time) {
	if gap := now.Sub(g.last); gap > g.longest {
		g.longest, g.began = gap, g.last
	}
	g.last = now
}

// Answered counts the packets with a reply so far.
func (s *Stream) Answered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.replied)
}

// Stop sends no more packets, waits for the last replies, and returns the outcome.
func (s *Stream) Stop() Traffic {
	s.cancel()
	// The sender may still send its last packet, whose reply counts as well.
	s.sending.Wait()
	ended := time.Now()
	deadline := time.NewTimer(latest)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-deadline.C:
			waiting = false
		case <-tick.C:
			waiting = s.traffic().Lost > 0
		}
	}
	_ = s.conn.Close()
	s.receiving.Wait()
	s.mu.Lock()
	if len(s.replied) < s.sent && ended.After(s.last) {
		s.reply(ended)
	}
	s.mu.Unlock()
	return s.traffic()
}

func (s *Stream) traffic() Traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := Traffic{
		Sent: s.sent, Lost: s.sent - len(s.replied), Gap: s.longest, GapAt: s.began,
		Sources: map[netip.Addr]int{},
	}
	for _, times := range s.replied {
		if times > 1 {
			t.Repeated++
		}
	}
	for source, packets := range s.sources {
		t.Sources[source] = packets
	}
	return t
}
