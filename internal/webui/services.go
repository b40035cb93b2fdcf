package webui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/survey"
)

// Service is a Service with what serves it: a load balancer, or addresses that nodes
// hold. One without a name of its own is a load balancer whose Service is gone.
type Service struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Tone Tone   `json:"tone"`
	// State is a word or two.
	State string `json:"state"`
	// By is what serves it, such as "load balancer web (7), lb11 in fsn1".
	By        string   `json:"by,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Ports     []Port   `json:"ports,omitempty"`
	// Targets are where its traffic goes, the worst health of all ports.
	Targets []Target `json:"targets,omitempty"`
	// Why is what is left to do and what people should know.
	Why    []string `json:"why,omitempty"`
	Orphan bool     `json:"orphan,omitempty"`
}

// Port is a listener.
type Port struct {
	Text    string `json:"text"`
	Check   string `json:"check,omitempty"`
	Healthy int    `json:"healthy"`
	Targets int    `json:"targets"`
}

// Target is a machine behind a Service. ID is empty where that is no Node of this
// cluster.
type Target struct {
	ID    string `json:"id,omitempty"`
	Title string `json:"title"`
	Tone  Tone   `json:"tone"`
	State string `json:"state"`
}

// services are all, those in trouble first, then by name.
func (v *View) services(s *survey.Snapshot) []Service {
	out := []Service{}
	balancers, err := survey.LoadBalancersOf(s)
	v.note(s, "load balancers", err)
	for i := range balancers.Services {
		if b := &balancers.Services[i]; !holdsAddress(s, b) {
			out = append(out, balanced(b))
		}
	}
	for i := range balancers.Orphans {
		out = append(out, balanced(&balancers.Orphans[i]))
	}
	held, err := survey.AddressesOf(s)
	v.note(s, "addresses", err)
	for _, row := range addressed(&held) {
		if i := slices.IndexFunc(out, func(o Service) bool { return o.ID == row.ID }); i >= 0 {
			out[i].join(&row)
		} else {
			out = append(out, row)
		}
	}
	v.Pools = append(v.Pools, addressBars(&held)...)
	if s.AddressesOn() || len(held.Addresses) > 0 {
		v.Notes = append(v.Notes, held.Notes...)
	}
	slices.SortStableFunc(out, func(a, b Service) int {
		return cmp.Or(worstFirst(a.Tone, b.Tone), strings.Compare(a.Name, b.Name))
	})
	return out
}

// holdsAddress reports whether nodes hold the Service's addresses, so that it has no
// load balancer.
func holdsAddress(s *survey.Snapshot, b *survey.BalancerRow) bool {
	i := slices.IndexFunc(s.Services, nameIs(b.Service))
	return i >= 0 && b.ID == 0 && s.AddressesOn() && s.AsksForAddress(s.Services[i])
}

func balanced(b *survey.BalancerRow) Service {
	out := Service{ID: serviceID(b.Service), Name: b.Service, Addresses: b.Published, Why: slices.Concat(b.Plan, b.Notes)}
	if b.Service == "" {
		out.ID, out.Name, out.Orphan = fmt.Sprintf("lb/%d", b.ID), b.Name, true
	}
	if b.ID != 0 {
		out.By = fmt.Sprintf("load balancer %s (%d)", b.Name, b.ID)
		if b.Type != "" {
			out.By += fmt.Sprintf(", %s in %s", b.Type, b.Location)
		}
		if b.Shared != "" {
			out.By += ", shared as " + b.Shared
		}
		out.Addresses = nil
		for _, a := range b.Addresses {
			out.Addresses = append(out.Addresses, a.String())
		}
	}
	for _, l := range b.Listeners {
		out.listen(l)
	}
	out.Tone, out.State = balancerState(b, &out)
	if c := b.Accepted; c != nil && c.Status == "False" && c.Message != "" {
		out.Why = append([]string{c.Message}, out.Why...)
	}
	return out
}

// join adds what else serves the Service: one that changes its class has both for a while.
func (v *Service) join(o *Service) {
	if worse(v.Tone, o.Tone) != v.Tone {
		v.Tone, v.State = o.Tone, o.State
	}
	v.By = strings.Trim(v.By+"; "+o.By, "; ")
	for _, a := range o.Addresses {
		if !slices.Contains(v.Addresses, a) {
			v.Addresses = append(v.Addresses, a)
		}
	}
	v.Targets = append(v.Targets, o.Targets...)
	v.Why = append(v.Why, o.Why...)
}

// listen adds a listener and its targets.
func (v *Service) listen(l survey.ListenerRow) {
	port := Port{Check: l.Check, Targets: len(l.Targets)}
	port.Text = fmt.Sprintf("%d → %d %s", l.Port, l.DestinationPort, l.Protocol)
	tones := map[string]Tone{"healthy": OK, "unhealthy": Bad, "unknown": Waits}
	for _, t := range l.Targets {
		if t.Health == "healthy" {
			port.Healthy++
		}
		target := Target{Title: t.Title(), Tone: tones[t.Health], State: t.State()}
		if t.Node != "" {
			target.ID = nodeID(t.Node)
		}
		i := slices.IndexFunc(v.Targets, func(o Target) bool { return o.Title == target.Title })
		switch {
		case i < 0:
			v.Targets = append(v.Targets, target)
		case worse(v.Targets[i].Tone, target.Tone) != v.Targets[i].Tone:
			v.Targets[i] = target
		}
	}
	v.Ports = append(v.Ports, port)
}

func balancerState(b *survey.BalancerRow, v *Service) (Tone, string) {
	healthy, targets := v.healthy()
	switch {
	case v.Orphan:
		return Waits, "its Service is gone"
	case b.Accepted != nil && b.Accepted.Status == "False":
		return Bad, "not accepted"
	case b.ID == 0 && len(b.Published) > 0:
		return Unknown, "load balancer not seen"
	case b.ID == 0:
		return Waits, "waits for its load balancer"
	case len(v.Ports) == 0:
		return Waits, "no listeners"
	case targets == 0:
		return Bad, "no targets"
	case healthy == 0 && slices.ContainsFunc(v.Targets, func(t Target) bool { return t.Tone == Waits }):
		return Waits, "not judged yet"
	case healthy == 0:
		return Bad, "no healthy target"
	case healthy < targets:
		return Waits, fmt.Sprintf("%d of %d targets healthy", healthy, targets)
	case len(b.Plan) > 0:
		return Waits, "changes are left to do"
	}
	return OK, fmt.Sprintf("%d targets healthy", healthy)
}

// healthy counts targets that are so on every port.
func (v *Service) healthy() (healthy, targets int) {
	for _, t := range v.Targets {
		targets++
		if t.Tone == OK {
			healthy++
		}
	}
	return healthy, targets
}
