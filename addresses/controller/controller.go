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
	// gather is how long changes are waited for that come with the first one. It is a part of the
	// gap when a node dies.
	gather = 30 * time.Millisecond
	// firstRetry and lastRetry bound how long a pass waits for another try after a failure.
	firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second
	// lookAgain is how often the stored ledger is read although nothing happens: somebody may have
	// deleted it.
	lookAgain = time.Minute
)

// onePass is the queue's only key: a pass looks at everything.
const onePass = "pass"

// Controller gives Services their addresses. Run it once.
type Controller struct {
	store      store
	services   corelisters.ServiceLister
	nodes      corelisters.NodeLister
	slices     discoverylisters.EndpointSliceLister
	namespaces corelisters.NamespaceLister // nil: no pool has a selector
	synced     []cache.InformerSynced
	pools      []Pool
	whose      whose
	recorder   record.EventRecorder
	metrics    *controllerMetrics
	newest     *kube.Newest[*corev1.Service]
	queue      workqueue.TypedRateLimitingInterface[string]
	routing    map[string]*routing

	// The goroutine that decides has these to itself.
	known   stored
	fresh   bool // known was read or written in this pass
	health  *health
	rivals  rivals
	calm    calm
	damaged string // what was said of a damaged ledger
	routers map[string]Routing
}

// New returns a controller that listens to its informers. Nothing happens before Run.
func New(cfg Config) (*Controller, error) {
	if wrong := addresses.Validate(plain(cfg.Pools)); len(wrong) > 0 {
		return nil, fmt.Errorf("pools of addresses: %w", wrong[0])
	}
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of addresses: %w", err)
	}
	c := &Controller{
		store:    store{cfg.Client, cfg.Namespace},
		services: cfg.Services.Lister(), nodes: cfg.Nodes.Lister(), slices: cfg.Slices.Lister(),
		pools: cfg.Pools, whose: whose{cfg.Classless, cfg.Balancers}, recorder: cfg.Recorder, metrics: m,
		newest: kube.NewNewest[*corev1.Service](), health: newHealth(), rivals: make(rivals), routers: cfg.Routers,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: Name},
		),
		routing: make(map[string]*routing),
	}
	for _, p := range cfg.Pools {
		r, routed := cfg.Routers[p.Mover]
		switch {
		case routed && c.routing[p.Mover] == nil:
			c.routing[p.Mover] = newRouting(p.Mover, r, m, c.announceRouting, func() { c.queue.Add(onePass) })
		case !routed && p.Mover != MoverLayer2 && p.Mover != MoverBGP:
			return nil, fmt.Errorf("pool %s: nothing moves addresses by %q", p.Name, p.Mover)
		}
		if p.Namespaces != nil {
			c.namespaces = cfg.Namespaces.Lister()
		}
	}
	return c, c.listen(cfg)
}

// Run works until the context ends, and returns when every goroutine has stopped.
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
	c.calm.begin(time.Now())
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

// next does one pass; false when the queue is shut down.
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

// failed tells of a pass that failed. What passes by itself is for the log alone.
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
		c.recorder.Event(c.ledgerReference(), corev1.EventTypeWarning, reasonDamaged, cut(text, 2*longest))
	}
}

// ledgerReference is what Events about the ledger are about.
func (c *Controller) ledgerReference() *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: c.store.namespace, Name: LedgerName}
}

// wake sees to a pass when something ends with time: what was said for or against a node, a calm, or the
// belief that the stored ledger is still there.
func (c *Controller) wake(now time.Time) {
	after := lookAgain
	for _, at := range []time.Time{c.health.next(now), c.rivals.nextAfter(now), c.calm.next()} {
		if !at.IsZero() {
			after = min(after, max(at.Sub(now), 0)+gather)
		}
	}
	c.queue.AddAfter(onePass, after)
}
