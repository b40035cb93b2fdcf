package connectivity

// counsel is where to look, and which checks of doctor know causes.
type counsel struct {
	remedy string
	checks []string
}

// routing are the checks that know why a pod on another node is out of reach.
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
		return counsel{"two pods or Services have that address: see whose podCIDRs overlap with underlayctl nodes", []string{"duplicate-podcidr", "foreign-podcidr", "other-pod-network"}}
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
		return counsel{"kube-proxy serves it where it runs and knows of the node's own pods: see its log, nodePortAddresses, and firewalls; load balancers take the node for dead until it answers 200", []string{"kube-proxy-health-port", "kube-proxy-node-ports"}}
	case LoadBalancer:
		return counsel{"see underlayctl lb for the targets' health and underlayctl inspect service for what became of it; where spec.loadBalancerSourceRanges is set, this machine's address must be in it; if it is refused at once, no pod may be ready", []string{
			"load-balancer-health", "load-balancer-owner", "service-refused", "service-family", "kube-proxy-node-ports", "kube-proxy-health-port",
			"address-not-held", "address-held-twice", "address-in-use", "address-off-segment", "address-waiting", "address-router", "address-silent",
		}}
	case Outside:
		return counsel{"from the node itself the target must be open; if it is, see underlay-agent check on the node for the masquerade rules", []string{"agent"}}
	}
	return counsel{}
}
