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
func (r *Responder) keepWires(ctx context.Context, p *protocol, now time.Time) (again time.Time) {
	needed := p.needed()
	for key, w := range r.wires {
		if _, stays := needed[key]; !stays {
			w.close()
			delete(r.wires, key)
			delete(p.wires, key)
		}
	}
	for key, holdings := range needed {
		w := r.wires[key]
		if w == nil {
			w = &openWire{backoff: reopenFirst}
			r.wires[key] = w
		}
		if w.wire != nil || !now.Before(w.retryAt) {
			if err := r.keepWire(ctx, p, now, key, w, holdings); err != nil {
				r.failed(p, now, key, w, err)
			}
		}
		if w.wire == nil && (again.IsZero() || w.retryAt.Before(again)) {
			again = w.retryAt
		}
	}
	return again
}

// keepWire opens a wire if it is not open, and joins the groups of its addresses.
func (r *Responder) keepWire(
	ctx context.Context, p *protocol, now time.Time, key wireKey, w *openWire, holdings []*holding,
) error {
	opened := w.wire == nil
	if opened {
		wire, err := r.open(ctx, holdings[0].link, key.family)
		if err != nil {
			return fmt.Errorf("opening a socket for %s: %w", key, err)
		}
		w.wire, w.openedAt, w.mute = wire, now, false
	}
	joins := make([]netip.Addr, len(holdings))
	for i, h := range holdings {
		joins[i] = h.Address
	}
	if key.family == addresses.IPv6 && !slices.Equal(joins, w.joined) {
		if err := w.wire.Join(joins); err != nil {
			return fmt.Errorf("joining multicast groups for %s: %w", key, err)
		}
		w.joined = joins
	}
	if opened {
		p.opened(now, key)
		wire := w.wire
		r.readers.Go(func() { r.read(key, w, wire) })
	}
	return nil
}

func (k wireKey) String() string {
	if k.family == addresses.IPv4 {
		return "ARP on interface " + k.link
	}
	return "neighbor discovery on interface " + k.link
}

// read handles the frames of a wire until it fails or is closed.
func (r *Responder) read(key wireKey, w *openWire, wire Wire) {
	buffer := make([]byte, frameSize)
	for {
		n, err := wire.Receive(buffer)
		if err != nil {
			r.with(func(p *protocol, now time.Time) {
				if r.wires[key] == w && w.wire == wire { // not closed before
					r.failed(p, now, key, w, fmt.Errorf("reading %s: %w", key, err))
				}
			})
			return
		}
		if m, ok := Parse(buffer[:n]); ok {
			r.with(func(p *protocol, now time.Time) { p.receive(now, key.link, m) })
		}
	}
}

// failed closes a failed wire. The interval until it is reopened grows while it fails immediately.
func (r *Responder) failed(p *protocol, now time.Time, key wireKey, w *openWire, why error) {
	w.close()
	if !w.openedAt.IsZero() && now.Sub(w.openedAt) > reopenMost {
		w.backoff, w.trouble = reopenFirst, ""
	}
	w.wire, w.joined, w.openedAt = nil, nil, time.Time{}
	w.retryAt = now.Add(w.backoff)
	w.backoff = min(2*w.backoff, reopenMost)
	if w.trouble != why.Error() {
		w.trouble = why.Error()
		r.logger.Error(why, "Addresses cannot be held on an interface", "interface", key.link)
	}
	p.failed(now, key, why.Error())
	p.sooner = true
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
		delete(r.protocol.wires, key)
	}
	r.mu.Unlock()
	r.readers.Wait()
}

func (w *openWire) close() {
	if w.wire != nil {
		_ = w.wire.Close()
	}
}
