package routes

import "slices"

// Budget limits the size of a table and the rate of deletions.
type Budget struct {
	// Limit is the number of routes that the table accepts from all users together.
	Limit int
	// Reserve is the number of routes in Limit to leave to other users.
	Reserve int
	// MaxDeletions is the part of our routes that may be deleted per period, in percent; 0: none.
	MaxDeletions int
	// Deleted is the number of routes deleted in this period.
	Deleted int
}

// Deletions returns how many more of our routes may be deleted in this period. It allows at
// least one per period, so that a small table can be cleaned up at all.
func (b Budget) Deletions(ours int) int {
	if b.MaxDeletions == 0 {
		return 0
	}
	// The percentage is of the table before this period's deletions.
	return max(0, max(1, (ours+b.Deleted)*b.MaxDeletions/100)-b.Deleted)
}

// Room returns how many more routes fit into a table that holds total.
func (b Budget) Room(total int) int { return max(0, b.Limit-b.Reserve-total) }

// Trim cuts the plan to what the table accepts: additions beyond its room are refused, so that
// no request is sent that must fail, and deletions beyond the limit are postponed.
func (b Budget) Trim(p Plan, o Ownership) Plan {
	deletions, room := b.Deletions(len(o.Ours)), b.Limit-b.Reserve-o.Total()
	p.Refused = slices.Clip(p.Refused) // other plans have the same
	p.Steps = p.keep(func(s Step) bool {
		switch {
		case s.Verb == Delete && deletions == 0:
			p.Postponed = append(p.Postponed, s.Old)
			return false
		case s.Verb == Delete:
			deletions, room = deletions-1, room+1
		case s.Verb == Add && room <= 0:
			p.Refused = append(p.Refused, Refusal{NodeRoute: s.New, Cause: Full})
			return false
		case s.Verb == Add:
			room--
		}
		return true
	}).Steps
	return p
}
