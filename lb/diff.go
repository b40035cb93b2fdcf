package lb

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Diff names what must be done to make a load balancer be as wanted; nothing when it is. A load
// balancer that does not exist is one Create.
//
// The order is part of the result, because the cloud refuses some orders and others lose traffic:
//
//	labels, so that ownership comes first, then the name
//	public interface on, before targets are reached through it
//	listeners and targets that go, before those that come need their room
//	the type: what is left now fits the old one and the new one
//	the network, before targets are reached through it
//	public interface off, if no target is reached through it any more and listeners are to come
//	targets that come, then those that change their address, one after the other
//	listeners that come or change; none comes while the public interface has to go first
//	pods that go, if there was room for those that come
//	reverse DNS
//	public interface off, if targets were reached through it until now
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
	gone, added, replaced := diffTargets(want, have.Targets, want.lost(have))
	closed, listeners := diffListeners(want.Listeners, have.Listeners)
	closes := !want.Public && have.Public
	if closes { // no port opens before it is, and a load balancer without ports gets no targets
		if len(have.Listeners) == 0 {
			added = nil
		}
		listeners = slices.DeleteFunc(listeners, func(op Op) bool { _, opens := op.(AddListener); return opens })
	}
	early := closes && !slices.ContainsFunc(have.Targets, func(t Target) bool { return !t.Private })

	add(!maps.Equal(marked, have.Labels), SetLabels{Labels: marked})
	add(want.Name != have.Name, Rename{Name: want.Name})
	add(want.Algorithm != have.Algorithm, ChangeAlgorithm{Algorithm: want.Algorithm})
	add(want.Public && !have.Public, SetPublicInterface{Enabled: true})
	ops = append(ops, closed...)
	gone, last := want.goLast(have, gone, len(added))
	ops = append(ops, gone...)
	add(want.Type != have.Type, ChangeType{Type: want.Type})
	if want.moves(have) {
		ops = append(ops, want.move(have))
	}
	add(closes && early, SetPublicInterface{Enabled: false})
	ops = append(ops, added...)
	ops = append(ops, replaced...)
	ops = append(ops, listeners...)
	ops = append(ops, last...)
	ops = append(ops, diffReverseDNS(want, have)...)
	add(closes && !early, SetPublicInterface{Enabled: false})
	add(!maps.Equal(marked, final), SetLabels{Labels: final})
	return ops
}

// inOneRequest is the part of the spec that a creation can have. It chooses the address in the
// network itself, so one that wants a certain address gets into the network afterwards, and with it
// what is reached there. One that is to be private opens no port before it is.
func (s Spec) inOneRequest() Spec {
	if s.PodTargets {
		s.Targets = nil // pods can be reached when the load balancer's address is known to their nodes
	}
	if at := s.attachment(); !at.IP.IsValid() && !at.Range.IsValid() {
		return s
	}
	if !s.Public {
		s.Listeners = nil
	}
	s.Network, s.Public = 0, true
	if s.UsePrivateIP {
		s.Targets = nil
	}
	return s
}

// moves reports whether the load balancer is to be attached, or to be attached elsewhere.
func (s Spec) moves(have State) bool {
	return s.Network != 0 && (s.Network != have.Network || !s.placed(have))
}

// move is how it gets to its place in the network.
func (s Spec) move(have State) Op {
	if have.Network == 0 {
		return s.attachment()
	}
	return MoveNetwork{
		Leave: DetachNetwork{Network: have.Network}, Join: s.attachment(),
		Back: AttachNetwork{Network: have.Network, IP: have.PrivateIP}, Lost: s.lost(have),
	}
}

// attachment is how it joins the network. The subnet by default must not contradict the address.
func (s Spec) attachment() AttachNetwork {
	op := AttachNetwork{Network: s.Network, IP: s.PrivateIP, Range: s.PrivateRange}
	if !op.IP.IsValid() && !op.Range.IsValid() {
		op.Range = s.Subnet
	}
	return op
}

// placed reports whether the address in the network is one that is wanted.
func (s Spec) placed(have State) bool {
	return (!s.PrivateIP.IsValid() || s.PrivateIP == have.PrivateIP) &&
		(!s.PrivateRange.IsValid() || s.PrivateRange.Contains(have.PrivateIP))
}

