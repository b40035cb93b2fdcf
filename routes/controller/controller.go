// Package controller keeps a cloud network's route table in step with a
// cluster's Nodes, and tells each Node through its NetworkUnavailable condition
// whether its pods can be reached.
//
// It is event-driven with a periodic resync. Every pass is the same whole
// decision: all nodes, all routes, what package routes makes of them, then one
// write at a time. After each write it decides anew, so that whatever became
// urgent meanwhile overtakes what was planned before. It never deletes on
// incomplete knowledge: a pass that deletes has listed servers, Nodes and routes
// itself, in this order. It deletes only routes that were known before and are in that
// list too: none of them is younger than what is known of the servers, however long
// their list took. A node that isn't attached at the moment keeps its route. Nor does
// it delete on old knowledge: a deletion that is not accepted within half a lease of
// that list of routes is not sent any more, so that the next leader knows when the last
// one of this process can have taken effect.
//
// What it writes or adopts is recorded first, in the ConfigMap RecordName, and only
// that is ever deleted (see routes.Owned). A route that can't be recorded is added
// all the same.
//
// A condition that says "reachable" is withdrawn only by a pass that listed the
// table, missed the route there, and could not restore it; or of a Node whose podCIDR
// lies in the vSwitch's subnet, when its addresses don't.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

// Gateways finds each Node's address in the network.
type Gateways interface {
	// Gateways returns what is known. fresh asks for knowledge of all servers that is
	// not from before the call. An answer is complete or an error.
	Gateways(ctx context.Context, nodes []*corev1.Node, fresh bool) (routes.Gateways, error)
	// Look learns of these Nodes' servers anew, in as few requests as that takes.
	Look(ctx context.Context, nodes []*corev1.Node) error
}

// Config is all that a Controller needs. Every field but VSwitch, Departed and Lease is required.
type Config struct {
	Client   kubernetes.Interface
	Nodes    coreinformers.NodeInformer
	Table    routes.Table
	Gateways Gateways
	// Ranges are the pools whose node prefixes are routed through Table.
	Ranges []routes.Range
	// VSwitch is where podCIDRs are that need no route.
	VSwitch routes.VSwitch
	// Limit and Reserve are numbers of routes, MaxDeletions is in percent of
	// our routes, within one Period.
	Limit, Reserve, MaxDeletions int
	// Period is the time between two lists of a table that is at rest.
	Period time.Duration
	// Lease is how long another process may go on as the leader after it lost the
	// lease; 0: 15 s, upstream's default.
	Lease time.Duration
	// Departed tells the Nodes that are gone and whose podCIDRs are not free yet.
	// Their routes are adopted as those of Nodes are, while their servers live: a
	// Node may leave before its route is recorded. It is not known while nobody has
	// looked yet. It is called by the goroutine that runs passes.
	Departed func() (departed []kube.Departed, known bool)
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

	// The rest up to statuses belongs to the one goroutine that runs passes.
	table     []routes.Route             // as last seen, and changed by us since; nil: not known
	asked     time.Time                  // when the list was asked for that table began with
	written   map[netip.Prefix]time.Time // when we asked for what table has beyond the list
	firstSeen map[types.UID]time.Time    // when Nodes were first seen
	record    *storedRecord
	learned   learnedLimit
	admitted  bool // the ranges were found not to be another cluster's
	poll      *serverPoll
	givenUp   int // passes in a row that were too late to delete or replace anything
	retries   *retries
	deletions deletionCount
	events    *tableEvents

	statuses statuses
	lastList lastList
}

// trigger is why a pass runs.
type trigger string

const (
	// change: a Node changed. The table as last seen decides whether there is
	// anything to do, and costs no request if there isn't.
	change trigger = "change"
	// resync: list the table itself.
	resync trigger = "resync"
)

const (
	conditionWorkers = 8
	usualLease       = 15 * time.Second
)

