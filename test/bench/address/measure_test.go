//go:build linux

package address_test

import (
	"context"
	"fmt"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

const (
	// pace is the time between two packets of a stream, knock between two connections.
	pace  = 5 * time.Millisecond
	knock = 20 * time.Millisecond
	// settled is the time without changes before and after a fault.
	settled = 5 * time.Second
	// forget is how often the fresh client removes the address from its neighbor cache.
	forget = 100 * time.Millisecond
)

// outcome is the effect of a fault on clients of the address.
type outcome struct {
	udp   netlab.Traffic
	tcp   netlab.Knocks
	talk  netlab.Talked
	fresh netlab.Knocks // connections of the client that resolves the address repeatedly
	// moved is the time from the fault to the first claim of the address by another machine; 0:
	// there was none.
	moved time.Duration
	// announcements are claims to all hosts, answers those to one.
	announcements, answers int
	writes                 int
	// both is how long the former and the new holder both claimed the address after the fault was
	// over.
	both time.Duration
	// wrong is whether the client's cache has another machine for the address in the end than that
	// of the fresh client, which has just resolved it.
	wrong bool
}

// during measures a fault and its end: everything from before fault until after heal is counted.
func (w *world) during(fault, heal func(holder *netlab.Machine), lasts time.Duration) outcome {
	w.b.Helper()
	ctx := w.b.Context()
	holder := w.holder()
	w.unload(holder)
	w.pause(settled)
	began := time.Now()
	stream, err := netlab.StartStream(ctx, w.client.Namespace, w.echo(), pace)
	w.must(err)
	to := w.echo()
	knocking := netlab.StartKnocking(ctx, w.client.Namespace, to, knock)
	talkTo := to
	talk, err := netlab.StartTalk(ctx, w.client.Namespace, withPort(talkTo, talkPort), pace)
	w.must(err)
	forgetful, stop := context.WithCancel(ctx)
	defer stop()
	go w.forgetting(forgetful)
	asking := netlab.StartKnocking(ctx, w.fresh.Namespace, to, 5*knock)
	w.await("all flows", func() string {
		if stream.Answered() < 20 || knocking.Answered() < 5 || talk.Answered() < 20 ||
			asking.Answered() < 2 {
			return "not yet"
		}
		return ""
	})
	var o outcome
	at := time.Now()
	fault(holder)
	w.pause(lasts)
	healed := time.Now()
	if heal != nil {
		heal(holder)
	}
	w.pause(2 * settled)
	w.united()
	stop()
	o.udp, o.tcp, o.talk, o.fresh = stream.Stop(), knocking.Stop(), talk.Stop(), asking.Stop()
	for _, f := range w.frames.Claims(w.address, began) {
		if f.ToAll {
			o.announcements++
		} else {
			o.answers++
		}
		if f.By != holder.Name && o.moved == 0 && f.At.After(at) {
			o.moved = f.At.Sub(at)
		}
	}
	o.both = w.both(healed)
	o.writes = w.writes(at)
	o.wrong = w.differs()
	return o
}

// united waits until only one machine has claimed the address for a while, in which the fresh
// client resolves it repeatedly.
func (w *world) united() {
	w.b.Helper()
	w.await("one machine has the address", func() string {
		if all := w.frames.Claimants(w.address, time.Now().Add(-settled)); len(all) != 1 {
			return fmt.Sprintf("%q claim it", all)
		}
		return ""
	})
}

// both is the time from since to the last claim by a machine other than the final claimant.
func (w *world) both(since time.Time) time.Duration {
	claims := w.frames.Claims(w.address, since)
	if len(claims) == 0 {
		return 0
	}
	last := claims[len(claims)-1].By
	for i := len(claims) - 1; i >= 0; i-- {
		if claims[i].By != last {
			return claims[i].At.Sub(since)
		}
	}
	return 0
}

// differs reports whether the client's cache has another machine than the one that replies now.
func (w *world) differs() bool {
	w.b.Helper()
	known, err := w.client.Knows(w.b.Context(), w.address)
	w.must(err)
	var now string
	w.await("somebody answers for the address", func() string {
		w.must(w.fresh.Inquire(w.b.Context(), w.address))
		w.pause(50 * time.Millisecond)
		now, err = w.fresh.Knows(w.b.Context(), w.address)
		w.must(err)
		if now == "" {
			return "nobody does"
		}
		return ""
	})
	return known != now
}

// forgetting makes the fresh client resolve the address repeatedly.
func (w *world) forgetting(ctx context.Context) {
	tick := time.NewTicker(forget)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// An interruption by the end is no error.
			_, _ = w.fresh.Namespace.Run(ctx, "ip", "neighbor", "flush", "to", w.address.String(), "dev", "eth0")
		}
	}
}

// pause waits while other goroutines run the measured work.
func (w *world) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.b.Context().Done():
		w.b.Fatal("interrupted")
	}
}
