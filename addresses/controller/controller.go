package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

const (
	// gather is the time to batch changes. It adds to the downtime after a node failure.
	gather                = 30 * time.Millisecond
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second
	// lookAgain is the interval of reading the stored ledger at rest: it may have been deleted.
	lookAgain = time.Minute
)

// onePass is the queue's only key: a pass reconciles all objects.
const onePass = "pass"

// Controller assigns addresses to Services. It must be run only once.
type Controller struct {
	store      store
	services   corelisters.ServiceLister
	nodes      corelisters.NodeLister
	slices     discoverylisters.EndpointSliceLister
	namespaces corelisters.NamespaceLister // nil if no pool has a selector
	synced     []cache.InformerSynced
	pools      []Pool
	selection  selection
	recorder   record.EventRecorder
	metrics    *controllerMetrics
	newest     *kube.Newest[*corev1.Service]
	queue      workqueue.TypedRateLimitingInterface[string]
	routing    map[addresses.Mover]*routing

	// Only the goroutine of Run uses these.
	known   stored
	fresh   bool      // known was read or written in this pass
	readAt  time.Time // last read of the stored ledger
	health  health
	routers map[addresses.Mover]Routing
	damaged string // last reported error of a damaged ledger
	// balanceAt is the earliest time of the next balancing move.
	balanceAt  time.Time
	overwrites overwrites
}

// New returns a controller with registered event handlers. It does nothing before Run.
func New(cfg Config) (*Controller, error) {
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	c := &Controller{
		store:    store{cfg.Client, cfg.Namespace},
		services: cfg.Services.Lister(), nodes: cfg.Nodes.Lister(), slices: cfg.Slices.Lister(),
		pools: cfg.Pools, selection: selection{cfg.Classless, cfg.Balancers}, recorder: cfg.Recorder,
		metrics: m,
		newest:  kube.NewNewest[*corev1.Service](), health: make(health), routers: cfg.Routers,
		overwrites: newOverwrites(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: Name},
		),
		routing: make(map[addresses.Mover]*routing),
	}
	for _, p := range cfg.Pools {
		r, routed := cfg.Routers[p.Mover]
		switch {
		case routed && c.routing[p.Mover] == nil:
			c.routing[p.Mover] = newRouting(p.Mover, r, m, c.announceRouting, func() {
				c.queue.Add(onePass)
			})
		case !routed && p.Mover != addresses.Layer2 && p.Mover != addresses.BGP:
			return nil, fmt.Errorf("pool %s: nothing moves addresses by %q", p.Name, p.Mover)
		}
		if p.Namespaces != nil {
			c.namespaces = cfg.Namespaces.Lister()
		}
	}
	return c, c.listen(cfg)
}

// Run works until ctx is done, and returns when all of its goroutines have stopped.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName(Name)
	ctx = klog.NewContext(ctx, logger)
	defer c.queue.ShutDown()
	for _, r := range c.routing {
		defer r.queue.ShutDown()
	}
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.synced...) {
		return context.Cause(ctx)
	}
	logger.Info("Starting", "pools", len(c.pools))
	defer logger.Info("Stopped")
	c.balanceAt = time.Now().Add(balanceAfter)
	c.queue.Add(onePass)
	var routing sync.WaitGroup
	for _, r := range c.routing {
		routing.Go(func() { r.run(ctx) })
	}
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	for c.next(ctx) {
	}
	routing.Wait()
	return nil
}

func (c *Controller) next(ctx context.Context) bool {
	key, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(key)
	err := c.pass(ctx)
	switch {
	case err == nil:
		c.queue.Forget(key)
		c.damaged = ""
		c.metrics.damaged.Set(0)
	case ctx.Err() != nil: // stopping is not a failure
	default:
		c.queue.AddRateLimited(key)
		c.failed(ctx, err)
	}
	c.wake(time.Now())
	return true
}

// failed reports a failed pass. Temporary causes are only logged.
func (c *Controller) failed(ctx context.Context, err error) {
	logger := klog.FromContext(ctx)
	if errors.Is(err, errOutdated) {
		logger.V(2).Info("Something changed meanwhile, trying again", "cause", err.Error())
		return
	}
	logger.Error(err, "A pass over the addresses failed, will retry")
	if !errors.Is(err, errDamaged) {
		return
	}
	c.metrics.damaged.Set(1)
	if text := err.Error(); text != c.damaged {
		c.damaged = text
		c.recorder.Event(c.ledgerReference(), corev1.EventTypeWarning, reasonDamaged, cut(text,
			2*longest))
	}
}

func (c *Controller) ledgerReference() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		Kind: "ConfigMap", APIVersion: "v1", Namespace: c.store.namespace, Name: addresses.LedgerName,
	}
}

// wake schedules the next pass that is due by time alone.
func (c *Controller) wake(now time.Time) {
	after := lookAgain
	if at := c.health.next(now); !at.IsZero() {
		after = min(after, max(at.Sub(now), 0)+gather)
	}
	c.queue.AddAfter(onePass, after)
}