// New prepares a controller and subscribes it to Node events.
func New(cfg Config) (*Controller, error) {
	cfg.Lease = cmp.Or(cfg.Lease, usualLease)
	c := &Controller{
		Config: cfg,
		lister: cfg.Nodes.Lister(),
		passes: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[trigger](time.Second, time.Minute),
			workqueue.TypedRateLimitingQueueConfig[trigger]{Name: "routes"}),
		conditions: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "routes_conditions"}),
		written:   map[netip.Prefix]time.Time{},
		firstSeen: map[types.UID]time.Time{},
		record:    newRecord(cfg.Client),
		learned:   newLearnedLimit(),
		poll:      newServerPoll(),
		retries:   newRetries(),
		deletions: deletionCount{period: cfg.Period},
		events:    newTableEvents(cfg.Recorder),
		statuses:  newStatuses(),
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
		// The pass that follows forgets what was known of the Node.
		DeleteFunc: func(any) { c.passes.Add(change) },
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

// conditionChanged reports whether a Node may need to be told something.
func conditionChanged(old, node *corev1.Node) bool {
	a, b := kube.Condition(old, corev1.NodeNetworkUnavailable), kube.Condition(node, corev1.NodeNetworkUnavailable)
	if a == nil || b == nil {
		return a != b || old.UID != node.UID
	}
	return old.UID != node.UID || a.Status != b.Status || a.Reason != b.Reason
}

// planningChanged reports whether anything that routes depend on differs.
// Heartbeats don't.
func planningChanged(old, node *corev1.Node) bool {
	return old.UID != node.UID ||
		old.Spec.ProviderID != node.Spec.ProviderID ||
		old.Spec.PodCIDR != node.Spec.PodCIDR ||
		!slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs) ||
		!slices.Equal(kube.InternalIPs(old), kube.InternalIPs(node)) ||
		!slices.Equal(kube.ProvidedIPs(old), kube.ProvidedIPs(node)) ||
		kube.Ready(old) != kube.Ready(node) ||
		kube.ControlPlane(old) != kube.ControlPlane(node)
}

// errAnotherCluster ends the controller before its first write.
var errAnotherCluster = errors.New("the pod range is another cluster's")

// Run works until the context ends, or until it finds in its first list of the
// table that its ranges are another cluster's. It needs the Node informer to be started by
// its owner.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(klog.NewContext(ctx, klog.FromContext(ctx).WithName("routes")))
	defer cancel(nil)
	defer c.passes.ShutDown()
	defer c.conditions.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.Nodes.Informer().HasSynced) {
		return fmt.Errorf("route controller: Nodes never synced: %w", ctx.Err())
	}
	var workers sync.WaitGroup
	for range conditionWorkers {
		workers.Go(func() { c.tellNodes(ctx) })
	}
	workers.Go(func() { c.runPasses(ctx, cancel) })
	workers.Go(func() { wait.UntilWithContext(ctx, func(context.Context) { c.passes.Add(resync) }, c.Period) })
	// By then every deletion of a former leader has taken effect that was accepted
	// in time.
	c.passes.AddAfter(resync, c.Lease+c.maxListAge())
	<-ctx.Done()
	c.passes.ShutDown()
	c.conditions.ShutDown()
	workers.Wait()
	if err := context.Cause(ctx); errors.Is(err, errAnotherCluster) {
		return err
	}
	return nil
}

func (c *Controller) runPasses(ctx context.Context, end context.CancelCauseFunc) {
	for {
		why, stop := c.passes.Get()
		if stop {
			return
		}
		err := c.pass(ctx, why)
		switch {
		case err == nil:
			c.passes.Forget(why)
			c.events.unreadable(nil)
		case errors.Is(err, errAnotherCluster):
			end(err)
		case ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Routes are not as they should be; trying again")
			c.events.unreadable(err)
			c.passes.AddRateLimited(resync)
		}
		c.passes.Done(why)
	}
}
