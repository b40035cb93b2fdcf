package lb_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/lb"
)

func refuse(code, format string, args ...any) error {
	return &lb.RejectedError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// apply executes a plan on a load balancer, in its order, and returns the result.
func apply(have lb.State, ops []lb.Op) (lb.State, error) {
	have = clone(have)
	for _, op := range ops {
		steps := []lb.Op{op}
		if swap, ok := lb.SwapOf(op); ok {
			steps = []lb.Op{swap.Take, swap.Give}
		}
		for _, step := range steps {
			var err error
			if have, err = change(have, step); err != nil {
				return lb.State{}, fmt.Errorf("%s: %w\nplan: %v\non:\n%+v", op, err, ops, have)
			}
		}
	}
	return have, nil
}

// settle applies all ops, and verifies that no port opens before an unwanted public interface is
// off; only that takes a second plan.
func settle(have lb.State, want lb.Spec) (lb.State, error) {
	looks := 1
	if have.Exists() && have.Public && !want.Public {
		looks = 2
	}
	for range looks {
		for _, op := range lb.Diff(want, have) {
			if _, opens := op.(lb.AddListener); opens && have.Exists() && have.Public && !want.Public {
				return have, fmt.Errorf("%s before the public interface is off", op)
			}
			var err error
			if have, err = apply(have, []lb.Op{op}); err != nil {
				return have, err
			}
		}
	}
	return have, nil
}

func clone(s lb.State) lb.State {
	s.Labels, s.Listeners = maps.Clone(s.Labels), slices.Clone(s.Listeners)
	s.Targets = slices.Clone(s.Targets)
	return s
}

// created returns the load balancer that one request creates.
func created(want lb.Spec) (lb.State, error) {
	s := lb.State{
		ID: 1, Name: want.Name, Labels: want.Labels(), Type: want.Type,
		Location: cmp.Or(want.Location, "fsn1"), NetworkZone: "eu-central", Algorithm: want.Algorithm, Public: true,
		IPv4: netip.MustParseAddr("203.0.113.1"), IPv6: netip.MustParseAddr("2001:db8::1"), ReverseDNS: lb.ReverseDNS{IPv4Name: defaultName(netip.MustParseAddr("203.0.113.1"))},
	}
	var ops []lb.Op
	if want.Network != 0 {
		ops = append(ops, lb.AttachNetwork{Network: want.Network})
	}
	for _, l := range want.Listeners {
		ops = append(ops, lb.AddListener{Listener: l})
	}
	for _, t := range want.Targets {
		ops = append(ops, lb.AddTarget{Target: t})
	}
	if !want.Public {
		ops = append(ops, lb.SetPublicInterface{Enabled: false})
	}
	return apply(s, ops)
}

// change executes one op on a load balancer, or rejects it as the cloud would, with the errors in
// the description of the Hetzner Cloud API, so that a plan in the wrong order fails.
func change(s lb.State, op lb.Op) (lb.State, error) {
	switch op := op.(type) {
	case lb.Create:
		return created(op.Spec)
	case lb.SetLabels:
		s.Labels = op.Labels
	case lb.Rename:
		s.Name = op.Name
	case lb.ChangeAlgorithm:
		s.Algorithm = op.Algorithm
	case lb.ChangeType:
		limits := lb.LimitsOf(op.Type)
		if len(s.Listeners) > limits.Listeners || len(s.Targets)+s.OtherTargets > limits.Targets {
			return s, refuse("invalid_load_balancer_type", "%s is too small", op.Type)
		}
		s.Type = op.Type
	case lb.SetPublicInterface:
		return setPublic(s, op.Enabled)
	case lb.AttachNetwork:
		if s.Network != 0 {
			return s, refuse("load_balancer_already_attached", "attached to network %d", s.Network)
		}
		s.Network, s.PrivateIP = op.Network, netip.AddrFrom4([4]byte{10, 0, byte(op.Network), byte(s.ID)})
		if op.Range.IsValid() {
			s.PrivateIP = op.Range.Addr().Next()
		}
		if op.IP.IsValid() {
			s.PrivateIP = op.IP
		}
	case lb.DetachNetwork:
		if s.Network != op.Network {
			return s, fmt.Errorf("not attached to network %d", op.Network)
		}
		s.Network, s.PrivateIP = 0, netip.Addr{}
		s.Targets = slices.DeleteFunc(s.Targets, func(t lb.Target) bool { return t.Private })
	case lb.SetReverseDNS:
		return setReverseDNS(s, op)
	case lb.AddListener, lb.UpdateListener, lb.DeleteListener:
		return changeListener(s, op)
	case lb.AddTarget, lb.RemoveTarget:
		return changeTarget(s, op)
	default:
		return s, fmt.Errorf("an op this cloud has never heard of: %T", op)
	}
	return s, nil
}

func setReverseDNS(s lb.State, op lb.SetReverseDNS) (lb.State, error) {
	switch op.IP {
	case s.IPv4:
		s.IPv4Name = op.Name
		if op.Name == "" {
			s.IPv4Name = defaultName(op.IP)
		}
	case s.IPv6:
		s.IPv6Name = op.Name
	default:
		return s, refuse("invalid_input", "%s is no public address of it", op.IP)
	}
	return s, nil
}

// defaultName is the default reverse DNS of an IPv4 address.
func defaultName(ip netip.Addr) string { return fmt.Sprintf("static.%s.example.com", ip) }

func setPublic(s lb.State, on bool) (lb.State, error) {
	public := func(t lb.Target) bool { return !t.Private }
	switch {
	case !on && s.Network == 0:
		return s, refuse("load_balancer_not_attached_to_network", "nothing would be left")
	case !on && slices.ContainsFunc(s.Targets, public):
		return s, refuse("targets_without_use_private_ip", "public targets")
	}
	s.Public = on
	return s, nil
}

func changeListener(s lb.State, op lb.Op) (lb.State, error) {
	find := func(port int) int {
		return slices.IndexFunc(s.Listeners, func(l lb.Listener) bool { return l.Port == port })
	}
	switch op := op.(type) {
	case lb.AddListener:
		if find(op.Listener.Port) >= 0 {
			return s, refuse("source_port_already_used", "port %d", op.Listener.Port)
		}
		if limits := lb.LimitsOf(s.Type); len(s.Listeners) >= limits.Listeners {
			return s, refuse("resource_limit_exceeded", "%s carries %d services", s.Type, limits.Listeners)
		}
		s.Listeners = append(s.Listeners, op.Listener)
		slices.SortFunc(s.Listeners, func(a, b lb.Listener) int { return a.Port - b.Port })
	case lb.UpdateListener:
		i := find(op.Listener.Port)
		if i < 0 {
			return s, fmt.Errorf("no service on port %d", op.Listener.Port)
		}
		s.Listeners[i] = op.Listener
	case lb.DeleteListener:
		i := find(op.Port)
		if i < 0 {
			return s, fmt.Errorf("no service on port %d", op.Port)
		}
		s.Listeners = slices.Delete(s.Listeners, i, i+1)
	}
	return s, nil
}

func changeTarget(s lb.State, op lb.Op) (lb.State, error) {
	find := func(one lb.Target) int { // a server is one target, at any of its addresses
		return slices.IndexFunc(s.Targets, func(t lb.Target) bool {
			return t.Server == one.Server && t.Address == one.Address
		})
	}
	switch op := op.(type) {
	case lb.AddTarget:
		t := op.Target
		limits := lb.LimitsOf(s.Type)
		switch {
		case find(t) >= 0:
			return s, refuse("target_already_defined", "%s", t)
		case t.Private && s.Network == 0:
			return s, refuse("load_balancer_not_attached_to_network", "%s", t)
		case !t.Private && !s.Public:
			return s, refuse("load_balancer_public_interface_disabled", "%s", t)
		case len(s.Targets)+s.OtherTargets >= limits.Targets:
			return s, refuse("resource_limit_exceeded", "%s holds %d targets", s.Type, limits.Targets)
		}
		s.Targets = append(s.Targets, t)
		slices.SortFunc(s.Targets, lb.Target.Compare)
	case lb.RemoveTarget:
		i := find(op.Target)
		if i < 0 {
			return s, fmt.Errorf("no such target: %s", op.Target)
		}
		s.Targets = slices.Delete(s.Targets, i, i+1)
	}
	return s, nil
}
