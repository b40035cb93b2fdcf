package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	// What failed is retried after this long, doubling; upstream's values.
	minRetryDelay = 5 * time.Second
	maxRetryDelay = 5 * time.Minute
	// What fails this often in a row gets an Event.
	announcedFailure = 3
	// After so many more failures it is told again: the API server forgets Events after an hour,
	// and the condition says what was true before.
	announcedAgain = 10

	defaultWorkers = 4
)

// Config is what the controller needs. All fields but Network, DedicatedRanges, RefreshRanges,
// Reachable, Doubt and Workers are required.
type Config struct {
	Client   corev1client.CoreV1Interface
	Services coreinformers.ServiceInformer
	Nodes    coreinformers.NodeInformer
	Slices   discoveryinformers.EndpointSliceInformer
	Backend  lb.Backend
	// Defaults names the cluster too: its name marks what is ours in the cloud.
	Defaults lb.Defaults
	// Network is the ID of the network of this moment: one that is deleted and created again is
	// another one to the cloud. Nil: Defaults has it.
	Network func() int64
	// DedicatedRanges are where dedicated servers have their addresses in the network of this
	// moment. Nil: Defaults has them.
	DedicatedRanges func() []netip.Prefix
	// RefreshRanges has DedicatedRanges looked up again unless that was done within the last 5
	// minutes. It is called before the regular look while there is a dedicated server. Nil:
	// somebody else sees to that.
	RefreshRanges func(context.Context) error
	// Reachable tells from a list of servers, which is not older than the given time and may be
	// some minutes older than now, how targets can be reached: those that cannot are not added.
	// Nil: nobody knows.
	Reachable func(ctx context.Context, notBefore time.Time) (map[lb.Target]bool, error)
	// Doubt returns an error unless the cloud that answers at the time of the call is the cluster's
	// own project, and not that of another token. Nil: nobody knows.
	Doubt    func(context.Context) error
	Recorder record.EventRecorder
	Registry Registry
	// Workers is how many load balancers are reconciled at a time. 0: 4.
	Workers int
}

// Controller reconciles Services of type LoadBalancer.
type Controller struct {
	actor
	cfg       Config
	services  corelisters.ServiceLister
	nodes     corelisters.NodeLister
	endpoints discoverylisters.EndpointSliceLister
	synced    []cache.InformerSynced
	metrics   *controllerMetrics
	newest    *kube.Newest[*corev1.Service]
	states    *states
	damper    *damper
	queue     workqueue.TypedRateLimitingInterface[lb.Owner]

	// podIngress is held while annotations of Nodes are compared and written.
	podIngress   sync.Mutex
	nodesWritten *kube.Newest[*corev1.Node]

	// unserved and unhealthy remember since when listeners have had no healthy target, by their
	// ports, and since when targets have not been healthy. Another process begins anew, but for
	// what the Service's condition says.
	unserved  *since[int]
	unhealthy *since[lb.Target]
	// unexplained are the UIDs of Services whose finalizer is not known to be ours.
	unexplained sync.Map
	// addresses are those that Nodes on dedicated servers have had.
	addresses sync.Map
	// nodesChanged is when a Node got other addresses, in Unix nanoseconds.
	nodesChanged atomic.Int64
	// drifting are the balancers that the regular read has queued.
	drifting sync.Map
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
	if cfg.Network == nil {
		cfg.Network = func() int64 { return cfg.Defaults.Network }
	}
	if cfg.DedicatedRanges == nil {
		cfg.DedicatedRanges = func() []netip.Prefix { return cfg.Defaults.DedicatedRanges }
	}
	c := &Controller{
		cfg: cfg, metrics: m,
		services: cfg.Services.Lister(), nodes: cfg.Nodes.Lister(), endpoints: cfg.Slices.Lister(),
		newest: kube.NewNewest[*corev1.Service](), nodesWritten: kube.NewNewest[*corev1.Node](),
		states: newStates(cfg.Backend, cfg.Defaults.Cluster), damper: newDamper(),
		unserved: newSince[int](), unhealthy: newSince[lb.Target](),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[lb.Owner](minRetryDelay, maxRetryDelay),
			workqueue.TypedRateLimitingQueueConfig[lb.Owner]{Name: Name},
		),
	}
	c.actor = actor{backend: cfg.Backend, done: m.done, backoff: newBackoff(), checkProject: c.checkProject}
	handlers := map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		cfg.Services.Informer(): onChange(c.serviceChanged),
		cfg.Nodes.Informer():    onChange(c.nodeChanged),
		cfg.Slices.Informer():   onChange(c.sliceChanged),
	}
	for informer, handler := range handlers {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("listening to Services, Nodes and EndpointSlices: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

// The caches are in memory, and listing what they hold does not fail.

func (c *Controller) slicesOf(svc *corev1.Service) []*discoveryv1.EndpointSlice {
	ofService := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: svc.Name})
	all, _ := c.endpoints.EndpointSlices(svc.Namespace).List(ofService)
	return all
}

func (c *Controller) allServices() []*corev1.Service {
	all, _ := c.services.List(labels.Everything())
	return all
}

func (c *Controller) allNodes() []*corev1.Node {
	all, _ := c.nodes.List(labels.Everything())
	return all
}

// Run works until the context ends, and returns when every worker has stopped.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName(Name)
	ctx = klog.NewContext(ctx, logger)
	defer c.queue.ShutDown()
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.synced...) {
		return context.Cause(ctx)
	}
	workers := cmp.Or(max(c.cfg.Workers, 0), defaultWorkers)
	logger.Info("Starting", "workers", workers)
	defer logger.Info("Stopped")

	var running sync.WaitGroup
	surveyed := make(chan struct{})
	running.Go(func() { c.watchDrift(ctx, surveyed) })
	running.Go(func() { c.watchRanges(ctx) })
	for range workers {
		running.Go(func() {
			select {
			case <-surveyed: // what there is decides about every load balancer
			case <-ctx.Done():
			}
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	return nil
}

// next reconciles one balancer of the queue; false when the queue is shut down.
func (c *Controller) next(ctx context.Context) bool {
	owner, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(owner)
	logger := klog.FromContext(ctx).WithValues("balancer", owner.Key())
	start := time.Now()
	notes, err := c.sync(klog.NewContext(ctx, logger), owner)
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return true // stopping is not a failure
	case err != nil:
		c.metrics.synced(start, resultFailed)
		logger.Error(err, "Reconciling load balancer failed, will retry")
		c.states.expire(owner)
		c.queue.AddRateLimited(owner)
		if n := c.queue.NumRequeues(owner) - announcedFailure; n >= 0 && n%announcedAgain == 0 {
			c.announceFailure(owner, err)
		}
		return true
	case len(notes) > 0:
		c.metrics.synced(start, resultRefused)
		logger.Info("Load balancer needs attention", "notes", lb.Join(notes))
	default:
		c.metrics.synced(start, resultDone)
	}
	c.queue.Forget(owner)
	return true
}

// announceFailure tells of a failure that has not passed by itself so far.
func (c *Controller) announceFailure(owner lb.Owner, err error) {
	for _, svc := range c.allServices() {
		role := roleOf(svc, c.cfg.Defaults)
		if c.keyOf(svc) == owner && (role == wanted || role == departing) {
			c.cfg.Recorder.Eventf(svc, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer, will retry: %v", err)
		}
	}
}
