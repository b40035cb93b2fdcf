// Package controller gives every Node its podCIDRs: Nodes go into an [ipam.Ledger], what it
// assigns goes into spec.podCIDR and spec.podCIDRs by one PATCH for each Node.
//
// One goroutine decides. It alone touches the Ledger; workers only send requests and report
// what they learned. Nothing is assigned before every Node's podCIDRs were observed, from the
// informer's cache and from a live list, because a cache may be older than a write that a former
// process made.
//
// It must never:
//   - write a Node that already has podCIDRs;
//   - take a reservation back because a request failed: whether the write happened is unknown
//     then, and the prefix would go to a second Node. A reservation ends when the Node's UID is
//     gone or when the Node turns out to have other podCIDRs;
//   - take anything but an API server's own word, about that very Node, for its absence: a 404
//     may come from whatever stands in between;
//   - read anything but a live Node into a refusal: error texts are not parsed.
//
// The facts about the API come from the Node validation and conversion of Kubernetes: podCIDRs
// are immutable once set, podCIDRs is cut down to podCIDR silently where its first entry differs,
// and a patch with another metadata.uid than the Node's is refused (as invalid, or as a conflict
// if the Node changes at that moment).
//
// What it knows lives in memory. A former process whose last request is still on its way can
// therefore still collide with it.
package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/ipam"
)

// patchWorkers is how many requests are under way at once. More gain nothing: an API server on
// small machines is saturated by then, and the client's rate limit comes first anyway.
const patchWorkers = 30

// Config is what a Controller works with. Every field but Exclusions is needed.
type Config struct {
	// Client sends the requests. Its rate limit bounds how fast Nodes get their podCIDRs, so it
	// should be this controller's own.
	Client kubernetes.Interface
	// Nodes is the shared informer. Its owner starts it.
	Nodes coreinformers.NodeInformer
	// Pools are carved in this order; it is also the order of the families in podCIDRs.
	Pools []ipam.PoolConfig
	// Exclusions are never handed out: the service ranges and whatever else lies in the pools.
	Exclusions []netip.Prefix
	// Recorder takes Warnings about Nodes.
	Recorder record.EventRecorder
	// Registry takes the underlay_ipam metrics.
	Registry Registry
}

// A Controller assigns podCIDRs. Run it once.
type Controller struct {
	decider *decider
	// attempt does a job by asking the API.
	attempt func(context.Context, job) finding
	cached  cache.ResourceEventHandlerRegistration
}

// New checks the pools and subscribes to Nodes.
func New(cfg Config) (*Controller, error) {
	ledger, err := ipam.NewLedger(cfg.Pools, cfg.Exclusions)
	if err != nil {
		return nil, err
	}
	metrics, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "node-ipam"})
	c := &Controller{
		decider: newDecider(cfg, ledger, metrics, queue),
		attempt: requester{cfg.Client}.attempt,
	}
	enqueue := func(obj any) {
		// The key of a Node is its name.
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			queue.Add(name)
		}
	}
	c.cached, err = cfg.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: enqueue,
	})
	if err != nil {
		return nil, fmt.Errorf("watching Nodes for the node IPAM controller: %w", err)
	}
	return c, nil
}

// Run works until the context ends, and then returns nil once every worker has stopped.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("node-ipam")
	ctx = klog.NewContext(ctx, logger)
	d := c.decider
	defer d.queue.ShutDown()

	if !cache.WaitForCacheSync(ctx.Done(), c.cached.HasSynced) {
		return stopped(ctx, errors.New("the cache of Nodes never synced"))
	}
	if err := d.observeExisting(ctx); err != nil {
		return stopped(ctx, err)
	}
	logger.Info("All existing podCIDRs observed", "holders", len(d.nodes), "room", d.ledger.Room())

	names, jobs, findings := make(chan string), make(chan job), make(chan finding)
	var workers sync.WaitGroup
	for range patchWorkers {
		workers.Go(func() { c.work(ctx, jobs, findings) })
	}
	workers.Go(func() { feed(ctx, d.queue, names) })
	d.loop(ctx, names, jobs, findings)
	d.queue.ShutDown()
	workers.Wait()
	return nil
}

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
