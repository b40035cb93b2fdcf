package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/promauto"
)

// Config is the configuration of an Agent.
type Config struct {
	Client kubernetes.Interface
	// Nodes is started by the caller.
	Nodes  Nodes
	Kernel Kernel
	// Devices are the WireGuard devices: the first has the configured port, and the others, with
	// earlier ports and keys, are removed once no node uses them. If Tunnels are not enabled, all
	// are removed, and there may be none.
	Devices  []Tunnels
	Recorder record.EventRecorder
	Registry promauto.Registry
	Settings
	// Before and After are components of the node's network that are reconciled before and
	// after the routes, in this order. A component is skipped while one before it fails. Those
	// in After are also skipped while a route fails that the node itself needs, and until the
	// Node has podCIDRs.
	Before, After []Edge
	// Period is the interval of full passes without an event.
	Period time.Duration
}

// Agent is the agent of one node. Run it once.
type Agent struct {
	Config
	queue   workqueue.TypedRateLimitingInterface[task]
	metrics *agentMetrics
	full    atomic.Bool // the next pass relies on no earlier state
	status  *status
	problem atomic.Pointer[error]     // that keeps the node from being ready
	began   atomic.Pointer[time.Time] // when the running pass began; nil: none runs

	// interest is the latest decision's, a filter of kernel events; nil before the first decision.
	interest atomic.Pointer[interest]

	// The rest is used only by the goroutine that processes the queue.
	answers    answers
	unresolved map[netip.Addr]bool
	logged     map[string]bool // warnings
	devices    []*observedDevice
}

type task string

const (
	pass      task = "pass"      // read everything, decide, reconcile
	neighbors task = "neighbors" // find unreachable neighbors
)

// New returns an agent that is subscribed to Node events.
func New(cfg Config) (*Agent, error) {
	a := &Agent{
		Config: cfg,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[task](20*time.Millisecond, 30*time.Second),
			workqueue.TypedRateLimitingQueueConfig[task]{Name: "agent"}),
		status: newStatus(cfg),
		logged: map[string]bool{},
	}
	for _, device := range cfg.Devices {
		a.devices = append(a.devices, &observedDevice{Tunnels: device})
	}
	waiting := errors.New("waiting for the Nodes from the API server")
	a.problem.Store(&waiting)
	var err error
	if a.metrics, err = newMetrics(cfg.Registry); err != nil {
		return nil, err
	}
	err = cfg.Nodes.Subscribe(func(old, now *corev1.Node) {
		if old == nil || now == nil || !maps.Equal(Targets(old), Targets(now)) ||
			!kube.NodeOf(old).Equal(kube.NodeOf(now)) { // heartbeats don't count
			a.queue.Add(pass)
		}
	}, func(string) { a.queue.Add(pass) })
	if err != nil {
		return nil, fmt.Errorf("watching Nodes for the agent: %w", err)
	}
	return a, nil
}

// Run runs until the context ends. It leaves everything in place then.
func (a *Agent) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("agent"))
	var workers sync.WaitGroup
	defer workers.Wait()
	defer a.queue.ShutDown()
	defer a.status.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), func() bool { return a.Nodes.Ready() == nil }) {
		return fmt.Errorf("agent: Nodes never synced: %w", ctx.Err())
	}
	workers.Go(func() { a.work(ctx) })
	workers.Go(func() { a.status.run(ctx) })
	workers.Go(func() {
		a.watch(ctx, "kernel", func(ctx context.Context) error {
			return a.Kernel.Watch(ctx, func(e Event) { a.happened(ctx, e) })
		})
	})
	for _, edge := range slices.Concat(a.Before, a.After) {
		workers.Go(func() {
			a.watch(ctx, edge.Name(), func(ctx context.Context) error {
				return edge.Watch(ctx, func() { a.queue.Add(pass) })
			})
		})
	}
	workers.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) {
			a.passInFull()
			a.queue.Add(neighbors)
		}, a.Period)
	})
	<-ctx.Done()
	return nil
}

// watch keeps a subscription. A full pass finds the changes that happened without one.
func (a *Agent) watch(ctx context.Context, what string, subscribe func(context.Context) error) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := subscribe(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Events are not coming; subscribing again", "of", what)
			a.passInFull()
		}
	}, time.Second)
}

// passInFull schedules a pass that relies on no earlier state.
func (a *Agent) passInFull() {
	a.full.Store(true)
	a.queue.Add(pass)
}

func (a *Agent) work(ctx context.Context) {
	kube.Work(ctx, a.queue, "This node's network is not as it should be; trying again",
		func(ctx context.Context, what task) error {
			if what == neighbors {
				return a.probeNeighbors(ctx)
			}
			return a.pass(ctx)
		})
}

// situation reads the complete input of a decision.
func (a *Agent) situation(ctx context.Context) (Situation, error) {
	nodes, err := a.Nodes.All()
	if err != nil {
		return Situation{}, fmt.Errorf("listing Nodes from the cache: %w", err)
	}
	s := Situation{Settings: a.Settings, Unresolved: a.unresolved, Nodes: nodes}
	if own := a.Nodes.Own(); own != nil {
		s.Targets = Targets(own)
		if _, err := kube.PodCIDRs(own); err != nil {
			a.warn(ctx, err.Error())
		}
	}
	if s.Tunnels.Enabled {
		if s.Devices, err = a.readTunnels(ctx); err != nil {
			return Situation{}, err
		}
	}
	err = s.Read(ctx, a.Kernel)
	return s, err
}

// Read reads the interfaces, routes and proxy neighbor entries.
func (s *Situation) Read(ctx context.Context, k Kernel) (err error) {
	// Before the table: the kernel reports the removal of an IPv4 address before it silently
	// removes the address's routes, and replies to this request after both.
	if s.Links, err = k.Links(ctx); err != nil {
		return err
	}
	if s.Table, err = k.List(ctx); err != nil {
		return err
	}
	s.Proxies, err = k.Proxies(ctx)
	return err
}

func (a *Agent) warn(ctx context.Context, warning string) {
	if !a.logged[warning] {
		a.logged[warning] = true
		klog.FromContext(ctx).Info("Warning", "warning", warning)
	}
}

// Ready returns why this node's network is not ready, or nil.
func (a *Agent) Ready() error { return *a.problem.Load() }

// longestPass is far longer than a pass takes on the slowest machine.
const longestPass = 2 * time.Minute

// Alive returns an error if a pass hangs.
func (a *Agent) Alive(now time.Time) error {
	if began := a.began.Load(); began != nil && now.Sub(*began) > longestPass {
		return fmt.Errorf("a look at the routes has been running since %s", began.Format(time.RFC3339))
	}
	return nil
}
