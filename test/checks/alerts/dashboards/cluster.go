package dashboards

// cluster is what a person looks at first.
func cluster() Dashboard {
	return Dashboard{
		UID:         "underlay-cluster",
		Title:       "Underlay: cluster",
		Description: "Pod network, load balancers and addresses of the whole cluster. What is red has an alert, and each alert has a runbook.",
		Rows: []Row{
			{"Now", health()},
			{"podCIDRs", podCIDRs()},
			{"Routes", routes()},
			{"Load balancers", loadBalancers()},
			{"Addresses that nodes hold", addresses()},
		},
	}
}

func health() []Panel {
	return []Panel{
		{
			Number, "Leaders", "Replicas of underlay-ccm that lead. One leads, the others wait.", Count, Some,
			one(`sum(leader_election_master_status{name="cloud-controller-manager"})`), false,
		},
		{
			Number, "Agents that are ready", "Nodes whose network is as it should be.", Count, Some,
			one(`sum(underlay_agent_ready)`), false,
		},
		{
			Number, "Agents that are not", "Nodes whose network isn't as it should be. underlayctl doctor says why.", Count, None,
			one(`sum(1 - underlay_agent_ready)`), false,
		},
		{
			Number, "Nodes without podCIDRs", "Nodes that can't be given podCIDRs. No pod with a network of its own runs there.", Count, None,
			one(`max(underlay_ipam_waiting_nodes)`), false,
		},
		{
			Number, "Nodes without a route", "Routes that Nodes need and that are not written.", Count, None,
			one(`sum(max by (cause) (underlay_route_table_refused))`), false,
		},
		{
			Number, "Unreachable pairs", "Pairs of nodes of which one can't reach the pods of the other.", Count, None,
			one(`sum(underlay_agent_unreachable_peers)`), false,
		},
		{
			Lines, "Peers that a node can't reach", "By node. Many nodes with one each: it is their common peer.", Count, None,
			by(`sum by (node) (underlay_agent_unreachable_peers)`, "node"), true,
		},
		{
			Lines, "Repairs", "What somebody else changed on nodes and the agents put right, by part.", Changes, Any,
			by(`sum by (part) (rate(underlay_agent_repairs_total[$__rate_interval])) * 60`, "part"), false,
		},
	}
}

func podCIDRs() []Panel {
	return []Panel{
		{
			Bars, "Pools", "Share of node prefixes that are taken, quarantine included. Pools of the servers' own prefixes are never full, and not shown.", Share, BelowMost,
			by(`1 - max by (pool, family) (underlay_ipam_ranges{state="free"}) / sum by (pool, family) (max by (pool, family, state) (underlay_ipam_ranges))`, "pool", "family"), false,
		},
		{
			Lines, "Node prefixes", "By family and state. What is foreign overlaps a podCIDR or a route that isn't ours.", Count, Any,
			by(`sum by (family, state) (max by (pool, family, state) (underlay_ipam_ranges{state!="free"}))`, "family", "state"), false,
		},
		{Lines, "Nodes that came and went", "Nodes that were given podCIDRs, and whose podCIDRs were released.", Changes, Any, []Query{
			{`sum(rate(underlay_ipam_allocations_total[$__rate_interval])) * 60`, "given"},
			{`sum(rate(underlay_ipam_releases_total[$__rate_interval])) * 60`, "released"},
			{`sum(rate(underlay_ipam_conflicts_total[$__rate_interval])) * 60`, "conflicts"},
		}, false},
		{
			Lines, "Writes of the ledger", "By outcome. A conflict is tried again; writes that fail again and again mean that no Node gets podCIDRs.", Changes, Any,
			by(`sum by (outcome) (rate(underlay_ipam_ledger_writes_total[$__rate_interval])) * 60`, "outcome"), false,
		},
	}
}

