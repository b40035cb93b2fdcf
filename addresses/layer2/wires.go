package layer2

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

const (
	reopenFirst = 100 * time.Millisecond
	reopenMost  = 2 * time.Second
)

// frameSize suffices for all read messages: those of neighbor discovery are short.
const frameSize = 2048

type openWire struct {
	wire     Wire // nil while it is not open
	openedAt time.Time
	retryAt  time.Time
	backoff  time.Duration
	joined   []netip.Addr
	mute     bool   // a failure of sending was logged
	trouble  string // last logged failure
}

// keepWires opens the required wires and closes all others. It returns when to retry, if at all.
func (r *Responder) keepWires(ctx context.Context) (again time.Time) {
	r.mu.Lock()
	needed := r.protocol.needed()
	links := make(map[wireKey]Link, len(needed))
	joins := make(map[wireKey][]netip.Addr, len(needed))
	for key, holdings := range needed {
		links[key] = holdings[0].link
		for _, h := range holdings {
			joins[key] = append(joins[key], h.Address)
		}
	}
	for key, w := range r.wires {
		if _, stays := needed[key]; !stays {
			w.close()
			delete(r.wires, key)
			r.protocol.closed(key)
		}
	}
	r.mu.Unlock()
	for key, link := range links {
		at := r.keepWire(ctx, key, link, joins[key])
		if !at.IsZero() && (again.IsZero() || at.Before(again)) {
			again = at
		}
	}
	return again
}

// keepWire opens a wire if it is not open. It returns when to retry, like keepWires.
func (r *Responder) keepWire(
	ctx context.Context, key wireKey, link Link, joins []netip.Addr,
) (again time.Time) {
	r.mu.Lock()
	w := r.wires[key]
	if w == nil {
		w = &openWire{backoff: reopenFirst}
		r.wires[key] = w
	}
	before, retryAt, joined := w.wire, w.retryAt, w.joined
	r.mu.Unlock()
	wire := before
	if wire == nil {
		if time.Now().Before(retryAt) {
			return retryAt
		}
		opened, err := r.open(ctx, link, key.family)
		if err != nil {
			return r.failed(key, w, before, fmt.Errorf("opening a socket for %s: %w", key, err))
		}
		wire = opened
	}
	if key.family == addresses.IPv6 && !slices.Equal(joins, joined) {
		if err := wire.Join(joins); err != nil {
			defer func() { _ = wire.Close() }()
			return r.failed(key, w, before, fmt.Errorf("joining multicast groups for %s: %w", key, err))
		}
	}
	r.use(key, w, wire, joins)
	return time.Time{}
}

func (k wireKey) String() string {
	if k.family == addresses.IPv4 {
		return "ARP on interface " + k.link
	}
	return "neighbor discovery on interface " + k.link
}

func (r *Responder) use(key wireKey, w *openWire, wire Wire, joined []netip.Addr) {
	r.with(func(p *protocol, now time.Time) {
		if w.wire == wire {
			w.joined = joined
			return
		}
		w.joined = joined
		w.wire, w.openedAt, w.mute = wire, now, false
		p.opened(now, key)
		r.readers.Go(func() { r.read(key, w, wire) })
	})
}

// read handles the frames of a wire until it fails or is closed.
func (r *Responder) read(key wireKey, w *openWire, wire Wire) {
	buffer := make([]byte, frameSize)
	for {
		n, err := wire.Receive(buffer)
		if err != nil {
			r.failed(key, w, wire, fmt.Errorf("reading %s: %w", key, err))
			_ = wire.Close()
			return
		}
		if m, ok := Parse(buffer[:n]); ok {
			r.with(func(p *protocol, now time.Time) { p.receive(now, key.link, m) })
		}
	}
}

// failed drops a failed wire, unless it was replaced or closed before, and returns when to reopen
// it. The interval grows while the wire fails immediately.
func (r *Responder) failed(key wireKey, w *openWire, failed Wire, why error) (again time.Time) {
	r.with(func(p *protocol, now time.Time) {
		if r.wires[key] != w || w.wire != failed {
			return
		}
		if !w.openedAt.IsZero() && now.Sub(w.openedAt) > reopenMost {
			w.backoff, w.trouble = reopenFirst, ""
		}
		w.wire, w.joined, w.openedAt = nil, nil, time.Time{}
		again = now.Add(w.backoff)
		w.retryAt = again
		w.backoff = min(2*w.backoff, reopenMost)
		if w.trouble != why.Error() {
			w.trouble = why.Error()
			r.logger.Error(why, "Addresses cannot be held on an interface", "interface", key.link)
		}
		p.failed(now, key, why.Error())
		p.sooner = true
	})
	return again
}

// send sends a frame once: announcements, probes and the requests of neighbors are repeated.
func (r *Responder) send(f Frame) {
	w := r.wires[f.key]
	if w == nil || w.wire == nil {
		return
	}
	frame, err := f.Ethernet()
	if err == nil {
		err = w.wire.Send(frame)
	}
	if err != nil && !w.mute {
		w.mute = true
		r.logger.Error(err, "Sending failed; more failures on this interface are not logged",
			"interface", f.key.link, "address", f.Address, "frame", f.Kind)
	}
}

func (r *Responder) closeAll() {
	r.mu.Lock()
	for key, w := range r.wires {
		w.close()
		delete(r.wires, key)
		r.protocol.closed(key)
	}
	r.mu.Unlock()
	r.readers.Wait()
}

func (w *openWire) close() {
	if w.wire != nil {
		_ = w.wire.Close()
	}
}
