package controller

import (
	"container/list"
	"context"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

// comeback is how long a new Node whose name has prefixes in quarantine waits for its provider
// ID, which reports whether it is the same machine. The node controller sets it within seconds.
const comeback = 30 * time.Second

// decider owns the Ledger and all that is known about Nodes. Only the goroutine in loop uses it.
type decider struct {
	Config
	lister  corelisters.NodeLister
	metrics *ipamMetrics
	queue   workqueue.TypedRateLimitingInterface[string]
	store   store

	ledger  *ipam.Ledger
	file    *ledgerFiles
	writing bool           // an order is on its way
	written *rate.Limiter  // bytes of orders
	pause   wait.DelayFunc // between writes that fail; nil: the last one didn't
	nodes   map[types.UID]*node
	byName  map[string][]*node
	ready   []*node // have something to be requested, in order
	notices []notice
	waiting waitlist // can't be given anything, longest first
	freed   bool     // something became free since the waiting last tried

	alarm   *time.Timer
	due     time.Time // when it goes off; zero: never
	other   otherAllocator
	loaded  bool // the stored ledger was read once
	damaged bool // and could not be understood the last time
	refused bool // a shard was not allowed to be written
	routes  routesSeen
	// oversized: what is held doesn't fit into the stored ledger.
	oversized bool
	// vacated: an address that was inside the pools is no Node's any more.
	vacated  bool
	shown    []ipam.Counts
	counted  time.Time // when the pools were counted last
	departed departures
	stale    bool // departed is
}

// phase is how far a Node is.
type phase int

const (
	unserved      phase = iota // without podCIDRs, as far as is known: it waits, or has a reservation
	settled                    // its podCIDRs were observed and never change: nothing is left to do
	released                   // said to be gone, here or in the stored ledger; what it had is in quarantine
	confirmedGone              // released, and the API server told this process that it doesn't exist
)

// delivery is whether a request with a Node's reservation was sent.
type delivery int

const (
	unsent    delivery = iota
	maybeSent          // by whoever recorded the reservation
	sent               // by this process
)

// node is what the decider knows about one UID.
type node struct {
	ipam.Node
	created time.Time // by the API server's clock
	met     time.Time // when this process saw it first
	labels  map[string]string
	own     ownPrefix

	phase    phase
	delivery delivery
	cached   bool // the informer has shown it; before, only the API server knows whether it exists
	busy     bool // it is in ready, or a worker has it
	doubt    bool // an earlier request may have been applied
	told     map[string]bool
	said     string        // the reason of the condition that was last written
	saying   bool          // that is on its way
	inside   []netip.Addr  // its addresses that lie in pools, as many as count
	excess   string        // that it names more addresses than count; empty: it doesn't
	since    time.Time     // when this process saw first that it is gone
	until    time.Time     // how long its quarantine lasts, on this process's monotonic clock
	stopped  time.Time     // since when it has waited for another allocator to be gone
	place    *list.Element // among the waiting; nil: it doesn't wait
}

// gone reports whether the Node is said to exist no more.
func (n *node) gone() bool { return n.phase == released || n.phase == confirmedGone }

// traffic is what the decider's goroutine exchanges with the others.
type traffic struct {
	names    chan string
	jobs     chan job
	findings chan finding
	orders   chan order
	receipts chan receipt
}

func newDecider(cfg Config, ledger *ipam.Ledger, m *ipamMetrics, queue workqueue.TypedRateLimitingInterface[string]) *decider {
	return &decider{
		Config: cfg, lister: cfg.Nodes.Lister(), metrics: m, queue: queue,
		store: store{cfg.Client, cfg.Namespace}, ledger: ledger,
		written: rate.NewLimiter(writeRate, writeBurst),
		nodes:   map[types.UID]*node{}, byName: map[string][]*node{},
	}
}

// loop decides until the context ends, or until the stored ledger contradicts the configuration.
func (d *decider) loop(ctx context.Context, t traffic) error {
	d.alarm = time.NewTimer(time.Second)
	defer d.alarm.Stop()
	for {
		d.vacate(ctx)
		d.wake(ctx)
		pause := d.show()
		jobs, next := t.jobs, job{}
		if !d.next(ctx, &next) {
			jobs = nil
		}
		if d.storedAgain() {
			if err := d.load(ctx, stored{}); err != nil {
				return err
			}
			continue
		}
		if o, ok, wait := d.order(ctx); ok {
			d.writing = true
			t.orders <- o // has room: there is never more than one
		} else if wait > 0 && (pause == 0 || wait < pause) {
			pause = wait
		}
		var later <-chan time.Time
		if pause > 0 {
			later = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case name := <-t.names:
			d.decide(ctx, name)
			d.queue.Done(name)
		case f := <-t.findings:
			d.takeResult(ctx, f)
		case jobs <- next:
			d.started(next)
		case r := <-t.receipts:
			if err := d.receive(ctx, r); err != nil {
				return err
			}
		case <-d.alarm.C:
			d.expire(ctx)
		case <-later:
		}
	}
}

// decide compares one name in the cache with what is known, and does what follows.
func (d *decider) decide(ctx context.Context, name string) {
	if name == serviceRangesKey {
		d.exclude(ctx)
		return
	}
	// The lister's only error is that the Node is not in the cache.
	live, err := d.lister.Get(name)
	if err != nil {
		live = nil
	}
	for _, n := range slices.Clone(d.byName[name]) {
		switch {
		case n.gone(), live != nil && string(live.UID) == n.UID:
		case n.cached:
			d.forget(ctx, n)
		default:
			// Known from elsewhere only: the cache may simply be older.
			d.request(n)
		}
	}
	if live == nil {
		return
	}
	n := d.track(live)
	n.cached = true
	d.occupies(ctx, n, live)
	switch {
	case n.gone():
		// Declared gone, but here it is: the cache may be older, or the stored
		// ledger was edited. Only the API server knows.
		d.request(n)
	case kube.HasPodCIDRs(live):
		d.observe(ctx, n, live)
		d.say(n, live, "")
	case live.DeletionTimestamp != nil:
		d.stopWaiting(n)
	case !n.busy:
		d.reserve(ctx, n)
	}
}

// reserve assigns prefixes to a Node and has them recorded and written, or lets it wait.
func (d *decider) reserve(ctx context.Context, n *node) {
	if d.awaitsIdentity(n) || d.awaitsRoutes(ctx, n) {
		return
	}
	if reason, err := d.assign(n); err != nil {
		d.wait(ctx, n, reason, err)
		return
	}
	d.stopWaiting(n)
	d.request(n)
}

// assign makes sure that a Node has a reservation, or says why it can't have one.
func (d *decider) assign(n *node) (reason string, err error) {
	if left, stop := d.other.stop(n, time.Now()); stop {
		d.queue.AddAfter(n.Name, max(left, time.Second))
		return reasonSecondAllocator, errSecondAllocator
	}
	held, known := d.ledger.Lookup(n.UID)
	if !known && d.full() {
		return reasonLedgerFull, errLedgerFull
	}
	if d.asksOwn(n, held) {
		return "", nil // jobFor has it found out
	}
	prefixes, err := d.ledger.Assign(n.Node, d.offered(n))
	if err != nil {
		return reasonOfRefusal(err), err
	}
	if !known || !slices.Equal(held.Prefixes, prefixes) {
		d.succeed(n)
		d.changed(n)
		d.tellFallback(n, prefixes)
	}
	return "", nil
}

// succeed drops the Nodes of the same name whose prefixes this one took over.
func (d *decider) succeed(n *node) {
	for _, same := range slices.Clone(d.byName[n.Name]) {
		if _, held := d.ledger.Lookup(same.UID); same.gone() && !held {
			d.drop(same)
			d.stale = true
		}
	}
}

// awaitsIdentity reports whether a Node may be a machine that was here before, which its provider
// ID will show. It comes back then, or when it has waited long enough.
func (d *decider) awaitsIdentity(n *node) bool {
	if slices.ContainsFunc(d.byName[n.Name], func(o *node) bool { return o != n && !o.gone() && !o.cached }) {
		return true // the API server is asked about that one; what it had is in quarantine then
	}
	if n.ProviderID != "" {
		return false
	}
	left := comeback - n.age()
	if left <= 0 || !slices.ContainsFunc(d.byName[n.Name], func(o *node) bool { return o.gone() && o.ProviderID != "" }) {
		return false
	}
	d.queue.AddAfter(n.Name, max(left, time.Second))
	return true
}

// request queues a Node for the workers.
func (d *decider) request(n *node) {
	if !n.busy {
		n.busy = true
		d.ready = append(d.ready, n)
	}
}

// next describes the first job that is still of use. Only here, where it goes out, is decided
// what it writes: another Node may have turned up with the reserved prefix meanwhile, and what
// isn't recorded doesn't go out.
func (d *decider) next(ctx context.Context, j *job) bool {
	for len(d.ready) > 0 {
		n := d.ready[0]
		if d.nodes[types.UID(n.UID)] == n {
			if !n.cached || n.gone() {
				*j = job{node: n.Node}
				return true
			}
			if n.phase != settled && d.jobFor(ctx, n, j) {
				return true
			}
		}
		n.busy = false
		d.ready = d.ready[1:]
	}
	if d.other.ask {
		*j = job{policy: true}
		return true
	}
	if len(d.notices) > 0 {
		*j = job{node: d.notices[0].node.Node, notice: &d.notices[0]}
		return true
	}
	return false
}

// jobFor describes what is to be asked for a Node without podCIDRs, if it is its turn.
func (d *decider) jobFor(ctx context.Context, n *node, j *job) bool {
	reason, err := d.assign(n)
	if err != nil {
		d.wait(ctx, n, reason, err)
		return false
	}
	held, _ := d.ledger.Lookup(n.UID)
	if d.asksOwn(n, held) {
		live, err := d.lister.Get(n.Name)
		if err != nil || string(live.UID) != n.UID {
			return false
		}
		*j = job{node: n.Node, locate: live}
		return true
	}
	if !d.recorded(n.Node) {
		d.changed(n) // receive asks for it again once it is recorded
		return false
	}
	*j = job{node: n.Node, write: held.Prefixes, look: n.doubt}
	return true
}

// started notes that a worker took the job that next described.
func (d *decider) started(j job) {
	switch {
	case j.policy:
		d.other.ask, d.other.asked = false, time.Now()
		return
	case j.notice != nil:
		d.notices = d.notices[1:]
		return
	}
	if len(j.write) > 0 {
		d.ready[0].delivery = sent
	}
	d.ready = d.ready[1:]
}
