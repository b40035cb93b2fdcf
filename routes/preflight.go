package routes

import "fmt"

// Situation is what is known of a cluster and its network before anything is
// written.
type Situation struct {
	Layout
	// Census are the routes of the network.
	Census Census
	// Limit and Reserve are numbers of routes.
	Limit, Reserve int
	// Nodes is how many nodes need a route.
	Nodes int
	// Attached is how many servers are attached to the network, whoever's, and
	// Attachments how many it takes.
	Attached, Attachments int
}

// warnPercent is the share of a limit at which people are told, while there is
// time to have the limit raised.
const warnPercent = 80

// nearly says whether so many of a limit are worth a warning.
func nearly(used, limit int) bool { return used*100 >= limit*warnPercent }

// Preflight looks for everything that would keep routes from working: how the
// ranges lie in the network, routes of others in the way, and limits that the
// cluster reaches or will soon.
func Preflight(s Situation) []Finding {
	out := Check(s.Layout)
	out = append(out, ambiguous(s.Census)...)
	out = append(out, obstacles(s.Census, s.Pods)...)
	out = append(out, s.room()...)
	return append(out, s.attachments()...)
}

// ambiguous finds routes in our ranges that may be others'.
func ambiguous(c Census) []Finding {
	var out []Finding
	for _, r := range c.Ambiguous {
		out = append(out, Finding{
			Prefix: r.Dst, Fatal: c.AnotherCluster(),
			Problem: fmt.Sprintf("is a podCIDR of this cluster's ranges, and its route leads to %s; this cluster neither wrote nor adopted that route, so it is kept", r.Via),
			Remedy:  "remove the route if nothing uses it, and give each cluster on the network a pod range of its own",
		})
	}
	return out
}

// obstacles finds routes of others that take a part of our ranges.
func obstacles(c Census, ranges []Range) []Finding {
	var out []Finding
	for _, r := range c.Foreign {
		for _, pods := range ranges {
			if clash(r.Dst, pods.Prefix) {
				out = append(out, Finding{
					Prefix:  r.Dst,
					Problem: fmt.Sprintf("has a route via %s and overlaps the pod range %s, so podCIDRs in it get no route", r.Via, pods.Prefix),
					Remedy:  "remove the route if nothing uses it, or keep podCIDRs out of it with `exclude`",
				})
			}
		}
	}
	return out
}

// room compares the table with what the nodes need.
func (s Situation) room() []Finding {
	others := len(s.Census.Foreign) + len(s.Census.Ambiguous)
	most := max(0, s.Limit-s.Reserve-others)
	finding := Finding{Problem: fmt.Sprintf("%d nodes need a route each, and the network's table has room for %d: it takes %d, %d are reserved, %d are others'",
		s.Nodes, most, s.Limit, s.Reserve, others)}
	switch {
	case s.Nodes > most:
		finding.Remedy = fmt.Sprintf("have the limit raised and set routes.limit, or remove others' routes; until then %d nodes get no pods", s.Nodes-most)
	case nearly(s.Nodes+others+s.Reserve, s.Limit):
		finding.Remedy = "have the limit raised and set routes.limit before more nodes join"
	default:
		return nil
	}
	return []Finding{finding}
}

func (s Situation) attachments() []Finding {
	finding := Finding{Problem: fmt.Sprintf("%d servers are attached to the network, which takes %d, load balancers included", s.Attached, s.Attachments)}
	switch {
	case s.Attached >= s.Attachments:
		finding.Remedy = "have the limit raised, or detach what doesn't need the network; until then no further node can join"
	case nearly(s.Attached, s.Attachments):
		finding.Remedy = "have the limit raised before more nodes join"
	default:
		return nil
	}
	return []Finding{finding}
}

// Usage is how full a table is and will be.
type Usage struct {
	// Used are the routes that stand, with those that are about to and those
	// that are reserved, of Limit.
	Used, Limit int
}

// High says that it is time to have the limit raised.
func (u Usage) High() bool { return nearly(u.Used, u.Limit) }

// String tells people what to do.
func (u Usage) String() string {
	return fmt.Sprintf("%d of the %d routes that the network takes are used, needed or reserved; have the limit raised and set routes.limit before more nodes join", u.Used, u.Limit)
}

// Usage says how full the table is when the plan is done.
func (b Budget) Usage(p Plan, c Census) Usage {
	full := 0
	for _, r := range p.Refused {
		if r.Cause == Full {
			full++
		}
	}
	return Usage{Used: c.Total() - len(p.Delete) - len(p.Postponed) + len(p.Add) + full + b.Reserve, Limit: b.Limit}
}
