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
	// former are the holders that the address may still be routed to although their Nodes are
	// deleted: a request with a lost reply may have been carried out.
	former []string
}

func (d destination) from(current string) addresses.Destination {
	return addresses.Destination{
		ProviderID: d.providerID, Planned: d.serving[current], Former: d.former,
	}
}

// sends reports whether the request from the current destination is the same as that of other.
func (d destination) sends(other destination, current string) bool {
	return d.providerID == other.providerID && d.serving[current] == other.serving[current] &&
		slices.Equal(d.former, other.former)
}

func (d destination) same(other destination) bool {
	return d.providerID == other.providerID && maps.Equal(d.serving, other.serving)
}

// routeWorkers limits the number of concurrent requests.
const routeWorkers = 16

// routing routes the addresses of a mover to their holders. Its queue has a key for each address:
// addresses of a failed node move concurrently, but requests for one address never overlap. An API
// may take a minute for a change that a node makes at once.
type routing struct {
	mover addresses.Mover
	Routing
	metrics  *controllerMetrics
	announce func(mover addresses.Mover, address netip.Addr, d destination, err error)
	changed  func()                                           // on new outcomes
	queue    workqueue.TypedRateLimitingInterface[netip.Addr] // the zero Addr triggers list
	settled  time.Time

	mu       sync.Mutex
	wanted   map[netip.Addr]destination
	routes   map[netip.Addr]string // current routes, without unknown and unrouted addresses
	known    bool                  // the last Routed call succeeded
	landed   map[netip.Addr]bool   // routed since the last Routed call began: routes is newer
	failures map[netip.Addr]failure
	// outcomes are results that no pass has used yet; true if refused.
	outcomes map[outcome]bool
}

// failure is the last failed request for an address, until it is routed to its holder.
type failure struct {
	from     string // last observed route; the address has it or is routed to its holder
	reported string
	// stays is set if every node would be refused. Only a change outside the cluster helps, so the
	// request is retried after the next Routed call.
	stays bool
}

func newRouting(
	mover addresses.Mover, r Routing, m *controllerMetrics,
	announce func(addresses.Mover, netip.Addr, destination, error), changed func(),
) *routing {
	retries := workqueue.NewTypedItemExponentialFailureRateLimiter[netip.Addr](firstRouteRetry,
		lastRouteRetry)
	return &routing{
		mover: mover, Routing: r, metrics: m, announce: announce, changed: changed,
		queue:  workqueue.NewTypedRateLimitingQueue(retries),
		routes: make(map[netip.Addr]string), landed: make(map[netip.Addr]bool),
		failures: make(map[netip.Addr]failure), outcomes: make(map[outcome]bool),
	}
}

