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
// solicitations and advertisements for IPv6. It is used by several goroutines at once.
type Wire interface {
	// Send sends a whole frame. It does not wait: what the interface has no room for is an error.
	Send(frame []byte) error
	// Receive waits for a frame and returns its length. After an error the wire is closed, and
	// another one opened.
	Receive(buffer []byte) (int, error)
	// Join lets the link pass what is sent to the solicited-node groups of all of these IPv6
	// addresses, and of no others.
	Join(held []netip.Addr) error
	// Close ends Receive.
	Close() error
}

// Config is what a Responder works with.
type Config struct {
	// Open opens a wire.
	Open func(ctx context.Context, link Link, family addresses.Family) (Wire, error)
	// Friend reports whether a hardware address belongs to a machine of the cluster. It is asked
	// seldom, and must not wait. Nil: none does.
	Friend func(net.HardwareAddr) bool
}

// Responder holds addresses.
type Responder struct {
	open    func(ctx context.Context, link Link, family addresses.Family) (Wire, error)
	wake    chan struct{}
	readers sync.WaitGroup

	mu       sync.Mutex
	logger   klog.Logger // of Run
	changed  func()      // of Run; nil: it was not called yet
	protocol *protocol
	wires    map[wireKey]*openWire
}

// New makes a Responder that holds nothing. It works while Run does.
func New(cfg Config) *Responder {
	return &Responder{
		open: cfg.Open, wake: make(chan struct{}, 1),
		logger: klog.Background(), protocol: newProtocol(cfg.Friend), wires: make(map[wireKey]*openWire),
	}
}

// Set says what is desired, as a whole. It may be called at any time, again and again, also before
// Run.
func (r *Responder) Set(d Desired) {
	r.with(func(p *protocol, now time.Time) { p.set(now, d) })
}

// State is what the machine does about each address that it is to hold, or leaves, by address.
func (r *Responder) State() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.protocol.states()
}

// Totals are what it has done so far.
func (r *Responder) Totals() Totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.protocol.totals
}

// Run answers and announces until the context ends. Then it falls silent without a word: what is
// held stays held by whoever answers next. It calls changed when phases or claimants have changed;
// changed must return at once and not call the Responder.
func (r *Responder) Run(ctx context.Context, changed func()) {
	r.mu.Lock()
	r.logger, r.changed = klog.FromContext(ctx), changed
	r.mu.Unlock()
	defer r.closeAll()
	for ctx.Err() == nil {
		again := r.keepWires(ctx)
		next := again
		r.with(func(p *protocol, now time.Time) {
			p.tick(now)
			if at := p.next(); !at.IsZero() && (again.IsZero() || at.Before(again)) {
				next = at
			}
			p.sooner = false
		})
		r.wait(ctx, next)
	}
}

// wait ends at the given time, if there is one, and when something may be due sooner.
func (r *Responder) wait(ctx context.Context, until time.Time) {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
	case <-r.wake:
	case <-due:
	}
}

// with lets the protocol go on, and sends and tells what comes of it.
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
