package controller

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/lb"
)

// reasonNoNodes is upstream's name for a load balancer without targets.
const reasonNoNodes = "UnAvailableLoadBalancer"

// plan is what a Service asks for, before the cloud is looked at, and then what is to be done about it.
type plan struct {
	spec    lb.Spec
	servers []int64 // the nodes that shall be targets
	notes   []lb.Note
	refused bool // nothing may be created, and nothing but targets changed; notes say why
	aimless bool // not even the targets are known
	ops     []lb.Op
}

func (c *Controller) plan(svc *corev1.Service) (plan, error) {
	spec, notes, err := lb.Parse(question(svc), c.defaults)
	p := plan{spec: spec, notes: notes}
	var refused *lb.RefusedError
	if errors.As(err, &refused) {
		p.refused, p.spec.Owner = true, c.owner(svc)
		p.notes = slices.Concat(refused.Notes, notes)
	}
	// The selector's syntax is Kubernetes', so it is read here; even when the rest is refused, so that
	// the user learns everything at once.
	text := svc.Annotations[lb.AnnotationNodeSelector]
	selector, err := labels.Parse(text)
	if err != nil {
		p.refused, p.aimless = true, true
		p.notes = append(p.notes, lb.Note{
			Grade: lb.Error, Reason: lb.ReasonInvalid, Field: lb.AnnotationNodeSelector, Value: text,
			Text: fmt.Sprintf("not a label selector (%v): write it as kubectl's --selector", err),
		})
	}
	if p.aimless {
		return p, nil
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return plan{}, fmt.Errorf("listing nodes: %w", err)
	}
	p.servers = servers(nodes, selector)
	p.spec = p.spec.WithTargets(p.servers)
	if len(p.servers) == 0 && !p.refused {
		p.notes = append(p.notes, lb.Note{
			Grade: lb.Warning, Reason: reasonNoNodes,
			Text: "no node can be a target: nodes need a provider ID hcloud://…, no label " + corev1.LabelNodeExcludeBalancers + ", and to match the node selector if there is one",
		})
	}
	return p, nil
}

// against adjusts the plan to the load balancer that exists, and decides what to do with it.
func (p plan) against(have lb.State) plan {
	if p.refused {
		return p.holding(have)
	}
	spec, notes := p.spec.Fit(have)
	p.spec = spec
	p.notes = slices.Concat(p.notes, notes, lb.Immovable(spec, have))
	p.ops = lb.Diff(spec, have)
	return p
}

// holding keeps a load balancer in service although its Service is refused: nodes come and go meanwhile, and
// after enough of them nothing would be left of its targets.
func (p plan) holding(have lb.State) plan {
	if !have.Exists() {
		return p
	}
	held := lb.Note{
		Grade: lb.Warning, Reason: lb.ReasonHeld,
		Text: "until this is corrected, only the targets of the load balancer follow the nodes, and nothing else of it is changed",
	}
	if p.aimless {
		held.Text = "until this is corrected, nothing of the load balancer is changed, not even its targets"
		p.notes = slices.Concat(p.notes, []lb.Note{held})
		return p
	}
	gone, added, notes := lb.Retarget(have, p.servers)
	p.ops = slices.Concat(gone, added)
	p.notes = slices.Concat(p.notes, []lb.Note{held}, notes)
	return p
}
