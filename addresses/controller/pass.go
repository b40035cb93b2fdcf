package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// errOutdated means that the basis of a pass has changed. The pass is repeated.
var errOutdated = errors.New("decided on outdated state")

// plansInPass limits how often a pass plans again because the stored ledger or a Service changed.
const plansInPass = 5

// pass reconciles all addresses: it stores the ledger, then updates routers and Services.
func (c *Controller) pass(ctx context.Context) error {
	now := time.Now()
	c.fresh = false
	if c.known.object == nil || now.Sub(c.readAt) >= lookAgain {
		if err := c.read(ctx, now); err != nil {
			return err
		}
	}
	p, err := c.converge(ctx, c.cached(now))
	if err != nil {
		return err
	}
	for _, r := range c.routing {
		r.want(p)
	}
	c.show(p)
	return c.report(ctx, p)
}

func (c *Controller) read(ctx context.Context, now time.Time) error {
	found, err := c.store.read(ctx)
	if err != nil {
		c.known = stored{}
		return err
	}
	c.known, c.fresh, c.readAt = found, true, now
	return nil
}

// converge plans until the plan is stored.
func (c *Controller) converge(ctx context.Context, v view) (plan, error) {
	confirmed := make(map[string]bool)
	for range plansInPass {
		lost := c.known.lost()
		if lost {
			if err := c.listLive(ctx, v); err != nil {
				return plan{}, err
			}
		}
		p := newPlan(v, c.known.ledger, c.pools, c.selection, lost)
		if done, err := c.confirm(ctx, &p, confirmed); err != nil {
			return plan{}, err
		} else if !done {
			continue
		}
		c.balance(&p)
		text, err := p.ledger.MarshalText()
		if err != nil || string(text) == c.known.text {
			return p, err
		}
		live, err := c.store.write(ctx, c.known.object, string(text))
		if err == nil {
			c.known, c.fresh = stored{p.ledger, string(text), live}, true
			c.stored(ctx, p, lost)
			return p, nil
		}
		if isConflict(err) {
			c.metrics.conflicts.Inc()
		}
		// Another process may have written it, or this write succeeded despite the error.
		klog.FromContext(ctx).Info("The ledger was not written; reading it again", "cause", err.Error())
		if err := c.read(ctx, time.Now()); err != nil {
			return plan{}, err
		}
	}
	return plan{},
		fmt.Errorf("%w: the stored ledger, or a Service, changed %d times in a row", errOutdated,
			plansInPass)
}

// cached returns the contents of the caches. Their listers return no errors.
func (c *Controller) cached(now time.Time) view {
	v := view{
		services: make(map[types.UID]*corev1.Service), namespaces: make(map[string]labels.Set),
		slices: make(map[types.NamespacedName][]*discoveryv1.EndpointSlice),
	}
	services, _ := c.services.List(labels.Everything())
	for _, svc := range services {
		v.services[svc.UID] = c.newest.Of(svc)
	}
	if c.namespaces != nil {
		all, _ := c.namespaces.List(labels.Everything())
		for _, ns := range all {
			v.namespaces[ns.Name] = ns.Labels
		}
	}
	all, _ := c.slices.List(labels.Everything())
	for _, slice := range all {
		of := types.NamespacedName{
			Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName],
		}
		v.slices[of] = append(v.slices[of], slice)
	}
	for _, r := range c.routing {
		c.health.observe(r.takeOutcomes(), now)
	}
	nodes, _ := c.nodes.List(labels.Everything())
	v.fleet = newFleet(nodes, c.health, c.routers, now)
	return v
}

// listLive replaces the Services of a view by a live list: the ledger is rebuilt from them, and
// addresses of a Service that is missing in the cache would be lost.
func (c *Controller) listLive(ctx context.Context, v view) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := c.store.client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Services, to rebuild the ledger of addresses: %w", err)
	}
	clear(v.services)
	for i := range list.Items {
		v.services[list.Items[i].UID] = &list.Items[i]
	}
	return nil
}

// confirm reads the Services that lose an address from the API server, as caches may be outdated.
// It updates the view and reports whether the plan is still valid.
func (c *Controller) confirm(
	ctx context.Context, p *plan, confirmed map[string]bool,
) (stands bool, err error) {
	stands = true
	for _, share := range p.freed(c.known.ledger) {
		if confirmed[share.UID] {
			continue
		}
		live, err := c.get(ctx, share.Namespace, share.Name)
		if err != nil {
			return false, err
		}
		confirmed[share.UID] = true
		cached := p.services[types.UID(share.UID)]
		switch {
		case live == nil || string(live.UID) != share.UID:
			delete(p.services, types.UID(share.UID))
			stands = stands && cached == nil
		case cached == nil || cached.ResourceVersion != live.ResourceVersion:
			p.services[live.UID] = live
			stands = false
		}
	}
	return stands, nil
}

// get reads a Service from the API server; nil if it does not exist.
func (c *Controller) get(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	live, err := c.store.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, "services", name):
		return nil, nil
	case err != nil:
		return nil,
			fmt.Errorf("reading Service %s/%s before its address is freed: %w", namespace, name, err)
	}
	return live, nil
}

// stored reports the changes that were just stored.
func (c *Controller) stored(ctx context.Context, p plan, lost bool) {
	logger := klog.FromContext(ctx)
	if lost && p.showing() {
		text := "The ledger of addresses was lost, and is rebuilt from the Services' status and the nodes' reports"
		logger.Error(nil, text, "configMap", addresses.LedgerName)
		c.recorder.Event(c.ledgerReference(), corev1.EventTypeWarning, reasonRebuilt, text)
	}
	for _, m := range p.moves {
		why := p.why[m.Address]
		c.metrics.moves.WithLabelValues(why).Inc()
		logger.Info("An address moves", "address", m.Address, "from", m.From, "to", m.To, "epoch",
			m.Epoch, "reason", why)
		if m.From == "" || m.To == "" {
			continue
		}
		if why != whyBalanced {
			c.balanceAt = p.fleet.now.Add(balanceAfter)
		}
		c.announceMove(p, m)
	}
}

func (c *Controller) announceMove(p plan, m addresses.Move) {
	e, _ := p.ledger.Entry(m.Address)
	for _, s := range e.Shares {
		if svc := p.services[types.UID(s.UID)]; svc != nil {
			c.recorder.Eventf(svc, corev1.EventTypeNormal, reasonMoved, "%s moves from node %s to %s: %s",
				m.Address, m.From, m.To, p.why[m.Address])
		}
	}
}

// showing reports whether any Service shows addresses that this controller assigned.
func (p *plan) showing() bool {
	for uid := range p.request {
		if svc := p.services[uid]; svc != nil && accepted(svc) && len(shown(svc)) > 0 {
			return true
		}
	}
	return false
}
