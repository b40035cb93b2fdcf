package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/lb"
)

// opening is what the nodes of a Service's pods are to let through.
type opening struct {
	source  netip.Addr // the load balancer's
	ports   []int      // of the pods
	targets []lb.Target
}

// openings are the annotations of Nodes by which agents learn which pods load balancers may reach,
// see package podingress. An annotation holds what is wanted as a whole, and is written where it
// differs.
//
//	pod                                        is in the annotation of its Node
//	about to be a target                       before it is added
//	target                                     yes
//	endpoint, whatever its state               yes, so that one that is ready soon needs no wait
//	no target any more, and no endpoint        no
type openings struct {
	client  corev1client.NodesGetter
	nodes   corelisters.NodeLister
	newest  *kube.Newest[*corev1.Node]
	sources []netip.Prefix // beside the load balancers' addresses
	mu      sync.Mutex     // held from reading what is wanted until it is written
}

// openBefore makes nodes let through what ops are about to need of them.
func (c *Controller) openBefore(ctx context.Context, o *outcome) error {
	ports := slices.Clone(o.plan.Opens)
	// It reaches them there until the listeners change, and if nobody says where, they do not.
	if len(ports) == 0 || leadsToPods(o.have) {
		ports = slices.Concat(ports, lb.PortsOf(o.have.Listeners))
	}
	return c.reopen(ctx, o.services[0], opening{source: o.have.IPv6, ports: ports, targets: podsAmong(o.have.Targets, o.plan.Spec.Targets)})
}

// leadsToPods reports whether what listeners say is about pods: they lead to one port of all targets.
func leadsToPods(have lb.State) bool {
	isNode := func(t lb.Target) bool { return !t.Pod() }
	return len(have.Targets) > 0 && !slices.ContainsFunc(have.Targets, isNode)
}

// opening is what nodes are to let through from now on: nothing if no pods are targets. Without a plan
// that can be used it is what the load balancer has.
func (o *outcome) opening(m lb.Member) opening {
	removed := func(t lb.Target) bool { return slices.Contains(o.removed, t) }
	targets := slices.DeleteFunc(podsAmong(o.have.Targets, o.plan.Spec.Targets), removed)
	ports, usable := o.plan.Opens, o.plan.Spec.PodTargets && m.Parsed && len(o.plan.Opens) > 0
	failed := o.transient != nil || slices.ContainsFunc(o.notes, func(n lb.Note) bool { return n.Reason == reasonRejected })
	switch {
	case !usable && len(targets) == 0:
		return opening{}
	case !usable:
		ports = lb.PortsOf(o.have.Listeners)
	case leadsToPods(o.have) && failed:
		ports = slices.Concat(ports, lb.PortsOf(o.have.Listeners)) // a listener may lead where it did
	}
	return opening{source: o.have.IPv6, ports: ports, targets: targets}
}

// podsAmong are the pods among lists of targets.
func podsAmong(lists ...[]lb.Target) []lb.Target {
	return slices.DeleteFunc(slices.Concat(lists...), func(t lb.Target) bool { return !t.Pod() })
}

// reopen writes what a Service needs, with the endpoints that there are now.
func (c *Controller) reopen(ctx context.Context, svc *corev1.Service, o opening) error {
	c.openings.mu.Lock()
	defer c.openings.mu.Unlock()
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	known := make(map[lb.Target]string)
	if len(o.ports) > 0 && c.slices != nil {
		all, err := c.slicesOf(svc)
		if err != nil {
			return err
		}
		known = readEndpoints(svc, all, nodes, true).known
	}
	return c.openings.write(ctx, svc.UID, o.values(c.openings.sources, known, nodes), nodes)
}

// values are the annotations, by the names of Nodes.
func (o opening) values(sources []netip.Prefix, known map[lb.Target]string, nodes []*corev1.Node) map[string]string {
	if len(o.ports) == 0 {
		return nil
	}
	onNode := make(map[string]*podingress.Ingress)
	add := func(name string, t lb.Target) {
		if onNode[name] == nil {
			onNode[name] = &podingress.Ingress{Sources: sources}
			if o.source.IsValid() {
				onNode[name].Sources = slices.Concat(sources, []netip.Prefix{netip.PrefixFrom(o.source, o.source.BitLen())})
			}
		}
		for _, port := range o.ports {
			onNode[name].Endpoints = append(onNode[name].Endpoints, netip.AddrPortFrom(t.Address, uint16(port)))
		}
	}
	for t, name := range known {
		add(name, t)
	}
	for _, t := range o.targets {
		for _, node := range nodes {
			if podOn(node, t.Address) == t {
				add(node.Name, t)
			}
		}
	}
	values := make(map[string]string, len(onNode))
	for name, i := range onNode {
		values[name] = i.String()
	}
	return values
}

