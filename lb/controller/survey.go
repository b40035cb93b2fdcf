package controller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// Survey is the observed state of a cluster and its cloud. The controller plans by it, and other
// packages compute the same plans without executing them.
type Survey struct {
	Services []*corev1.Service
	Nodes    []*corev1.Node
	Slices   func(*corev1.Service) []*discoveryv1.EndpointSlice
	// States are the project's load balancers.
	States       []lb.State
	Certificates []lb.Certificate
	Defaults     lb.Defaults
	Now          time.Time
	damper       *damper // nil: no damping
}

// Surveyed is a load balancer with the controller's plan for it.
type Surveyed struct {
	Have lb.State // zero: none
	// Services are those that it serves or should serve, oldest first.
	Services []*corev1.Service
	Plan     lb.Plan
	// Conflict is why the Services cannot have a load balancer, or nil. If set, Ops is empty.
	Conflict error
	members  []lb.Member
}

// Balancer returns the plan for an owner's load balancer. The Ops are all differences, without the
// steps that depend on health checks.
func (v Survey) Balancer(owner lb.Owner) Surveyed {
	b, err := v.balancer(owner)
	if err != nil {
		return Surveyed{Conflict: err}
	}
	out := Surveyed{}
	if owner.Group == "" && len(b.members) == 1 && !b.have.Exists() && b.members[0].Parsed {
		b.have, out.Conflict = lb.Claim(b.members[0].Spec, v.States)
		if b.have.Exists() {
			b.members, b.services = nil, nil
			v.fill(&b)
		}
	}
	out.Have, out.Services, out.members = b.have, b.services, b.members
	if len(b.members) == 0 {
		return out
	}
	out.Plan = lb.Input{
		Owner: owner, Members: b.members, Have: b.have, Certificates: v.Certificates, Taken: b.taken,
		Now: v.Now, Refused: retriesLater,
	}.Plan()
	if named := b.have.Services(); out.Conflict == nil && owner.Group != "" {
		taken := func(have lb.State) bool { return have.Name == out.Plan.Spec.Name }
		switch {
		case len(named) > 0 && len(named) == len(b.gone):
			out.Conflict = fmt.Errorf("load balancer %q %w: it is shared by Services that this cluster does not have", b.have.Name, lb.ErrNotOwned)
		case !b.have.Exists() && slices.ContainsFunc(v.States, taken):
			out.Conflict = fmt.Errorf("load balancer %q %w", out.Plan.Spec.Name, lb.ErrNotOwned)
		}
	}
	if out.Conflict != nil {
		out.Plan.Ops = nil
	}
	return out
}

// retriesLater omits retries of certificates, which depend on the controller's backoff.
func retriesLater(op lb.Op) error {
	if _, retries := op.(lb.RetryCertificate); retries {
		return errTriedToday
	}
	return nil
}

// For returns the ops and notes that concern a Service. Ops on the load balancer as a whole are
// returned for the oldest.
func (s Surveyed) For(svc *corev1.Service) (ops []lb.Op, notes []lb.Note) {
	i := slices.IndexFunc(s.Services, func(member *corev1.Service) bool {
		return member.UID == svc.UID
	})
	if i < 0 {
		return nil, nil
	}
	for _, op := range s.Plan.Ops {
		if uid := about(&opError{op: op}, s.Plan.Spec); uid == string(svc.UID) || uid == "" && i == 0 {
			ops = append(ops, op)
		}
	}
	return ops, notesOf(s.members[i], s.Plan, i, s.Plan.Notes)
}

func notesOf(m lb.Member, p lb.Plan, i int, all []lb.Note) (notes []lb.Note) {
	for _, n := range slices.Concat(m.Notes, p.Part(i).Notes, all) {
		same := func(other lb.Note) bool { return other.String() == n.String() }
		if (n.About == "" || n.About == m.Spec.Owner.UID) && !slices.ContainsFunc(notes, same) {
			notes = append(notes, n)
		}
	}
	return notes
}
