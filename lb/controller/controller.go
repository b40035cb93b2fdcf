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
	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/lb"
)

// Name is the controller's name, the same as in Kubernetes.
const Name = "service-lb-controller"

const (
	// Retry delays, doubling; the same as in Kubernetes.
	minRetryDelay = 5 * time.Second
	maxRetryDelay = 5 * time.Minute
	// announcedFailure is the number of consecutive failures before the first Event.
	announcedFailure = 3
	// announcedAgain is the number of failures between further Events: the API server deletes
	// Events after an hour, and the condition is not updated.
	announcedAgain = 10

	defaultWorkers = 4
)

// Config configures the controller. All fields but Network, DedicatedRanges, RefreshRanges,
// Reachable, Doubt and Workers are required.
type Config struct {
	Client   corev1client.CoreV1Interface
	Services coreinformers.ServiceInformer
	Nodes    coreinformers.NodeInformer
	Slices   discoveryinformers.EndpointSliceInformer
	Backend  lb.Backend
	// Defaults.Cluster marks the objects of this cluster in the cloud.
	Defaults lb.Defaults
	// Network returns the current ID of the network, which changes if it is recreated. Nil: the ID
	// in Defaults.
	Network func() int64
	// DedicatedRanges returns the current ranges of dedicated servers' addresses in the network.
	// Nil: the ranges in Defaults.
	DedicatedRanges func() []netip.Prefix
	// RefreshRanges updates DedicatedRanges unless that was done within the last 5 minutes. It is
	// called before each periodic read while there is a dedicated server. Nil: the ranges are
	// updated elsewhere.
	RefreshRanges func(context.Context) error
	// Reachable returns from a list of servers how targets can be reached; other targets are not
	// added. The list must not be older than notBefore and may be a few minutes old. Nil: unknown.
	Reachable func(ctx context.Context, notBefore time.Time) (map[lb.Target]bool, error)
	// Doubt returns an error unless the cloud API's token at the time of the call belongs to the
	// cluster's own project. Nil: unknown.
	Doubt    func(context.Context) error
	Recorder record.EventRecorder
	Registry promauto.Registry
	// Workers is the number of load balancers that are reconciled concurrently. 0: 4.
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

	// podIngress guards annotations of Nodes between comparison and write.
	podIngress   sync.Mutex
	nodesWritten *kube.Newest[*corev1.Node]

	// unserved and unhealthy record since when listeners (by port) have had no healthy target, and
	// since when targets have not been healthy. They are lost on a restart; for listeners, the
	// Service's condition replaces them.
	unserved  *since[int]
	unhealthy *since[lb.Target]
	// unexplained are the UIDs of Services with a finalizer of an unknown owner.
	unexplained sync.Map
	// nodesChanged is the time of the last change of a Node's addresses, in Unix nanoseconds.
	nodesChanged atomic.Int64
	// drifting are the owners that periodic reads have queued.
	drifting sync.Map
}

// New returns a controller with handlers at its informers. It does nothing before Run.
func New(cfg Config) (*Controller, error) {
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
	c.actor = actor{
		backend: cfg.Backend, done: m.done, backoff: newBackoff(), checkProject: c.checkProject,
	}
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

// Lists from in-memory caches cannot fail.

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

// Run runs the workers until ctx is done, and returns when all have stopped.
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
			case <-surveyed: // planning needs the existing load balancers
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

func (c *Controller) announceFailure(owner lb.Owner, err error) {
	for _, svc := range c.allServices() {
		role := roleOf(svc, c.cfg.Defaults)
		if c.keyOf(svc) == owner && (role == wanted || role == departing) {
			c.cfg.Recorder.Eventf(svc, corev1.EventTypeWarning, "SyncLoadBalancerFailed",
				"Error syncing load balancer, will retry: %v", err)
		}
	}
}
