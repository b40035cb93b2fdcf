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
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/lb"
)

// Name is the controller's name, upstream's.
const Name = "service-lb-controller"

const (
	// Failed Services are retried after this long, doubling; upstream's values.
	minRetryDelay = 5 * time.Second
	maxRetryDelay = 5 * time.Minute
	// A Service that fails this often in a row gets an Event. What passes before is nobody's
	// business.
	announcedFailure = 3
	// After so many more failures it is told again: the API server forgets Events after an hour,
	// and the condition says what was true before.
	announcedAgain = 10

	defaultWorkers = 4
)

// Config is what the controller needs. All fields but Slices, Network, DedicatedRanges,
// RefreshRanges, Reachable, Doubt and Workers are required.
type Config struct {
	Client   corev1client.CoreV1Interface
	Services coreinformers.ServiceInformer
	Nodes    coreinformers.NodeInformer
	// Slices tell which nodes have endpoints of a Service with policy Local: those come first where
	// a load balancer cannot have all nodes. Nil: nobody knows, and the choice is only stable.
	Slices  discoveryinformers.EndpointSliceInformer
	Backend lb.Backend
	// Defaults names the cluster too: its name marks what is ours in the cloud.
	Defaults lb.Defaults
	// Network is the ID of the network of this moment: one that is deleted and created again is
	// another one to the cloud. Nil: Defaults has it.
	Network func() int64
	// DedicatedRanges are where dedicated servers have their addresses in the network of this
	// moment. Nil: Defaults has them.
	DedicatedRanges func() []netip.Prefix
	// RefreshRanges has DedicatedRanges looked up again unless that was done within the last 5
	// minutes. It is called before the regular look while there is a dedicated server. Nil: somebody
	// else sees to that.
	RefreshRanges func(context.Context) error
	// Reachable tells from a list of servers, which may be some minutes old, how targets can be
	// reached: a target that the cloud refused is asked for again when the list shows that. Nil:
	// nobody knows.
	Reachable func(context.Context) (map[lb.Target]bool, error)
	// Doubt returns an error unless the cloud that answers at the time of the call is the cluster's
	// own project, and not that of another token. Nil: nobody knows.
	Doubt    func(context.Context) error
	Recorder record.EventRecorder
	Registry Registry
	// Workers is how many Services are reconciled at a time. 0: 4.
	Workers int
}

// Controller reconciles Services of type LoadBalancer.
type Controller struct {
	converger
	client   corev1client.CoreV1Interface
	services corelisters.ServiceLister
	nodes    corelisters.NodeLister
	synced   []cache.InformerSynced
	slices   discoverylisters.EndpointSliceLister // nil: endpoints are not known
	defaults lb.Defaults
	network  func() int64
	// dedicatedRanges are those of the network.
	dedicatedRanges func() []netip.Prefix
	refreshRanges   func(context.Context) error
	reachable       func(context.Context) (map[lb.Target]bool, error)
	recorder        record.EventRecorder
	metrics         *controllerMetrics
	newest          *kube.Newest[*corev1.Service]
	// targets are, by the name of a Service, what its last plan wanted, an [aim]: a node whose
	// readiness comes and goes costs requests only where it is no target yet.
	targets sync.Map
	aiming  sync.Mutex // held while one of them is changed: the regular look does that too
	// carriers are the groups that Services are in by labels of the cloud; former says of Services in a
	// group, by their UIDs, whether they have a load balancer of their own beside.
	carriers *carriers
	former   sync.Map
	surveyed atomic.Bool // the regular look has told both
	// unexplained are the UIDs of Services whose finalizer is not known to be ours.
	unexplained sync.Map
	// unserved remembers listeners without a healthy target, by their ports. Another process
	// begins anew, but for what the Service's condition says.
	unserved *since[int]
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
	workers  int
	openings openings
	// reopens are Services whose endpoints came or went, which may matter to the openings alone.
	reopens workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// New returns a controller that listens to its informers. Nothing happens before Run.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Defaults.Validate(); err != nil {
		return nil, fmt.Errorf("load balancer defaults: %w", err)
	}
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, fmt.Errorf("registering load balancer metrics: %w", err)
	}
	c := &Controller{
		client: cfg.Client, services: cfg.Services.Lister(), nodes: cfg.Nodes.Lister(),
		defaults: cfg.Defaults, recorder: cfg.Recorder, metrics: m,
		newest: kube.NewNewest[*corev1.Service](), carriers: newCarriers(), unserved: newSince[int](), workers: cfg.Workers,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](minRetryDelay, maxRetryDelay),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: Name},
		),
	}
	c.openings = openings{client: cfg.Client, nodes: c.nodes, newest: kube.NewNewest[*corev1.Node](), sources: cfg.Defaults.PodTargetSources}
	c.reopens = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](minRetryDelay, maxRetryDelay))
	if c.workers <= 0 {
		c.workers = defaultWorkers
	}
	c.converger = converger{backend: cfg.Backend, done: m.done, refusals: newRefusals(), unhealthy: newSince[lb.Target](), doubt: c.unlessProved(cfg.Doubt)}
	c.reachable, c.refreshRanges = cfg.Reachable, cfg.RefreshRanges
	if c.network = cfg.Network; c.network == nil {
		c.network = func() int64 { return cfg.Defaults.Network }
	}
	if c.dedicatedRanges = cfg.DedicatedRanges; c.dedicatedRanges == nil {
		c.dedicatedRanges = func() []netip.Prefix { return cfg.Defaults.DedicatedRanges }
	}
	if cfg.Slices != nil {
		c.slices = cfg.Slices.Lister()
	}
	return c, c.listen(cfg)
}

