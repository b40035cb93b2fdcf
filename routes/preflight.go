package routes

import "fmt"

// Obstacles returns findings about other users' routes within our ranges.
func (d Decision) Obstacles() []Finding {
	var found []Finding
	for _, r := range d.Ownership.Ambiguous {
		found = append(found, Finding{
			Prefix: r.Dst, Fatal: d.Ownership.AnotherCluster(),
			Problem: fmt.Sprintf("is a podCIDR of this cluster's ranges, and its route leads to %s; "+
				"this cluster neither wrote nor adopted that route, so it is kept", r.Via),
			Remedy: "remove the route if nothing uses it, and give each cluster on the network a pod range of its own",
		})
	}
	for _, r := range d.Ownership.Foreign {
		for _, pods := range d.Ranges {
			if clash(r.Dst, pods.Prefix) {
				found = append(found, Finding{
					Prefix: r.Dst,
					Problem: fmt.Sprintf("has a route via %s and overlaps the pod range %s, so podCIDRs in it get no route",
						r.Via, pods.Prefix),
					Remedy: "remove the route if nothing uses it, or keep podCIDRs out of it with `exclude`",
				})
			}
		}
		found = append(found, d.VSwitch.obstacles(r)...)
	}
	return found
}

// warnPercent is the share of a limit that causes a warning, early enough to have it raised.
const warnPercent = 80

func nearly(used, limit int) bool { return used*100 >= limit*warnPercent }

// Shortage reports whether the table lacks room for a route of every node, or soon will, unless
// tunnels connect nodes without one. full reports whether nodes have no route because of that now.
func (d Decision) Shortage() (finding Finding, full, found bool) {
	if d.Tunnels.Enabled {
		return Finding{}, false, false
	}
	nodes, others, limit := 0, d.Ownership.Others(), d.Budget.Limit
	for i := range d.Nodes {
		if len(d.Nodes[i].Inside) == 0 {
			nodes++ // counts nodes without a podCIDR too
		}
	}
	most := d.Budget.Room(others)
	finding.Problem = fmt.Sprintf("%d nodes need a route each, and the network's table has room for %d: "+
		"it takes %d, %d are reserved, %d are others'", nodes, most, limit, d.Budget.Reserve, others)
	switch {
	case nodes > most:
		finding.Remedy = fmt.Sprintf("have the limit raised and set routes.limit, or remove others' routes; "+
			"until then %d nodes get no pods", nodes-most)
	case nearly(nodes+others+d.Budget.Reserve, limit):
		finding.Remedy = "have the limit raised and set routes.limit before more nodes join"
	default:
		return Finding{}, false, false
	}
	return finding, nodes > most || d.Budget.Room(len(d.Table)) == 0, true
}

// Attachments reports whether a network has reached, or nearly reached, its limit of servers
// and load balancers. attached are those that the cloud counts for certain; perhaps are the
// dedicated servers on its vSwitch, which may count: this is undocumented. full reports that
// there is no room even if they don't.
func Attachments(attached, perhaps, limit int) (finding Finding, full, found bool) {
	finding.Problem = fmt.Sprintf("%d servers are attached to the network, which takes %d, load balancers included",
		attached, limit)
	if perhaps > 0 {
		finding.Problem += fmt.Sprintf("; %d dedicated servers on its vSwitch may count as well, which is not documented", perhaps)
	}
	switch {
	case attached >= limit:
		finding.Remedy = "have the limit raised, or detach what doesn't need the network; " +
			"until then no further node can join"
	case attached+perhaps >= limit:
		finding.Remedy = "have the limit raised before more nodes join; " +
			"if dedicated servers count, the cloud refuses the next one with resource_limit_exceeded"
	case nearly(attached+perhaps, limit):
		finding.Remedy = "have the limit raised before more nodes join"
	default:
		return Finding{}, false, false
	}
	return finding, attached >= limit, true
}
