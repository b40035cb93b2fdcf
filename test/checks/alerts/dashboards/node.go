package dashboards

// node is one machine: what its agent says.
func node() Dashboard {
	return Dashboard{
		UID:         "underlay-node",
		Title:       "Underlay: node",
		Description: "The network of one node, as its agent sees it.",
		Variables:   []Variable{{"node", "Node", "underlay_agent_ready"}},
		Rows:        []Row{{"Now", nodeHealth()}, {"Network", nodeNetwork()}, {"Addresses that it holds", nodeAddresses()}},
	}
}

func nodeHealth() []Panel {
	return []Panel{
		{
			Number, "Scraped", "1: Prometheus reads the agent's metrics.", Count, Some,
			one(`max(up{node="$node",job=~"(.+/)?underlay-agent"})`), false,
		},
		{
			Number, "Ready", "1: the node's network is as it should be. underlayctl doctor says what isn't.", Count, Some,
			one(`max(underlay_agent_ready{node="$node"})`), false,
		},
		{
			Number, "Unreachable peers", "Nodes whose pods can't be reached from here.", Count, None,
			one(`max(underlay_agent_unreachable_peers{node="$node"})`), false,
		},
		{
			Number, "Routes that don't stand", "Missing, or in the place of somebody else's.", Count, None,
			one(`sum(underlay_agent_routes{node="$node",state!="standing"})`), false,
		},
		{
			Number, "Addresses", "Addresses of Services that the node holds.", Count, Any,
			one(`sum(underlay_agent_address_held{node="$node"})`), false,
		},
		{
			Number, "In doubt", "1: the ledger of addresses can't be read.", Count, None,
			one(`max(underlay_agent_address_doubt{node="$node"})`), false,
		},
	}
}

func nodeNetwork() []Panel {
	return []Panel{
		{
			Lines, "Routes to other nodes", "By state: standing, missing, refused because another's stands there.", Count, Any,
			by(`sum by (state) (underlay_agent_routes{node="$node"})`, "state"), false,
		},
		{
			Lines, "Unreachable peers", "Nodes whose pods can't be reached from here.", Count, None,
			one(`max(underlay_agent_unreachable_peers{node="$node"})`), false,
		},
		{
			Lines, "Changes of kernel routes", "By what was asked and what came of it.", Changes, Any,
			by(`sum by (verb, outcome) (rate(underlay_agent_route_writes_total{node="$node"}[$__rate_interval])) * 60`, "verb", "outcome"), false,
		},
		{
			Lines, "Repairs", "What somebody else changed and the agent put right, by part. Again and again: two programs fight.", Changes, Any,
			by(`sum by (part) (rate(underlay_agent_repairs_total{node="$node"}[$__rate_interval])) * 60`, "part"), false,
		},
		{
			Lines, "Looks at everything", "By outcome.", Changes, Any,
			by(`sum by (outcome) (rate(underlay_agent_passes_total{node="$node"}[$__rate_interval])) * 60`, "outcome"), false,
		},
		{
			Lines, "Lost events", "Times that the kernel's events began anew.", Changes, Any,
			one(`sum(rate(underlay_agent_kernel_events_lost_total{node="$node"}[$__rate_interval])) * 60`), false,
		},
	}
}

func nodeAddresses() []Panel {
	return []Panel{
		{
			Lines, "Addresses", "By mover: what brings their traffic to the node.", Count, Any,
			by(`sum by (mover) (underlay_agent_address_held{node="$node"})`, "mover"), false,
		},
		{
			Lines, "BGP sessions that are down", "Sessions that the node should have with routers, and doesn't.", Count, None,
			one(`max(underlay_agent_address_routers_down{node="$node"})`), false,
		},
	}
}
