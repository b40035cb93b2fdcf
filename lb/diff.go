package lb

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Diff names what must be done to make a load balancer be as wanted; nothing when it is. A load balancer
// that does not exist is one Create.
//
// The order is part of the result, because the cloud refuses some orders and others lose traffic:
//
//	name and labels, so that ownership stands first
//	public interface on, before targets are reached through it
//	listeners and targets that go, before those that come need their room
//	the network it leaves, and with it the targets that were reached there
//	the type: what is left now fits the old one and the new one
//	the network it joins, before targets are reached through it
//	targets: one that changes its address is removed and added before the next one is touched
//	listeners that come or change
//	reverse DNS
//	public interface off, when no target is reached through it any more
//	labels that remembered what was there until now
func Diff(want Spec, have State) []Op {
	if !have.Exists() {
		return []Op{Create{Spec: want.inOneRequest()}}
	}
	var ops []Op
	add := func(when bool, op Op) {
		if when {
			ops = append(ops, op)
		}
	}
	marked, final := diffLabels(want, have)
	moves := want.Network != 0 && (want.Network != have.Network || !want.placed(have))
	gone, targets := diffTargets(want.Targets, remaining(have, moves))
	closed, listeners := diffListeners(want.Listeners, have.Listeners)

	add(want.Name != have.Name || !maps.Equal(marked, have.Labels), Update{Name: want.Name, Labels: marked})
	add(want.Algorithm != have.Algorithm, ChangeAlgorithm{Algorithm: want.Algorithm})
	add(want.Public && !have.Public, SetPublicInterface{Enabled: true})
	ops = append(ops, closed...)
	ops = append(ops, gone...)
	add(moves && have.Network != 0, DetachNetwork{Network: have.Network})
	add(want.Type != have.Type, ChangeType{Type: want.Type})
	add(moves, AttachNetwork{Network: want.Network, IP: want.PrivateIP, Range: want.PrivateRange})
	ops = append(ops, targets...)
	ops = append(ops, listeners...)
	ops = append(ops, diffReverseDNS(want, have)...)
	add(!want.Public && have.Public, SetPublicInterface{Enabled: false})
	add(!maps.Equal(marked, final), Update{Name: want.Name, Labels: final})
	return ops
}

// inOneRequest is the part of the spec that a creation can have. It chooses the address in the network itself,
// so one that wants a certain address gets into the network afterwards, and with it what is reached there.
func (s Spec) inOneRequest() Spec {
	if !s.PrivateIP.IsValid() && !s.PrivateRange.IsValid() {
		return s
	}
	s.Network, s.Public = 0, true
	if s.UsePrivateIP {
		s.Targets = nil
	}
	return s
}

// placed reports whether the address in the network is one that is wanted.
func (s Spec) placed(have State) bool {
	return (!s.PrivateIP.IsValid() || s.PrivateIP == have.PrivateIP) &&
		(!s.PrivateRange.IsValid() || s.PrivateRange.Contains(have.PrivateIP))
}

// Labels that remember which reverse DNS names we set: one that somebody else set is not ours to take back.
const (
	labelIPv4Name = "underlay.dev/ipv4-rdns"
	labelIPv6Name = "underlay.dev/ipv6-rdns"
)

// Labels are what a load balancer carries when it is created from this spec.
func (s Spec) Labels() map[string]string {
	labels := s.Owner.Labels()
	if s.IPv4Name != "" {
		labels[labelIPv4Name] = ""
	}
	if s.IPv6Name != "" {
		labels[labelIPv6Name] = ""
	}
	return labels
}

// diffLabels returns the label set that stands before anything else is done, and the one at the end. The
// cloud replaces the set as a whole, and labels of others are not ours to drop. A mark is set before what it
// remembers, and removed after that.
func diffLabels(want Spec, have State) (marked, final map[string]string) {
	marked = maps.Clone(have.Labels)
	if marked == nil {
		marked = make(map[string]string)
	}
	delete(marked, LabelCheck)
	if want.ChecksKept {
		marked[LabelCheck] = checkKept
	}
	maps.Copy(marked, want.Labels())
	final = maps.Clone(marked)
	if want.IPv4Name == "" {
		delete(final, labelIPv4Name)
	}
	if want.IPv6Name == "" {
		delete(final, labelIPv6Name)
	}
	return marked, final
}

