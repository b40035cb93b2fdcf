// Package controller reconciles a cloud network's route table with a cluster's Nodes, and sets
// each Node's NetworkUnavailable condition to whether its pods can be reached.
//
// It is event-driven with a periodic resync. Every pass makes the complete decision: all nodes and
// routes are passed to package routes, then the plan is written one step at a time. It decides
// again after each write, so that urgent changes take precedence over what was planned before. It
// never deletes on incomplete information: a pass that deletes has listed servers, Nodes and
// routes itself and read the lease, in this order. It deletes only routes that it had before and
// that are in that list too: none of them is newer than the list of servers, however long that
// took. A node that is detached at the moment keeps its route. Nor does it delete on outdated
// information: a deletion that is not accepted within half a lease of that list of routes is no
// longer sent, so that the next leader can tell when the last deletion of this process has taken
// effect.
//
// Routes that it writes or adopts are recorded first, in the ConfigMap RecordName, and only
// recorded routes are ever deleted (see routes.Owned). A route that can't be recorded is added
// all the same.
//
// A condition that reports a Node as reachable is withdrawn only by a pass that listed the
// table, found the route missing, and could not restore it; or if the Node's podCIDR lies in
// the vSwitch's subnet and its addresses don't.
package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
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
	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/routes"
)

// Gateways looks up each Node's address in the network.
type Gateways interface {
	// Gateways returns the servers' addresses. If fresh is set, it uses only a list of all
	// servers requested after the call. A result is complete or an error.
	Gateways(ctx context.Context, nodes []*corev1.Node, fresh bool) (routes.Gateways, error)
	// Look refreshes the servers of these Nodes, in as few requests as possible.
	Look(ctx context.Context, nodes []*corev1.Node) error
}

// Config is the configuration of a Controller. VSwitch, Departed, State and Leading are optional.
type Config struct {
	Client   kubernetes.Interface
	Nodes    coreinformers.NodeInformer
	Table    routes.Table
	Gateways Gateways
	// Ranges are the pools with node prefixes that are routed through Table.
	Ranges []routes.Range
	// VSwitch has the podCIDRs that need no route.
	VSwitch routes.VSwitch
	Tunnels routes.Tunnels
	// Limit and Reserve are numbers of routes, MaxDeletions a percentage of ours per Period.
	Limit, Reserve, MaxDeletions int
	// Period is the interval between lists of an idle table.
	Period time.Duration
	// Lease is how long a former leader may continue after it lost the lease.
	Lease time.Duration
	// Leading returns an error if another process leads. It is called before routes are deleted or
	// replaced: a process that was suspended may know neither that nor the Nodes that joined since.
	Leading func(context.Context) error
	// Departed returns the deleted Nodes whose podCIDRs are not free yet, or false if not known
	// yet. Their routes are adopted like those of Nodes while their servers exist: a Node may be
	// deleted before its route is recorded. It is called by the goroutine that runs passes.
	Departed func() (departed []kube.Departed, known bool)
	// State is where the controller publishes the lists of the table.
	State    *State
	Recorder record.EventRecorder
	Registry promauto.Registry
}

// Controller is the route controller. Run it once.
type Controller struct {
	Config
	lister     corelisters.NodeLister
	passes     workqueue.TypedRateLimitingInterface[trigger]
	conditions workqueue.TypedRateLimitingInterface[string]
	metrics    *tableMetrics

	// Up to mu, only the goroutine that runs passes uses the fields.
	table     []routes.Route             // as last listed, with our changes since; nil: not listed
	requested time.Time                  // when the list of table was requested
	written   map[netip.Prefix]time.Time // when additions to table after the list were requested
	// unsettled has when deletions with an unknown result have taken effect at the latest.
	unsettled    map[netip.Prefix]time.Time
	firstSeen    map[types.UID]time.Time // when Nodes were first observed
	record       *storedRecord
	learned      learnedLimit
	admitted     bool // the ranges were found not to be another cluster's
	poll         serverPoll
	retries      retries
	events       *tableEvents
	deleted      int // routes since deletedSince, the beginning of a period
	deletedSince time.Time

	mu     sync.Mutex
	posted map[types.UID]posted // the latest status of each Node, which condition workers read
	newest *kube.Newest[*corev1.Node]
}

