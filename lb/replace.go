package lb

import (
	"fmt"
	"slices"
)

type (
	// ReplaceTarget changes the address at which a node is reached: in the cloud a server can be a
	// target only once, and a node must not receive its traffic twice.
	ReplaceTarget struct{ Old, New Target }
	// MoveNetwork leaves a network and joins another network, or the same one at another address.
	MoveNetwork struct {
		Leave DetachNetwork
		Join  AttachNetwork
		Back  AttachNetwork // restores the previous attachment
		// Lost are the wanted targets that leaving drops.
		Lost []Target
	}
)

func (o ReplaceTarget) String() string { return fmt.Sprintf("replace %s by %s", o.Old, o.New) }

func (o MoveNetwork) String() string {
	return fmt.Sprintf("move from network %d: %s", o.Leave.Network, o.Join)
}

// Swap is an op that must remove something before it can add its replacement. It takes more than
// one request, so a Backend never executes it as such: the caller executes Take, then Give, and
// Undo if Give fails, so that nothing is lost without a replacement.
type Swap struct {
	Take, Give Op
	Undo       []Op
}

// SwapOf returns the steps of an op, and false if the op is a single request.
func SwapOf(op Op) (Swap, bool) {
	switch op := op.(type) {
	case ReplaceTarget:
		back := AddTarget{Target: op.Old}
		return Swap{RemoveTarget{Target: op.Old}, AddTarget{Target: op.New}, []Op{back}}, true
	case MoveNetwork:
		undo := []Op{op.Back}
		for _, t := range op.Lost {
			undo = append(undo, AddTarget{Target: t})
		}
		return Swap{op.Leave, op.Join, undo}, true
	}
	return Swap{}, false
}

// HoldsUp reports whether a failure of the op postpones the ops for which [Waits] is true.
func HoldsUp(op Op) bool {
	_, swap := SwapOf(op)
	_, attach := op.(AttachNetwork)
	return swap || attach
}

// Waits reports whether an op is postponed after a failed swap or attachment: a refusal of one
// target likely repeats for the next, which would be out of service for that time, and targets
// that are unreachable in the network need the public interface.
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

// Without returns the spec without the changes that the cloud currently refuses, and the refusals.
// The load balancer keeps its place in the network. A target keeps its other address if it was, or
// other targets still are, reached there; else it is omitted.
func (s Spec) Without(have State, refused func(Op) error) (Spec, []error) {
	var why []error
	if have.Exists() && s.moves(have) {
		if err := refused(s.move(have)); err != nil {
			why = append(why, err)
			s.Attachment = Attachment{}
			if have.Network != 0 {
				s.Network = have.Network
			}
		}
	}
	now, _ := s.match(have.Targets)
	otherOf := s.others()
	wanted := s.Targets
	s.Targets = nil
	for _, t := range wanted {
		old, there := now[t]
		other, pair := otherOf(t)
		adding, replacing := refused(AddTarget{Target: t}), error(nil)
		if pair {
			replacing = refused(ReplaceTarget{Old: other, New: t})
		}
		switch {
		case there && old == t, replacing == nil && adding == nil:
			s.Targets = append(s.Targets, t)
			continue
		case there,
			pair && refused(AddTarget{Target: other}) == nil &&
				(replacing != nil ||
					slices.ContainsFunc(have.Targets, func(h Target) bool { return h.Private == other.Private })):
			s.Targets = append(s.Targets, other)
			s.Public = s.Public || !other.Private
		}
		if replacing != nil {
			adding = replacing
		}
		why = append(why, adding)
	}
	slices.SortFunc(s.Targets, Target.Compare)
	return s, why
}