// diffReverseDNS runs before the marks in the labels go.
func diffReverseDNS(want Spec, have State) (ops []Op) {
	for _, one := range []struct {
		ip         netip.Addr
		want, have string
		mark       string
	}{
		{have.IPv4, want.IPv4Name, have.IPv4Name, labelIPv4Name},
		{have.IPv6, want.IPv6Name, have.IPv6Name, labelIPv6Name},
	} {
		_, set := have.Labels[one.mark]
		if one.ip.IsValid() && one.want != one.have && (one.want != "" || set) {
			ops = append(ops, SetReverseDNS{IP: one.ip, Name: one.want})
		}
	}
	return ops
}

// remaining are the targets that are left when the load balancer moves to another network.
func remaining(have State, moves bool) []Target {
	if !moves || have.Network == 0 {
		return have.Targets
	}
	return slices.DeleteFunc(slices.Clone(have.Targets), func(t Target) bool { return t.Private })
}

func diffTargets(want, have []Target) (gone, changed []Op) {
	wanted := make(map[int64]Target, len(want))
	for _, t := range want {
		wanted[t.Server] = t
	}
	present := make(map[int64]Target, len(have))
	for _, t := range have {
		present[t.Server] = t
	}
	for _, id := range slices.Sorted(maps.Keys(present)) {
		if _, ok := wanted[id]; !ok {
			gone = append(gone, RemoveTarget{Target: present[id]})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		old, ok := present[id]
		if ok && old == wanted[id] {
			continue
		}
		if ok {
			changed = append(changed, RemoveTarget{Target: old})
		}
		changed = append(changed, AddTarget{Target: wanted[id]})
	}
	return gone, changed
}

func diffListeners(want, have []Listener) (closed, changed []Op) {
	wanted := make(map[int]Listener, len(want))
	for _, l := range want {
		wanted[l.Port] = l
	}
	present := make(map[int]Listener, len(have))
	for _, l := range have {
		present[l.Port] = l
	}
	for _, port := range slices.Sorted(maps.Keys(present)) {
		if _, ok := wanted[port]; !ok {
			closed = append(closed, DeleteListener{Port: port})
		}
	}
	var freeing []Op // a redirect that goes gives its port back
	for _, port := range slices.Sorted(maps.Keys(wanted)) {
		old, ok := present[port]
		switch update := (UpdateListener{Listener: wanted[port]}); {
		case !ok:
			changed = append(changed, AddListener{Listener: wanted[port]})
		case old.HTTP.Redirect && !wanted[port].HTTP.Redirect:
			freeing = append(freeing, update)
		case old != wanted[port]:
			changed = append(changed, update)
		}
	}
	return closed, slices.Concat(freeing, changed)
}

// Immovable notes the differences that no Op can mend: a load balancer stays where it was created.
func Immovable(want Spec, have State) []Note {
	if !have.Exists() {
		return nil
	}
	const text = "the load balancer %q is in %s and cannot move: set it back, or delete the Service and create it again (its addresses change)"
	switch {
	case want.Location != "" && want.Location != have.Location:
		return []Note{{
			Grade: Error, Reason: ReasonImmutable, Field: AnnotationLocation, Value: want.Location,
			Text: fmt.Sprintf(text, have.Name, have.Location),
		}}
	case want.NetworkZone != "" && want.NetworkZone != have.NetworkZone:
		return []Note{{
			Grade: Error, Reason: ReasonImmutable, Field: AnnotationNetworkZone, Value: want.NetworkZone,
			Text: fmt.Sprintf(text, have.Name, have.NetworkZone),
		}}
	}
	return nil
}
