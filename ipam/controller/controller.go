// Package controller gives every Node its podCIDRs: Nodes go into an [ipam.Ledger], what it
// assigns is recorded in the stored ledger (ConfigMaps), and only then written into
// spec.podCIDR and spec.podCIDRs, by one PATCH for each Node.
//
// One goroutine decides. It alone touches the Ledger; workers only send requests and report
// what they learned. Changes of the stored ledger are gathered while the last write is on its
// way, and go out together. Only a reservation is worth a write of its own: what another process
// would find out by itself goes along with the next, or out a little later.
//
// It must never:
//   - write a prefix into a Node that is not in the stored ledger for that very UID: a process
//     that lost its leadership without knowing can't record anything any more, because the
//     ledger has changed since it read it, and so can't hand out what another took;
//   - send a refused or lost write of the ledger again: it reads the ledger and plans anew;
//   - write a Node that already has podCIDRs;
//   - take a reservation back because a request failed: whether the write happened is unknown
//     then, and the prefix would go to a second Node. A reservation ends when the Node's UID is
//     gone or when the Node turns out to have other podCIDRs;
//   - take anything but an API server's own word, about that very Node, for its absence: a 404
//     may come from whatever stands in between;
//   - read anything but a live Node into a refusal: error texts are not parsed;
//   - hand out what a deleted Node had before its quarantine is over.
//
// The one guarantee that rests on time: when the stored ledger is lost, deleted or emptied, it is
// rebuilt from the Nodes, and nothing is handed out until every process that might still write
// from the lost one has ended (Config.Fence).
//
// The facts about the API come from the Node validation and conversion of Kubernetes: podCIDRs
// are immutable once set, podCIDRs is cut down to podCIDR silently where its first entry differs,
// and a patch with another metadata.uid than the Node's is refused (as invalid, or as a conflict
// if the Node changes at that moment).
package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

const (
	// patchWorkers is how many requests are under way at once. More gain nothing: an API server
	// on small machines is saturated by then, and the client's rate limit comes first anyway.
	patchWorkers = 30
	// firstRetry and lastRetry bound how long a Node waits for another try after a failure.
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second
)

// A Pool is a pool of the ledger and the Nodes that it is for.
type Pool struct {
	ipam.PoolConfig
	// Selector matches labels of Nodes; nil matches every Node.
	Selector labels.Selector
	// Exclusive: the Nodes that it is for get nothing of this family from pools
	// that aren't, however full the exclusive ones are.
	Exclusive bool
}

// OwnPrefixes knows the IPv6 prefixes that the provider routes to each machine.
type OwnPrefixes interface {
	// OwnPrefix returns a Node's own prefix and the addresses in it that are taken, the zero
	// Prefix if its machine has none, or an error while that isn't known.
	OwnPrefix(ctx context.Context, node *corev1.Node) (own netip.Prefix, avoid []netip.Addr, err error)
}

// Config is what a Controller works with. Every field is needed that doesn't say otherwise.
type Config struct {
	// Client sends the requests. Its rate limit bounds how fast Nodes get their podCIDRs, so it
	// should be this controller's own.
	Client kubernetes.Interface
	// Nodes is the shared informer. Its owner starts it.
	Nodes coreinformers.NodeInformer
	// ServiceCIDRs are excluded as they come and go; nil: the API server has no such objects.
	ServiceCIDRs networkinginformers.ServiceCIDRInformer
	// Pools are used in this order; it is also the order of the families in podCIDRs.
	Pools []Pool
	// Exclusions are never handed out: the service ranges and whatever else lies in the pools.
	Exclusions []netip.Prefix
	// Quarantine is how long at least the prefixes of a deleted Node stay unused.
	Quarantine time.Duration
	// Routed reports whether a route toward the prefix exists, by a list that was asked for at since
	// or later, and whether there is such a list: a quarantine doesn't end before the route is
	// gone. nil: there is nothing to ask.
	Routed func(p netip.Prefix, since time.Time) (routed, known bool)
	// Routes are the destinations of the network's routes, as they were listed last, and whether
	// that is known. Nothing new is handed out that overlaps one. nil: there is nothing to ask.
	Routes func() (standing []netip.Prefix, known bool)
	// Own is needed where a pool is cut from the machines' own prefixes.
	Own OwnPrefixes
	// Namespace is where the stored ledger is.
	Namespace string
	// Shards says how the stored ledger is spread over several ConfigMaps.
	Shards Shards
	// Fence is how long after the stored ledger was lost nothing is handed out: the longest that
	// another process may go on without its lease, and its last requests after that.
	Fence time.Duration
	// First reports whether nothing outside of the ledger and the Nodes shows that another process
	// ever ran, so that a ledger that isn't there may never have been; nil: it is never known.
	First func(context.Context) (bool, error)
	// Recorder takes Warnings about Nodes and the ledger.
	Recorder record.EventRecorder
	// Registry takes the underlay_ipam metrics.
	Registry Registry
}