// Labels that remember which reverse DNS names we set: one that somebody else set is not ours to
// take back.
const (
	labelIPv4Name = "underlay.dev/ipv4-rdns"
	labelIPv6Name = "underlay.dev/ipv6-rdns"
)

// Labels are what a load balancer of this spec carries, beside those of others.
func (s Spec) Labels() map[string]string {
	labels := s.Owner.Labels()
	for _, uid := range s.Sharers {
		labels[labelServicePrefix+uid] = ""
	}
	for port, uid := range s.PortOwners {
		labels[portLabel(port)] = uid
	}
	if s.ChecksKept {
		labels[LabelCheck] = checkKept
	}
	if len(s.Kept) > 0 {
		labels[LabelKept] = strings.Join(s.Kept, ".")
	}
	if s.IPv4Name != "" {
		labels[labelIPv4Name] = ""
	}
	if s.IPv6Name != "" {
		labels[labelIPv6Name] = ""
	}
	for _, r := range s.addressReferences(State{}) {
		if r.Settled {
			labels[r.label] = r.mark()
		}
	}
	return labels
}

// diffLabels returns the label set that stands before anything else is done, and the one at the
// end. The cloud replaces the set as a whole, and labels of others are not ours to drop. A mark is
// set before what it remembers, and removed after that; so is what says who shares the load
// balancer and whose its ports are.
func diffLabels(want Spec, have State) (marked, final map[string]string) {
	marked = make(map[string]string)
	maps.Copy(marked, have.Labels)
	if want.AsFound {
		if !want.Owner.Owns(have.Labels) {
			marked[LabelCheck], marked[LabelKept] = checkKept, keepAll(have)
			maps.Copy(marked, want.Owner.Labels())
		}
		return marked, marked
	}
	for _, label := range []string{LabelCheck, LabelKept, labelPrimaryIPv4, labelPrimaryIPv6} {
		delete(marked, label)
	}
	wanted := want.Labels()
	maps.Copy(marked, wanted)
	final = maps.Clone(marked)
	maps.DeleteFunc(final, func(label, _ string) bool {
		_, keep := wanted[label]
		name := label == labelIPv4Name || label == labelIPv6Name
		sharing := strings.HasPrefix(label, labelServicePrefix) ||
			strings.HasPrefix(label, labelPortPrefix)
		return !keep && (name || sharing && want.Owner.Group != "")
	})
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

// lost are the targets that the load balancer drops when it moves to another network: those that
// are reached there, but for the ones that are not wanted, which are removed before.
func (s Spec) lost(have State) []Target {
	if have.Network == 0 || !s.moves(have) {
		return nil
	}
	_, leaving := s.match(have.Targets)
	return slices.DeleteFunc(slices.Clone(have.Targets), func(t Target) bool {
		return !t.Private || slices.Contains(leaving, t)
	})
}

func diffTargets(want Spec, have, lost []Target) (gone, added, replaced []Op) {
	now, leaving := want.match(have)
	for _, t := range leaving {
		gone = append(gone, RemoveTarget{Target: t})
	}
	for _, t := range slices.SortedFunc(slices.Values(want.Targets), Target.Compare) {
		switch old, ok := now[t]; {
		case !ok, slices.Contains(lost, old):
			added = append(added, AddTarget{Target: t})
		case old != t:
			replaced = append(replaced, ReplaceTarget{Old: old, New: t})
		}
	}
	return gone, added, replaced
}

func diffListeners(want, have []Listener) (closed, changed []Op) {
	wanted, present := ByPort(want), ByPort(have)
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
// A default says only where new ones are created, so it contradicts nothing.
func Immovable(want Spec, have State) []Note {
	if !have.Exists() || !want.Takeover.Annotated.Place {
		return nil
	}
	field, value, is := AnnotationLocation, want.Location, have.Location
	if value == "" {
		field, value, is = AnnotationNetworkZone, want.NetworkZone, have.NetworkZone
	}
	if value == "" || value == is {
		return nil
	}
	return []Note{errorNote(ReasonImmutable, field, value,
		"the load balancer %q is in %s and cannot move: set it back, or delete the Service and "+
			"create it again (its addresses change)",
		have.Name, is)}
}
