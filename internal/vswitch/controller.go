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
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/promauto"
)

const (
	// lookPeriod is the time between two reads of the vSwitch: 12 requests an hour.
	lookPeriod = 5 * time.Minute
	// syncPeriod is the time between two passes over the cached Nodes. The vSwitch is read in
	// each of them while Nodes have joined since the last read.
	syncPeriod = time.Minute
	// longestLook bounds a read, including the wait for Robot's quota.
	longestLook = 2 * time.Minute
)

// Config configures a Controller. Every field is required.
type Config struct {
	Client  kubernetes.Interface
	Nodes   coreinformers.NodeInformer
	Members Members
	// VSwitch returns the ID of the vSwitch that is coupled with the pools' subnet now, or 0.
	VSwitch func() int64
	// Holds reports whether a podCIDR is in that subnet.
	Holds    func(podCIDR netip.Prefix) bool
	Recorder record.EventRecorder
	Registry promauto.Registry
}

// Controller sets MemberCondition on the Nodes of dedicated servers. Run it once.
type Controller struct {
	Config
	lister  corelisters.NodeLister
	synced  cache.InformerSynced
	metrics *metrics.GaugeVec

	// The fields below belong to the goroutine of Run.
	requested time.Time // when the last read began; zero: never
	failed    bool      // the last read failed, which was logged
	known     look      // last successful read
	newest    *kube.Newest[*corev1.Node]
}

// look is the observed state of a vSwitch.
type look struct {
	vSwitch int64
	members map[int64]Status
	// judges are the Nodes that existed before it was requested.
	judges map[types.UID]bool
}

// New returns a controller. It sends no request.
func New(cfg Config) (*Controller, error) {
	f := promauto.With(cfg.Registry, "vswitch")
	return &Controller{
		Config: cfg, lister: cfg.Nodes.Lister(), synced: cfg.Nodes.Informer().HasSynced,
		newest: kube.NewNewest[*corev1.Node](),
		metrics: f.GaugeVec("unreached_nodes",
			"Number of Nodes of dedicated servers that the vSwitch doesn't reach as far as Robot "+
				"knows, by cause: failed (configuring the server's port has failed), missing (the "+
				"server is no member). The condition underlay.dev/VSwitchMember of each says so.",
			"cause"),
	}, f.Err()
}

// Run works until the context ends. The owner of the Node informer must start it.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("vswitch"))
	if !cache.WaitForCacheSync(ctx.Done(), c.synced) {
		return fmt.Errorf("vSwitch member controller: Nodes never synced: %w", ctx.Err())
	}
	wait.UntilWithContext(ctx, c.sync, syncPeriod)
	return nil
}

// sync reads the vSwitch if it is due, and updates the Nodes' conditions.
func (c *Controller) sync(ctx context.Context) {
	log := klog.FromContext(ctx)
	nodes, err := c.concerned()
	if err != nil {
		log.Error(err,
			"The membership of servers in the vSwitch is not written to their Nodes; trying again")
		return
	}
	if c.isDue(nodes, time.Now()) {
		c.look(ctx, nodes)
	}
	for i, n := range nodes {
		if !c.known.judges[n.UID] {
			continue
		}
		if nodes[i], err = c.report(ctx, n); err != nil && ctx.Err() == nil {
			log.Error(err,
				"The membership of a server in the vSwitch is not written to its Node; trying again", "node",
				n.Name)
		}
	}
	c.count(nodes)
}

// count counts by the Nodes' conditions, also of earlier processes: while Robot is unavailable,
// they are the only source.
func (c *Controller) count(nodes []*corev1.Node) {
	reported := map[string]int{}
	for _, n := range nodes {
		if c := kube.Condition(n, MemberCondition); c != nil && c.Status == corev1.ConditionFalse {
			reported[c.Reason]++
		}
	}
	c.metrics.WithLabelValues("failed").Set(float64(reported[reasonFailed]))
	c.metrics.WithLabelValues("missing").Set(float64(reported[reasonMissing]))
}

// concerned returns the Nodes of dedicated servers with pods that are reached over the vSwitch.
func (c *Controller) concerned() ([]*corev1.Node, error) {
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	c.newest.Prune(func(n *corev1.Node) (*corev1.Node, error) { return c.lister.Get(n.Name) })
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

// isDue reports whether to read the vSwitch; without Nodes, there is no need.
func (c *Controller) isDue(nodes []*corev1.Node, now time.Time) bool {
	switch {
	case len(nodes) == 0:
		return false
	case c.requested.IsZero() || now.Sub(c.requested) >= lookPeriod:
		return true
	}
	joined := func(n *corev1.Node) bool { return !c.known.judges[n.UID] }
	return !c.failed && slices.ContainsFunc(nodes, joined)
}

// look reads the members. It logs failures and recovery once.
func (c *Controller) look(ctx context.Context, nodes []*corev1.Node) {
	vSwitch := c.VSwitch()
	if vSwitch == 0 {
		return // the network is not coupled, which is reported elsewhere
	}
	c.requested = time.Now()
	limited, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	members, err := c.Members.Members(limited, vSwitch)
	log := klog.FromContext(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !c.failed:
		log.Error(err,
			"The members of the vSwitch can't be read; the Nodes keep the membership written before",
			"vSwitch", vSwitch)
	case err == nil && c.failed:
		log.Info("The members of the vSwitch can be read again", "vSwitch", vSwitch)
	}
	if c.failed = err != nil; c.failed {
		return
	}
	c.known = look{vSwitch, members, make(map[types.UID]bool, len(nodes))}
	for _, n := range nodes {
		c.known.judges[n.UID] = true
	}
}

// report updates a Node's condition, and returns the updated Node. The Event follows the
// condition, which records that it was sent.
func (c *Controller) report(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	number, err := kube.ParseDedicatedID(node.Spec.ProviderID)
	if err != nil {
		return node, err
	}
	now := c.known.members[number].condition(number, c.known.vSwitch)
	if !isNews(node, now) {
		return node, nil
	}
	reported, err := kube.SetCondition(ctx, c.Client, node, now, time.Now())
	switch {
	case apierrors.IsNotFound(err):
		return node, nil // deleted, as the cache will show
	case err != nil:
		return node, err
	}
	c.newest.Wrote(reported)
	switch now.Status {
	case corev1.ConditionFalse:
		c.Recorder.Event(node, corev1.EventTypeWarning, now.Reason, now.Message)
	case corev1.ConditionTrue:
		c.Recorder.Event(node, corev1.EventTypeNormal, reasonReady, now.Message)
	}
	return reported, nil
}