// A Controller assigns podCIDRs. Run it once.
type Controller struct {
	decider *decider
	// attempt does a job by asking the API.
	attempt func(context.Context, job) finding
	store   store
	cached  []cache.ResourceEventHandlerRegistration
}

// New checks the pools and subscribes to Nodes.
func New(cfg Config) (*Controller, error) {
	ledger, err := ipam.NewLedger(configs(cfg.Pools), cfg.Exclusions)
	if err != nil {
		return nil, err
	}
	metrics, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "node-ipam"})
	d := newDecider(cfg, ledger, metrics, queue)
	c := &Controller{
		decider: d,
		attempt: requester{cfg.Client, cfg.Own}.attempt,
		store:   d.store,
	}
	nodes, err := cfg.Nodes.Informer().AddEventHandler(handlers(func(obj any) {
		// The key of a Node is its name.
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			queue.Add(name)
		}
	}))
	if err != nil {
		return nil, fmt.Errorf("watching Nodes for the node IPAM controller: %w", err)
	}
	c.cached = append(c.cached, nodes)
	if cfg.ServiceCIDRs != nil {
		ranges, err := cfg.ServiceCIDRs.Informer().AddEventHandler(handlers(func(any) { queue.Add(serviceRangesKey) }))
		if err != nil {
			return nil, fmt.Errorf("watching ServiceCIDRs for the node IPAM controller: %w", err)
		}
		c.cached = append(c.cached, ranges)
	}
	return c, nil
}

// handlers treat every kind of event alike: what is there now decides.
func handlers(handle func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    handle,
		UpdateFunc: func(_, obj any) { handle(obj) },
		DeleteFunc: handle,
	}
}

// Run works until the context ends, and then returns nil once every worker has stopped.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("node-ipam")
	ctx = klog.NewContext(ctx, logger)
	d := c.decider
	defer d.queue.ShutDown()

	for _, r := range c.cached {
		if !cache.WaitForCacheSync(ctx.Done(), r.HasSynced) {
			return stopped(ctx, errors.New("the cache of Nodes never synced"))
		}
	}
	if err := d.load(ctx, stored{}); err != nil {
		return stopped(ctx, err)
	}
	logger.Info("The stored ledger is read and all existing podCIDRs are observed", "holders", len(d.nodes), "room", d.ledger.Room())

	t := traffic{
		names: make(chan string), jobs: make(chan job), findings: make(chan finding),
		orders: make(chan order, 1), receipts: make(chan receipt),
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var workers sync.WaitGroup
	for range patchWorkers {
		workers.Go(func() { c.work(ctx, t.jobs, t.findings) })
	}
	workers.Go(func() { feed(ctx, d.queue, t.names) })
	workers.Go(func() { c.store.scribe(ctx, t.orders, t.receipts) })
	err := d.loop(ctx, t)
	if err != nil {
		err = stopped(ctx, err)
	}
	cancel()
	d.queue.ShutDown()
	workers.Wait()
	return err
}

// Departed are the Nodes that are gone and whose prefixes are in quarantine, by name. It isn't
// known before the API server was asked about every Node of the ledger that the cache doesn't
// have. It may be called at any time from anywhere.
func (c *Controller) Departed() (departed []kube.Departed, known bool) {
	if list := c.decider.departed.Load(); list != nil {
		return *list, true
	}
	return nil, false
}

// departures are read by others while the decider goes on.
type departures = atomic.Pointer[[]kube.Departed]

// stopped makes the orderly end of the context no error.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("node IPAM controller: %w", err)
}

// work does jobs until the context ends.
func (c *Controller) work(ctx context.Context, jobs <-chan job, findings chan<- finding) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-jobs:
			select {
			case findings <- c.attempt(ctx, j):
			case <-ctx.Done():
				return
			}
		}
	}
}

// feed hands the queue's names to the decider, so that it can wait for findings as well.
func feed(ctx context.Context, queue workqueue.TypedInterface[string], names chan<- string) {
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return
		}
		select {
		case names <- name:
		case <-ctx.Done():
			return
		}
	}
}
