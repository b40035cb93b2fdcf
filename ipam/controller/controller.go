// Package controller assigns podCIDRs to Nodes. An [ipam.Ledger] reserves the prefixes, the
// stored ledger (ConfigMaps) records them, and only then are they written to spec.podCIDR and
// spec.podCIDRs, with one PATCH per Node.
//
// A single goroutine makes all decisions and is the only one to use the Ledger; workers only
// send requests, from one queue, and report the results. A few ConfigMaps of the stored ledger are
// written at once, and changes of one are batched while a write of it is in flight. Only a
// reservation causes a write by itself: a change that another process would detect on its own is
// included in the next write, or written with a delay.
//
// It must never:
//   - write a prefix to a Node if the stored ledger doesn't have that prefix for its UID: a
//     process that lost its leadership unnoticed can't record a prefix that another process
//     reserved, because a ConfigMap that records both has changed since it was read;
//   - retry a rejected or lost write of the ledger: it reads the ledger and plans again;
//   - write to a Node that already has podCIDRs;
//   - release a reservation because a request failed: the write may have been applied, and the
//     prefix would be assigned to a second Node. A reservation ends when the Node's UID is
//     deleted or when the Node is observed with other podCIDRs;
//   - treat anything but the API server's reply about that Node as proof of its absence: a 404
//     can be from any proxy in between;
//   - derive anything from a refusal except by reading the live Node: error texts are not parsed;
//   - hand out the prefixes of a deleted Node before its quarantine is over.
//
// One guarantee depends on time: when the stored ledger is lost, deleted or emptied, it is
// rebuilt from the Nodes, and nothing is handed out until every process that might still write
// based on the lost ledger has ended (Config.Fence).
//
// The facts about the API come from the Node validation and conversion of Kubernetes: podCIDRs
// are immutable once set, podCIDRs is silently reduced to podCIDR if its first entry differs,
// and a patch with a metadata.uid other than the Node's is rejected (as invalid, or as a
// conflict if the Node changes at that moment).
package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/ipam"
)

const (
	// patchWorkers limits concurrent requests about Nodes. More have no benefit: an API server on
	// small machines is saturated at that number, and the client's rate limit applies first.
	patchWorkers = 30
	// firstRetry and lastRetry bound the delay before a Node is retried after a failure.
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second
)

// A Pool is a pool of the ledger with a Node selector.
type Pool struct {
	ipam.PoolConfig
	// Selector matches the labels of Nodes; nil matches every Node.
	Selector labels.Selector
	// Exclusive means that the Nodes it selects get no prefix of this family from pools that
	// are not exclusive, even if all exclusive ones are full.
	Exclusive bool
}

// OwnPrefixes looks up the IPv6 prefixes that the provider routes to each machine.
type OwnPrefixes interface {
	// OwnPrefix returns a Node's own prefix and the addresses within it that are in use. The
	// prefix is zero if the machine has none. It returns an error if the lookup fails.
	OwnPrefix(ctx context.Context, node *corev1.Node) (own netip.Prefix, avoid []netip.Addr, err error)
}

// Config is the configuration of a Controller. Fields are required unless noted.
type Config struct {
	// Client sends the requests. Its rate limit bounds how fast Nodes get their podCIDRs, so
	// it should not be shared with other controllers.
	Client kubernetes.Interface
	// Nodes is a shared informer, started by the caller.
	Nodes coreinformers.NodeInformer
	// ServiceCIDRs are excluded while they exist. It is nil if the API server doesn't serve them.
	ServiceCIDRs networkinginformers.ServiceCIDRInformer
	// Pools are used in this order, which is also the order of the families in podCIDRs.
	Pools []Pool
	// Exclusions are never handed out: the service ranges and other ranges that overlap the pools.
	Exclusions []netip.Prefix
	// Quarantine is the minimum time for which the prefixes of a deleted Node stay unused.
	Quarantine time.Duration
	// Routed reports whether a route to the prefix exists, according to a list requested at
	// since or later, and whether there is such a list. A quarantine doesn't end before the
	// route is deleted. nil disables the check.
	Routed func(p netip.Prefix, since time.Time) (routed, known bool)
	// Routes returns the destinations of the network's routes as last listed, and whether
	// there is a list. No prefix that overlaps one is handed out. nil disables the check.
	Routes func() (standing []netip.Prefix, known bool)
	// Own is required if a pool is cut from the machines' own prefixes.
	Own OwnPrefixes
	// Namespace is the namespace of the stored ledger.
	Namespace string
	// Fence is how long nothing is handed out after the stored ledger was lost: the longest
	// time that another process may run without its lease, and its last requests after that.
	Fence time.Duration
	// First reports whether no sign outside of the ledger and the Nodes shows that another
	// process ever ran, so that a missing ledger may never have existed. nil means unknown.
	First func(context.Context) (bool, error)
	// Recorder receives Warnings about Nodes and the ledger.
	Recorder record.EventRecorder
	// Registry receives the underlay_ipam metrics.
	Registry promauto.Registry
}