func routes() []Panel {
	return []Panel{
		{Lines, "Route table", "Routes of the cloud's network, whoever's, beside what it takes.", Count, Any, []Query{
			{`max(underlay_route_table_ours)`, "ours"},
			{`max(underlay_route_table_foreign)`, "of others"},
			{`max(underlay_route_table_ambiguous)`, "ambiguous"},
			{`max(underlay_route_table_limit)`, "limit"},
		}, false},
		{
			Lines, "Routes that are not written", "By cause: full, obstructed by another's route, outside this cluster's ranges.", Count, None,
			by(`max by (cause) (underlay_route_table_refused)`, "cause"), false,
		},
		{
			Lines, "Changes of the table", "By what was asked and what came of it.", Changes, Any,
			by(`sum by (verb, outcome) (rate(underlay_routes_writes_total[$__rate_interval])) * 60`, "verb", "outcome"), false,
		},
		{
			Lines, "Deletions that wait", "Routes of nodes that are gone, which wait for the cap on deletions.", Count, Any,
			one(`max(underlay_route_table_postponed_deletions)`), false,
		},
	}
}

func loadBalancers() []Panel {
	return []Panel{
		{
			Lines, "Reconciliations", "Of Services of type LoadBalancer, by result. What failed is tried again; what was refused, a person has to change.", Changes, Any,
			by(`sum by (result) (rate(underlay_lb_syncs_total[$__rate_interval])) * 60`, "result"), false,
		},
		{
			Lines, "Changes of load balancers", "By operation and result.", Changes, Any,
			by(`sum by (operation, result) (rate(underlay_lb_operations_total[$__rate_interval])) * 60`, "operation", "result"), false,
		},
		{
			Lines, "Load balancers without a Service", "They have this cluster's label, cost money and are never deleted by themselves.", Count, None,
			one(`max(underlay_lb_orphaned_load_balancers)`), false,
		},
		{
			Lines, "Drift", "Services whose load balancer somebody else had changed.", Changes, Any,
			one(`sum(rate(underlay_lb_drifted_total[$__rate_interval])) * 60`), false,
		},
	}
}

func addresses() []Panel {
	return []Panel{
		{
			Number, "Services that wait", "Services that don't have all the addresses that they ask for.", Count, None,
			one(`max(underlay_addresses_services_waiting)`), false,
		},
		{
			Number, "Addresses without a node", "Addresses of Services that no node may hold: nobody answers for them.", Count, None,
			one(`max(underlay_addresses_unheld)`), false,
		},
		{
			Number, "Used by a stranger", "Addresses of Services for which another machine answers.", Count, None,
			one(`max(underlay_addresses_in_use)`), false,
		},
		{
			Number, "Agents in doubt", "Agents that can't read the ledger of addresses and go on with what they read last.", Count, None,
			one(`sum(underlay_agent_address_doubt)`), false,
		},
		{
			Number, "BGP sessions that are down", "Sessions that nodes should have with routers, and don't.", Count, None,
			one(`sum(underlay_agent_address_routers_down)`), false,
		},
		{
			Number, "Ledger damaged", "1: the ledger of addresses can't be read. No address is given and none moves.", Count, None,
			one(`max(underlay_addresses_ledger_damaged)`), false,
		},
		{
			Bars, "Pools of addresses", "Share of addresses that Services have. A small pool may be in use as a whole.", Share, BelowMost,
			by(`max by (pool, family) (underlay_addresses_pool_used) / max by (pool, family) (underlay_addresses_pool_size)`, "pool", "family"), false,
		},
		{
			Lines, "Addresses by node", "How many each holds; with BGP every node that may.", Count, Any,
			by(`sum by (node) (underlay_agent_address_held)`, "node"), true,
		},
		{
			Lines, "Moves", "By reason: what spoke against the node before, or assigned, released, balanced.", Changes, Any,
			by(`sum by (reason) (rate(underlay_addresses_moves_total[$__rate_interval])) * 60`, "reason"), false,
		},
		{
			Lines, "Failures of routing", "Times that an API didn't lead an address to its node, by mover. Each is tried again.", Changes, Any,
			by(`sum by (mover) (rate(underlay_addresses_routing_failures_total[$__rate_interval])) * 60`, "mover"), false,
		},
	}
}
