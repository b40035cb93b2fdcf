package controller

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

// decider owns the Ledger and all that is known about Nodes. Only the goroutine in loop uses it.
type decider struct {
	client   kubernetes.Interface
	lister   corelisters.NodeLister
	recorder record.EventRecorder
	metrics  *ipamMetrics
	queue    workqueue.TypedRateLimitingInterface[string]

	ledger  *ipam.Ledger
	nodes   map[types.UID]*node
	byName  map[string][]*node
	ready   []*node // have something to be requested, in order
	waiting []*node // found no room, longest first
	shown   []ipam.Counts
}

// node is what the decider knows about one UID.
type node struct {
	ipam.Node
	created time.Time
	cached  bool // the informer has shown it
	settled bool // its podCIDRs were observed: nothing is left to do
	busy    bool // it is in ready, or a worker has it
	doubt   bool // an earlier request may have been applied
	woken   bool // it is in the queue because there is room
	told    map[string]bool
}

func newDecider(cfg Config, ledger *ipam.Ledger, m *ipamMetrics, queue workqueue.TypedRateLimitingInterface[string]) *decider {
	return &decider{
		client: cfg.Client, lister: cfg.Nodes.Lister(), recorder: cfg.Recorder, metrics: m, queue: queue,
		ledger: ledger, nodes: map[types.UID]*node{}, byName: map[string][]*node{},
	}
}

// loop decides until the context ends.
func (d *decider) loop(ctx context.Context, names <-chan string, jobs chan<- job, findings <-chan finding) {
	for {
		d.wake()
		d.show()
		out, next := jobs, job{}
		if !d.next(ctx, &next) {
			out = nil
		}
		select {
		case <-ctx.Done():
			return
		case name := <-names:
			d.decide(ctx, name)
			d.queue.Done(name)
		case f := <-findings:
			d.learn(ctx, f)
		case out <- next:
			d.ready = d.ready[1:]
		}
	}
}

// decide compares one name in the cache with what is known, and does what follows.
func (d *decider) decide(ctx context.Context, name string) {
	// The lister's only error is that the Node is not in the cache.
	live, err := d.lister.Get(name)
	if err != nil {
		live = nil
	}
	for _, n := range slices.Clone(d.byName[name]) {
		switch {
		case live != nil && string(live.UID) == n.UID:
		case n.cached:
			d.forget(ctx, n)
		default:
			// Known from the live list only: the cache may simply be older.
			d.request(n)
		}
	}
	if live == nil {
		return
	}
	n := d.track(live)
	n.cached, n.woken = true, false
	switch {
	case n.settled:
	case kube.HasPodCIDRs(live):
		d.observe(ctx, n, live)
	case live.DeletionTimestamp != nil:
		d.stopWaiting(n)
	case !n.busy:
		d.reserve(ctx, n)
	}
}

// reserve assigns prefixes to a Node and has them written, or lets it wait for room.
func (d *decider) reserve(ctx context.Context, n *node) {
	if _, err := d.ledger.Assign(n.Node); err != nil {
		d.wait(ctx, n, err)
		return
	}
	d.stopWaiting(n)
	d.request(n)
}

// wait keeps a Node's place among those for which the pools have no room.
func (d *decider) wait(ctx context.Context, n *node, err error) {
	if !slices.Contains(d.waiting, n) {
		d.waiting = append(d.waiting, n)
		klog.FromContext(ctx).Info("Node waits for room in the pools", "node", n.Name, "err", err)
	}
	d.tell(n, reasonPoolExhausted, "", err.Error())
}

// request queues a Node for the workers.
func (d *decider) request(n *node) {
	if !n.busy {
		n.busy = true
		d.ready = append(d.ready, n)
	}
}

// next describes the first job that is still of use. Only here, where it goes out, is decided
// what it writes: another Node may have turned up with the reserved prefix meanwhile.
func (d *decider) next(ctx context.Context, j *job) bool {
	for len(d.ready) > 0 {
		n := d.ready[0]
		if d.nodes[types.UID(n.UID)] == n {
			if !n.cached {
				*j = job{node: n.Node}
				return true
			}
			if !n.settled {
				prefixes, err := d.ledger.Assign(n.Node)
				if err == nil {
					*j = job{node: n.Node, write: prefixes, look: n.doubt}
					return true
				}
				d.wait(ctx, n, err)
			}
		}
		n.busy = false
		d.ready = d.ready[1:]
	}
	return false
}

