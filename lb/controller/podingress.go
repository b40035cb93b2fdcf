package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/lb"
)

// Agents receive the pods that load balancers may reach by annotations of Nodes, by package
// podingress. An annotation has the complete desired state, and is written if it differs.
//
//	pod                                 in the annotation of its Node
//	will become a target                before it is added
//	target                              yes
//	endpoint in any state               yes, so that it need not wait when it becomes ready
//	neither a target nor an endpoint    no

// podAccess is the access that nodes of a Service's pods must allow.
type podAccess struct {
	source  netip.Addr // the load balancer's
	ports   []int      // of the pods
	targets []lb.Target
}

// accessBefore returns the access that is needed before ops are executed.
func (o *outcome) accessBefore() podAccess {
	ports := slices.Clone(o.plan.Opens)
	// Pods are reached at the current ports until the listeners change.
	if len(ports) == 0 || routesToPods(o.have) {
		ports = slices.Concat(ports, lb.PortsOf(o.have.Listeners))
	}
	return podAccess{
		source: o.have.IPv6, ports: ports, targets: podsAmong(o.have.Targets, o.plan.Spec.Targets),
	}
}

// accessAfter returns the access that is needed after ops were executed; it is empty if no pods
// are targets. Without a usable plan it is the access for the existing load balancer.
func (o *outcome) accessAfter() podAccess {
	removed := func(t lb.Target) bool { return slices.Contains(o.removed, t) }
	targets := slices.DeleteFunc(podsAmong(o.have.Targets, o.plan.Spec.Targets), removed)
	usable := o.plan.Spec.PodTargets && o.members[0].Parsed && len(o.plan.Opens) > 0
	if !usable && len(targets) == 0 {
		return podAccess{}
	}
	ports := o.plan.Opens
	failed := o.transient != nil || slices.ContainsFunc(o.notes, rejected)
	// A listener may not have changed.
	if !usable || routesToPods(o.have) && failed {
		ports = slices.Concat(ports, lb.PortsOf(o.have.Listeners))
	}
	return podAccess{source: o.have.IPv6, ports: ports, targets: targets}
}

// routesToPods reports whether listeners forward to ports of pods, because all targets are pods.
func routesToPods(have lb.State) bool {
	isNode := func(t lb.Target) bool { return !t.Pod() }
	return len(have.Targets) > 0 && !slices.ContainsFunc(have.Targets, isNode)
}

func podsAmong(lists ...[]lb.Target) []lb.Target {
	return slices.DeleteFunc(slices.Concat(lists...), func(t lb.Target) bool { return !t.Pod() })
}

// allowAccess writes the access that a Service needs, including its current endpoints.
func (c *Controller) allowAccess(ctx context.Context, svc *corev1.Service, access podAccess) error {
	c.podIngress.Lock()
	defer c.podIngress.Unlock()
	nodes := c.allNodes()
	known := make(map[lb.Target]string)
	if len(access.ports) > 0 {
		known = readEndpoints(svc, c.slicesOf(svc), nodes, true).known
	}
	values := access.annotations(c.cfg.Defaults.PodTargetSources, known, nodes)
	key := podingress.Annotation(string(svc.UID))
	var errs []error
	for _, cached := range nodes {
		node := c.nodesWritten.Of(cached)
		have, is := node.Annotations[key]
		if want, wanted := values[node.Name]; is != wanted || have != want {
			errs = append(errs, c.annotateNode(ctx, node, key, want))
		}
	}
	return errors.Join(errs...)
}

// annotations returns the annotation's values by Node name.
func (a podAccess) annotations(
	sources []netip.Prefix, known map[lb.Target]string, nodes []*corev1.Node,
) map[string]string {
	if len(a.ports) == 0 {
		return nil
	}
	if a.source.IsValid() {
		own := netip.PrefixFrom(a.source, a.source.BitLen())
		sources = slices.Concat(sources, []netip.Prefix{own})
	}
	endpoints := make(map[string][]netip.AddrPort)
	add := func(node string, t lb.Target) {
		for _, port := range a.ports {
			endpoints[node] = append(endpoints[node], netip.AddrPortFrom(t.Address, uint16(port)))
		}
	}
	for t, node := range known {
		add(node, t)
	}
	for _, t := range a.targets {
		for _, node := range nodes {
			if podOn(node, t.Address) == t {
				add(node.Name, t)
			}
		}
	}
	values := make(map[string]string, len(endpoints))
	for node, to := range endpoints {
		values[node] = podingress.Ingress{Sources: sources, Endpoints: to}.String()
	}
	return values
}

// annotateNode sets or removes an annotation of a Node. The patch contains the UID, so that
// another Node of the same name is not changed.
func (c *Controller) annotateNode(ctx context.Context, node *corev1.Node, key, want string) error {
	var value any
	if want != "" {
		value = want
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "annotations": map[string]any{key: value}},
	})
	if err != nil {
		return fmt.Errorf("encoding annotation %s of Node %s: %w", key, node.Name, err)
	}
	patched, err := c.cfg.Client.Nodes().Patch(ctx, node.Name, types.MergePatchType, body,
		metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("writing annotation %s of Node %s, by which its agent lets load balancers reach pods: %w", key, node.Name, err)
	}
	c.nodesWritten.Wrote(patched)
	return nil
}

// removeOrphanedAccess removes annotations for Services without a load balancer of their own.
// States were read after the Services in before were listed: a Service with a load balancer keeps
// its annotations, even if another controller serves it now or the cache does not have it yet.
func (c *Controller) removeOrphanedAccess(
	ctx context.Context, before []*corev1.Service, states []lb.State,
) error {
	orphans := func() map[*corev1.Node][]string {
		current := make(map[string]bool)
		for _, s := range states {
			for _, uid := range s.Services() {
				current[uid] = current[uid] || !s.Shared() // shared: targets are nodes
			}
		}
		for _, svc := range slices.Concat(before, c.allServices()) {
			svc = c.newest.Of(svc)
			role := roleOf(svc, c.cfg.Defaults)
			if c.keyOf(svc).Group == "" && (role == wanted || role == departing) {
				current[string(svc.UID)] = true
			}
		}
		found := make(map[*corev1.Node][]string)
		for _, cached := range c.allNodes() {
			node := c.nodesWritten.Of(cached)
			for key := range node.Annotations {
				if uid, is := podingress.Service(key); is && !current[uid] {
					found[node] = append(found[node], key)
				}
			}
		}
		return found
	}
	if len(orphans()) == 0 {
		return nil
	}
	// This may wait for the cloud while Services change, so orphans are computed again.
	if err := c.checkProject(ctx); err != nil {
		return err
	}
	c.podIngress.Lock()
	defer c.podIngress.Unlock()
	var errs []error
	for node, keys := range orphans() {
		for _, key := range keys {
			errs = append(errs, c.annotateNode(ctx, node, key, ""))
		}
	}
	return errors.Join(errs...)
}
