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
)

const (
	// routeDrift is how often a router is asked where addresses lead, at rest.
	routeDrift = 5 * time.Minute
	// routeSettled is when it is asked for the first time again after the start: a process that led
	// before may have had a request under way.
	routeSettled = 30 * time.Second
	// routeTimeout bounds one request; Robot takes up to a minute.
	routeTimeout                   = 2 * time.Minute
	firstRouteRetry, lastRouteRety = time.Second, 5 * time.Minute
)

// destination is where an address is to lead, and the Services that hear when it does not.
type destination struct {
	providerID, node string
	services         []*corev1.Service
}

// routing keeps the addresses of one mover where they are to be. It has its own goroutine, because
// an API may take a minute for what a node does at once.
type routing struct {
	mover string
	Routing
	metrics  *controllerMetrics
	announce func(mover string, address netip.Addr, d destination, err error)

	mu     sync.Mutex
	wanted map[netip.Addr]destination
	woken  chan struct{}

	// The goroutine has these to itself.
	leads map[netip.Addr]string // as it is; nil: not known
	read  time.Time
	begun time.Time
	delay time.Duration
	told  map[netip.Addr]string
}

func newRouting(mover string, r Routing, m *controllerMetrics, announce func(string, netip.Addr, destination, error)) *routing {
	return &routing{
		mover: mover, Routing: r, metrics: m, announce: announce,
		woken: make(chan struct{}, 1), told: make(map[netip.Addr]string),
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
		d := destination{providerID: m.providerID, node: m.name}
		for _, s := range e.Shares {
			if svc := p.services[types.UID(s.UID)]; svc != nil {
				d.services = append(d.services, svc)
			}
		}
		wanted[e.Address] = d
	}
	r.mu.Lock()
	changed := r.wanted == nil || !maps.EqualFunc(r.wanted, wanted, func(a, b destination) bool { return a.providerID == b.providerID })
	r.wanted = wanted
	r.mu.Unlock()
	if changed {
		select {
		case r.woken <- struct{}{}:
		default:
		}
	}
}

// run routes what differs until the context ends.
func (r *routing) run(ctx context.Context) {
	r.begun = time.Now()
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
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
		r.pass(ctx)
	}
}

// wait is how long nothing is to be done; 0: until something is wanted.
func (r *routing) wait(now time.Time) time.Duration {
	switch {
	case r.delay > 0:
		return r.delay
	case r.read.IsZero():
		return 0
	case r.read.Before(r.begun.Add(routeSettled)):
		return max(r.begun.Add(routeSettled).Sub(now), time.Millisecond)
	}
	return max(r.read.Add(routeDrift).Sub(now), time.Millisecond)
}

// pass leads every address that leads elsewhere to its node.
func (r *routing) pass(ctx context.Context) {
	now := time.Now()
	r.mu.Lock()
	wanted := maps.Clone(r.wanted)
	r.mu.Unlock()
	if len(wanted) == 0 && r.leads == nil {
		return // nothing was ever wanted: nobody is asked
	}
	settled := r.begun.Add(routeSettled)
	if r.leads == nil || now.Sub(r.read) >= routeDrift || r.read.Before(settled) && !now.Before(settled) {
		if err := r.look(ctx); err != nil {
			r.failed(ctx, err)
			return
		}
	}
	var wrong bool
	for _, address := range slices.SortedFunc(maps.Keys(wanted), netip.Addr.Compare) {
		d := wanted[address]
		if r.leads[address] == d.providerID {
			delete(r.told, address)
			continue
		}
		if err := r.route(ctx, address, d.providerID); err != nil {
			if ctx.Err() != nil {
				return
			}
			wrong = true
			r.refused(ctx, address, d, err)
			continue
		}
		klog.FromContext(ctx).Info("An address leads to another node", "address", address, "node", d.node, "mover", r.mover)
		r.leads[address] = d.providerID
		delete(r.told, address)
	}
	if wrong {
		r.leads = nil // an error may mean that it was done all the same
		r.delay = min(max(2*r.delay, firstRouteRetry), lastRouteRety)
		return
	}
	r.delay = 0
}

func (r *routing) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	leads, err := r.Routed(ctx)
	if err != nil {
		return fmt.Errorf("asking where addresses of %s lead: %w", r.mover, err)
	}
	r.leads, r.read = maps.Clone(leads), time.Now()
	if r.leads == nil {
		r.leads = make(map[netip.Addr]string)
	}
	return nil
}

func (r *routing) route(ctx context.Context, address netip.Addr, providerID string) error {
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	return r.Route(ctx, address, providerID)
}

func (r *routing) failed(ctx context.Context, err error) {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return
	}
	r.metrics.unrouted.WithLabelValues(r.mover).Inc()
	klog.FromContext(ctx).Error(err, "Where addresses lead is not known, will retry", "mover", r.mover)
	r.delay = min(max(2*r.delay, firstRouteRetry), lastRouteRety)
}

// refused tells the Services of an address, once for each cause.
func (r *routing) refused(ctx context.Context, address netip.Addr, d destination, err error) {
	r.metrics.unrouted.WithLabelValues(r.mover).Inc()
	klog.FromContext(ctx).Error(err, "An address was not led to its node, will retry", "address", address, "node", d.node, "mover", r.mover)
	if text := d.node + ": " + err.Error(); r.told[address] != text {
		r.told[address] = text
		r.announce(r.mover, address, d, err)
	}
}

// announceRouting makes Events of what a router could not do.
func (c *Controller) announceRouting(mover string, address netip.Addr, d destination, err error) {
	for _, svc := range d.services {
		c.recorder.Eventf(svc, corev1.EventTypeWarning, reasonRouting, "%s: %s was not led to node %s, will retry: %s",
			mover, address, d.node, cut(err.Error(), longest))
	}
}
