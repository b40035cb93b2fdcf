package routes

import (
	"fmt"
	"slices"
)

// Budget is how much of a table may be used, and how fast it may be emptied.
type Budget struct {
	// Limit is the number of routes that the table takes, all users together.
	Limit int
	// Reserve is the number of those to leave to others.
	Reserve int
	// MaxDeletions is how many of our routes may be deleted within one period, in
	// percent of them; 0: none may be deleted now.
	MaxDeletions int
	// Deleted is how many were deleted in this period already.
	Deleted int
}

// Deletions is how many more may be deleted now of a table that holds so many of
// ours: at least one in each period, so that a small table can be cleaned up at all.
func (b Budget) Deletions(ours int) int {
	if b.MaxDeletions == 0 {
		return 0
	}
	// Those deleted already belonged to the table that the share is taken of.
	return max(0, max(1, (ours+b.Deleted)*b.MaxDeletions/100)-b.Deleted)
}

// Room is how many more routes fit into a table that holds total.
func (b Budget) Room(total int) int { return max(0, b.Limit-b.Reserve-total) }

// Trim cuts the plan to what the table takes: additions beyond its room are
// refused, so that a request that must fail is never sent, and deletions
// beyond the cap are postponed.
func (b Budget) Trim(p Plan, o Ownership) Plan {
	if most := b.Deletions(len(o.Ours)); len(p.Delete) > most {
		p.Postponed = slices.Clone(p.Delete[most:])
		p.Delete = slices.Clone(p.Delete[:most])
	}
	room := b.Room(o.Total() - len(p.Delete))
	if len(p.Add) > room {
		for _, r := range p.Add[room:] {
			p.Refused = append(p.Refused, Refusal{NodeRoute: r, Cause: Full})
		}
		p.Add = slices.Clone(p.Add[:room])
	}
	return p
}

// Full is how many routes found no room in the table.
func (p Plan) Full() int {
	full := 0
	for _, r := range p.Refused {
		if r.Cause == Full {
			full++
		}
	}
	return full
}

// warnPercent is the share of a limit at which people are told, while there is
// time to have the limit raised.
const warnPercent = 80

// nearly reports whether so many of a limit are worth a warning.
func nearly(used, limit int) bool { return used*100 >= limit*warnPercent }

// Usage is how full a table is and will be.
type Usage struct {
	// Used are the routes that stand, with those that are about to and those
	// that are reserved, of Limit.
	Used, Limit int
}

// Usage says how full the table is when the plan is done.
func (b Budget) Usage(p Plan, o Ownership) Usage {
	return Usage{
		Used:  o.Total() - len(p.Delete) - len(p.Postponed) + len(p.Add) + p.Full() + b.Reserve,
		Limit: b.Limit,
	}
}

// High reports whether it is time to have the limit raised.
func (u Usage) High() bool { return nearly(u.Used, u.Limit) }

// String tells people what to do.
func (u Usage) String() string {
	return fmt.Sprintf("%d of the %d routes that the network takes are used, needed or reserved; "+
		"have the limit raised and set routes.limit before more nodes join", u.Used, u.Limit)
}
