package layer2

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
)

// Wire sends and receives the Ethernet frames of one family on one link: ARP for IPv4, neighbor
// solicitations and advertisements for IPv6. It must be safe for concurrent use.
type Wire interface {
	// Send sends a whole frame. It does not block: a full queue is an error.
	Send(frame []byte) error
	// Receive waits for a frame and returns its length. After an error the wire is reopened.
	Receive(buffer []byte) (int, error)
	// Join sets the IPv6 addresses whose solicited-node groups the link receives.
	Join(held []netip.Addr) error
	// Close ends Receive.
	Close() error
}

// Open opens a wire.
type Open func(ctx context.Context, link Link, family addresses.Family) (Wire, error)

// Responder holds addresses.
type Responder struct {
	open    Open
	wake    chan struct{}
	readers sync.WaitGroup

	mu       sync.Mutex
	logger   klog.Logger // set by Run
	changed  func()      // set by Run; nil before
	protocol *protocol
	wires    map[wireKey]*openWire
}

// New returns a Responder that holds nothing. It works while Run does. member reports whether a
// hardware address belongs to a cluster member; nil if none does. It must not block, and is called
// rarely.
func New(open Open, member func(net.HardwareAddr) bool) *Responder {
	return &Responder{
		open: open, wake: make(chan struct{}, 1),
		logger: klog.Background(), protocol: newProtocol(member), wires: make(map[wireKey]*openWire),
	}
}

// Set replaces the desired state. It may be called at any time, also before Run.
func (r *Responder) Set(d Desired) {
	r.with(func(p *protocol, now time.Time) { p.set(now, d) })
}

// State returns the state of each address to hold or leave, sorted by address.
func (r *Responder) State() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.protocol.states()
}

// Run answers and announces until ctx is done. It then stops without notice: neighbors keep their
// entries until the next process or holder answers. It calls changed after changes of phases or
// claimants; changed must not block or call the Responder.
func (r *Responder) Run(ctx context.Context, changed func()) {
	r.mu.Lock()
	r.logger, r.changed = klog.FromContext(ctx), changed
	r.mu.Unlock()
	defer r.closeAll()
	for ctx.Err() == nil {
		var next time.Time
		r.with(func(p *protocol, now time.Time) {
			next = r.keepWires(ctx, p, now)
			p.tick(now)
			if at := p.next(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
			p.sooner = false
		})
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-r.wake: // the protocol may be due earlier
		case <-due:
		}
	}
}

// with changes the protocol, sends the resulting frames and logs the notes.
func (r *Responder) with(change func(p *protocol, now time.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.protocol
	change(p, time.Now())
	for _, f := range p.out {
		r.send(f)
	}
	for _, n := range p.notes {
		r.log(n)
	}
	if p.changed && r.changed != nil {
		r.changed()
	}
	if p.sooner {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	p.out, p.notes, p.changed = p.out[:0], nil, false
}

func (r *Responder) log(n note) {
	keys := []any{"address", n.address, "interface", n.link, "epoch", n.epoch}
	if n.by != (MAC{}) {
		keys = append(keys, "by", n.by.String())
	}
	r.logger.Info(n.text, keys...)
}
