package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
)

const (
	// routeDrift is how often a router is asked where addresses lead, at rest.
	routeDrift = 5 * time.Minute
	// routeSettled is when it is asked for the first time again after the start: a process that led
	// before may have had a request under way.
	routeSettled = 30 * time.Second
	// routeTimeout bounds one request; Robot takes up to a minute.
	routeTimeout = 2 * time.Minute
	// An address that was not led to its node is led again after this long.
	firstRouteRetry, lastRouteRetry = time.Second, time.Minute
)

// destination is where an address is to lead, and the Services that hear when it does not.
type destination struct {
	providerID, node string
	services         []*corev1.Service
	// serving are the provider IDs of the nodes that may hold it for now. From one of them a move is
	// planned, and may be put off.
	serving map[string]bool
	// former is the node that held it before, if that is gone.
	former string
}

// from is what a router is told of a move from where the address leads.
func (d destination) from(leads string) addresses.Destination {
	return addresses.Destination{ProviderID: d.providerID, Planned: d.serving[leads], Former: d.former}
}

// same reports whether there is nothing to do anew.
func (d destination) same(other destination) bool {
	return d.providerID == other.providerID && maps.Equal(d.serving, other.serving)
}

// routing keeps the addresses of one mover where they are to be. It has its own goroutine, and each
// address that is on its way one more: an API may take a minute for what a node does at once, and
// addresses of a node that died go all at the same time.
type routing struct {
	mover string
	Routing
	metrics  *controllerMetrics
	announce func(mover string, address netip.Addr, d destination, err error)
	changed  func() // outcomes has more
	woken    chan struct{}

	mu     sync.Mutex
	wanted map[netip.Addr]destination
	standing

	// run has these to itself.
	leads  map[netip.Addr]string // as it is; an address that is missing: not known, or nowhere
	read   time.Time             // when that was asked for; zero: never
	begun  time.Time
	delay  time.Duration // until it is asked for again after that failed
	flying map[netip.Addr]bool
	landed chan flight
	tries  map[netip.Addr]try
}

// flight is an address on its way, and what became of it.
type flight struct {
	address netip.Addr
	to      destination
	from    string
	told    addresses.Destination
	err     error
}

// try is when an address that was not led to its node is led again.
type try struct {
	to    addresses.Destination
	from  string // where it led when it was last known; it leads there or to its node
	delay time.Duration
	next  time.Time
	told  string
	// stays: it is the same for every node. Only somebody else can change that, which the next look
	// shows, so it is tried again after that one; seen is the last look before it was refused.
	stays bool
	seen  time.Time
}

// waits reports whether it is too early to lead the address to the same destination again.
func (t try) waits(now, read time.Time) bool {
	if t.stays {
		return read.Equal(t.seen)
	}
	return now.Before(t.next)
}

// mostFlying bounds how many addresses are on their way at a time.
const mostFlying = 16

func newRouting(
	mover string, r Routing, m *controllerMetrics, announce func(string, netip.Addr, destination, error), changed func(),
) *routing {
	return &routing{
		mover: mover, Routing: r, metrics: m, announce: announce, changed: changed, woken: make(chan struct{}, 1),
		flying: make(map[netip.Addr]bool), landed: make(chan flight), tries: make(map[netip.Addr]try),
	}
}

// want takes over what a plan says, which is stored by now.
func (r *routing) want(p plan) {
	wanted := make(map[netip.Addr]destination)
	for _, e := range p.ledger.Entries() {
		pool, _ := poolOf(p.pools, e.Address)
		m, there := p.fleet.member(e.Holder)
		if pool.Mover != r.mover || len(e.Shares) == 0 || !there || m.providerID == "" {
			continue
		}
		d := destination{
			providerID: m.providerID, node: m.name, serving: p.serves(e.Address), former: r.former(p, e),
		}
		for _, s := range e.Shares {
			if svc := p.services[types.UID(s.UID)]; svc != nil {
				d.services = append(d.services, svc)
			}
		}
		wanted[e.Address] = d
	}
	r.mu.Lock()
	changed := r.wanted == nil || !maps.EqualFunc(r.wanted, wanted, destination.same)
	r.wanted = wanted
	r.mu.Unlock()
	if changed {
		select {
		case r.woken <- struct{}{}:
		default:
		}
	}
}

// serves are the provider IDs of the nodes that may hold an address, those that drain too.
func (p *plan) serves(address netip.Addr) map[string]bool {
	may := p.eligible[address]
	ids := make(map[string]bool)
	for _, name := range slices.Concat(may.Nodes, may.Leaving, may.Keeping) {
		if m, there := p.fleet.member(name); there {
			ids[m.providerID] = true
		}
	}
	return ids
}

