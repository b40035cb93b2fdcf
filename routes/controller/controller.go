// Package controller keeps a cloud network's route table in step with a
// cluster's Nodes, and tells each Node through its NetworkUnavailable condition
// whether its pods can be reached.
//
// It is event-driven with a periodic resync. Every pass is the same whole
// decision: all nodes, all routes, what package routes makes of them, then one
// write at a time. After each write it decides anew, so that whatever became
// urgent meanwhile overtakes what was planned before. It never deletes on
// incomplete knowledge: a pass that deletes has listed routes and servers
// itself, and a node that isn't attached at the moment keeps its route.
//
// A condition that says "reachable" is withdrawn only by a pass that listed the
// table, missed the route there, and could not restore it.
package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// Gateways finds each Node's address in the network. fresh asks for knowledge
// that is not from before the call. An answer is complete or an error.
type Gateways interface {
	Gateways(ctx context.Context, nodes []*corev1.Node, fresh bool) (routes.Gateways, error)
}

// Config is all that a Controller needs. Every field is required.
type Config struct {
	Client   kubernetes.Interface
	Nodes    coreinformers.NodeInformer
	Table    routes.Table
	Gateways Gateways
	// Ranges are the pools whose node prefixes are routed through Table.
	Ranges []routes.Range
	// Limit and Reserve are numbers of routes, MaxDeletions is in percent of
	// our routes, within one Period.
	Limit, Reserve, MaxDeletions int
	// Period is the time between two looks at a table that is at rest.
	Period   time.Duration
	Recorder record.EventRecorder
	Registry Registry
}

// Controller is the route controller. Run it once.
type Controller struct {
	Config
	lister     corelisters.NodeLister
	passes     workqueue.TypedRateLimitingInterface[trigger]
	conditions workqueue.TypedRateLimitingInterface[string]
	metrics    *tableMetrics

	// The rest up to board belongs to the one goroutine that runs passes.
	table   []routes.Route  // as last seen, and changed by us since; nil: not known
	members map[string]bool // provider IDs of servers that are or were nodes here
	latched int             // routes that the table said it can't exceed; 0: none seen
	looks   *lookout
	retries *retries
	brake   brake

	board board
}

// trigger is why a pass runs.
type trigger string

const (
	// change: a Node changed. The table as last seen decides whether there is
	// anything to do, and costs no request if there isn't.
	change trigger = "change"
	// resync: look at the table itself.
	resync trigger = "resync"
)

const conditionWorkers = 8

// New prepares a controller and subscribes it to Node events.
func New(cfg Config) (*Controller, error) {
	c := &Controller{
		Config: cfg,
		lister: cfg.Nodes.Lister(),
		passes: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[trigger](time.Second, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[trigger]{Name: "routes"}),
		conditions: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "routes_conditions"}),
		members: map[string]bool{},
		looks:   newLookout(),
		retries: newRetries(),
		brake:   brake{percent: cfg.MaxDeletions, period: cfg.Period},
		board:   newBoard(),
	}
	var err error
	if c.metrics, err = newTableMetrics(cfg.Registry); err != nil {
		return nil, err
	}
	_, err = cfg.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.changed(nil, obj.(*corev1.Node)) },
		UpdateFunc: func(old, obj any) {
			c.changed(old.(*corev1.Node), obj.(*corev1.Node))
		},
		DeleteFunc: c.deleted,
	})
	if err != nil {
		return nil, fmt.Errorf("watching Nodes for the route controller: %w", err)
	}
	return c, nil
}

func (c *Controller) changed(old, node *corev1.Node) {
	if old == nil || conditionChanged(old, node) {
		c.conditions.Add(node.Name)
	}
	if old == nil || planningChanged(old, node) {
		c.passes.Add(change)
	}
}

func (c *Controller) deleted(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if node, ok := obj.(*corev1.Node); ok {
		c.board.forget(node.UID)
	}
	c.passes.Add(change)
}

// conditionChanged says whether a Node may need to be told something.
func conditionChanged(old, node *corev1.Node) bool {
	a, b := kube.Condition(old, corev1.NodeNetworkUnavailable), kube.Condition(node, corev1.NodeNetworkUnavailable)
	if a == nil || b == nil {
		return a != b || old.UID != node.UID
	}
	return old.UID != node.UID || a.Status != b.Status || a.Reason != b.Reason
}

// planningChanged says whether anything that routes depend on differs.
// Heartbeats don't.
func planningChanged(old, node *corev1.Node) bool {
	return old.UID != node.UID ||
		old.Spec.ProviderID != node.Spec.ProviderID ||
		old.Spec.PodCIDR != node.Spec.PodCIDR ||
		!slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs) ||
		!slices.Equal(kube.InternalIPs(old), kube.InternalIPs(node)) ||
		kube.Ready(old) != kube.Ready(node) ||
		kube.ControlPlane(old) != kube.ControlPlane(node)
}

// Run works until the context ends. It needs the Node informer to be started by
// its owner.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("routes"))
	defer c.passes.ShutDown()
	defer c.conditions.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.Nodes.Informer().HasSynced) {
		return fmt.Errorf("route controller: Nodes never synced: %w", ctx.Err())
	}
	var workers sync.WaitGroup
	for range conditionWorkers {
		workers.Go(func() { c.tellNodes(ctx) })
	}
	workers.Go(func() { c.runPasses(ctx) })
	go wait.UntilWithContext(ctx, func(context.Context) { c.passes.Add(resync) }, c.Period)
	<-ctx.Done()
	c.passes.ShutDown()
	c.conditions.ShutDown()
	workers.Wait()
	return nil
}

func (c *Controller) runPasses(ctx context.Context) {
	for {
		why, stop := c.passes.Get()
		if stop {
			return
		}
		err := c.pass(ctx, why)
		switch {
		case err == nil:
			c.passes.Forget(why)
		case ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Routes are not as they should be; trying again")
			c.passes.AddRateLimited(resync)
		}
		c.passes.Done(why)
	}
}
