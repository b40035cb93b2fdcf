package lb

import (
	"fmt"
	"maps"
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
//	public interface off, when no target is reached through it any more
func Diff(want Spec, have State) []Op {
	if !have.Exists() {
		return []Op{Create{Spec: want}}
	}
	var ops []Op
	add := func(when bool, op Op) {
		if when {
			ops = append(ops, op)
		}
	}
	labels := have.labelsWith(want.Owner)
	moves := want.Network != 0 && want.Network != have.Network
	gone, targets := diffTargets(want.Targets, remaining(have, moves))
	closed, listeners := diffListeners(want.Listeners, have.Listeners)

	add(want.Name != have.Name || !maps.Equal(labels, have.Labels), Update{Name: want.Name, Labels: labels})
	add(want.Algorithm != have.Algorithm, ChangeAlgorithm{Algorithm: want.Algorithm})
	add(want.Public && !have.Public, SetPublicInterface{Enabled: true})
	ops = append(ops, closed...)
	ops = append(ops, gone...)
	add(moves && have.Network != 0, DetachNetwork{Network: have.Network})
	add(want.Type != have.Type, ChangeType{Type: want.Type})
	add(moves, AttachNetwork{Network: want.Network})
	ops = append(ops, targets...)
	ops = append(ops, listeners...)
	add(!want.Public && have.Public, SetPublicInterface{Enabled: false})
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
	for _, port := range slices.Sorted(maps.Keys(wanted)) {
		old, ok := present[port]
		switch {
		case !ok:
			changed = append(changed, AddListener{Listener: wanted[port]})
		case old != wanted[port]:
			changed = append(changed, UpdateListener{Listener: wanted[port]})
		}
	}
	return closed, changed
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
