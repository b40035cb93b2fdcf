package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/policy"
)

// Nodes caches all Nodes of the cluster.
type Nodes interface {
	// All returns all Nodes, or an error. Callers must not modify them.
	All() ([]*kube.Node, error)
	// Subscribe calls own for each change of this machine's Node, and other for each other one.
	Subscribe(own func(old, now *corev1.Node), other func(name string)) error
}

// Table is the machine's filter. Only Watch may be concurrent.
type Table interface {
	// Apply sets the filter to the ruleset, or removes it if want is nil. It returns a line per
	// change.
	Apply(ctx context.Context, want *policy.Ruleset) (changed []string, err error)
	// Watch calls changed when another program may have altered the filter, until ctx is done.
	Watch(ctx context.Context, changed func()) error
	// Drops returns the number of dropped packets by chain of the current ruleset.
	Drops(ctx context.Context) (map[*policy.Chain]uint64, error)
}

// Config is the configuration of an Agent.
type Config struct {
	Client kubernetes.Interface
	// Node is the name of this machine's Node, and Nodes is started by the caller.
	Node     string
	Nodes    Nodes
	Table    Table
	Registry promauto.Registry
	// Off leaves NetworkPolicies to another program: the filter is removed.
	Off bool
	// LogGroup is the group of nflog that gets dropped packets; 0 is none.
	LogGroup uint16
}

// Agent enforces NetworkPolicies on one node. Run it once.
type Agent struct {
	Config
	queue    workqueue.TypedRateLimitingInterface[task]
	policies cache.SharedIndexInformer
	read     cache.InformerSynced // whether index has all policies
	drops    *drops
	decided  chan struct{} // closed when state is first known
	decide   sync.Once

	mu      sync.Mutex
	index   *policy.Index
	pods    *pods // nil while there is no policy
	moved   bool  // Nodes may differ from those in the index
	state   error
	changed func()
}

type task string

const (
	enforce task = "enforce"
	count   task = "count"
)

const countEvery = 30 * time.Second

// errWaiting is wrapped by errors that end with another event, without a retry.
var errWaiting = errors.New("waiting")

// New returns an agent. It starts nothing.
func New(cfg Config) (*Agent, error) {
	a := &Agent{
		Config: cfg, decided: make(chan struct{}), index: policy.NewIndex(cfg.Node), state: errWaiting,
		changed: func() {},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[task](20*time.Millisecond, 30*time.Second),
			workqueue.TypedRateLimitingQueueConfig[task]{Name: "policies"}),
		policies: networkinginformers.NewNetworkPolicyInformer(cfg.Client, "", 0, nil),
	}
	var err error
	if a.drops, err = newDrops(cfg.Registry); err != nil {
		return nil, err
	}
	set := func(obj any) { a.index.SetPolicy(kube.PolicyOf(obj.(*networkingv1.NetworkPolicy))) }
	remove := func(name policy.Name) { a.index.DeletePolicy(name) }
	if a.read, err = a.follow(a.policies, set, remove); err != nil {
		return nil, fmt.Errorf("watching NetworkPolicies: %w", err)
	}
	nodes := func() { a.change(func() { a.moved = true }) }
	err = cfg.Nodes.Subscribe(func(_, _ *corev1.Node) { nodes() }, func(string) { nodes() })
	if err != nil {
		return nil, fmt.Errorf("watching Nodes for NetworkPolicies: %w", err)
	}
	return a, nil
}

func (a *Agent) change(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
	a.queue.Add(enforce)
}

// follow keeps the index in step with an informer.
func (a *Agent) follow(
	of cache.SharedIndexInformer, set func(obj any), remove func(policy.Name),
) (cache.InformerSynced, error) {
	handler, err := of.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.change(func() { set(obj) }) },
		UpdateFunc: func(_, obj any) { a.change(func() { set(obj) }) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				a.change(func() { remove(policy.Name{Namespace: name.Namespace, Name: name.Name}) })
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return handler.HasSynced, nil
}

// Run runs until the context ends. It leaves the filter in place then.
func (a *Agent) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("policies"))
	var workers sync.WaitGroup
	defer workers.Wait()
	defer a.queue.ShutDown()
	if !a.Off {
		workers.Go(func() { a.policies.RunWithContext(ctx) })
		workers.Go(func() { a.enforceWhen(ctx, a.read) })
	}
	workers.Go(func() {
		kube.Work(ctx, a.queue, "NetworkPolicies are not enforced as they should be; trying again",
			a.work)
	})
	workers.Go(func() { wait.UntilWithContext(ctx, a.watchTable, time.Second) })
	a.queue.Add(enforce)
	wait.UntilWithContext(ctx, func(context.Context) { a.queue.Add(count) }, countEvery)
}

// enforceWhen triggers once everything has been read.
func (a *Agent) enforceWhen(ctx context.Context, read cache.InformerSynced) {
	if cache.WaitForCacheSync(ctx.Done(), read) {
		a.queue.Add(enforce)
	}
}

