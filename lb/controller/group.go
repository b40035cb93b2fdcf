package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
}

// gather finds the Services that ask to share a load balancer.
func (c *Controller) gather(name string) (*group, error) {
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Services: %w", err)
	}
	g := &group{name: name, owner: lb.GroupOwner(c.defaults.Cluster, name)}
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

// sort finds out about the Services that labels of the load balancer name and that do not ask for it.
// elsewhere returns what an owner has in the cloud.
func (c *Controller) sort(ctx context.Context, g *group, have lb.State, elsewhere func(lb.Owner) (lb.State, error)) error {
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
			if stays, err = c.needs(svc, have, elsewhere); err != nil {
				return err
			}
		}
		switch {
		case stays:
			if err := c.join(g, svc, lb.Leaving); err != nil {
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

// needs reports whether a Service that left a group has ports there that it is not served at
// elsewhere.
func (c *Controller) needs(svc *corev1.Service, have lb.State, elsewhere func(lb.Owner) (lb.State, error)) (bool, error) {
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
	owner := c.owner(svc)
	if other := c.groupOf(svc); other != "" {
		owner = lb.GroupOwner(c.defaults.Cluster, other)
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

// syncGroup reconciles the load balancer of a group.
func (c *Controller) syncGroup(ctx context.Context, name string) ([]lb.Note, error) {
	g, err := c.gather(name)
	if err != nil {
		return nil, err
	}
	if known := c.carriers.known(name); !known && g.hopeless() {
		p := c.groupPlan(g).Against(lb.State{}, nil)
		return c.reportGroup(ctx, g, p, outcome{members: p.members, Notes: p.Notes})
	}
	have, err := c.backend.Observe(ctx, g.owner)
	if err != nil {
		err = fmt.Errorf("looking for the load balancer: %w", err)
		if note, final := noteOf(err, lb.Spec{}); final {
			p := c.groupPlan(g)
			for i := range p.members {
				p.members[i].notes = p.members[i].plan.Notes
			}
			return c.reportGroup(ctx, g, p, outcome{members: p.members, Notes: []lb.Note{note}})
		}
		return nil, err
	}
	c.carriers.set(name, have.Services())
	observe := func(owner lb.Owner) (lb.State, error) { return c.backend.Observe(ctx, owner) }
	if err := c.sort(ctx, g, have, observe); err != nil {
		return nil, err
	}
	if err := c.reallyGone(ctx, g.gone, have); err != nil {
		return nil, err
	}
	if ended, err := c.endOf(ctx, g, have); ended || err != nil {
		return nil, err
	}
	if err := c.ownOf(ctx, g, have); err != nil {
		return nil, err
	}
	return c.ensureGroup(ctx, g, have)
}

// reallyGone asks the API server itself about Services that the load balancer names and the cache
// does not know: that can be older than what another process has done.
func (c *Controller) reallyGone(ctx context.Context, uids []string, have lb.State) error {
	if len(uids) == 0 {
		return nil
	}
	live, err := c.client.Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Services that the load balancer %q may serve: %w", have.Name, err)
	}
	for _, svc := range live.Items {
		if uid := string(svc.UID); slices.Contains(uids, uid) {
			return fmt.Errorf("the cache does not know the Service %s, which shares the load balancer %q", klog.KObj(&svc), have.Name)
		}
	}
	return nil
}

// endOf deletes the load balancer when the last Service departs or has left, and lets it go. One that
// no Service left stays, even if it serves nobody: nobody knows what became of its Services.
func (c *Controller) endOf(ctx context.Context, g *group, have lb.State) (ended bool, err error) {
	named := func(svc *corev1.Service) bool { return c.owner(svc).Carries(have.Labels) }
	if have.Exists() && (len(g.left) > 0 || slices.ContainsFunc(g.departing, named)) {
		p := c.groupPlan(g)
		certificates, err := c.certificates(ctx, p)
		if err != nil {
			return false, err
		}
		if len(g.members) > 0 && len(p.Against(have, certificates).Spec.Listeners) > 0 {
			return false, nil
		}
		if err := errors.Join(c.run(ctx, have, []lb.Op{lb.Delete{}}).errs...); err != nil {
			return false, c.tellDeparting(ctx, g, err)
		}
		c.carriers.set(g.name, nil)
		c.unhealthy.look(g.owner.Key(), nil, time.Now())
		for _, svc := range g.departing {
			c.recorder.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer, which no other Service shares")
		}
		have = lb.State{}
	}
	if len(g.members) > 0 && have.Exists() {
		return false, nil
	}
	if err := c.depart(ctx, g); err != nil {
		return false, err
	}
	if len(g.members) > 0 && len(g.departing)+len(g.left) > 0 {
		c.add(groupKey(g.name)) // they are told in a look of their own
		return true, nil
	}
	return len(g.members) == 0, nil
}

// tellDeparting says at the Services that depart what is in the way.
func (c *Controller) tellDeparting(ctx context.Context, g *group, err error) error {
	err = fmt.Errorf("removing the load balancer: %w", err)
	note, known := noteOf(err, lb.Spec{})
	if !known {
		return err
	}
	for _, svc := range g.departing {
		notes := []lb.Note{note}
		err = errors.Join(err, c.tell(ctx, svc, svc, telling{notes: notes, status: svc.Status.LoadBalancer, memory: recall(svc), managed: hadManaged(svc)}))
	}
	return err
}

// depart lets Services go whose ports are closed, with what else they have in the cloud.
func (c *Controller) depart(ctx context.Context, g *group) error {
	var errs []error
	for _, svc := range g.departing {
		c.former.Delete(svc.UID)
		if !helpers.HasLBFinalizer(svc) && !marked(svc) {
			continue
		}
		_, _, err := c.dispose(ctx, svc)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leave has the groups that a Service shares looked at: it goes when its ports there are closed.
func (c *Controller) leave(svc *corev1.Service, groups []string) {
	for _, group := range groups {
		c.carriers.add(group, string(svc.UID))
		c.add(groupKey(group))
	}
}

// ownOf finds the load balancers that Services had before they shared this one. Whether one may
// have any is known by its finalizer until it is named here or was looked at, and after that by the regular
// look.
func (c *Controller) ownOf(ctx context.Context, g *group, have lb.State) error {
	for i := range g.members {
		m := &g.members[i]
		had, looked := c.former.Load(m.svc.UID)
		may := had == true || !looked && helpers.HasLBFinalizer(m.svc)
		owner := c.owner(m.svc)
		if m.standing != lb.Joined || !may || had != true && owner.Carries(have.Labels) {
			continue
		}
		own, err := c.backend.Observe(ctx, owner)
		if err != nil {
			return fmt.Errorf("looking for the load balancer that Service %s had: %w", klog.KObj(m.svc), err)
		}
		m.own = own
		c.former.Store(m.svc.UID, own.Exists())
	}
	return nil
}

// ensureGroup makes the load balancer be what the group asks for, and tells how it went.
func (c *Controller) ensureGroup(ctx context.Context, g *group, have lb.State) ([]lb.Note, error) {
	claimed, err := c.claimAll(ctx, g)
	if apierrors.IsNotFound(err) {
		c.add(groupKey(g.name)) // the cache will learn of it
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := c.groupPlan(g)
	done := c.convergeFrom(ctx, have, p, hooks{Wanted: func(ctx context.Context) (bool, error) { return c.allWanted(ctx, g) }})
	if done.Unwanted {
		c.add(groupKey(g.name))
		return nil, nil
	}
	if done.Seen && done.State.Exists() {
		c.carriers.set(g.name, done.Spec.Sharers)
	}
	if err := c.tellRemoved(g, done.Removed); err != nil {
		return nil, err
	}
	for _, m := range done.members {
		c.aims(m.svc, done.Nodes, done.State)
		if joined := len(m.part.Listeners) > 0 && !c.owner(m.svc).Carries(have.Labels); joined && done.State.Exists() {
			c.recorder.Event(m.svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", fmt.Sprintf("Ensured load balancer, shared as %q", g.name))
		}
	}
	c.lookAgainAtGroup(g, done)
	for i := range g.members {
		g.members[i].svc = claimed[i]
	}
	notes, err := c.reportGroup(ctx, g, p, done)
	if done.Transient == nil {
		err = errors.Join(err, c.depart(ctx, g), c.leaveOwn(ctx, g, done))
	}
	for _, m := range g.members {
		for _, key := range c.keysOf(m.svc) {
			waits := m.standing == lb.Leaving && done.Spec.Name != have.Name // for the name
			left := m.standing == lb.Joined && key != groupKey(g.name) && !c.owner(m.svc).Carries(have.Labels)
			if waits || left {
				c.add(key)
			}
		}
	}
	return notes, errors.Join(done.Transient, err)
}

// claimAll marks the Services that can be served as ours, see [Controller.claim].
func (c *Controller) claimAll(ctx context.Context, g *group) ([]*corev1.Service, error) {
	claimed := make([]*corev1.Service, len(g.members))
	for i := range g.members {
		m := &g.members[i]
		claimed[i] = m.svc
		if m.standing != lb.Joined || m.plan.Refused || len(m.plan.Spec.Barred) > 0 && !helpers.HasLBFinalizer(m.svc) {
			continue
		}
		managed := m.plan.Spec.Managed != nil
		var err error
		if claimed[i], err = c.claim(ctx, m.svc, managed); err != nil {
			return nil, err
		}
		m.plan.hadManaged = m.plan.hadManaged || managed
	}
	return claimed, nil
}

// allWanted asks the API server itself, before a creation, whether all Services still ask for it.
func (c *Controller) allWanted(ctx context.Context, g *group) (bool, error) {
	for _, m := range g.members {
		if m.standing != lb.Joined {
			continue
		}
		if wanted, err := c.stillWanted(ctx, m.svc); !wanted {
			return false, err
		}
	}
	return true, nil
}

// tellRemoved tells all Services of targets that were removed and that no Node has.
func (c *Controller) tellRemoved(g *group, removed []lb.Target) error {
	for _, m := range g.members {
		strangers, err := c.strangers(m.svc, removed)
		if err != nil {
			return err
		}
		if len(strangers) > 0 {
			c.recorder.Event(m.svc, corev1.EventTypeWarning, lb.ReasonTargetsRemoved, removal(strangers))
		}
	}
	return nil
}

// lookAgainAtGroup queues a group for what is to be done later.
func (c *Controller) lookAgainAtGroup(g *group, done outcome) {
	key := groupKey(g.name)
	if done.RetryTargets > 0 && done.RetryTargets < driftPeriod {
		c.queue.AddAfter(key, done.RetryTargets)
	}
	pendingAny := slices.ContainsFunc(done.members, func(m member) bool { return pending(m.notes) })
	if (done.waits || pendingAny) && done.Transient == nil {
		c.queue.AddAfter(key, trialLook)
	}
}

// reportGroup writes what became of a group's plan to each of its Services. Those that are leaving
// are told where they went.
func (c *Controller) reportGroup(ctx context.Context, g *group, p Plan, done outcome) ([]lb.Note, error) {
	var all []lb.Note
	var errs []error
	for _, m := range done.members {
		if m.standing != lb.Joined {
			continue
		}
		latest := m.svc
		if i := slices.IndexFunc(g.members, func(now member) bool { return now.uid() == m.uid() }); i >= 0 {
			latest = g.members[i].svc
		}
		t := c.tellingOf(m, latest, done)
		if done.Transient != nil && condition(t.notes).Status == metav1.ConditionTrue {
			updated := latest.DeepCopy() // nothing is accepted that is not there
			updated.Status.LoadBalancer = t.status
			_, err := c.patch(ctx, latest, updated)
			errs = append(errs, err)
			continue
		}
		err := c.tell(ctx, m.svc, latest, t)
		if err == nil {
			c.announceHealed(m.svc, done.State.Only(m.uid()))
		}
		all, errs = append(all, t.notes...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// tellingOf is what a Service of a group is to say.
func (c *Controller) tellingOf(m member, svc *corev1.Service, done outcome) telling {
	t := telling{notes: m.told(done.Notes), status: svc.Status.LoadBalancer, memory: m.memory}
	needed := m.plan.Refused || m.plan.Spec.Managed != nil || done.Transient != nil
	t.managed = hadManaged(svc) && needed
	spec, exists := m.spec(), done.Seen && done.State.Exists()
	if exists {
		state := done.State
		state.Listeners = slices.DeleteFunc(slices.Clone(state.Listeners), func(l lb.Listener) bool {
			_, is := lb.ByPort(spec.Listeners)[l.Port]
			return !is
		})
		t.notes = slices.Concat(t.notes, c.targetsHealth(svc, spec, state, m.plan.idle()))
	}
	switch served := len(spec.Listeners) > 0; {
	case m.plan.Refused:
	case m.own.Exists() && !complete(m, done):
		// What it has alone serves it until this does.
	case exists && served:
		t.status = ingressStatus(spec, done.State)
	case exists && len(c.carriers.of(m.uid())) > 1:
		// Nor does it leave the group that it comes from before this one serves it.
	case exists, lost(svc, done):
		t.status = corev1.LoadBalancerStatus{}
	}
	return t
}

// complete reports whether all ports of a Service are served, as far as is known.
func complete(m member, done outcome) bool {
	return done.Transient == nil && len(m.part.Listeners) > 0 && len(m.part.Unopened) == 0 &&
		!slices.ContainsFunc(m.told(done.Notes), func(n lb.Note) bool { return n.Reason == reasonRejected })
}

// leaveOwn deletes the load balancers that Services had before they shared this one, once this one
// serves all of their ports, and keeps the targets of the others up to date.
func (c *Controller) leaveOwn(ctx context.Context, g *group, done outcome) error {
	var errs []error
	for _, m := range done.members {
		if !m.own.Exists() {
			continue
		}
		if !complete(m, done) {
			errs = append(errs, c.holdOwn(ctx, m))
			continue
		}
		now, err := c.backend.Observe(ctx, g.owner)
		open := lb.ByPort(now.Only(m.uid()).Listeners)
		if err != nil || slices.ContainsFunc(m.part.Listeners, func(l lb.Listener) bool { return open[l.Port] != l }) {
			c.add(groupKey(g.name))
			errs = append(errs, err)
			continue
		}
		c.recorder.Event(m.svc, corev1.EventTypeNormal, reasonNowShared,
			fmt.Sprintf("The load balancer shared as %q serves the Service now, at other addresses; its own, %q, is deleted", g.name, m.own.Name))
		if err := errors.Join(c.run(ctx, m.own, []lb.Op{lb.Delete{}}).errs...); err != nil {
			errs = append(errs, fmt.Errorf("removing the load balancer that Service %s had: %w", klog.KObj(m.svc), err))
			continue
		}
		c.former.Store(m.svc.UID, false)
		if m.own.Name != done.Spec.Name {
			c.add(groupKey(g.name)) // the name may have been waited for
		}
	}
	return errors.Join(errs...)
}

// reasonNowShared: a Service that had a load balancer of its own shares one now.
const reasonNowShared = "SharingLoadBalancer"

// holdOwn keeps the load balancer that a Service has alone in service.
func (c *Controller) holdOwn(ctx context.Context, m member) error {
	p := m.plan
	p.Refused, p.Notes, p.hadManaged = true, nil, false
	done := c.convergeFrom(ctx, m.own, p, hooks{})
	return done.Transient
}

// groupSettled reports whether a reconciliation of a group would find nothing to do.
func (c *Controller) groupSettled(ctx context.Context, name string, states []lb.State, certificates func() ([]lb.Certificate, error)) (bool, error) {
	g, err := c.gather(name)
	if err != nil {
		return false, err
	}
	settled := true
	for _, m := range g.members {
		if len(ownedBy(c.owner(m.svc), states)) > 0 {
			c.former.Store(m.svc.UID, true)
			settled = false
		}
	}
	owned := ownedBy(g.owner, states)
	if !settled || len(g.departing) > 0 || len(owned) > 1 {
		return false, nil
	}
	var have lb.State
	switch {
	case len(owned) == 1:
		have = owned[0]
	case !g.hopeless():
		return false, nil
	}
	seen := func(owner lb.Owner) (lb.State, error) {
		for _, s := range ownedBy(owner, states) {
			return s, nil
		}
		return lb.State{}, nil
	}
	if err := c.sort(ctx, g, have, seen); err != nil || len(g.departing)+len(g.left)+len(g.gone) > 0 {
		return false, err
	}
	for _, m := range g.members {
		if m.standing == lb.Joined && !m.plan.Refused && len(m.plan.Spec.Barred) == 0 && !helpers.HasLBFinalizer(m.svc) ||
			m.plan.hadManaged && m.plan.Spec.Managed == nil && !m.plan.Refused {
			return false, nil
		}
	}
	p := c.groupPlan(g)
	var known []lb.Certificate
	if p.needsCertificates() {
		if known, err = certificates(); err != nil {
			return false, fmt.Errorf("listing certificates: %w", err)
		}
	}
	if p = p.Against(have, known); len(p.Ops) > 0 || p.waits {
		return false, nil
	}
	done := outcome{Spec: p.Spec, State: have, Seen: true, Notes: p.Notes, members: p.members}
	for _, m := range p.members {
		c.aims(m.svc, p.nodes, have)
		if m.standing == lb.Joined && !equality.Semantic.DeepEqual(m.svc, told(m.svc, c.tellingOf(m, m.svc, done))) {
			return false, nil
		}
	}
	return true, nil
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
	return err == nil && c.groupPlan(g).Against(lb.State{}, nil).crowded()
}