// A Controller assigns podCIDRs. Run it once.
type Controller struct {
	decider *decider
	cached  []cache.DoneChecker
}

// New validates the pools and subscribes to Nodes.
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
	c := &Controller{decider: &decider{
		Config: cfg, lister: cfg.Nodes.Lister(), metrics: metrics, queue: queue,
		api: api{cfg.Client, cfg.Own, cfg.Namespace}, ledger: ledger,
		written: rate.NewLimiter(writeRate, writeBurst),
		nodes:   map[types.UID]*node{}, byName: map[string][]*node{}, idle: make(chan struct{}),
	}}
	err = c.watch(cfg.Nodes.Informer(), func(obj any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			queue.Add(name)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watching Nodes for the node IPAM controller: %w", err)
	}
	if cfg.ServiceCIDRs != nil {
		err := c.watch(cfg.ServiceCIDRs.Informer(), func(any) { queue.Add(serviceRangesKey) })
		if err != nil {
			return nil, fmt.Errorf("watching ServiceCIDRs for the node IPAM controller: %w", err)
		}
	}
	return c, nil
}

// watch handles every kind of event alike: the current state decides. Objects that exist before the
// cache has synced are left to load.
func (c *Controller) watch(informer cache.SharedIndexInformer, handle func(any)) error {
	c.cached = append(c.cached, informer.HasSyncedChecker())
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				handle(obj)
			}
		},
		UpdateFunc: func(_, obj any) { handle(obj) },
		DeleteFunc: handle,
	})
	return err
}

// Run runs the controller until the context ends, and waits for its workers. It returns nil then.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("node-ipam")
	ctx = klog.NewContext(ctx, logger)
	d := c.decider
	defer d.queue.ShutDown()

	if !cache.WaitFor(ctx, "", c.cached...) {
		return stopped(ctx, errors.New("the cache of Nodes never synced"))
	}
	if err := d.load(ctx, Stored{}); err != nil {
		return stopped(ctx, err)
	}
	logger.Info("The stored ledger is read and all existing podCIDRs are observed", "holders",
		len(d.nodes), "room", d.ledger.Room())

	t := traffic{
		names:    make(chan string),
		requests: make(chan request, patchWorkers+writers),
		results:  make(chan request, patchWorkers+writers),
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var workers sync.WaitGroup
	for range cap(t.requests) {
		workers.Go(func() {
			for r := range t.requests {
				ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
				r.send(ctx, d.api)
				cancel()
				t.results <- r
			}
		})
	}
	for range min(d.queue.Len(), atOnce) {
		name, _ := d.queue.Get()
		d.decide(ctx, name)
		d.queue.Done(name)
	}
	workers.Go(func() { feed(ctx, d.queue, t.names) })
	err := d.loop(ctx, t)
	if err != nil {
		err = stopped(ctx, err)
	}
	cancel()
	close(t.requests)
	d.queue.ShutDown()
	workers.Wait()
	return err
}

// Idle returns a channel that is closed when the Nodes that wait for podCIDRs at first are served,
// as far as possible.
func (c *Controller) Idle() <-chan struct{} { return c.decider.idle }

// Departed returns the deleted Nodes whose prefixes are in quarantine, by name. It reports
// false until every Node of the ledger that is missing in the cache was read from the API
// server. It is safe for concurrent use.
func (c *Controller) Departed() (departed []kube.Departed, known bool) {
	if list := c.decider.departed.Load(); list != nil {
		return *list, true
	}
	return nil, false
}

// stopped returns nil for an error caused by the end of the context.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("node IPAM controller: %w", err)
}

// feed passes names from the queue to the decider, which selects on several channels.
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
