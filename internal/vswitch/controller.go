package vswitch

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
)

const (
	// lookPeriod is the time between two looks at the vSwitch: 12 requests an hour.
	lookPeriod = 5 * time.Minute
	// shortestPeriod is the same when Nodes have joined that no look has judged.
	shortestPeriod = time.Minute
	// glancePeriod is how often the cached Nodes are looked at, which costs no request.
	glancePeriod = 10 * time.Second
	// retryPeriod is how long a Node whose write failed is left alone.
	retryPeriod = time.Minute
	// longestLook bounds a look, its wait for Robot's quota included.
	longestLook = 2 * time.Minute
)

// Config is all that a Controller needs. Every field is required.
type Config struct {
	Client  kubernetes.Interface
	Nodes   coreinformers.NodeInformer
	Members Members
	// VSwitch tells the ID of the vSwitch that the pools' subnet is coupled with at
	// the moment; 0: it isn't known.
	VSwitch func() int64
	// Holds reports whether a podCIDR lies inside that subnet.
	Holds    func(podCIDR netip.Prefix) bool
	Recorder record.EventRecorder
	Registry Registry
}

// Controller tells Nodes of dedicated servers what these are in the vSwitch. Run it
// once.
type Controller struct {
	Config
	lister  corelisters.NodeLister
	synced  cache.InformerSynced
	metrics *nodeMetrics

	// What follows belongs to the goroutine of Run.
	asked  time.Time // when the last look was asked for; zero: there was none
	failed bool      // that look did, which was told
	known  look      // the last that didn't fail
	// refused are the Nodes whose last write failed, and when.
	refused map[types.UID]time.Time
	newest  *kube.Newest[*corev1.Node]
}

// look is what was seen of a vSwitch.
type look struct {
	vSwitch int64
	members map[int64]Status
	// judges are the Nodes that were there before it was asked for.
	judges map[types.UID]bool
}

// New prepares a controller. It asks nothing.
func New(cfg Config) (*Controller, error) {
	m, err := newNodeMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	return &Controller{
		Config: cfg, lister: cfg.Nodes.Lister(), synced: cfg.Nodes.Informer().HasSynced,
		metrics: m, newest: kube.NewNewest[*corev1.Node](), refused: make(map[types.UID]time.Time),
	}, nil
}

// Run works until the context ends. It needs the Node informer to be started by its
// owner.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("vswitch"))
	if !cache.WaitForCacheSync(ctx.Done(), c.synced) {
		return fmt.Errorf("vSwitch member controller: Nodes never synced: %w", ctx.Err())
	}
	glances := time.NewTicker(glancePeriod)
	defer glances.Stop()
	for {
		c.glance(ctx)
		select {
		case <-glances.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// glance looks at the cached Nodes, at the vSwitch if it is time to, and tells the Nodes
// what is known by then.
func (c *Controller) glance(ctx context.Context) {
	log := klog.FromContext(ctx)
	nodes, err := c.concerned()
	if err != nil {
		log.Error(err, "Nodes not told what their servers are in the vSwitch; trying again")
		return
	}
	if c.isDue(nodes, time.Now()) {
		c.look(ctx, nodes)
	}
	for i, n := range nodes {
		if !c.known.judges[n.UID] || time.Since(c.refused[n.UID]) < retryPeriod {
			continue
		}
		delete(c.refused, n.UID)
		if nodes[i], err = c.tell(ctx, n); err != nil && ctx.Err() == nil {
			c.refused[n.UID] = time.Now()
			log.Error(err, "Node not told what its server is in the vSwitch; trying again", "node", n.Name)
		}
	}
	c.metrics.show(nodes)
}

// concerned are the Nodes of dedicated servers whose pods are to be reached over the
// vSwitch.
func (c *Controller) concerned() ([]*corev1.Node, error) {
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	nodes = slices.DeleteFunc(nodes, func(n *corev1.Node) bool {
		if _, err := kube.ParseDedicatedID(n.Spec.ProviderID); err != nil {
			return true
		}
		podCIDRs, _ := kube.PodCIDRs(n)
		return !slices.ContainsFunc(podCIDRs, c.Holds)
	})
	for i, n := range nodes {
		nodes[i] = c.newest.Of(n)
	}
	return nodes, nil
}

// isDue reports whether to look at the vSwitch. Without Nodes nobody wants to know.
func (c *Controller) isDue(nodes []*corev1.Node, now time.Time) bool {
	switch age := now.Sub(c.asked); {
	case len(nodes) == 0:
		return false
	case c.asked.IsZero() || age >= lookPeriod:
		return true
	case c.failed || age < shortestPeriod:
		return false
	}
	return slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return !c.known.judges[n.UID] })
}

// look asks for the members, and forgets Nodes that are gone. That it fails is told
// once, and that it works again.
func (c *Controller) look(ctx context.Context, nodes []*corev1.Node) {
	vSwitch := c.VSwitch()
	if vSwitch == 0 {
		return // the network is not coupled, which others tell
	}
	c.asked = time.Now()
	limited, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	members, err := c.Members.Members(limited, vSwitch)
	log := klog.FromContext(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !c.failed:
		log.Error(err, "The members of the vSwitch can't be read; what Nodes were told of them stays", "vSwitch", vSwitch)
	case err == nil && c.failed:
		log.Info("The members of the vSwitch can be read again", "vSwitch", vSwitch)
	}
	if c.failed = err != nil; c.failed {
		return
	}
	before := c.known.judges
	c.known = look{vSwitch, members, make(map[types.UID]bool, len(nodes))}
	for _, n := range nodes {
		c.known.judges[n.UID] = true
	}
	for uid := range before {
		if !c.known.judges[uid] {
			c.newest.Forget(uid)
			delete(c.refused, uid)
		}
	}
}

// tell brings a Node's condition to what its server is, and returns the Node as it is
// then. The Event follows the condition, which remembers that it was sent.
func (c *Controller) tell(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	number, err := kube.ParseDedicatedID(node.Spec.ProviderID)
	if err != nil {
		return node, err
	}
	now := c.known.members[number].condition(number, c.known.vSwitch)
	if !isNews(node, now) {
		return node, nil
	}
	told, err := kube.SetCondition(ctx, c.Client, node, now, time.Now())
	switch {
	case apierrors.IsNotFound(err):
		return node, nil // it was deleted, which the cache will show
	case err != nil:
		return node, err
	}
	c.newest.Wrote(told)
	switch now.Status {
	case corev1.ConditionFalse:
		c.Recorder.Event(node, corev1.EventTypeWarning, now.Reason, now.Message)
	case corev1.ConditionTrue:
		c.Recorder.Event(node, corev1.EventTypeNormal, reasonReady, now.Message)
	}
	return told, nil
}
