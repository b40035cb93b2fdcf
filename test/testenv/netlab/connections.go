//go:build linux

package netlab

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// Knocking requests an Echo over TCP repeatedly, each time by a new connection.
type Knocking struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu    sync.Mutex
	knock Knocks
	gap
}

// Knocks counts connections by their outcome.
type Knocks struct {
	Made int
	// Refused connections were reset because no program listens. Broken ones were established, then
	// closed by the peer or not answered. Unanswered ones were not established within askWithin.
	Refused, Broken, Unanswered int
	// Gap is the longest time without a reply.
	Gap time.Duration
}

// StartKnocking opens a connection at every tick until Stop.
func StartKnocking(
	ctx context.Context, from *netns.Namespace, to netip.AddrPort, every time.Duration,
) *Knocking {
	k := &Knocking{gap: gap{last: time.Now()}}
	ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.ended.Go(func() {
		repeat(ctx, every, func() bool {
			k.ended.Go(func() { k.attempt(context.WithoutCancel(ctx), from, to) })
			return true
		})
	})
	return k
}

func (k *Knocking) attempt(ctx context.Context, from *netns.Namespace, to netip.AddrPort) {
	_, err := Ask(ctx, from, "tcp", to)
	var call *net.OpError
	made := errors.As(err, &call) && call.Op != "dial"
	k.mu.Lock()
	defer k.mu.Unlock()
	k.knock.Made++
	switch {
	case err == nil:
		k.reply(time.Now())
	case errors.Is(err, syscall.ECONNREFUSED):
		k.knock.Refused++
	case made, errors.Is(err, io.EOF):
		k.knock.Broken++
	default:
		k.knock.Unanswered++
	}
}

// Answered counts the connections answered so far.
func (k *Knocking) Answered() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.knock.Made - k.knock.Refused - k.knock.Broken - k.knock.Unanswered
}

// Stop opens no more connections, waits for the last replies, and returns the outcomes.
func (k *Knocking) Stop() Knocks {
	k.cancel()
	k.ended.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.knock.Gap = k.longest
	return k.knock
}

// Talk is one long connection to the TalkPort of a pod that echoes numbers.
type Talk struct {
	conn   net.Conn
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex
	sent    int
	replied int
	broken  error
	gap
}

// Talked is the outcome of a Talk.
type Talked struct {
	Sent, Answered int
	// Gap is the longest time without a reply.
	Gap time.Duration
	// Broken is why the connection ended before Stop; nil if it did not.
	Broken error
}

// StartTalk connects, and sends a number at every tick until Stop.
func StartTalk(
	ctx context.Context, from *netns.Namespace, to netip.AddrPort, every time.Duration,
) (*Talk, error) {
	conn, err := from.Dial(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	t := &Talk{conn: conn, gap: gap{last: time.Now()}}
	ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.ended.Go(func() { t.send(ctx, every) })
	t.ended.Go(func() { t.receive(ctx) })
	return t, nil
}

func (t *Talk) send(ctx context.Context, every time.Duration) {
	repeat(ctx, every, func() bool {
		t.mu.Lock()
		number := uint64(t.sent)
		t.sent++
		t.mu.Unlock()
		_, err := t.conn.Write(binary.BigEndian.AppendUint64(nil, number))
		return err == nil // the receiving goroutine gets the error, too
	})
}

func (t *Talk) receive(ctx context.Context) {
	var number [8]byte
	for {
		_, err := io.ReadFull(t.conn, number[:])
		t.mu.Lock()
		switch {
		case err == nil:
			t.replied++
			t.reply(time.Now())
		case ctx.Err() == nil:
			t.broken = err
		}
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Answered counts the numbers that were echoed so far.
func (t *Talk) Answered() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.replied
}

// Stop closes the connection and returns the outcome.
func (t *Talk) Stop() Talked {
	t.cancel()
	_ = t.conn.Close()
	t.ended.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return Talked{Sent: t.sent, Answered: t.replied, Gap: t.longest, Broken: t.broken}
}
