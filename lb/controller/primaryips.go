package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/underlay-ccm/underlay/lb"
)

// primaryIPs are what was found of the primary IPs that a Service names.
type primaryIPs struct {
	looked bool
	found  []lb.PrimaryIP
}

// primaryIPs looks for those of which it isn't known whether the load balancer has them: before a
// creation, and until a label of the load balancer says so. At rest that is no request.
func (c converger) primaryIPs(ctx context.Context, p Plan, have lb.State) (primaryIPs, error) {
	if p.Refused || p.impossible() && !have.Exists() {
		return primaryIPs{}, nil
	}
	unknown := p.Spec.UnknownPrimaryIPs(have)
	if len(unknown) == 0 {
		return primaryIPs{}, nil
	}
	found, err := c.backend.PrimaryIPs(ctx, unknown)
	if err != nil {
		return primaryIPs{}, fmt.Errorf("looking for primary IPs: %w", err)
	}
	return primaryIPs{looked: true, found: found}, nil
}

// lookForPrimaryIPs looks once in a reconciliation: a load balancer that is created in it has what
// was found before.
func (c converger) lookForPrimaryIPs(ctx context.Context, p Plan, o *outcome) error {
	if o.addresses.looked {
		return nil
	}
	var err error
	o.addresses, err = c.primaryIPs(ctx, p, o.State)
	return err
}

// addressed returns the plan with the primary IPs that were found, and false if the load balancer
// may not be created with them, or without. Nobody who only looks has looked for them.
func (p Plan) addressed(have lb.State) (Plan, bool) {
	if !p.addresses.looked && len(p.Spec.UnknownPrimaryIPs(have)) > 0 {
		p.Spec = p.Spec.RememberedPrimaryIPs(have)
		return p, true
	}
	spec, notes := p.Spec.WithPrimaryIPs(have, p.addresses.found)
	p.Spec, p.Notes = spec, slices.Concat(p.Notes, notes)
	isError := func(n lb.Note) bool { return n.Grade == lb.Error }
	if !have.Exists() && slices.ContainsFunc(notes, isError) {
		p.Refused = true
		return p, false
	}
	return p, true
}

// inUse reports whether something else has a primary IP: maybe a load balancer that is about to go,
// which is worth looking again sooner than at the regular look.
func inUse(notes []lb.Note) bool {
	return slices.ContainsFunc(notes, func(n lb.Note) bool { return n.Reason == lb.ReasonPrimaryIPInUse })
}
