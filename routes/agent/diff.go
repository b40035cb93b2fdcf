package agent

import (
	"fmt"
	"net/netip"
	"slices"
)

// Plan is the set of changes to the kernel's table, and of refused entries.
//
//	the place has …        then
//	no route               Add, which fails if it has one by then
//	our route, equal       nothing
//	our route, different   Replace in place: no packet is lost between two steps
//	another's route        Refused, unless it has the same next hop
//	our unwanted route     Delete, after everything else
type Plan struct {
	Add              []WantedEntry
	Replace, Refused []Conflict
	Delete           []Entry
}

// Conflict is a wanted entry and the existing one that it replaces, or that is in its way.
type Conflict struct {
	WantedEntry
	With Entry
}

// refusal returns a message about another program's route, with the remedy.
func (c Conflict) refusal() string {
	way := "leads elsewhere"
	if c.With.Via.IsValid() {
		way = "leads to " + c.With.Via.String()
	}
	return fmt.Sprintf("route %s of another program (protocol %d, metric %d) %s, and is kept; remove it if nothing needs it",
		c.Dst, c.With.Protocol, c.With.Metric, way)
}

// Diff compares the wanted with the existing entries. Our routes to a held destination, whatever
// their metric, are kept if they are via the held address, or via any address if that is the zero
// Addr; unreachable routes are not held. The order follows the entries; deletions are sorted.
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
			p.Refused = append(p.Refused, Conflict{wanted, by})
		case at >= 0 || inTheWay: // it exists
		case len(mine) > 0:
			p.Replace = append(p.Replace, Conflict{wanted, mine[0]})
			spare = mine[1:]
		default:
			p.Add = append(p.Add, wanted)
		}
		if at >= 0 { // also beside another program's route: if that is deleted, ours remains
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

// obstacle returns another program's route to the same destination with the entry's place or
// with precedence. No route has precedence over an unreachable one, the last resort.
func (c WantedEntry) obstacle(others []Entry) (Entry, bool) {
	for _, e := range others {
		if e.Metric == c.Metric || c.Kind == Unicast && e.Metric < c.Metric {
			return e, true
		}
	}
	return Entry{}, false
}
