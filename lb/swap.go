package lb

import (
	"fmt"
	"net/netip"
	"slices"
)

// Swap is an op that must take something away before it can put something else in its place, and that knows
// how to put back what it took. It is more than one request, so no Backend sees it: whoever executes ops does
// Take, then Give, and when Give fails Undo, so that nothing is lost that the cloud has no substitute for.
type Swap interface {
	Op
	Take() Op
	Give() Op
	Undo() []Op
}

type (
	// ReplaceTarget lets a server be reached at its other address: the cloud has a server as a target once.
	ReplaceTarget struct{ Old, New Target }
	// MoveNetwork leaves a network and joins another one, or the same one at another address.
	MoveNetwork struct {
		Leave DetachNetwork
		Join  AttachNetwork
		Back  AttachNetwork // as it was
		// Lost are the targets that leaving drops and that stay wanted.
		Lost []Target
	}
)

var _, _ Swap = ReplaceTarget{}, MoveNetwork{}

// Take implements Swap.
func (o ReplaceTarget) Take() Op { return RemoveTarget{Target: o.Old} }

// Give implements Swap.
func (o ReplaceTarget) Give() Op { return AddTarget{Target: o.New} }

// Undo implements Swap.
func (o ReplaceTarget) Undo() []Op { return []Op{AddTarget{Target: o.Old}} }

func (o ReplaceTarget) String() string { return fmt.Sprintf("replace %s by %s", o.Old, o.New) }

// Take implements Swap.
func (o MoveNetwork) Take() Op { return o.Leave }

// Give implements Swap.
func (o MoveNetwork) Give() Op { return o.Join }

// Undo implements Swap.
func (o MoveNetwork) Undo() []Op {
	ops := []Op{o.Back}
	for _, t := range o.Lost {
		ops = append(ops, AddTarget{Target: t})
	}
	return ops
}

func (o MoveNetwork) String() string {
	return fmt.Sprintf("move from network %d: %s", o.Leave.Network, o.Join)
}

// HoldsUp reports whether the ops that wait, see [Waits], are left for later when this one failed.
func HoldsUp(op Op) bool {
	_, swap := op.(Swap)
	_, attach := op.(AttachNetwork)
	return swap || attach
}

// Waits reports whether an op is left for later when a swap or an attachment before it failed: what was refused for
// one target is likely refused for the next, which would be out of service meanwhile, and what cannot be reached
// in the network needs the public interface.
func Waits(op Op) bool {
	switch op := op.(type) {
	case ReplaceTarget, MoveNetwork:
		return true
	case AddTarget:
		return op.Target.Private
	case SetPublicInterface:
		return !op.Enabled
	}
	return false
}

// InTurns leaves the replacements of targets for later whose servers are not among these. What is reached through the
// public interface may have to come back, so that is not switched off.
func InTurns(ops []Op, servers []int64) []Op {
	return slices.DeleteFunc(slices.Clone(ops), func(op Op) bool {
		switch op := op.(type) {
		case ReplaceTarget:
			return !slices.Contains(servers, op.New.Server)
		case SetPublicInterface:
			return !op.Enabled
		}
		return false
	})
}

// Replaced are the servers whose targets some ops replace, in their order.
func Replaced(ops []Op) (servers []int64) {
	for _, op := range ops {
		if replace, ok := op.(ReplaceTarget); ok {
			servers = append(servers, replace.New.Server)
		}
	}
	return servers
}

// Aim names what an op is for, in words that [Spec.GiveUp] knows; empty for an op that nothing stands in for
// when the cloud refuses it.
func Aim(op Op) string {
	switch op := op.(type) {
	case ReplaceTarget:
		return AimOfTargets(op.New.Private)
	case MoveNetwork:
		return op.Join.String()
	case AttachNetwork:
		if op.IP.IsValid() || op.Range.IsValid() {
			return op.String()
		}
	}
	return ""
}

// AimOfTargets names that targets are reached at their private addresses, or at their public ones.
func AimOfTargets(private bool) string { return "reach targets at their " + addressesOf(private) }

func addressesOf(private bool) string {
	if private {
		return "private addresses"
	}
	return "public addresses"
}

// GiveUp returns the spec without the aims that the cloud has refused: targets are reached as they were, and
// the load balancer stays where it is in the network.
func (s Spec) GiveUp(have State, refused func(aim string) bool) Spec {
	if have.Exists() && s.moves(have) && refused(Aim(MoveNetwork{Join: s.attachment()})) {
		if have.Network != 0 {
			s.Network = have.Network
		}
		s.PrivateIP, s.PrivateRange, s.Subnet = netip.Addr{}, netip.Prefix{}, netip.Prefix{}
	}
	present := byServer(have.Targets)
	if !s.standsIn(present, have) || !refused(AimOfTargets(s.UsePrivateIP)) {
		return s
	}
	return s.Stay(have)
}

// Stay returns the spec with every target reached as it is, and those that come not as is wanted.
func (s Spec) Stay(have State) Spec {
	present := byServer(have.Targets)
	s.Targets = slices.Clone(s.Targets)
	for i, t := range s.Targets {
		old, ok := present[t.Server]
		if !ok {
			old = Target{Server: t.Server, Private: !s.UsePrivateIP}
		}
		s.Targets[i] = old
		s.Public = s.Public || !old.Private
	}
	return s
}

// PutBack returns the spec with these servers reached at the addresses that are not wanted.
func (s Spec) PutBack(servers []int64) Spec {
	s.Targets = slices.Clone(s.Targets)
	for i, t := range s.Targets {
		if slices.Contains(servers, t.Server) {
			s.Targets[i].Private = !s.UsePrivateIP
			s.Public = s.Public || s.UsePrivateIP
		}
	}
	return s
}

// standsIn reports whether there is something else to do for targets that cannot be reached as is wanted: one that
// is there is reached at its other address, or none is there and the load balancer can reach the others so.
func (s Spec) standsIn(present map[int64]Target, have State) bool {
	known := false
	for _, t := range s.Targets {
		old, ok := present[t.Server]
		if ok && old != t {
			return true
		}
		known = known || ok
	}
	return !known && (s.UsePrivateIP && have.Public || !s.UsePrivateIP && have.Network != 0)
}

func byServer(targets []Target) map[int64]Target {
	found := make(map[int64]Target, len(targets))
	for _, t := range targets {
		found[t.Server] = t
	}
	return found
}
