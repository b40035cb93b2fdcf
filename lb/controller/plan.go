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

// plan is what a Service asks for, before the cloud is looked at.
type plan struct {
	spec    lb.Spec
	notes   []lb.Note
	refused bool // nothing may be created or changed; notes say why
}

func (c *Controller) plan(svc *corev1.Service) (plan, error) {
	spec, notes, err := lb.Parse(question(svc), c.defaults)
	p := plan{spec: spec, notes: notes}
	var refused *lb.RefusedError
	if errors.As(err, &refused) {
		p.refused = true
		p.notes = slices.Concat(refused.Notes, notes)
	}
	// The selector's syntax is Kubernetes', so it is read here; even when the rest is refused, so that
	// the user learns everything at once.
	text := svc.Annotations[lb.AnnotationNodeSelector]
	selector, err := labels.Parse(text)
	if err != nil {
		p.refused = true
		p.notes = append(p.notes, lb.Note{
			Grade: lb.Error, Reason: lb.ReasonInvalid, Field: lb.AnnotationNodeSelector, Value: text,
			Text: fmt.Sprintf("not a label selector (%v): write it as kubectl's --selector", err),
		})
	}
	if p.refused {
		return p, nil
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return plan{}, fmt.Errorf("listing nodes: %w", err)
	}
	p.spec = spec.WithTargets(servers(nodes, selector))
	if len(p.spec.Targets) == 0 {
		p.notes = append(p.notes, lb.Note{
			Grade: lb.Warning, Reason: reasonNoNodes,
			Text: "no node can be a target: nodes need a provider ID hcloud://…, no label " + corev1.LabelNodeExcludeBalancers + ", and to match the node selector if there is one",
		})
	}
	return p, nil
}

// against adjusts the plan to the load balancer that exists.
func (p plan) against(have lb.State) plan {
	spec, notes := p.spec.Fit(have)
	p.spec = spec
	p.notes = slices.Concat(p.notes, notes, lb.Immovable(spec, have))
	return p
}
