package controller

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
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

// mostFlying bounds how many addresses are on their way at a time.
const mostFlying = 16

// routing keeps the addresses of one mover where they are to be. Each is a key of its queue, so that
// addresses of a node that died go all at the same time, and none twice: an API may take a minute for
// what a node does at once.
type routing struct {
	mover string
	Routing
	metrics  *controllerMetrics
	announce func(mover string, address netip.Addr, d destination, err error)
	changed  func()                                       // outcomes has more
	queue    workqueue.TypedDelayingInterface[netip.Addr] // the zero Addr: look where addresses lead
	settled  time.Time

	mu     sync.Mutex
	wanted map[netip.Addr]destination
	leads  map[netip.Addr]string // as it is; an address that is missing: not known, or nowhere
	known  bool                  // the provider tells where addresses lead
	delay  time.Duration         // until it is asked again, while it doesn't
	read   time.Time             // when it was asked
	landed map[netip.Addr]bool   // since then, so that leads is newer than what was read
	tries  map[netip.Addr]try
	// outcomes decided nothing so far; true: refused.
	outcomes map[outcome]bool
}

// try is what became of leading an address to its node, as long as it leads elsewhere.
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

func newRouting(
	mover string, r Routing, m *controllerMetrics, announce func(string, netip.Addr, destination, error), changed func(),
) *routing {
	return &routing{
		mover: mover, Routing: r, metrics: m, announce: announce, changed: changed,
		queue: workqueue.NewTypedDelayingQueue[netip.Addr](),
		leads: make(map[netip.Addr]string), landed: make(map[netip.Addr]bool), tries: make(map[netip.Addr]try),
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
	r.set(wanted)
}

// set has the addresses led that are wanted elsewhere now.
func (r *routing) set(wanted map[netip.Addr]destination) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := !maps.EqualFunc(r.wanted, wanted, destination.same)
	r.wanted = wanted
	if !changed {
		return
	}
	maps.DeleteFunc(r.tries, func(a netip.Addr, _ try) bool { _, still := wanted[a]; return !still })
	if !r.known && len(wanted) > 0 {
		r.queue.Add(netip.Addr{})
	}
	r.add()
}

func (r *routing) add() {
	for address := range r.wanted {
		r.queue.Add(address)
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
	r.settled = time.Now().Add(routeSettled)
	var workers sync.WaitGroup
	for range mostFlying {
		workers.Go(func() {
			for {
				address, ended := r.queue.Get()
				switch {
				case ended:
					return
				case ctx.Err() != nil:
				case address.IsValid():
					r.lead(ctx, address)
				default:
					r.look(ctx)
				}
				r.queue.Done(address)
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	workers.Wait()
}

// look asks where addresses lead. While that is not known, none is led elsewhere.
func (r *routing) look(ctx context.Context) {
	r.mu.Lock()
	clear(r.landed)
	r.mu.Unlock()
	now := time.Now()
	limited, cancel := context.WithTimeout(ctx, routeTimeout)
	leads, err := r.Routed(limited)
	cancel()
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known = err == nil; !r.known {
		r.metrics.unrouted.WithLabelValues(r.mover).Inc()
		klog.FromContext(ctx).Error(err, "Where addresses lead is not known, will retry", "mover", r.mover)
		r.delay = min(max(2*r.delay, firstRouteRetry), lastRouteRetry)
		r.queue.AddAfter(netip.Addr{}, r.delay)
		return
	}
	before := r.leads
	r.leads, r.read, r.delay = make(map[netip.Addr]string), now, 0
	maps.Copy(r.leads, leads)
	for address := range r.landed {
		delete(r.leads, address)
		if led, known := before[address]; known {
			r.leads[address] = led
		}
	}
	next := now.Add(routeDrift)
	if now.Before(r.settled) {
		next = r.settled
	}
	r.queue.AddAfter(netip.Addr{}, time.Until(next))
	r.add()
}

// lead leads an address to its node, if it leads elsewhere.
func (r *routing) lead(ctx context.Context, address netip.Addr) {
	r.mu.Lock()
	d, from, needed := r.needed(address, time.Now())
	r.mu.Unlock()
	if !needed {
		return
	}
	to := d.from(from)
	limited, cancel := context.WithTimeout(ctx, routeTimeout)
	err := r.Route(limited, address, to)
	cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.landed[address] = true
	if err != nil {
		delete(r.leads, address) // it may have been done all the same
		if ctx.Err() == nil {
			r.refused(ctx, address, d, try{to: to, from: from}, err)
		}
		return
	}
	klog.FromContext(ctx).Info("An address leads to another node", "address", address, "node", d.node, "mover", r.mover)
	r.leads[address] = d.providerID
	r.hear(address, d.node, false)
	r.arrived(address, d)
}

// needed is where an address is to lead and where it leads, and whether it is time to change that.
func (r *routing) needed(address netip.Addr, now time.Time) (d destination, from string, needed bool) {
	d, wanted := r.wanted[address]
	if !wanted || !r.known {
		return d, "", false
	}
	t, tried := r.tries[address]
	from, known := r.leads[address]
	switch {
	case !known:
		from = t.from
	case from == d.providerID:
		if tried {
			r.hear(address, d.node, false)
		}
		r.arrived(address, d)
		return d, from, false
	}
	return d, from, t.to != d.from(from) || !t.waits(now, r.read)
}

// arrived forgets tries, and who held an address before, once it leads to the node that does.
func (r *routing) arrived(address netip.Addr, to destination) {
	delete(r.tries, address)
	if d, still := r.wanted[address]; still && d.providerID == to.providerID {
		d.former = ""
		r.wanted[address] = d
	}
}

// refused tells the Services of an address, once for each cause, and puts the next try off.
func (r *routing) refused(ctx context.Context, address netip.Addr, d destination, t try, err error) {
	r.metrics.unrouted.WithLabelValues(r.mover).Inc()
	klog.FromContext(ctx).Error(err, "An address was not led to its node, will retry",
		"address", address, "node", d.node, "mover", r.mover)
	if before := r.tries[address]; before.to == t.to {
		t.delay, t.told = before.delay, before.told
	}
	t.delay = min(max(2*t.delay, firstRouteRetry), lastRouteRetry)
	t.next = time.Now().Add(t.delay)
	var refusal *addresses.Unrouted
	about := errors.As(err, &refusal)
	t.stays, t.seen = about && refusal.About == addresses.AboutAddress, r.read
	if about && refusal.About == addresses.AboutNode {
		r.hear(address, d.node, true)
	}
	if text := d.node + ": " + err.Error(); t.told != text {
		t.told = text
		r.announce(r.mover, address, d, err)
	}
	if _, still := r.wanted[address]; still {
		r.tries[address] = t
		r.queue.AddAfter(address, t.delay)
	}
}
