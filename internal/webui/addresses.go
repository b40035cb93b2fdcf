package webui

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/survey"
)

func nameIs(name string) func(*corev1.Service) bool {
	return func(svc *corev1.Service) bool { return survey.NameOf(svc).String() == name }
}

// addressed are the Services with addresses that nodes hold, and those that wait for
// one.
func addressed(v *survey.AddressesView) []Service {
	all := map[string]*Service{}
	of := func(name string) *Service {
		if all[name] == nil {
			all[name] = &Service{ID: serviceID(name), Name: name, Tone: OK}
		}
		return all[name]
	}
	for i := range v.Addresses {
		for _, name := range v.Addresses[i].Services {
			of(name).hold(&v.Addresses[i])
		}
	}
	for _, w := range v.Waiting {
		svc := of(w.Service)
		svc.Tone, svc.State = worse(svc.Tone, Waits), "waits for an address"
		if w.Accepted != nil && w.Accepted.Status == "False" {
			svc.Tone = Bad
			svc.Why = append(svc.Why, w.Accepted.Message)
		}
	}
	out := make([]Service, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[name])
	}
	return out
}

// hold adds one address and the nodes that hold it, or are to.
func (v *Service) hold(a *survey.AddressRow) {
	tones := map[string]Tone{
		survey.AddressHeld: OK, survey.AddressMoving: Waits, survey.AddressNotSeen: Unknown, survey.AddressNoHolder: Waits,
		survey.AddressHeldTwice: Bad, survey.AddressNotHeld: Bad, survey.AddressRefused: Bad,
	}
	tone := tones[a.State]
	if v.State == "" || worse(v.Tone, tone) != v.Tone {
		v.State = a.State
	}
	v.Tone = worse(v.Tone, tone)
	v.Addresses = append(v.Addresses, a.Address.String())
	by := "address of pool " + a.Pool + ", " + a.Mover
	if a.Pool == "" {
		by = "address of no pool"
	}
	if !strings.Contains(v.By, by) {
		v.By = strings.TrimPrefix(v.By+"; "+by, "; ")
	}
	v.Why = append(v.Why, a.Notes...)
	wanted := slices.Concat(a.Nodes, []string{a.Holder})
	for _, node := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(wanted, a.HeldBy)))) {
		if node == "" {
			continue
		}
		t := Target{ID: nodeID(node), Title: node, Tone: OK, State: "holds " + a.Address.String()}
		switch holds := slices.Contains(a.HeldBy, node); {
		case !holds:
			t.Tone, t.State = tone, "is to hold "+a.Address.String()
		case !slices.Contains(wanted, node):
			t.Tone, t.State = worse(Waits, tone), "still holds "+a.Address.String()
		}
		v.Targets = append(v.Targets, t)
	}
}
