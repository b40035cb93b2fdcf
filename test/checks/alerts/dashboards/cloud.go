package dashboards

// ofLeader keeps what the replica that leads says: what the others were told is old.
const ofLeader = ` and on (instance) leader_election_master_status{name="cloud-controller-manager"} == 1`

// cloud is what the cluster spends of the project's limits.
func cloud() Dashboard {
	return Dashboard{
		UID:         "underlay-cloud",
		Title:       "Underlay: cloud budget",
		Description: "What the cluster asks of the cloud, and what is left of the project's limits.",
		Rows:        []Row{{"Now", budget()}, {"Requests to the cloud", requests()}, {"Requests to Robot", robot()}},
	}
}

func budget() []Panel {
	return []Panel{
		{
			Number, "Requests left", "Of the project's hour, when the API last told. Other programs of the project spend from it too.", Count, Plenty,
			one(`max(underlay_cloud_requests_remaining` + ofLeader + `)`), false,
		},
		{
			Number, "Requests in an hour", "What underlay-ccm sent.", Count, Any,
			one(`sum(increase(underlay_cloud_requests_total[1h]))`), false,
		},
		{
			Number, "Age of the server list", "Up to 5 minutes, or 30 while the budget is low. Older: the cloud doesn't answer, and no Node is declared gone.", Seconds, Known,
			one(`time() - max(underlay_cloud_requests_server_list_timestamp_seconds` + ofLeader + `)`), false,
		},
		{
			Number, "Age of the route table", "Above 15 minutes: routes stay as they are, and no new Node is routed.", Seconds, Recent,
			one(`time() - max(underlay_route_table_listed_timestamp_seconds)`), false,
		},
		{
			Number, "Routes that still fit", "Nodes that can still be given a route in the network.", Count, Some,
			one(`max(underlay_route_table_headroom)`), false,
		},
		{
			Number, "Attached servers", "To the network, whoever's; it takes 100 of servers and load balancers.", Count, Any,
			one(`max(underlay_route_table_attachments)`), false,
		},
	}
}

func requests() []Panel {
	return []Panel{
		{
			Lines, "Requests left", "Below a tenth of the limit looks for drift wait, below a twentieth everything that isn't urgent.", Count, Plenty,
			one(`max(underlay_cloud_requests_remaining` + ofLeader + `)`), false,
		},
		{
			Lines, "By operation", "What is asked.", PerMinute, Any,
			by(`sum by (operation) (rate(underlay_cloud_requests_total[$__rate_interval])) * 60`, "operation"), false,
		},
		{
			Lines, "By answer", "HTTP status, or unanswered. 423 is a lock and is tried again, 429 a budget that is spent.", PerMinute, Any,
			by(`sum by (code) (rate(underlay_cloud_requests_total[$__rate_interval])) * 60`, "code"), false,
		},
		{
			Lines, "By priority", "What is urgent goes first when the budget is low.", PerMinute, Any,
			by(`sum by (priority) (rate(underlay_cloud_requests_total[$__rate_interval])) * 60`, "priority"), false,
		},
	}
}

func robot() []Panel {
	return []Panel{
		{
			Number, "Robot doesn't answer", "1: Nodes of dedicated servers keep what is known of them.", Count, None,
			one(`max(underlay_robot_requests_unavailable` + ofLeader + `)`), false,
		},
		{
			Number, "Credentials refused", "1: they are not tried again before they change, because Robot blocks who does.", Count, None,
			one(`max(underlay_robot_requests_credentials_refused` + ofLeader + `)`), false,
		},
		{
			Number, "Not on the vSwitch", "Nodes of dedicated servers that the vSwitch doesn't reach.", Count, None,
			one(`sum(max by (cause) (underlay_vswitch_unreached_nodes))`), false,
		},
		{
			Lines, "Requests to Robot", "By operation and answer.", PerMinute, Any,
			by(`sum by (operation, code) (rate(underlay_robot_requests_total[$__rate_interval])) * 60`, "operation", "code"), false,
		},
	}
}