// former is the node that is gone and held an address before the plan moved it. It is known until
// the address has another one, as it may lead there until then.
func (r *routing) former(p plan, e addresses.Entry) string {
	for _, m := range p.moves {
		if m.Address == e.Address && p.why[m.Address] == whyGone {
			return m.From
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted[e.Address].former
}

// run routes what differs until the context ends, and returns when nothing is on its way any more.
func (r *routing) run(ctx context.Context) {
	r.begun = time.Now()
	var flights sync.WaitGroup
	defer flights.Wait()
	for {
		var again <-chan time.Time
		var timer *time.Timer
		if d := r.wait(time.Now()); d > 0 {
			timer = time.NewTimer(d)
			again = timer.C
		}
		select {
		case <-ctx.Done():
		case <-r.woken:
		case <-again:
		case f := <-r.landed:
			r.land(ctx, f)
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
		r.pass(ctx, &flights)
	}
}

// wait is how long nothing is to be done; 0: until something is wanted, or lands.
func (r *routing) wait(now time.Time) time.Duration {
	var next time.Time
	switch {
	case r.delay > 0:
		return r.delay // before that nothing is led
	case r.read.IsZero():
	case r.read.Before(r.begun.Add(routeSettled)):
		next = r.begun.Add(routeSettled)
	default:
		next = r.read.Add(routeDrift)
	}
	for address, t := range r.tries {
		if !r.flying[address] && !t.stays && (next.IsZero() || t.next.Before(next)) {
			next = t.next
		}
	}
	if next.IsZero() {
		return 0
	}
	return max(next.Sub(now), time.Millisecond)
}

// pass leads every address that leads elsewhere to its node.
func (r *routing) pass(ctx context.Context, flights *sync.WaitGroup) {
	now := time.Now()
	r.mu.Lock()
	wanted := maps.Clone(r.wanted)
	r.mu.Unlock()
	if len(wanted) == 0 && r.read.IsZero() {
		return // nothing was ever wanted: nobody is asked
	}
	settled := r.begun.Add(routeSettled)
	if r.read.IsZero() || now.Sub(r.read) >= routeDrift || r.read.Before(settled) && !now.Before(settled) {
		if err := r.look(ctx); err != nil {
			r.failed(ctx, err)
			r.stand(nil)
			return
		}
	}
	r.delay = 0
	maps.DeleteFunc(r.tries, func(a netip.Addr, _ try) bool {
		d, still := wanted[a]
		led := still && r.leads[a] == d.providerID
		if led {
			r.hear(a, d.node, false)
		}
		return !r.flying[a] && (!still || led)
	})
	astray := make(map[netip.Addr]bool)
	defer func() { r.stand(astray) }()
	for _, address := range slices.SortedFunc(maps.Keys(wanted), netip.Addr.Compare) {
		d := wanted[address]
		t := r.tries[address]
		from, known := r.leads[address]
		if !known {
			from = t.from
		}
		to := d.from(from)
		waiting := t.to == to && t.waits(now, r.read)
		if from == d.providerID && known {
			r.arrived(address)
			continue
		}
		astray[address] = t.stays
		if r.flying[address] || waiting || len(r.flying) == mostFlying {
			continue
		}
		r.flying[address] = true
		flights.Go(func() {
			f := flight{address, d, from, to, r.route(ctx, address, to)}
			select {
			case r.landed <- f:
			case <-ctx.Done():
			}
		})
	}
}

// arrived forgets who held an address before: it leads to the one that does.
func (r *routing) arrived(address netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d, still := r.wanted[address]; still {
		d.former = ""
		r.wanted[address] = d
	}
}

// land takes in what became of an address that was on its way.
func (r *routing) land(ctx context.Context, f flight) {
	delete(r.flying, f.address)
	if f.err != nil {
		delete(r.leads, f.address) // it may have been done all the same
		r.refused(ctx, f)
		return
	}
	klog.FromContext(ctx).Info("An address leads to another node", "address", f.address, "node", f.to.node, "mover", r.mover)
	r.hear(f.address, f.to.node, false)
	r.leads[f.address] = f.to.providerID
	delete(r.tries, f.address)
}

// look asks where addresses lead. What is on its way meanwhile is told when it lands.
func (r *routing) look(ctx context.Context) error {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	leads, err := r.Routed(ctx)
	if err != nil {
		return fmt.Errorf("asking where addresses of %s lead: %w", r.mover, err)
	}
	r.leads, r.read = maps.Clone(leads), asked
	if r.leads == nil {
		r.leads = make(map[netip.Addr]string)
	}
	return nil
}

func (r *routing) route(ctx context.Context, address netip.Addr, to addresses.Destination) error {
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	return r.Route(ctx, address, to)
}

func (r *routing) failed(ctx context.Context, err error) {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return
	}
	r.metrics.unrouted.WithLabelValues(r.mover).Inc()
	klog.FromContext(ctx).Error(err, "Where addresses lead is not known, will retry", "mover", r.mover)
	r.delay = min(max(2*r.delay, firstRouteRetry), lastRouteRetry)
}

// refused tells the Services of an address, once for each cause, and puts the next try off.
func (r *routing) refused(ctx context.Context, f flight) {
	if ctx.Err() != nil {
		return
	}
	r.metrics.unrouted.WithLabelValues(r.mover).Inc()
	klog.FromContext(ctx).Error(f.err, "An address was not led to its node, will retry",
		"address", f.address, "node", f.to.node, "mover", r.mover)
	t := r.tries[f.address]
	if t.to != f.told {
		t = try{to: f.told}
	}
	t.from = f.from
	t.delay = min(max(2*t.delay, firstRouteRetry), lastRouteRetry)
	t.next = time.Now().Add(t.delay)
	var refusal *addresses.Unrouted
	about := errors.As(f.err, &refusal)
	t.stays, t.seen = about && refusal.About == addresses.AboutAddress, r.read
	if about && refusal.About == addresses.AboutNode {
		r.hear(f.address, f.to.node, true)
	}
	if text := f.to.node + ": " + f.err.Error(); t.told != text {
		t.told = text
		r.announce(r.mover, f.address, f.to, f.err)
	}
	r.tries[f.address] = t
}