func (c *Controller) listen(cfg Config) error {
	type source struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}
	sources := []source{
		{cfg.Services.Informer(), c.serviceHandler()},
		{cfg.Nodes.Informer(), c.nodeHandler()},
	}
	if cfg.Slices != nil {
		sources = append(sources, source{cfg.Slices.Informer(), c.sliceHandler()})
	}
	for _, s := range sources {
		registration, err := s.informer.AddEventHandler(s.handler)
		if err != nil {
			return fmt.Errorf("listening to Services, Nodes and EndpointSlices: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return nil
}

// Run works until the context ends, and returns when every worker has stopped.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName(Name)
	ctx = klog.NewContext(ctx, logger)
	defer c.queue.ShutDown()
	defer c.reopens.ShutDown()
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.synced...) {
		return context.Cause(ctx)
	}
	logger.Info("Starting", "workers", c.workers)
	defer logger.Info("Stopped")

	var running sync.WaitGroup
	for range c.workers {
		running.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	running.Go(func() {
		for c.reopenNext(ctx) {
		}
	})
	running.Go(func() { c.watchDrift(ctx) })
	if c.reachable != nil {
		running.Go(func() { c.watchRefused(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	c.reopens.ShutDown()
	running.Wait()
	return nil
}

// next reconciles one Service of the queue; false when the queue is shut down.
func (c *Controller) next(ctx context.Context) bool {
	key, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(key)
	logger := klog.FromContext(ctx).WithValues("service", key.String())
	start := time.Now()
	notes, err := c.sync(klog.NewContext(ctx, logger), key)
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return true // stopping is not a failure
	case err != nil:
		c.metrics.synced(start, resultFailed)
		logger.Error(err, "Reconciling Service failed, will retry")
		c.queue.AddRateLimited(key)
		if n := c.queue.NumRequeues(key) - announcedFailure; n >= 0 && n%announcedAgain == 0 {
			c.announceFailure(key, err)
		}
		return true
	case len(notes) > 0:
		c.metrics.synced(start, resultRefused)
		logger.Info("Service needs attention", "notes", lb.Join(notes))
	default:
		c.metrics.synced(start, resultDone)
	}
	c.queue.Forget(key)
	return true
}

// announceFailure tells of a failure that has not passed by itself so far.
func (c *Controller) announceFailure(key cache.ObjectName, err error) {
	for _, svc := range c.concerned(key) {
		c.recorder.Eventf(svc, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer, will retry: %v", err)
	}
}
