package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// claimable looks up load balancers of other controllers for a Service without one, and verifies
// their absence.
func (c *Controller) claimable(ctx context.Context, o *outcome) error {
	if o.claimed.Exists() && !o.have.Exists() {
		o.take(o.claimed)
		return nil
	}
	takeable := func(svc *corev1.Service) bool { return holds(svc) && showsAny(svc) }
	if o.have.Exists() || o.hopeless() && !slices.ContainsFunc(o.services, takeable) {
		return nil
	}
	showing := slices.ContainsFunc(o.services, showsAny)
	// A Service to take over has addresses in its status, or its creation fails because the name
	// is taken. Other new load balancers do not cost these two requests.
	if o.owner.Group == "" && (showing || o.members[0].Spec.Takeover.Adopt) {
		m := o.members[0]
		spec := m.Spec
		if !m.Parsed || len(spec.Barred) > 0 {
			// Take it over only if it serves the Service already, by its label.
			spec.Name = ""
		}
		found, err := c.candidate(ctx, o, spec)
		if refusal(err) { // the found load balancer is not the Service's
			o.seen = c.checkProject(ctx) == nil
		}
		if err != nil {
			return err
		}
		if found.Exists() {
			o.take(found)
			return nil
		}
	}
	if showing {
		return c.checkProject(ctx)
	}
	return nil
}

// take replans for a load balancer of another controller.
func (o *outcome) take(have lb.State) {
	o.claimed, o.have, o.members, o.services, o.taken = have, have, nil, nil, nil
	o.survey.fill(&o.balancer)
}

// candidate returns a load balancer that may become an owner's, by label, or by name if it is set.
func (c *Controller) candidate(ctx context.Context, o *outcome, spec lb.Spec) (lb.State, error) {
	found, err := c.backend.Candidates(ctx, spec.Owner, spec.Name)
	o.found = found
	if err != nil {
		return lb.State{}, fmt.Errorf("looking for the load balancer: %w", err)
	}
	have, err := lb.Claim(spec, found)
	if err != nil {
		return have, fmt.Errorf("taking over: %w", err)
	}
	if have.Exists() {
		klog.FromContext(ctx).Info("Found load balancer of another controller", "loadBalancer", have.ID,
			"name", have.Name)
		if have.Labels[lb.LabelPeer] != spec.Owner.UID { // a name is not unique to the Service
			if err := c.checkProject(ctx); err != nil {
				return lb.State{}, err
			}
		}
	}
	return have, nil
}

// claimsByName explains why the name of a creation is taken, or finds that it can be taken over.
func (c *Controller) claimsByName(ctx context.Context, o *outcome) bool {
	i := slices.IndexFunc(o.notes, func(n lb.Note) bool { return n.Reason == lb.ReasonNotOwned })
	if i < 0 || o.owner.Group != "" {
		return false
	}
	found, err := c.candidate(ctx, o, o.plan.Spec)
	if o.claimed = found; found.Exists() {
		return true
	}
	if err != nil {
		o.notes = slices.Delete(o.notes, i, i+1)
		o.add(err)
		c.backoff.explain(o.owner, lb.Create{}, err)
	}
	return false
}

// unowned handles an owner without a usable load balancer: it has several, or they serve no
// Service of this cluster. It returns true if the reconciliation is finished.
func (c *Controller) unowned(ctx context.Context, o *outcome, err error) (ended bool, _ error) {
	var why lb.Note
	switch {
	case err != nil && o.unmarked != nil:
		c.announceUnexplained(o.unmarked, err.Error())
		return true, nil
	case err != nil:
		note, known := noteOf(fmt.Errorf("looking for the load balancer: %w", err), lb.Spec{})
		if !known {
			return false, err
		}
		why = note
	case len(o.gone) > 0 && o.owner.Group != "":
		if err := c.reallyGone(ctx, o.gone, o.have); err != nil {
			return false, err
		}
		if len(o.gone) < len(o.have.Services()) {
			return false, nil
		}
		if err := c.checkProject(ctx); err != nil {
			return false, err
		}
		why = ofOthers(o.have, c.cfg.Defaults.Cluster)
		o.have = lb.State{}
	default:
		return false, nil
	}
	o.notes = []lb.Note{why}
	withReport := c.reportAll(ctx, o.departing, why)
	_, err = c.report(ctx, o)
	return true, errors.Join(withReport, err)
}

// ofOthers returns the note about a load balancer of Services that this cluster does not have.
// Unlike UIDs of Services, names of groups and clusters can be the same in another cluster.
func ofOthers(have lb.State, cluster string) lb.Note {
	return lb.Note{
		Grade: lb.Error, Reason: lb.ReasonNotOwned, Field: lb.AnnotationShared,
		Text: fmt.Sprintf("load balancer %d is shared under this name in a cluster named %q by Services that this cluster does not have, so it is left alone: give each cluster of a project its own --cluster-name, or set another name here; if nobody needs it any more, delete it, or remove its labels underlay.dev/svc-… to share it here", have.ID, cluster),
	}
}

// reallyGone verifies at the API server that Services in a load balancer's labels do not exist:
// the cache can be older than writes of another process.
func (c *Controller) reallyGone(ctx context.Context, uids []string, have lb.State) error {
	live, err := c.cfg.Client.Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Services that the load balancer %q may serve: %w", have.Name, err)
	}
	for _, svc := range live.Items {
		if slices.Contains(uids, string(svc.UID)) {
			return fmt.Errorf("the cache does not know the Service %s, which shares the load balancer %q",
				klog.KObj(&svc), have.Name)
		}
	}
	return nil
}
