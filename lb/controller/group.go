package controller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/cloud-provider/service/helpers"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// Services that share a load balancer are one key of the queue, so that one worker at a time looks
// after it. A namespace's names and a group's cannot be mistaken: the group's key has no namespace.

func groupKey(group string) cache.ObjectName { return cache.ObjectName{Name: group} }

func isGroup(key cache.ObjectName) bool { return key.Namespace == "" }

// GroupOf is the group that a Service is in, by what it asks for; nothing if it shares nothing, or
// asks for it in a way that is refused.
func GroupOf(svc *corev1.Service, listed []lb.SharedName) string {
	group, err := lb.Group(svc.Namespace, svc.Annotations[lb.AnnotationShared], listed)
	if err != nil {
		return ""
	}
	return group
}

func (c *Controller) groupOf(svc *corev1.Service) string { return GroupOf(svc, c.defaults.Shared) }

// keyOf is what the queue knows a Service's load balancer by.
func (c *Controller) keyOf(svc *corev1.Service) cache.ObjectName {
	if group := c.groupOf(svc); group != "" {
		return groupKey(group)
	}
	return nameOf(svc)
}

// keysOf are that, and the groups that the Service left and that still serve it.
func (c *Controller) keysOf(svc *corev1.Service) []cache.ObjectName {
	keys := []cache.ObjectName{c.keyOf(svc)}
	for _, group := range c.carriers.of(string(svc.UID)) {
		if key := groupKey(group); key != keys[0] {
			keys = append(keys, key)
		}
	}
	return keys
}

// add queues a load balancer. Services that share one are often created together, and cost less
// when they are looked at together.
func (c *Controller) add(key cache.ObjectName) {
	if isGroup(key) {
		c.queue.AddAfter(key, nodeDelay)
		return
	}
	c.queue.Add(key)
}

// group is what the cluster has of the Services that share a load balancer.
type group struct {
	name  string
	owner lb.Owner
	// members share it, or have left and are served by it until they are otherwise.
	members []member
	// departing ask for no load balancer of ours any more; left are served elsewhere; gone are those
	// that are not even there.
	departing  []*corev1.Service
	left, gone []string
	// untold are the UIDs of those whose status could not be written, or is not ours to write any more.
	untold map[string]bool
}

// gather finds the Services that ask to share a load balancer.
func (c *Controller) gather(name string) (*group, error) {
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Services: %w", err)
	}
	g := &group{name: name, owner: lb.GroupOwner(c.defaults.Cluster, name), untold: make(map[string]bool)}
	for _, svc := range all {
		svc = c.newest.Of(svc)
		switch {
		case c.groupOf(svc) != name:
		case c.wants(svc):
			if err := c.join(g, svc, lb.Joined); err != nil {
				return nil, err
			}
		case c.needsCleanup(svc):
			g.departing = append(g.departing, svc.DeepCopy())
		}
	}
	return g, nil
}

func (c *Controller) join(g *group, svc *corev1.Service, standing lb.Standing) error {
	svc = svc.DeepCopy()
	p, err := c.plan(svc)
	if err != nil {
		return err
	}
	g.members = append(g.members, member{svc: svc, plan: p, standing: standing})
	return nil
}

// findOthers finds the Services that labels of the load balancer name and that do not ask for it.
// elsewhere returns what an owner has in the cloud.
func (c *Controller) findOthers(g *group, have lb.State, elsewhere func(lb.Owner) (lb.State, error)) error {
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	for _, uid := range have.Services() {
		is := func(svc *corev1.Service) bool { return string(svc.UID) == uid }
		if slices.ContainsFunc(g.members, func(m member) bool { return m.uid() == uid }) || slices.ContainsFunc(g.departing, is) {
			continue
		}
		i := slices.IndexFunc(all, is)
		if i < 0 {
			g.gone = append(g.gone, uid)
			continue
		}
		svc := c.newest.Of(all[i])
		stays := keeps(svc)
		if c.wants(svc) {
			if stays, err = needs(svc, have, c.defaults, elsewhere); err != nil {
				return err
			}
		}
		switch {
		case stays:
			if err := c.join(g, svc, standingOf(svc, c.wants(svc), c.defaults.Shared)); err != nil {
				return err
			}
		case c.wants(svc):
			g.left = append(g.left, uid)
		default:
			g.departing = append(g.departing, svc.DeepCopy())
		}
	}
	return nil
}