// trigger is the cause of a pass.
type trigger string

const (
	// change means that a Node changed. The last list of the table decides whether there is
	// anything to do, and without that no request is sent.
	change trigger = "change"
	// resync requests a new list of the table.
	resync trigger = "resync"
)

const conditionWorkers = 8

// New returns a controller that is subscribed to Node events.
func New(cfg Config) (*Controller, error) {
	if cfg.State == nil {
		cfg.State = new(State)
	}
	if cfg.Departed == nil {
		cfg.Departed = func() ([]kube.Departed, bool) { return nil, true }
	}
	if cfg.Leading == nil {
		cfg.Leading = func(context.Context) error { return nil }
	}
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
		unsettled: map[netip.Prefix]time.Time{},
		firstSeen: map[types.UID]time.Time{},
		record:    newRecord(cfg.Client),
		learned:   newLearnedLimit(),
		poll:      serverPoll{nodes: map[types.UID]pause{}},
		retries:   newRetries(),
		events:    newTableEvents(cfg.Recorder),
		posted:    map[types.UID]posted{},
		newest:    kube.NewNewest[*corev1.Node](),
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
		// The next pass drops the Node's state.
		DeleteFunc: func(any) { c.passes.Add(change) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching Nodes for the route controller: %w", err)
	}
	return c, nil
}

func (c *Controller) changed(old, node *corev1.Node) {
	switch {
	case old == nil || old.UID != node.UID:
		c.conditions.Add(node.Name)
	case conditionChanged(old, node):
		c.conditions.AddAfter(node.Name, overwrittenPause)
	}
	if old == nil || c.planningChanged(old, node) {
		c.passes.Add(change)
	}
}

// conditionChanged reports whether a Node's condition may need an update.
func conditionChanged(old, node *corev1.Node) bool {
	a, b := kube.Condition(old, corev1.NodeNetworkUnavailable), kube.Condition(node,
		corev1.NodeNetworkUnavailable)
	if a == nil || b == nil {
		return a != b
	}
	return a.Status != b.Status || a.Reason != b.Reason
}

// planningChanged reports whether any input of the planning differs. Heartbeats don't count.
func (c *Controller) planningChanged(old, node *corev1.Node) bool {
	return old.UID != node.UID || old.Spec.ProviderID != node.Spec.ProviderID ||
		!slices.Equal(kube.ProvidedIPs(old), kube.ProvidedIPs(node)) ||
		!reflect.DeepEqual(RouteNode(old, c.Tunnels), RouteNode(node, c.Tunnels))
}

var errAnotherCluster = errors.New("the pod range is another cluster's")

// Run runs until the context ends, or until its first list of the table shows that its ranges
// are another cluster's. The caller starts the Node informer.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(klog.NewContext(ctx,
		klog.FromContext(ctx).WithName("routes")))
	defer cancel(nil)
	defer c.passes.ShutDown()
	defer c.conditions.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.Nodes.Informer().HasSynced) {
		return fmt.Errorf("route controller: Nodes never synced: %w", ctx.Err())
	}
	var workers sync.WaitGroup
	for range conditionWorkers {
		workers.Go(func() {
			kube.Work(ctx, c.conditions, "Condition of a Node not written; trying again", c.report)
		})
	}
	workers.Go(func() { c.runPasses(ctx, cancel) })
	workers.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) { c.passes.Add(resync) }, c.Period)
	})
	// By then every deletion that a former leader had accepted in time has taken effect. Not by
	// AddAfter: an earlier retry would take its place.
	workers.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(c.Lease + c.maxListAge()):
			c.passes.Add(resync)
		}
	})
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
			if !errors.Is(err, errNotLeading) {
				c.events.unreadable(err)
			}
			c.passes.AddRateLimited(resync)
		}
		c.passes.Done(why)
	}
}
