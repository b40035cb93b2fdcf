package agent

import (
	"fmt"
	"net/netip"
	"slices"
)

// Plan is what to change in the kernel's table, and what must not be.
//
//	the place is …         then
//	empty                  Add, which fails if it no longer is
//	ours, the same         nothing
//	ours, another          Replace in place: no packet is lost between two steps
//	a foreigner's          Refused, unless it leads the same way
//	ours, nobody wants it  Delete, after everything else
type Plan struct {
	Add     []WantedEntry
	Replace []Change
	Delete  []Entry
	Refused []Refusal
	// Standing is how many entries are met already.
	Standing int
}

// Change is a place of ours that gets another route.
type Change struct {
	Old Entry
	New WantedEntry
}

// Refusal is a wanted entry for which somebody else's route stands.
type Refusal struct {
	WantedEntry
	By Entry
}

// String tells people what stands in the way and what to do.
func (r Refusal) String() string {
	way := "leads elsewhere"
	if r.By.Via.IsValid() {
		way = "leads to " + r.By.Via.String()
	}
	return fmt.Sprintf("route %s of somebody else (protocol %d, metric %d) %s, and is kept; remove it if nothing needs it",
		r.Dst, r.By.Protocol, r.By.Metric, way)
}

// Empty reports whether there is nothing to write.
func (p Plan) Empty() bool { return len(p.Add)+len(p.Replace)+len(p.Delete) == 0 }

// Diff compares what should stand with what stands. Ours to a held
// destination, of whatever metric, stays if it leads to the held address, or wherever
// it leads if that is the zero Addr; what refuses packets is not held.
// Order follows the entries; deletions are sorted.
func Diff(want []WantedEntry, have []Entry, held map[netip.Prefix]netip.Addr) Plan {
	ours, others := map[Place][]Entry{}, map[netip.Prefix][]Entry{}
	for _, e := range have {
		if e.Ours() {
			ours[e.Place()] = append(ours[e.Place()], e)
		} else {
			others[e.Dst] = append(others[e.Dst], e)
		}
	}
	var p Plan
	for _, wanted := range want {
		mine := ours[wanted.Place()]
		delete(ours, wanted.Place())
		spare := mine
		at := slices.Index(mine, wanted.Entry)
		by, inTheWay := wanted.obstacle(others[wanted.Dst])
		switch {
		case inTheWay && !(by.Kind == wanted.Kind && by.Via == wanted.Via && by.Link == wanted.Link):
			p.Refused = append(p.Refused, Refusal{wanted, by})
		case at >= 0 || inTheWay:
			p.Standing++
		case len(mine) > 0:
			p.Replace = append(p.Replace, Change{mine[0], wanted})
			spare = mine[1:]
		default:
			p.Add = append(p.Add, wanted)
		}
		if at >= 0 { // also behind somebody else's: when that goes, ours is there
			spare = slices.Delete(slices.Clone(mine), at, at+1)
		}
		p.Delete = append(p.Delete, spare...)
	}
	for place, left := range ours {
		via, isHeld := held[place.Dst]
		for _, e := range left {
			if !isHeld || e.Kind == Unreachable || via.IsValid() && e.Via != via {
				p.Delete = append(p.Delete, e)
			}
		}
	}
	slices.SortFunc(p.Delete, compareEntries)
	return p
}

// obstacle finds a foreign route to the same destination that has the entry's
// place or would outrank it. Nothing outranks an unreachable route in any way
// that matters: it is there for what nothing else leads to.
func (c WantedEntry) obstacle(others []Entry) (Entry, bool) {
	for _, e := range others {
		if e.Metric == c.Metric || c.Kind == Unicast && e.Metric < c.Metric {
			return e, true
		}
	}
	return Entry{}, false
}