// learn takes in what a job found out.
func (d *decider) learn(ctx context.Context, f finding) {
	n, ok := d.nodes[types.UID(f.job.node.UID)]
	if !ok {
		return // forgotten meanwhile
	}
	n.busy = false
	switch f.outcome {
	case holds:
		d.observe(ctx, n, f.live)
		if n.cached {
			return
		}
	case gone:
		d.forget(ctx, n)
		return
	}
	if f.err != nil {
		klog.FromContext(ctx).Error(f.err, "Node's podCIDRs are not known to be set; will look and try again", "node", n.Name)
	}
	n.doubt = true
	d.queue.AddRateLimited(n.Name)
}

// observe records podCIDRs that a Node really has. They never change again.
func (d *decider) observe(ctx context.Context, n *node, live *corev1.Node) {
	if n.settled {
		return
	}
	logger := klog.FromContext(ctx)
	prefixes, unreadable := kube.PodCIDRs(live)
	reserved, known := d.ledger.Lookup(n.UID)
	warnings := d.ledger.Observe(n.Node, prefixes)
	n.settled = true
	d.stopWaiting(n)
	d.queue.Forget(n.Name)
	switch {
	case known && slices.Equal(reserved.Prefixes, prefixes):
		d.metrics.allocated(time.Since(n.created))
		logger.Info("Node has its podCIDRs", "node", n.Name, "podCIDRs", prefixes)
	case known:
		d.metrics.conflicts.Inc()
		logger.Info("Node has other podCIDRs than those reserved for it", "node", n.Name, "podCIDRs", prefixes, "reserved", reserved.Prefixes)
	}
	if unreadable != nil {
		d.tell(n, reasonForeignPodCIDR, "", unreadable.Error())
	}
	for _, w := range warnings {
		logger.Info("Node's podCIDRs are not as they should be", "node", n.Name, "warning", w.String())
		d.tell(n, reasonOf(w), w.Prefix.String(), w.String())
	}
}

// forget releases what a UID held that is gone.
func (d *decider) forget(ctx context.Context, n *node) {
	delete(d.nodes, types.UID(n.UID))
	d.byName[n.Name] = slices.DeleteFunc(d.byName[n.Name], func(other *node) bool { return other == n })
	if len(d.byName[n.Name]) == 0 {
		delete(d.byName, n.Name)
		d.queue.Forget(n.Name)
	}
	d.stopWaiting(n)
	if released := d.ledger.Release(n.UID); len(released) > 0 {
		d.metrics.releases.Inc()
		klog.FromContext(ctx).Info("Node is gone, its podCIDRs are free", "node", n.Name, "uid", n.UID, "podCIDRs", released)
	}
}

// track returns what is known about a Node's UID, beginning to know it if need be.
func (d *decider) track(live *corev1.Node) *node {
	n, ok := d.nodes[live.UID]
	if !ok {
		n = &node{
			Node:    ipam.Node{Name: live.Name, UID: string(live.UID)},
			created: live.CreationTimestamp.Time,
			told:    map[string]bool{},
		}
		d.nodes[live.UID] = n
		d.byName[live.Name] = append(d.byName[live.Name], n)
	}
	return n
}

// wake lets as many of the longest waiting Nodes try again as there is room for.
func (d *decider) wake() {
	for _, n := range d.waiting[:min(len(d.waiting), d.ledger.Room())] {
		if !n.woken {
			n.woken = true
			d.queue.Add(n.Name)
		}
	}
}

func (d *decider) stopWaiting(n *node) {
	d.waiting = slices.DeleteFunc(d.waiting, func(other *node) bool { return other == n })
}

// show publishes the state of the pools where it has changed.
func (d *decider) show() {
	if counts := d.ledger.Counts(); !slices.Equal(counts, d.shown) {
		d.shown = counts
		d.metrics.showRanges(counts)
	}
}
