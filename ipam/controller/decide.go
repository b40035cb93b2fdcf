package controller

import (
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

// comeback limits how long a new Node waits for its provider ID if its name has prefixes in
// quarantine: the ID shows whether the machine is the same. The node controller sets it within
// seconds.
const comeback = 30 * time.Second

// decider owns the Ledger and the state of all Nodes. Only the goroutine in loop uses it.
type decider struct {
	Config
	lister  corelisters.NodeLister
	metrics *ipamMetrics
	queue   workqueue.TypedRateLimitingInterface[string]
	store   store

	ledger  *ipam.Ledger
	file    *ipam.Files
	objects Stored // the ConfigMaps as last read or written; nil: to be read again

	writing   int            // orders in flight
	written   *rate.Limiter  // limits the bytes of orders
	unwritten error          // of a failed write, until the ledger is read again
	failing   int            // the object of the last failed write
	pause     wait.DelayFunc // between failing writes; nil: the last one succeeded

	nodes   map[types.UID]*node
	byName  map[string][]*node
	ready   []*node // to be requested, in order
	flying  int     // jobs at workers
	notices []notice
	waiting int    // Nodes without a reservation
	turns   uint64 // of the latest Node that began to wait
	freed   bool   // capacity was freed since the waiting Nodes were last tried

	alarm   *time.Timer
	due     time.Time // when alarm fires; zero: never
	other   otherAllocator
	loaded  bool // the stored ledger was loaded once
	damaged bool // it was invalid when last loaded
	routes  routesSeen
	// vacated means that an excluded address within the pools no longer belongs to a Node.
	vacated  bool
	shown    []ipam.Counts
	counted  time.Time // when the pools were last counted
	departed departures
	stale    bool // departed must be updated
}

type phase int

const (
	unserved      phase = iota // no podCIDRs observed: it waits, or has a reservation
	settled                    // its podCIDRs were observed and are immutable; nothing to do
	released                   // deleted, here or by the stored ledger; prefixes in quarantine
	confirmedGone              // released, and confirmed by the API server to this process
)

// delivery is whether a request with a Node's reservation was sent.
type delivery int

const (
	unsent    delivery = iota
	maybeSent          // by the process that recorded the reservation
	sent               // by this process
)

// node is the decider's state of one UID.
type node struct {
	ipam.Node
	created time.Time // by the API server's clock
	met     time.Time // when this process first observed it
	labels  map[string]string
	own     ownPrefix

	phase            phase
	delivery         delivery
	cached           bool // in the informer; until then only a live GET shows whether it exists
	busy             bool // in ready, or at a worker
	doubt            bool // an earlier request may have been applied
	warned           map[string]bool
	shownReason      string       // reason of the last written condition
	writingCondition bool         // a write of the condition is in flight
	inside           []netip.Addr // its counted addresses that lie in pools
	excess           string       // message about addresses beyond the limit; empty: within it
	since            time.Time    // when this process first observed that it is deleted
	until            time.Time    // end of its quarantine, on this process's monotonic clock
	stopped          time.Time    // since when it has waited for another allocator to stop
	turn             uint64       // its place among the waiting ones; 0: not waiting
}

// gone reports whether the Node is recorded as deleted.
func (n *node) gone() bool { return n.phase == released || n.phase == confirmedGone }

type traffic struct {
	names    chan string
	jobs     chan job
	findings chan finding
	orders   chan order
	receipts chan order
}

func newDecider(
	cfg Config, ledger *ipam.Ledger, m *ipamMetrics,
	queue workqueue.TypedRateLimitingInterface[string],
) *decider {
	return &decider{
		Config: cfg, lister: cfg.Nodes.Lister(), metrics: m, queue: queue,
		store: store{cfg.Client, cfg.Namespace}, ledger: ledger,
		written: rate.NewLimiter(writeRate, writeBurst),
		nodes:   map[types.UID]*node{}, byName: map[string][]*node{},
	}
}

// loop runs until the context ends, or until the stored ledger conflicts with the configuration.
func (d *decider) loop(ctx context.Context, t traffic) error {
	d.alarm = time.NewTimer(time.Second)
	defer d.alarm.Stop()
	for {
		d.vacate(ctx)
		d.wake(ctx)
		pause := d.show()
		jobs, next := t.jobs, job{}
		if d.flying == patchWorkers || !d.next(ctx, &next) {
			jobs = nil
		}
		for {
			o, ok, wait := d.order()
			if ok {
				t.orders <- o // never blocks: it has room for as many as may be in flight
				continue
			}
			if wait > 0 && (pause == 0 || wait < pause) {
				pause = wait
			}
			break
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

// decide compares the cached Node of a name with the state and acts on the difference.
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
			// From a source other than the cache, which may just be older.
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
		// Recorded as deleted, but cached: the cache may be older, or the stored ledger was
		// edited. A live GET decides.
		d.request(n)
	case kube.HasPodCIDRs(live):
		d.observe(ctx, n, live)
		d.setCondition(n, live, "")
	case live.DeletionTimestamp != nil:
		d.stopWaiting(n)
	case !n.busy:
		d.reserve(ctx, n)
	}
}

// reserve assigns prefixes to a Node and queues the request for them, or lets the Node wait.
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

// assign ensures that a Node has a reservation, or returns why it can't have one.
func (d *decider) assign(n *node) (reason string, err error) {
	if left, stop := d.other.stop(n, time.Now()); stop {
		d.queue.AddAfter(n.Name, max(left, time.Second))
		return reasonSecondAllocator, errSecondAllocator
	}
	held, observed, known := d.ledger.Held(n.UID)
	if !known && d.full() {
		return reasonLedgerFull, errLedgerFull
	}
	if d.needsOwn(n, observed) {
		return "", nil // jobFor requests the own prefix
	}
	prefixes, err := d.ledger.Assign(n.Node, d.offered(n))
	if err != nil {
		return reasonOfRefusal(err), err
	}
	if !known || !slices.Equal(held, prefixes) {
		d.succeed(n)
		d.changed(n)
		d.warnFallback(n, prefixes)
	}
	return "", nil
}

// succeed drops the states of the same name whose prefixes this Node took over.
func (d *decider) succeed(n *node) {
	for _, same := range slices.Clone(d.byName[n.Name]) {
		if _, _, held := d.ledger.Held(same.UID); same.gone() && !held {
			d.drop(same)
			d.stale = true
		}
	}
}

// awaitsIdentity reports whether a Node may be a returning machine whose provider ID is not
// set yet. It requeues the Node until the ID is set or the wait has timed out.
func (d *decider) awaitsIdentity(n *node) bool {
	if slices.ContainsFunc(d.byName[n.Name], func(o *node) bool {
		return o != n && !o.gone() && !o.cached
	}) {
		return true // a live GET of that Node is due, after which its prefixes are in quarantine
	}
	if n.ProviderID != "" {
		return false
	}
	left := comeback - n.age()
	if left <= 0 ||
		!slices.ContainsFunc(d.byName[n.Name], func(o *node) bool {
			return o.gone() && o.ProviderID != ""
		}) {
		return false
	}
	d.queue.AddAfter(n.Name, max(left, time.Second))
	return true
}

func (d *decider) request(n *node) {
	if !n.busy {
		n.busy = true
		d.ready = append(d.ready, n)
	}
}

// next returns the first job that is still needed. The prefixes to write are decided only
// here, just before sending: another Node may have been observed with the reserved prefix
// since, and nothing unrecorded may be sent.
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
	if d.other.check {
		*j = job{policy: true}
		return true
	}
	if len(d.notices) > 0 {
		*j = job{node: d.notices[0].node.Node, notice: &d.notices[0]}
		return true
	}
	return false
}

// jobFor fills in the job for a Node without podCIDRs. It reports false if there is none yet.
func (d *decider) jobFor(ctx context.Context, n *node, j *job) bool {
	reason, err := d.assign(n)
	if err != nil {
		d.wait(ctx, n, reason, err)
		return false
	}
	held, observed, _ := d.ledger.Held(n.UID)
	if d.needsOwn(n, observed) {
		live, err := d.lister.Get(n.Name)
		if err != nil || string(live.UID) != n.UID {
			return false
		}
		*j = job{node: n.Node, locate: live}
		return true
	}
	if !d.recorded(n.Node) {
		d.changed(n) // receive requests it again once it is recorded
		return false
	}
	*j = job{node: n.Node, write: held, look: n.doubt}
	return true
}

// started records that a worker took the job that next returned.
func (d *decider) started(j job) {
	d.flying++
	switch {
	case j.policy:
		d.other.check, d.other.checked = false, time.Now()
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
