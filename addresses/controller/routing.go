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
	// routeDrift is the interval of reading all routes from a router while nothing changes.
	routeDrift = 5 * time.Minute
	// routeSettled is when the routes are read again after the start: a request of the previous
	// leader may have been in flight.
	routeSettled = 30 * time.Second
	// routeTimeout limits a request; Robot takes up to a minute.
	routeTimeout                    = 2 * time.Minute
	firstRouteRetry, lastRouteRetry = time.Second, time.Minute
)

// destination is the desired destination of an address, and the Services to notify of failures.
type destination struct {
	providerID, node string
	services         []*corev1.Service
	// serving are the provider IDs of the nodes that may hold the address now. A move from one of
	// them is planned, and may be delayed.
	serving map[string]bool
	// former is the previous holder, if its Node is deleted.
	former string
}

func (d destination) from(leads string) addresses.Destination {
	return addresses.Destination{ProviderID: d.providerID, Planned: d.serving[leads], Former: d.former}
}

func (d destination) same(other destination) bool {
	return d.providerID == other.providerID && maps.Equal(d.serving, other.serving)
}

// mostFlying limits the number of concurrent requests.
const mostFlying = 16

// routing routes the addresses of a mover to their holders. Its queue has a key for each address:
// addresses of a failed node move concurrently, but requests for one address never overlap. An API
// may take a minute for a change that a node makes at once.
type routing struct {
	mover string
	Routing
	metrics  *controllerMetrics
	announce func(mover string, address netip.Addr, d destination, err error)
	changed  func()                                       // on new outcomes
	queue    workqueue.TypedDelayingInterface[netip.Addr] // the zero Addr triggers look
	settled  time.Time

	mu     sync.Mutex
	wanted map[netip.Addr]destination
	leads  map[netip.Addr]string // current routes, without unknown and unrouted addresses
	known  bool                  // the last Routed call succeeded
	delay  time.Duration         // backoff of failed Routed calls
	read   time.Time             // start of the last successful Routed call
	landed map[netip.Addr]bool   // routed since the last Routed call began: leads is newer
	tries  map[netip.Addr]try
	// outcomes are results that no pass has used yet; true if refused.
	outcomes map[outcome]bool
}

// try is the state of failed requests for an address, until it is routed to its holder.
type try struct {
	to       addresses.Destination
	from     string // last observed route; the address has it or is routed to its holder
	delay    time.Duration
	next     time.Time
	reported string
	// stays is set if every node would be refused. Only a change outside the cluster helps, so the
	// request is retried after the next Routed call; seen is the start of the last one before it.
	stays bool
	seen  time.Time
}

// waits reports whether it is too early to send the same request again.
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

// want takes the desired destinations from a plan, which must be stored.
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

// set replaces the desired destinations and queues all addresses if any of them changed.
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

// serves returns the provider IDs of the nodes that may hold an address, also of draining nodes.
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

// former returns the deleted node that held an address before its move. It is kept until the
// address is routed to its new holder, as the old route may exist until then.
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

// run routes addresses until ctx is done, and returns when no request is in flight.
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

// look reads all routes. While that fails, no address is routed.
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

// lead routes an address to its holder if it is routed elsewhere.
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
		delete(r.leads, address) // the request may have succeeded
		if ctx.Err() == nil {
			r.refused(ctx, address, d, try{to: to, from: from}, err)
		}
		return
	}
	klog.FromContext(ctx).Info("An address leads to another node", "address", address, "node", d.node, "mover", r.mover)
	r.leads[address] = d.providerID
	r.observe(address, d.node, false)
	r.arrived(address, d)
}

// needed returns the desired destination, the current route and whether a request is due.
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
			r.observe(address, d.node, false)
		}
		r.arrived(address, d)
		return d, from, false
	}
	return d, from, t.to != d.from(from) || !t.waits(now, r.read)
}

// arrived drops the failures and the former holder of an address that is routed to its holder.
func (r *routing) arrived(address netip.Addr, to destination) {
	delete(r.tries, address)
	if d, still := r.wanted[address]; still && d.providerID == to.providerID {
		d.former = ""
		r.wanted[address] = d
	}
}

// refused schedules a retry and sends Events to the Services of an address, once per cause.
func (r *routing) refused(ctx context.Context, address netip.Addr, d destination, t try, err error) {
	r.metrics.unrouted.WithLabelValues(r.mover).Inc()
	klog.FromContext(ctx).Error(err, "An address was not led to its node, will retry",
		"address", address, "node", d.node, "mover", r.mover)
	if before := r.tries[address]; before.to == t.to {
		t.delay, t.reported = before.delay, before.reported
	}
	t.delay = min(max(2*t.delay, firstRouteRetry), lastRouteRetry)
	t.next = time.Now().Add(t.delay)
	var refusal *addresses.Unrouted
	about := errors.As(err, &refusal)
	t.stays, t.seen = about && refusal.About == addresses.AboutAddress, r.read
	if about && refusal.About == addresses.AboutNode {
		r.observe(address, d.node, true)
	}
	if text := d.node + ": " + err.Error(); t.reported != text {
		t.reported = text
		r.announce(r.mover, address, d, err)
	}
	if _, still := r.wanted[address]; still {
		r.tries[address] = t
		r.queue.AddAfter(address, t.delay)
	}
}