// want takes the desired destinations from a plan, which must be stored.
func (r *routing) want(p plan) {
	former := make(map[netip.Addr][]string)
	for _, m := range p.moves {
		if p.why[m.Address] == whyGone {
			former[m.Address] = []string{m.From}
		}
	}
	wanted := make(map[netip.Addr]destination)
	for _, e := range p.ledger.Entries() {
		pool, _ := poolOf(p.pools, e.Address)
		m, there := p.fleet.member(e.Holder)
		if pool.Mover != r.mover || len(e.Shares) == 0 || !there || m.providerID == "" {
			continue
		}
		d := destination{
			providerID: m.providerID, node: m.name, serving: p.serves(e.Address), former: former[e.Address],
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

// set replaces the desired destinations and queues those that changed.
func (r *routing) set(wanted map[netip.Addr]destination) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for address, d := range wanted {
		before, known := r.wanted[address]
		// The old route may exist until the address is routed to a new holder.
		d.former = slices.Concat(before.former, d.former)
		wanted[address] = d
		if known && before.same(d) {
			continue
		}
		f, failed := r.failures[address]
		if known && failed && before.sends(d, f.from) {
			continue // the same request: it is retried later, or after the next list
		}
		r.queue.Forget(address)
		r.queue.Add(address)
		if !r.known {
			r.queue.Add(netip.Addr{})
		}
	}
	for address := range r.failures {
		if _, still := wanted[address]; !still {
			r.queue.Forget(address)
			delete(r.failures, address)
		}
	}
	r.wanted = wanted
}

// serves returns the provider IDs of the nodes that may hold an address, also of draining nodes.
func (p *plan) serves(address netip.Addr) map[string]bool {
	may := p.eligible[address]
	ids := make(map[string]bool)
	for _, name := range slices.Concat(may.Nodes, may.Leaving, may.Ending, may.Keeping) {
		if m, there := p.fleet.member(name); there {
			ids[m.providerID] = true
		}
	}
	return ids
}

// run routes addresses until ctx is done, and returns when no request is in flight.
func (r *routing) run(ctx context.Context) {
	r.settled = time.Now().Add(routeSettled)
	var workers sync.WaitGroup
	for range routeWorkers {
		workers.Go(func() {
			for {
				address, ended := r.queue.Get()
				switch {
				case ended:
					return
				case ctx.Err() != nil:
				case address.IsValid():
					r.route(ctx, address)
				default:
					r.list(ctx)
				}
				r.queue.Done(address)
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	workers.Wait()
}

// list reads all routes. While that fails, no address is routed.
func (r *routing) list(ctx context.Context) {
	r.mu.Lock()
	clear(r.landed)
	r.mu.Unlock()
	now := time.Now()
	limited, cancel := context.WithTimeout(ctx, routeTimeout)
	routes, err := r.Routed(limited)
	cancel()
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known = err == nil; !r.known {
		r.metrics.unrouted.WithLabelValues(string(r.mover)).Inc()
		klog.FromContext(ctx).Error(err, "Where addresses lead is not known, will retry", "mover",
			r.mover)
		r.queue.AddRateLimited(netip.Addr{})
		return
	}
	before := r.routes
	r.routes = maps.Clone(routes)
	if r.routes == nil {
		r.routes = make(map[netip.Addr]string)
	}
	for address := range r.landed {
		delete(r.routes, address)
		if to, known := before[address]; known {
			r.routes[address] = to
		}
	}
	next := now.Add(routeDrift)
	if now.Before(r.settled) {
		next = r.settled
	}
	r.queue.Forget(netip.Addr{})
	r.queue.AddAfter(netip.Addr{}, time.Until(next))
	for address := range r.wanted {
		r.queue.Add(address)
	}
}

// route routes an address to its holder if it is routed elsewhere.
func (r *routing) route(ctx context.Context, address netip.Addr) {
	r.mu.Lock()
	d, from, needed := r.needed(address)
	r.mu.Unlock()
	if !needed {
		return
	}
	limited, cancel := context.WithTimeout(ctx, routeTimeout)
	err := r.Route(limited, address, d.from(from))
	cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.landed[address] = true
	if err != nil {
		delete(r.routes, address) // the request may have succeeded
		if ctx.Err() == nil {
			r.failed(ctx, address, d, from, err)
		}
		return
	}
	klog.FromContext(ctx).Info("An address leads to another node", "address", address, "node", d.node,
		"mover", r.mover)
	r.routes[address] = d.providerID
	r.arrived(address, d)
}

// needed returns the desired destination, the current route and whether a request is needed.
func (r *routing) needed(address netip.Addr) (d destination, from string, needed bool) {
	d, wanted := r.wanted[address]
	if !wanted || !r.known {
		return d, "", false
	}
	from, known := r.routes[address]
	if !known {
		from = r.failures[address].from
	} else if from == d.providerID {
		r.arrived(address, d)
		return d, from, false
	}
	return d, from, true
}

// arrived drops the failures and the former holder of an address that is routed to a holder.
func (r *routing) arrived(address netip.Addr, to destination) {
	r.outcomes[outcome{address, to.node}] = false
	r.queue.Forget(address)
	delete(r.failures, address)
	if d, still := r.wanted[address]; still && len(d.former) > 0 {
		d.former = nil
		if d.providerID != to.providerID {
			d.former = []string{to.node} // its Node may be deleted by now, too
		}
		r.wanted[address] = d
	}
}

// failed schedules a retry and sends Events to the Services of an address, once per cause.
func (r *routing) failed(
	ctx context.Context, address netip.Addr, d destination, from string, err error,
) {
	r.metrics.unrouted.WithLabelValues(string(r.mover)).Inc()
	klog.FromContext(ctx).Error(err, "An address was not led to its node, will retry",
		"address", address, "node", d.node, "mover", r.mover)
	f := failure{from: from, reported: d.node + ": " + err.Error()}
	if refusal, ok := errors.AsType[*addresses.Unrouted](err); ok {
		f.stays = refusal.About == addresses.AboutAddress
		if !f.stays {
			r.outcomes[outcome{address, d.node}] = true
			r.changed()
		}
	}
	if f.reported != r.failures[address].reported {
		r.announce(r.mover, address, d, err)
	}
	if _, still := r.wanted[address]; !still {
		return
	}
	r.failures[address] = f
	if !f.stays {
		r.queue.AddRateLimited(address)
	}
}

func (r *routing) takeOutcomes() map[outcome]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.outcomes
	r.outcomes = make(map[outcome]bool)
	return taken
}

// steady returns a function that reports whether an address may be balanced: it has the desired
// route and the provider accepts requests. Otherwise ledger and routes would only diverge.
func (r *routing) steady() func(netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pending, steady := make(map[netip.Addr]bool), r.known
	for address, d := range r.wanted {
		if r.routes[address] != d.providerID {
			pending[address] = true
			steady = steady && r.failures[address].stays
		}
	}
	return func(address netip.Addr) bool { return steady && !pending[address] }
}

func (c *Controller) announceRouting(
	mover addresses.Mover, address netip.Addr, d destination, err error,
) {
	for _, svc := range d.services {
		c.recorder.Eventf(svc, corev1.EventTypeWarning, reasonRouting,
			"%s: %s was not led to node %s, will retry: %s",
			mover, address, d.node, cut(err.Error(), longest))
	}
}
