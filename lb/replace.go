package lb

import (
	"fmt"
	"slices"
)

type (
	// ReplaceTarget lets a node be reached at its other address: the cloud has a server as a target
	// once, and a node is to get its traffic once.
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

func (o ReplaceTarget) String() string { return fmt.Sprintf("replace %s by %s", o.Old, o.New) }

func (o MoveNetwork) String() string {
	return fmt.Sprintf("move from network %d: %s", o.Leave.Network, o.Join)
}

// Swap is an op that must take something away before it can put something else in its place. It is
// more than one request, so no Backend sees it: the caller does Take, then Give, and when Give
// fails Undo, so that nothing is lost that the cloud has no substitute for.
type Swap struct {
	Take, Give Op
	Undo       []Op
}

// SwapOf returns the steps of an op, and false for one that is a single request.
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

// HoldsUp reports whether the ops that wait, see [Waits], are left for later when this one failed.
func HoldsUp(op Op) bool {
	_, swap := SwapOf(op)
	_, attach := op.(AttachNetwork)
	return swap || attach
}

// Waits reports whether an op is left for later when a swap or an attachment before it failed: what
// was refused for one target is likely refused for the next, which would be out of service
// meanwhile, and what cannot be reached in the network needs the public interface.
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

// Without returns the spec without what the cloud refuses at the moment, and why: the load balancer
// stays where it is in the network, and a target is reached at its other address, if it was, or
// others still are, and else not at all.
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
		case there, pair && refused(AddTarget{Target: other}) == nil && (replacing != nil || slices.ContainsFunc(have.Targets, func(h Target) bool { return h.Private == other.Private })):
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
