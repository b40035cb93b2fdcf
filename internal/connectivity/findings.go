package connectivity

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Finding is a problem, with all nodes that it affects.
type Finding struct {
	Path   Path   `json:"path"`
	Family int    `json:"family"`
	State  State  `json:"state"`
	What   string `json:"what"`
	Remedy string `json:"remedy"`
	// Checks of underlayctl doctor that may report the cause.
	Checks []string `json:"checks,omitempty"`
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
func findings(results []Result, slow time.Duration) []Finding {
	var order []class
	members := map[class][]Result{}
	tried := map[class]int{}
	for _, r := range results {
		c := class{path: r.Path, family: r.Family(), same: r.To == r.From}
		tried[c]++
		if c.state = r.State(slow); c.state == Open {
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
		a := advice(c)
		of := tried[class{path: c.path, family: c.family, same: c.same}]
		out = append(out, Finding{
			Path: c.path, Family: c.family, State: c.state,
			What:   fmt.Sprintf("%s over IPv%d: %s", what(c), c.family, nodesOf(members[c], of)),
			Remedy: a.remedy, Checks: a.checks, Nodes: ends(members[c]),
		})
	}
	return out
}

func what(c class) string {
	way := map[Path]string{
		Service: "the way to a Service's ClusterIP", NodePort: "node ports",
		HealthCheck: "node ports for health checks", Outside: "the way to the outside", LoadBalancer: "load balancers",
	}[c.path]
	switch {
	case c.path == Pod && c.same:
		way = "pods of the same node"
	case c.path == Pod:
		way = "pods of different nodes"
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
	detail := first.words(first.failing())
	if first.Detail != "" {
		detail += ": " + first.Detail
	}
	if !strings.HasSuffix(example, first.At.String()) {
		detail += " at " + first.At.String()
	}
	same := func(of func(Result) string) bool {
		return !slices.ContainsFunc(all, func(r Result) bool { return of(r) != of(first) })
	}
	from, to := same(func(r Result) string { return r.From }), same(Result.end)
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

// failing returns the state without a limit of time, or Slow if that is Open.
func (r Result) failing() State {
	if s := r.State(0); s != Open {
		return s
	}
	return Slow
}

func ends(all []Result) []string {
	names := []string{}
	for _, r := range all {
		if r.Path == LoadBalancer {
			continue // the ends are an external client and a Service
		}
		names = append(names, r.From)
		if r.To != "" {
			names = append(names, r.To)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

type counsel struct {
	remedy string
	checks []string
}

// routing returns the checks that report why pods on other nodes are unreachable.
func routing() []string {
	return []string{
		"network-unavailable", "peers-unreachable", "network-at-risk", "node-without-podcidr",
		"duplicate-podcidr", "foreign-podcidr", "missing-family", "stale-routes", "route-table",
		"attachments", "agent", "other-pod-network", "vswitch-network", "vswitch-node", "vswitch-member",
	}
}

func advice(c class) counsel {
	switch c.state {
	case Slow:
		return counsel{"compare with ping between the nodes: if they are slow too, it is the network between them; else look for a node without free CPU", nil}
	case Lossy:
		return counsel{"compare with ping between the nodes; on both, see ip -s link for drops and dmesg for a full connection table (nf_conntrack)", nil}
	case Narrow:
		return counsel{"a link between the nodes takes smaller packets than the pods' interfaces: give the nodes' uplinks its MTU, from which underlay-agent takes the pods', and start the pods again", []string{"vswitch-network", "vswitch-node", "agent"}}
	}
	if c.by == Stranger {
		return counsel{"two pods or Services have that address: find overlapping podCIDRs with underlayctl nodes", []string{"duplicate-podcidr", "foreign-podcidr", "other-pod-network"}}
	}
	switch c.path {
	case Pod:
		if c.same {
			return counsel{"on the node, run underlay-agent check, and look for a firewall that filters forwarded packets: nft list ruleset", []string{"agent", "cni-order", "cni-plugins", "other-pod-network"}}
		}
		return counsel{"see underlayctl routes and underlayctl inspect node of both ends; on the asking node, ip route get ADDRESS must name the other node or the network's gateway; a firewall between them must pass podCIDRs", routing()}
	case Service:
		return counsel{"if pods are open, it is kube-proxy: see its log on the asking node, and its health at port 10256", []string{"kube-proxy-local-mode", "kube-proxy-cluster-cidr"}}
	case NodePort:
		return counsel{"kube-proxy opens node ports at addresses of nodePortAddresses only, and firewalls of nodes must pass its port range", []string{"kube-proxy-node-ports", "kube-proxy-local-mode"}}
	case HealthCheck:
		return counsel{"kube-proxy serves it where it runs and knows of the node's own pods: see its log, nodePortAddresses, and firewalls; load balancers take the node for dead until it returns 200", []string{"kube-proxy-health-port", "kube-proxy-node-ports"}}
	case LoadBalancer:
		return counsel{"see underlayctl lb for the targets' health and underlayctl inspect service for its state; where spec.loadBalancerSourceRanges is set, this machine's address must be in it; if the connection is refused at once, no pod may be ready", []string{
			"load-balancer-health", "load-balancer-owner", "service-refused", "service-family", "kube-proxy-node-ports", "kube-proxy-health-port",
			"address-not-held", "address-held-twice", "address-in-use", "address-off-segment", "address-waiting", "address-router", "address-silent",
		}}
	case Outside:
		return counsel{"from the node itself the target must be open; if it is, see underlay-agent check on the node for the masquerade rules", []string{"agent"}}
	}
	return counsel{}
}
