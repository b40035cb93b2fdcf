package connectivity

import (
	"fmt"
	"slices"
)

// Finding is a problem, with all nodes that it affects.
type Finding struct {
	Path   Path     `json:"path"`
	Family int      `json:"family"`
	State  State    `json:"state"`
	What   string   `json:"what"`
	Remedy string   `json:"remedy"`
	Nodes  []string `json:"nodes"`
}

// class is the key by which results are grouped into a finding.
type class struct {
	path   Path
	family int
	state  State
	same   bool // from and to are one node
	by     Failure
}

// findings groups sorted results by class, in their order.
func findings(results []Result) []Finding {
	var order []class
	members := map[class][]Result{}
	tried := map[class]int{}
	for _, r := range results {
		c := class{path: r.Path, family: r.Family(), same: r.To == r.From}
		tried[c]++
		if c.state = r.State(); c.state == Open {
			continue
		}
		if r.Failure == Stranger || r.Failure == Status {
			c.by = r.Failure
		}
		if members[c] == nil {
			order = append(order, c)
		}
		members[c] = append(members[c], r)
	}
	out := []Finding{}
	for _, c := range order {
		of := tried[class{path: c.path, family: c.family, same: c.same}]
		out = append(out, Finding{
			Path: c.path, Family: c.family, State: c.state,
			What:   fmt.Sprintf("%s over IPv%d: %s", what(c), c.family, nodesOf(members[c], of)),
			Remedy: remedy(c), Nodes: ends(members[c]),
		})
	}
	return out
}

func what(c class) string {
	way := map[Path]string{
		Pod: "pods of different nodes", Service: "the way to a Service's ClusterIP",
		NodePort:    "node ports",
		HealthCheck: "node ports for health checks", Outside: "the way to the outside",
	}[c.path]
	if c.path == Pod && c.same {
		way = "pods of the same node"
	}
	switch {
	case c.by == Stranger:
		return way + ": another pod responds"
	case c.by == Status:
		return way + ": the response is wrong"
	case c.state == Narrow:
		return way + ": full-sized packets are lost"
	}
	return way + ": " + string(c.state)
}

// nodesOf describes the ends that all results share, with an example.
func nodesOf(all []Result, of int) string {
	first := all[0]
	example := first.From
	if to := first.end(); to != "" {
		example += " → " + to
	}
	detail := first.words()
	if first.Detail != "" {
		detail += ": " + first.Detail
	}
	if first.Path != Outside {
		detail += " at " + first.At.String()
	}
	from := !slices.ContainsFunc(all, func(r Result) bool { return r.From != first.From })
	to := !slices.ContainsFunc(all, func(r Result) bool { return r.end() != first.end() })
	var which string
	switch {
	case from && to: // also if there was no other trial
		return fmt.Sprintf("%s (%s)", example, detail)
	case len(all) == of:
		which = "everywhere"
	case to && first.end() != "":
		which = "to " + first.end() + " alone"
	case from:
		which = "from " + first.From + " alone"
	default:
		which = fmt.Sprintf("%d of %d trials", len(all), of)
	}
	return fmt.Sprintf("%s, such as %s (%s)", which, example, detail)
}

func ends(all []Result) []string {
	names := []string{}
	for _, r := range all {
		names = append(names, r.From)
		if r.To != "" {
			names = append(names, r.To)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// remedy names a place to check, for people; doctor reports many causes.
func remedy(c class) string {
	switch {
	case c.state == Narrow:
		return "a link between the nodes takes smaller packets than the pods' interfaces: give the nodes' uplinks its MTU, from which underlay-agent takes the pods', and start the pods again"
	case c.by == Stranger:
		return "two pods or Services have that address: find overlapping podCIDRs with underlayctl nodes"
	case c.path == Pod && c.same:
		return "on the node, run underlay-agent check, and look for a firewall that filters forwarded packets: nft list ruleset"
	}
	return map[Path]string{
		Pod:         "see underlayctl routes and underlayctl inspect node of both ends; on the asking node, ip route get ADDRESS must name the other node or the network's gateway; a firewall between them must pass podCIDRs",
		Service:     "if pods are open, it is kube-proxy: see its log on the asking node, and its health at port 10256",
		NodePort:    "kube-proxy opens node ports at addresses of nodePortAddresses only, and firewalls of nodes must pass its port range",
		HealthCheck: "kube-proxy serves it where it runs and knows of the node's own pods: see its log, nodePortAddresses, and firewalls; load balancers take the node for dead until it returns 200",
		Outside:     "from the node itself the target must be open; if it is, see underlay-agent check on the node for the masquerade rules",
	}[c.path]
}