func (a *Agent) watchTable(ctx context.Context) {
	if err := a.Table.Watch(ctx, func() { a.queue.Add(enforce) }); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Events are not coming; subscribing again")
	}
}

func (a *Agent) work(ctx context.Context, what task) error {
	if what == count {
		drops, err := a.Table.Drops(ctx)
		if err == nil {
			a.drops.add(drops)
		}
		return err
	}
	want, err := a.desired(ctx)
	if err == nil {
		var changed []string
		changed, err = a.Table.Apply(ctx, want)
		for _, line := range changed {
			klog.FromContext(ctx).V(1).Info("Changed", "what", line)
		}
	}
	a.report(err)
	if errors.Is(err, errWaiting) {
		return nil
	}
	return err
}

// desired returns the ruleset, or nil if none is needed, or why it is not known. It starts and
// stops the watches that depend on whether there is a policy.
func (a *Agent) desired(ctx context.Context) (*policy.Ruleset, error) {
	if a.Off {
		return nil, nil
	}
	if !a.read() {
		return nil, fmt.Errorf("%w for the NetworkPolicies to be read", errWaiting)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.index.Policies() == 0 {
		a.forgetPods()
		return nil, nil
	}
	if a.pods == nil {
		if err := a.readPods(ctx); err != nil {
			return nil, err
		}
	}
	if !a.pods.read() {
		return nil,
			fmt.Errorf("%w for the Pods and Namespaces that NetworkPolicies may mean to be read", errWaiting)
	}
	if a.moved {
		nodes, err := a.Nodes.All()
		if err != nil {
			return nil, fmt.Errorf("listing Nodes from the cache: %w", err)
		}
		byName := map[string]policy.Node{}
		for _, n := range nodes {
			byName[n.Name] = n.ForPolicies()
		}
		a.index.SetNodes(byName)
		a.moved = false
	}
	rules := a.index.Ruleset()
	rules.LogGroup = a.LogGroup
	if len(rules.PodCIDRs) == 0 { // without a Node, its pods stay as they are
		return nil, fmt.Errorf("%w for this machine's Node to have podCIDRs", errWaiting)
	}
	return &rules, nil
}

// report sets whether policies are enforced, and notifies of a change. Waiting is a problem only
// until the first success: later it is short, and the filter stays as it is.
func (a *Agent) report(err error) {
	a.mu.Lock()
	waiting := errors.Is(err, errWaiting)
	if waiting && a.state == nil {
		err = nil
	}
	changed := func() {}
	if (err == nil) != (a.state == nil) {
		changed = a.changed
	}
	a.state = err
	a.mu.Unlock()
	if !waiting {
		a.decide.Do(func() { close(a.decided) })
	}
	changed()
}

// Decided is closed when policies were enforced for the first time, or could not be, which takes
// as long as the API server needs to list what they depend on.
func (a *Agent) Decided() <-chan struct{} { return a.decided }

// Enforced returns why the node's filter is not known to be what NetworkPolicies demand, or nil.
func (a *Agent) Enforced() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Subscribe calls changed when Enforced has changed. It must be called before Run.
func (a *Agent) Subscribe(changed func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = changed
}

// pods watches what policies refer to.
type pods struct {
	read cache.InformerSynced
	stop context.CancelFunc
}

func (a *Agent) readPods(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	all := coreinformers.NewPodInformer(a.Client, "", 0, nil)
	namespaces := coreinformers.NewNamespaceInformer(a.Client, 0, nil)
	_ = all.SetTransform(kube.TrimPod) // fails only while the informer runs
	_ = namespaces.SetTransform(kube.TrimNamespace)
	index := a.index
	ofPods, podsErr := a.follow(all, func(obj any) { index.SetPod(kube.PodOf(obj.(*corev1.Pod))) },
		index.DeletePod)
	ofNamespaces, err := a.follow(namespaces,
		func(obj any) { n := obj.(*corev1.Namespace); index.SetNamespace(n.Name, n.Labels) },
		func(name policy.Name) { index.DeleteNamespace(name.Name) })
	if err := errors.Join(podsErr, err); err != nil {
		stop()
		return fmt.Errorf("watching Pods and Namespaces: %w", err)
	}
	read := func() bool { return ofPods() && ofNamespaces() }
	go all.RunWithContext(ctx)
	go namespaces.RunWithContext(ctx)
	go a.enforceWhen(ctx, read)
	a.pods, a.moved = &pods{read: read, stop: stop}, true
	return nil
}

// forgetPods replaces the index: without policies, the pods are not needed. Events that are still
// on their way reach the old one.
func (a *Agent) forgetPods() {
	if a.pods == nil {
		return
	}
	a.pods.stop()
	a.pods, a.index = nil, policy.NewIndex(a.Node)
}