// standingOf is how a Service takes part in a group that serves it although it does not ask for that.
// What was served and is ours no more stays as it is, and nobody knows where a Service wants to be
// that asks for it in a way that is refused.
func standingOf(svc *corev1.Service, wanted bool, listed []lb.SharedName) lb.Standing {
	if !wanted || svc.Annotations[lb.AnnotationShared] != "" && GroupOf(svc, listed) == "" {
		return lb.Refused
	}
	return lb.Leaving
}

// needs reports whether a Service that left a group has ports there that it is not served at
// elsewhere.
func needs(svc *corev1.Service, have lb.State, defaults lb.Defaults, elsewhere func(lb.Owner) (lb.State, error)) (bool, error) {
	uid := string(svc.UID)
	held := lb.ByPort(have.Only(uid).Listeners)
	var ports []int
	for _, p := range svc.Spec.Ports {
		if _, ok := held[int(p.Port)]; ok && p.Protocol == corev1.ProtocolTCP {
			ports = append(ports, int(p.Port))
		}
	}
	if len(ports) == 0 {
		return false, nil
	}
	owner := Owner(svc, defaults.Cluster)
	if other := GroupOf(svc, defaults.Shared); other != "" {
		owner = lb.GroupOwner(defaults.Cluster, other)
	}
	now, err := elsewhere(owner)
	if err != nil {
		return false, fmt.Errorf("looking for the other load balancer of Service %s: %w", klog.KObj(svc), err)
	}
	if owner.Group != "" {
		now = now.Only(uid)
	}
	open := lb.ByPort(now.Listeners)
	for _, port := range ports {
		if _, ok := open[port]; !ok {
			return true, nil
		}
	}
	return shows(svc, have), nil
}

// among finds what an owner has in the cloud among what was read at once.
func among(states []lb.State) func(lb.Owner) (lb.State, error) {
	return func(owner lb.Owner) (lb.State, error) {
		for _, s := range ownedBy(owner, states) {
			return s, nil
		}
		return lb.State{}, nil
	}
}

// shows reports whether a Service's status has an address of the load balancer.
func shows(svc *corev1.Service, have lb.State) bool {
	return slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(in corev1.LoadBalancerIngress) bool {
		return in.IP != "" && (in.IP == have.IPv4.String() || in.IP == have.IPv6.String() || in.IP == have.PrivateIP.String())
	})
}

// groupPlan is what a group asks for.
func (c *Controller) groupPlan(g *group) Plan {
	p := newGroupPlan(g.owner, g.members, time.Now())
	p.repeats, p.refusals, p.unhealthy = true, c.refusals, c.unhealthy
	return p
}

// hopeless reports whether no Service of a group can have a load balancer, nor has had one: then it
// costs no request to say so.
func (g *group) hopeless() bool {
	return len(g.departing) == 0 && !slices.ContainsFunc(g.members, func(m member) bool {
		return !m.plan.Refused && len(m.plan.Spec.Barred) == 0 || helpers.HasLBFinalizer(m.svc)
	})
}

// concerned are the Services that a key of the queue is about.
func (c *Controller) concerned(key cache.ObjectName) []*corev1.Service {
	if !isGroup(key) {
		svc, err := c.services.Services(key.Namespace).Get(key.Name)
		if err != nil {
			return nil // nobody is left to tell
		}
		return []*corev1.Service{svc}
	}
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(svc *corev1.Service) bool {
		return c.keyOf(svc) != key || !c.wants(svc) && !c.needsCleanup(svc)
	})
}

// groupCrowded reports whether the load balancer that a Service shares cannot have all nodes.
func (c *Controller) groupCrowded(svc *corev1.Service) bool {
	g, err := c.gather(c.groupOf(svc))
	if err != nil {
		return false
	}
	p := c.groupPlan(g)
	p.unhealthy = nil // what is not looked at must not be forgotten
	return p.Against(lb.State{}, nil).crowded()
}
