package controller

import (
	"container/list"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

// decider owns the Ledger and the state of all Nodes. Only the goroutine in loop uses it.
type decider struct {
	Config
	lister  corelisters.NodeLister
	metrics *ipamMetrics
	queue   workqueue.TypedRateLimitingInterface[string]
	api     api

	ledger  *ipam.Ledger
	file    *ipam.Files
	objects Stored // the ConfigMaps as last read or written; nil: to be read again

	writing   int            // writes of the ledger in flight
	written   *rate.Limiter  // limits their bytes
	unwritten error          // of a failed write, until the ledger is read again
	failing   int            // the object of the last failed write
	pause     wait.DelayFunc // between failing writes; nil: the last one succeeded

	nodes   map[types.UID]*node
	byName  map[string][]*node
	ready   []*node   // to be requested, in order
	minor   []request // to be sent if no Node is ready
	flying  int       // requests at workers
	waiting list.List // Nodes that can't have a reservation, the longest waiting first
	freed   bool      // capacity was freed since the waiting Nodes were last tried

	alarm   *time.Timer
	due     time.Time // when alarm fires; zero: never
	other   otherAllocator
	loaded  bool // the stored ledger was loaded once
	rebuilt bool // the work after a load that no Node waits for is still to be done
	damaged bool // it was invalid when last loaded
	routes  routesSeen
	// vacated means that an excluded address within the pools no longer belongs to a Node.
	vacated  bool
	shown    []ipam.Counts
	counted  time.Time                       // when the pools were last counted
	departed atomic.Pointer[[]kube.Departed] // read concurrently
	stale    bool                            // departed must be updated
	idle     chan struct{}                   // closed when there is nothing to do for the first time
}

type traffic struct {
	names             chan string
	requests, results chan request // with room for one of each worker
}

// loop runs until the context ends, or until the stored ledger conflicts with the configuration.
func (d *decider) loop(ctx context.Context, t traffic) error {
	d.alarm = time.NewTimer(time.Second)
	defer d.alarm.Stop()
	later := time.NewTimer(time.Second)
	defer later.Stop()
	for idle := false; ; {
		d.vacate(ctx)
		d.wake(ctx)
		pause := d.show()
		for {
			r, wait := d.next(ctx)
			if r == nil {
				if wait > 0 && (pause == 0 || wait < pause) {
					pause = wait
				}
				break
			}
			d.flying++
			t.requests <- r
		}
		if pause > 0 {
			later.Reset(pause)
		}
		if !idle && d.flying == 0 && d.queue.Len() == 0 {
			idle = true
			close(d.idle)
		}
		select {
		case <-ctx.Done():
			return nil
		case name := <-t.names:
			d.decide(ctx, name)
			d.queue.Done(name)
		case r := <-t.results:
			d.flying--
			if err := r.handle(ctx, d); err != nil {
				return err
			}
		case <-d.alarm.C:
			d.expire(ctx)
		case <-later.C:
		}
	}
}

// next returns the next request to send, or how long a write of the ledger has to wait. The
// prefixes to write to a Node are decided only here, just before sending: another Node may have
// been observed with the reserved ones since, and nothing unrecorded may be sent.
func (d *decider) next(ctx context.Context) (r request, wait time.Duration) {
	idle := d.flying-d.writing < patchWorkers
	for idle && len(d.ready) > 0 {
		n := d.ready[0]
		d.ready = d.ready[1:]
		if d.nodes[types.UID(n.UID)] == n {
			if r := d.requestFor(ctx, n); r != nil {
				return r, 0
			}
		}
		n.busy = false
	}
	if idle && len(d.minor) > 0 {
		r, d.minor = d.minor[0], d.minor[1:]
		return r, 0
	}
	return d.write()
}

// requestFor returns the request that a Node needs, or nil.
func (d *decider) requestFor(ctx context.Context, n *node) request {
	u := n.unserved()
	switch {
	case !n.cached || n.gone():
		return &nodeRequest{node: n.Node}
	case u == nil:
		return nil
	}
	reserved, ok := d.assign(ctx, n)
	switch {
	case !ok:
		return nil
	case len(reserved) == 0:
		if live := d.cachedNode(n.Node); live != nil {
			return &ownRequest{node: n.Node, live: live}
		}
		return nil
	case !d.recorded(n):
		return nil // requested again once it is recorded
	}
	look := u.delivery != unsent
	u.delivery = sent
	return &nodeRequest{node: n.Node, write: reserved, look: look}
}

func (d *decider) request(n *node) {
	if !n.busy {
		n.busy = true
		d.ready = append(d.ready, n)
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
	case !n.busy && n.unserved() != nil:
		d.reserve(ctx, n)
	}
}

// decided reports whether decide would change nothing for a Node. After a load these are nearly all
// Nodes, and those that wait don't have to wait for them.
func (d *decider) decided(n *node) bool {
	live := d.cachedNode(n.Node)
	if live == nil || !n.settled() || kube.TooMany(live) != n.excess {
		return false
	}
	condition := kube.Condition(live, PodCIDRsAllocated)
	return condition == nil || condition.Status == corev1.ConditionTrue
}