// write makes the annotations for a Service be these.
func (o *openings) write(ctx context.Context, uid types.UID, values map[string]string, nodes []*corev1.Node) error {
	key := podingress.Annotation(string(uid))
	var errs []error
	for _, cached := range nodes {
		node := o.newest.Of(cached)
		have, is := node.Annotations[key]
		if want, wanted := values[node.Name]; is != wanted || have != want {
			errs = append(errs, o.patch(ctx, node, key, want))
		}
	}
	return errors.Join(errs...)
}

// patch sets an annotation of a Node, or removes it. It carries the Node's UID, so that another Node
// of the same name is left alone.
func (o *openings) patch(ctx context.Context, node *corev1.Node, key, want string) error {
	var value any
	if want != "" {
		value = want
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "annotations": map[string]any{key: value}}})
	if err != nil {
		return fmt.Errorf("encoding annotation %s of Node %s: %w", key, node.Name, err)
	}
	patched, err := o.client.Nodes().Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("writing annotation %s of Node %s, by which its agent lets load balancers reach pods: %w", key, node.Name, err)
	}
	o.newest.Wrote(patched)
	return nil
}

// orphans are the annotations for Services that are not ours, by Nodes.
func (o *openings) orphans(find func() (ours map[types.UID]bool, err error)) (map[*corev1.Node][]string, error) {
	nodes, err := o.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	ours, err := find()
	if err != nil {
		return nil, err
	}
	orphans := make(map[*corev1.Node][]string)
	for _, cached := range nodes {
		node := o.newest.Of(cached)
		for key := range node.Annotations {
			if uid, is := podingress.Service(key); is && !ours[types.UID(uid)] {
				orphans[node] = append(orphans[node], key)
			}
		}
	}
	return orphans, nil
}

// closeOrphans removes the annotations for Services that have no load balancer of ours, unless that
// is doubted. Doubt may wait for the cloud, and nobody else has to wait for that: Services come and
// go meanwhile, so the orphans are found again.
func (o *openings) closeOrphans(ctx context.Context, ours func() (map[types.UID]bool, error), doubted func(context.Context) error) error {
	o.mu.Lock()
	orphans, err := o.orphans(ours)
	o.mu.Unlock()
	if err != nil || len(orphans) == 0 {
		return err
	}
	if err := doubted(ctx); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if orphans, err = o.orphans(ours); err != nil {
		return err
	}
	var errs []error
	for node, keys := range orphans {
		for _, key := range keys {
			errs = append(errs, o.patch(ctx, node, key, ""))
		}
	}
	return errors.Join(errs...)
}

// closeOrphans removes the annotations that are about Services without a load balancer of their own.
// States are what the cloud had after these Services were listed: whoever has one there keeps it,
// even if its Service is not for us to serve any more or the cache does not know it yet.
func (c *Controller) closeOrphans(ctx context.Context, before []*corev1.Service, states []lb.State) {
	seen := make(map[types.UID]bool)
	for _, s := range states {
		for _, uid := range s.Services() {
			if !s.Shared() { // its targets are nodes
				seen[types.UID(uid)] = true
			}
		}
	}
	ours := func() (map[types.UID]bool, error) {
		// Services may have come since; those are not meant.
		after, err := c.services.List(labels.Everything())
		if err != nil {
			return nil, fmt.Errorf("listing Services: %w", err)
		}
		ours := maps.Clone(seen)
		for _, svc := range slices.Concat(before, after) {
			if svc = c.newest.Of(svc); c.keyOf(svc).Group == "" && (c.wants(svc) || needsCleanup(svc, c.defaults)) {
				ours[svc.UID] = true
			}
		}
		return ours, nil
	}
	if err := c.openings.closeOrphans(ctx, ours, c.doubted); err != nil {
		klog.FromContext(ctx).Error(err, "Closing pods to load balancers that are gone failed, will retry")
	}
}
