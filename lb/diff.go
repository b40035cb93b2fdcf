package lb

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Diff returns the ops that make have equal to want, or a single Create if the load balancer does
// not exist.
//
// Their order matters, because the cloud refuses some orders and others lose traffic:
//
//	labels, to record ownership first, then the name
//	public interface on, before targets are reached through it
//	listeners and targets to remove, which makes room for additions
//	the type, which fits both the old and the remaining listeners and targets
//	the network, before targets are reached through it
//	public interface off, if no target is reached through it
//	targets to add, then targets that change their address, one at a time
//	listeners to add or change; none is added before a private load balancer is private
//	pods to remove, if there was room for additions
//	reverse DNS
//	public interface off, if targets were reached through it
//	labels, without marks that are no longer needed
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
	// Until then no port is opened, and a load balancer without listeners gets no targets.
	if closes {
		if len(have.Listeners) == 0 {
			added = nil
		}
		listeners = slices.DeleteFunc(listeners, func(op Op) bool {
			_, opens := op.(AddListener)
			return opens
		})
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

// inOneRequest returns the part of the spec that the creation includes. A creation lets the cloud
// choose the address in the network, so a load balancer with a requested address or subnet joins
// the network afterwards, as do targets there. It opens no port before it is private, if it must
// be.
func (s Spec) inOneRequest() Spec {
	if s.PodTargets {
		// Pods are reachable after the load balancer's address is known to their nodes.
		s.Targets = nil
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

// moves reports whether the load balancer must join the network or change its address there.
func (s Spec) moves(have State) bool {
	return s.Network != 0 && (s.Network != have.Network || !s.placed(have))
}

func (s Spec) move(have State) Op {
	if have.Network == 0 {
		return s.attachment()
	}
	return MoveNetwork{
		Leave: DetachNetwork{Network: have.Network}, Join: s.attachment(),
		Back: AttachNetwork{Network: have.Network, IP: have.PrivateIP}, Lost: s.lost(have),
	}
}

// attachment joins the network, in the default subnet unless an address or range is requested.
func (s Spec) attachment() AttachNetwork {
	op := AttachNetwork{Network: s.Network, IP: s.PrivateIP, Range: s.PrivateRange}
	if !op.IP.IsValid() && !op.Range.IsValid() {
		op.Range = s.Subnet
	}
	return op
}

func (s Spec) placed(have State) bool {
	return (!s.PrivateIP.IsValid() || s.PrivateIP == have.PrivateIP) &&
		(!s.PrivateRange.IsValid() || s.PrivateRange.Contains(have.PrivateIP))
}

// Labels that mark reverse DNS names set by this controller: it never resets other clients' names.
const (
	labelIPv4Name = "underlay.dev/ipv4-rdns"
	labelIPv6Name = "underlay.dev/ipv6-rdns"
)

// Labels returns the labels of a load balancer of this spec, without labels of other clients.
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

// diffLabels returns the labels to set before all other ops and after them. The cloud replaces all
// labels at once, so labels of other clients are included. A mark is set before the change that it
// records, and removed after it is undone, as are labels of sharing Services and ports.
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

// diffReverseDNS must run before the marks are removed from the labels.
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

// lost returns the wanted targets that the load balancer drops when it leaves its network.
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
	var freeing []Op // a removed redirect frees its port
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

// Immovable returns notes about differences that no Op can fix: a load balancer cannot move. A
// default location applies only to new load balancers, so it never differs.
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
