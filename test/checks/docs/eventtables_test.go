package docs

// objects are the tables of docs/reference/events.md.
func objects() []object {
	return []object{
		{title: "Nodes: podCIDRs", about: "Sent by node IPAM in `underlay-ccm`. What the allocator does and why: [node IPAM](../explanation/node-ipam.md).", told: podCIDRsOfNodes()},
		{title: "ConfigMap kube-system/underlay-node-ipam: the ledger", about: "Sent by node IPAM in `underlay-ccm`. How to read and repair it: [the ledger](../how-to/read-the-ledger.md).", told: ledgerReasons()},
		{title: "Nodes: routes", about: "Set and sent by the route controller in `underlay-ccm`. Where no family is routed by the cloud, the agent sets `NetworkUnavailable`, with the first two reasons.", told: routesOfNodes()},
		{title: "Lease kube-system/cloud-controller-manager: the route table", about: "The network's table is no object of Kubernetes, so what concerns it as a whole is told about the lease of whoever may write it. Each trouble is told once, when it begins.", told: tableReasons()},
		{title: "Nodes: servers", about: "Sent by `underlay-ccm` while it initializes a Node.", told: serversOfNodes()},
		{title: "Nodes: members of the vSwitch", about: "Set and sent by `underlay-ccm` for Nodes of dedicated servers whose podCIDR is of a pool with `source: vswitch`, where it [may ask Robot](../how-to/dedicated-servers.md#with-robot): every five minutes, and a minute after a Node has joined at the latest.", told: membersOfVSwitch()},
		{title: "Nodes: peers", about: "Set and sent by the Node's own agent.", told: peersOfNodes()},
		{title: "Services of type LoadBalancer: what they ask for", about: "Set and sent by the load balancer controller in `underlay-ccm`. The condition has the reason of the first finding that takes something away; its message has all of them.", told: wishesOfServices()},
		{title: "Services of type LoadBalancer: what became of it", about: "Set and sent by the load balancer controller in `underlay-ccm`.", told: outcomesOfServices()},
		{title: "Services of class underlay.dev/address", about: "Set and sent by the address controller in `underlay-ccm`. The condition has the reason of the first finding; its message has all of them. What a Service can ask for: [addresses](addresses.md).", told: addressesOfServices()},
		{title: "Nodes: what keeps them from holding an address", about: "Reported by the Node's agent in the annotation `underlay.dev/addresses`, for each address that it should hold, or could. `underlayctl addresses` shows it. The address controller tells the Service of the first.", told: addressesOfNodes(), reported: true},
		{title: "ConfigMap kube-system/underlay-addresses: the ledger of addresses", about: "Sent by the address controller in `underlay-ccm`. [How it is read](addresses.md#the-ledger).", told: addressLedgerReasons()},
	}
}

const (
	unallocated = "underlay.dev/PodCIDRsAllocated=False"
	unavailable = "NetworkUnavailable=True"
	unaccepted  = "underlay.dev/Accepted=False"
	noMember    = "underlay.dev/VSwitchMember=False"
)

func podCIDRsOfNodes() []told {
	return []told{
		{"PodCIDRAllocated", "", "underlay.dev/PodCIDRsAllocated=True", "A Node that had to wait has its podCIDRs.", nothing},
		{"PoolExhausted", "Warning", unallocated, "No pool that is for this Node has a free prefix.", "Delete Nodes that are gone, wait for the quarantine of those deleted lately, or [add a pool](../how-to/add-a-pool.md)."},
		{"NoPool", "Warning", unallocated, "The Node's labels match the selector of no active pool.", "Label the Node, or change `pools[].nodeSelector`."},
		{"NoOwnPrefix", "Warning", unallocated, "A pool takes IPv6 from the machine's own prefix, and the machine has none. If another pool follows, the Node got a prefix of that: then there is only the Event.", "Give the machine a primary IPv6. A Node that fell back has to join again to change that."},
		{"SharedOwnPrefix", "Warning", unallocated, "As NoOwnPrefix, but other Nodes hold a part of the machine's prefix already; a prefix is routed to one machine only.", "Find out which Nodes claim the same machine; delete the wrong ones."},
		{"OwnPrefixUnknown", "Warning", unallocated, "Which machine the Node is could not be found out for a while.", "See whether the Node has a provider ID, and whether the cloud answers."},
		{"LedgerFull", "Warning", unallocated, "The stored ledger is as large as a ConfigMap can be, and has no shards.", "Delete Nodes that are gone, or set `ledgerShards: auto`. With a pool of `source: node` there are no shards: run more and smaller clusters."},
		{"SecondAllocator", "Warning", unallocated, "Somebody else sets podCIDRs. Nothing is handed out until the admission policy keeps them from it, or a Node has waited a minute and nobody served it.", "Start kube-controller-manager with `--allocate-node-cidrs=false`, stop the other allocator, apply `deploy/ccm/podcidr-policy.yaml`."},
		{"ForeignPodCIDR", "Warning", "", "The Node has a podCIDR that no pool would have handed out: outside all pools, of another size, inside an exclusion, or unreadable. Nothing that overlaps it is handed out.", "Add a pool that covers it, correct the exclusion, or delete the Node and let it join again."},
		{"DuplicatePodCIDR", "Warning", "", "The Node's podCIDR overlaps one that another Node had first.", "Delete this Node and let it join again: podCIDRs can't be changed."},
		{"MissingPodCIDR", "Warning", "", "The Node has podCIDRs, but none of a family that the pools have.", "Delete the Node and let it join again: podCIDRs can't be added later."},
		{"TooManyAddresses", "Warning", "", "The Node names more addresses than count for other Nodes and for Services: a kubelet may write any. The others count for nothing.", "See who wrote them: `kubectl get node NAME --show-managed-fields -o yaml`. Of a machine with so many addresses give the kubelet those that nodes use as `--node-ip`."},
	}
}

func ledgerReasons() []told {
	return []told{
		{"LedgerLost", "Warning", "", "There is no stored ledger, or a part of it is not there, or somebody emptied it. It is rebuilt from the Nodes; nothing is handed out until no process can be left that goes on from a lost one.", "In a cluster that has just begun: nothing. Else find out who deleted or emptied the ConfigMap."},
		{"LedgerFull", "Warning", "", "The prefixes of the Nodes that have podCIDRs don't fit into one ConfigMap. Without shards nothing is stored then: those Nodes are served; no other gets podCIDRs. With `ledgerShards: none` the shards that there are stay.", "Set `ledgerShards: auto`. With a pool of `source: node`, go on with the allocator that served them (`--allocate-node-cidrs=false` for `underlay-ccm`), or run more and smaller clusters."},
		{"PrefixRouted", "Warning", "", "The network has a route to a prefix of the pools, or to one that covers a part of them, which no Node holds. Nothing that overlaps it is handed out.", "Remove the route if nothing uses it, or keep it clear with `exclude`."},
		{"LedgerDamaged", "Warning", "", "An entry of the ledger can't be read, or contradicts the configuration. Nothing is handed out meanwhile.", "[Repair](../how-to/read-the-ledger.md) the entry that the message names."},
		{"LedgerNotWritable", "Warning", "", "The API server refuses writes of the ledger: forbidden, invalid or too large.", "Apply `deploy/ccm/rbac.yaml` again; see what an admission webhook says about the ConfigMap."},
	}
}

func routesOfNodes() []told {
	return []told{
		{"RouteCreated", "", "NetworkUnavailable=False", "All routes that the Node needs stand, or it needs none: its podCIDR lies inside the vSwitch's subnet.", nothing},
		{"ProviderIDShared", "Warning", "", "Another Node has the same provider ID: a machine was cloned with its kubelet's state, or joined again under another name. One of the Nodes is routed: the Ready one, the older of two. Told to both.", "Delete the Node whose machine is gone, or let the cloned machine join with the ID of its own server."},
		{"NoRouteCreated", "", unavailable, "The Node has no podCIDR yet, or its route is not there yet. The message says which.", "Wait a minute; then see the Events of the Node and of the lease."},
		{"RouteTableFull", "Warning", unavailable, "The network's table has no room for the Node's route.", "Remove routes or Nodes, or have the limit raised and set `routes.limit`."},
		{"NotAttached", "Warning", unavailable, "The Node's server has no address in the network, or isn't found; or it is a dedicated server, to which no route of the network can lead, and its podCIDR lies outside the vSwitch's subnet.", "Attach the server to the network of the configuration. A dedicated server needs a podCIDR from a pool [inside the vSwitch's subnet](../how-to/dedicated-servers.md#over-a-vswitch), or an overlay: let such a pool select it, delete the Node and let it join again."},
		{"NotInVSwitch", "Warning", unavailable, "The Node's podCIDR lies inside the vSwitch's subnet, and no internal address of the Node does; or the Node is a server of the cloud, selected by mistake. The subnet's gateway doesn't find its pods.", "Give the server an address of the subnet on its VLAN interface, and its kubelet that one with `--node-ip`. A server of the cloud: correct its labels, delete the Node and let it join again."},
		{"RouteAmbiguous", "Warning", "", "Somebody else's route is in the way of the Node's, or takes packets for its podCIDR inside the vSwitch's subnet. The condition says NoRouteCreated.", "Remove that route if nothing needs it."},
		{"DuplicatePodCIDR", "Warning", "", "Two Nodes have the same podCIDR, and this one came later: it gets no route. The condition says NoRouteCreated.", "Delete this Node and let it join again."},
		{"ForeignPodCIDR", "Warning", "", "The Node's podCIDR belongs to no pool that is routed: it gets no route. The condition says NoRouteCreated.", "Add a pool that covers it, or delete the Node and let it join again."},
	}
}

func tableReasons() []told {
	return []told{
		{"RouteAmbiguous", "Warning", "", "A route within this cluster's pod range that this cluster neither wrote nor adopted. It is kept.", "Remove the route if nothing uses it. Give each cluster on the network a pod range of its own."},
		{"RouteDeletionsCapped", "Warning", "", "More routes are stale than may be deleted within one period (`routes.maxDeletions`). The rest follows in the next periods.", "If so many Nodes really left: nothing. Else stop `underlay-ccm` and find out why the Nodes are gone."},
		{"RouteDeletionsLate", "Warning", "", "Twice in a row, routes that are stale or wrong could not be deleted or replaced within half a lease of the list of routes on which that rests. The message has the time that passed and the limit.", "See what delays requests to the cloud: another program that spends the project's request limit, or a network that is locked for long."},
		{"RoutesNotRecorded", "Warning", "", "The ConfigMap `underlay-routes` can't be read or written. Nodes are routed all the same; the next leader will not know which routes it may delete.", "Apply `deploy/ccm/rbac.yaml` again; see what an admission webhook says about the ConfigMap."},
		{"RouteTableNearlyFull", "Warning", "", "80 % of the routes that the network takes are used, needed or reserved.", "Have the limit raised and set `routes.limit` before more Nodes join."},
		{"RouteTableUnreadable", "Warning", "", "Nodes, servers or routes can't be read completely, or no Node's server is in the project. No route is deleted or replaced, and new Nodes may not be routed.", "See that the network is there and the token is valid."},
	}
}

func serversOfNodes() []told {
	return []told{
		{"ServerMissing", "Warning", "", "The Node is Ready, and the project has no server with the ID of its provider ID: the server was replaced under its name while its Node stayed. Routes and targets go on leading to the server that is gone. Told once while it lasts, after it was seen for 2 minutes.", "Delete the Node, and restart its kubelet, so that it joins anew."},
		{"ServerAmbiguous", "Warning", "", "Two servers fit the Node, or its name and its address lead to different ones. The Node stays uninitialized.", "Rename the server, or start the kubelet with the server's name and `--node-ip`."},
		{"AddressMismatch", "Warning", "underlay.dev/AddressesMatch=False", "With provider `metal`: the kubelet reports an address that the inventory doesn't have for this machine. With `hcloud`: the kubelet was given an address that its server doesn't have; a dedicated server's, one that lies outside the network, or is another server's or Node's. The Node stays uninitialized.", "Correct `inventory`, or the kubelet's `--node-ip`."},
		{"AddressesMatch", "", "underlay.dev/AddressesMatch=True", "The kubelet has an address of its machine again.", nothing},
		{"InventoryMismatch", "Warning", "", "The inventory contradicts Robot about a dedicated server. Robot counts.", "Correct `inventory`, or the server's name at Robot."},
		{"ServerAbsenceUnproved", "Warning", "", "A Node's dedicated server is missing from the account's list, and either no other Node's server is in it, or the list has not shown this one since `underlay-ccm` began: server or credentials may be of another account. The Node is not deleted.", "Check the Robot user. If the server really is gone, delete the Node."},
	}
}

func membersOfVSwitch() []told {
	return []told{
		{"VSwitchMemberFailed", "Warning", noMember, "Robot says that configuring the port of the Node's server in the vSwitch has failed. Its pods may not be reached.", "At Robot, remove the server from the vSwitch and add it again: [UnderlayVSwitchMemberFailed](../runbooks/UnderlayVSwitchMemberFailed.md)."},
		{"VSwitchMemberMissing", "Warning", noMember, "The Node's server is no member of the vSwitch that the network's subnet is coupled with.", "Add it to the vSwitch at Robot, or couple the subnet with the vSwitch that the servers are in."},
		{"VSwitchMemberInProcess", "", "underlay.dev/VSwitchMember=Unknown", "Robot is configuring the port of a server that had no working place.", "Wait some minutes."},
		{"VSwitchMemberReady", "Normal", "underlay.dev/VSwitchMember=True", "A server that had no working place in the vSwitch has one again.", nothing},
	}
}

func peersOfNodes() []told {
	return []told{
		{"AllPeersReachable", "", "underlay.dev/PeersReachable=True", "The node has a route to the pods of every other node that has any.", nothing},
		{"PeersUnreachable", "Warning", "underlay.dev/PeersReachable=False", "The node can't have a route to the pods of the nodes that the message names, for the reason that it gives for each.", "Run `underlay-agent check` on the node. Nodes of family mode `node` must share a network segment."},
		{"NetworkAtRisk", "Warning", "underlay.dev/PeersReachable=True", "The node works, and its agent warns of what it can't mend: another program's packet filter drops forwarded packets by its policy (rules of the legacy iptables go unseen), addresses of Nodes are neither in the inventory nor on a network of the nodes, the interface on the vSwitch has an MTU above 1400, or an annotation of the Node would open to load balancers what is no public pod of it.", "Do what the message says, on that node."},
		{"NetworkNotReady", "Warning", "underlay.dev/PeersReachable=False", "The agent isn't ready, and the message says why: the packet filter, a route or a setting can't be written, a CNI plugin is missing, another CNI configuration comes first. What comes after the part that fails waits. The Event comes after a minute, and every ten minutes while it lasts.", "Mend what the message names, then run `underlay-agent check` on the node."},
		{"RouteCreated", "", "NetworkUnavailable=False", "The node's network is set up.", nothing},
		{"NoRouteCreated", "", unavailable, "The node's network isn't set up yet; the message says what is missing.", "Run `underlay-agent check` on the node."},
	}
}

func wishesOfServices() []told {
	return []told{
		{"InvalidField", "Warning", unaccepted, "A field or annotation has a value that it can't have.", "Correct it: [annotations](annotations.md)."},
		{"UnsupportedField", "Warning", unaccepted, "A valid wish that this cloud's load balancers can't fulfill, such as UDP, source ranges or session affinity.", "Take it out, or use another class."},
		{"ImmutableField", "Warning", unaccepted, "A wish that an existing load balancer can't follow, such as another location or address.", "Take the wish back, or delete the Service and make it again."},
		{"TargetAddressMissing", "Warning", unaccepted, "A Node of a dedicated server has no address at which the load balancer could reach it: with `use-private-ip` no InternalIP in the network's vSwitch subnet, without it no public address. The Node is not added, the others are. If it is a target at its other address, it stays one there; if not, every address that is a target and no Node's stays meanwhile, because it may be this Node's.", "Set the kubelet's `--node-ip` to the server's address in the vSwitch subnet, let the Node have an ExternalIP, or change the annotation `load-balancer.hetzner.cloud/use-private-ip`."},
		{"TargetsTruncated", "Warning", unaccepted, "There are more nodes, or pods, than the load balancer's type takes as targets. Nodes with ready endpoints come first; of pods one of each node does.", "Choose a larger type, or fewer nodes by the annotation `load-balancer.hetzner.cloud/node-selector`."},
		{"PodsNotTargets", "Warning", unaccepted, "The Service has the annotation `underlay.dev/targets: pods`, and nodes are the targets, or some of its ready pods are none: the Service has no IPv6 address, no pool has `source: node`, or a pod has no address out of its cloud server's own /64. What is the case stands in the Event.", "See [Pods as targets of load balancers](../how-to/pods-as-targets.md), or set the annotation to `nodes`."},
		{"TargetPortUnknown", "Warning", unaccepted, "Pods are to be the targets, a port of the Service leads to a named port of theirs, and no pod says which number that has. Nothing is created for the port until then.", "Let a pod of the Service be ready, or set a number as `targetPort`."},
		{"CertificateUnusable", "Warning", unaccepted, "A certificate can't be used; the message has the cloud's reason, or the command that labels the certificate for the namespace.", "Mend what the message names."},
		{"CertificatePending", "Warning", unaccepted, "A managed certificate is being obtained.", "Wait some minutes. The domains' DNS zone must be one of the cloud's."},
		{"PrimaryIPUnusable", "Warning", unaccepted, "The load balancer can't be created with a primary IP that the Service names: there is none, it is of the other family or in another location, or the project's side doesn't give it; the message has the command that would. Or: it would be deleted with the load balancer, then the Service stays accepted.", "Do what the message says: [keep an address](../how-to/keep-an-address.md)."},
		{"PrimaryIPInUse", "Warning", unaccepted, "Something else has a primary IP that the Service names; the message says what. It is looked at again soon.", "Free it, or name another one."},
		{"PortConflict", "Warning", unaccepted, "Two Services that share a load balancer ask for the same port. The older one has it, and is told by the Event alone.", "Use another port in one of them, or a load balancer of its own: [sharing](../how-to/share-a-load-balancer.md#conflicts)."},
		{"NoRoomForPort", "Warning", unaccepted, "The type of a load balancer that is shared has no room for a port or its certificates, because older Services take it.", "Let the oldest Service set a larger `load-balancer.hetzner.cloud/type`, or use a load balancer of its own."},
		{"NoCommonNode", "Warning", unaccepted, "No node matches the Service's node selector and those of the older Services that share its load balancer. It is not served.", "Change the selector, or use a load balancer of its own."},
		{"UnknownAnnotation", "Warning", "", "An annotation below `load-balancer.hetzner.cloud/` that nobody reads, or one that is a slip of an annotation that is read.", "Correct its name, or take it out."},
		{"FieldWithoutEffect", "Warning", "", "A setting that another one of the same Service makes meaningless, or that an older Service decides which shares the load balancer.", "Take one of them out."},
	}
}

func outcomesOfServices() []told {
	return []told{
		{"Accepted", "", "underlay.dev/Accepted=True", "The load balancer is what the Service asks for.", nothing},
		{"Pending", "", "underlay.dev/Accepted=Unknown", "The load balancer is being set up.", "Wait a minute."},
		{"Requested", "", "underlay.dev/ManagedCertificate=True", "A managed certificate was ordered, or is about to be.", nothing},
		{"Found", "", "underlay.dev/AddressesOfOthers=True", "The Service had addresses in its status before it had a load balancer of this controller. They may lead somewhere, so they stay there until it has one that serves it.", nothing},
		{"EnsuredLoadBalancer", "Normal", "", "The load balancer was created.", nothing},
		{"DeletedLoadBalancer", "Normal", "", "The load balancer was deleted with its Service, or with the last one that shared it.", nothing},
		{"SharingLoadBalancer", "Normal", "", "A Service that had a load balancer of its own is served by one that it shares. Its own is deleted, and its addresses are others now.", "Let DNS follow the Service's status."},
		{"SyncLoadBalancerFailed", "Warning", "", "Something failed three times in a row, and is tried again. It is told again while that lasts.", "See the message; if the cloud is in trouble, wait. If it doubts the token's project, put the right token into the Secret."},
		{"Rejected", "Warning", unaccepted, "The cloud refused a request, and says why.", "Do what the message says."},
		{"LoadBalancerHeld", "Warning", "", "The Service is refused, but has a load balancer: only its ports follow the node ports, and targets the nodes or pods.", "Correct what the other findings name."},
		{"HealthCheckUnanswered", "Warning", "", "No node answers a health check that asks kube-proxy, at a Service with the PROXY protocol: the cloud's checks may carry its header, which kube-proxy does not understand.", "Annotate `underlay.dev/health-check: node-port`, if the port is open to the load balancer."},
		{"LoadBalancerNotOwned", "Warning", unaccepted, "The load balancer that the Service would have belongs to another Service, cluster or controller. It is left alone. Or: a Service that asks for none any more has the finalizer of load balancers, and no label says whose it is.", "Choose another name, or [hand it over](../how-to/hand-over-a-load-balancer.md): the message has the command, also the one that removes the finalizer."},
		{"HealthCheckKept", "Warning", "", "The load balancer was taken over from another controller, and keeps that one's health checks.", "Set the annotation `underlay.dev/health-check` to get truthful ones."},
		{"SettingsKept", "Warning", "", "The load balancer was taken over from another controller, and keeps settings that the Service doesn't name.", "Set the annotations that the message names to decide otherwise."},
		{"TargetsNotReplaced", "Warning", unaccepted, "Nodes are to be reached at their other addresses, and one that has changed is not healthy there. No other changes until it heals.", "Let the load balancer reach the node ports and health checks there, or change the annotation `load-balancer.hetzner.cloud/use-private-ip` back."},
		{"TargetsRemoved", "Warning", "", "Addresses of dedicated servers that were targets of the load balancer and that no Node has were removed: at a takeover, or after somebody added them. The message names them.", "Let the server join the cluster, or the Node report the address; for servers outside the cluster use a load balancer of your own."},
		{"NoHealthyTarget", "Warning", unaccepted, "A port of the load balancer has found no target healthy for longer than its check takes. Where the Service has no ready endpoint, the Service stays accepted.", "Let the load balancer reach the port of the check on the nodes, and see that pods are ready. Where pods are the targets, see [that filters let it reach them](../how-to/pods-as-targets.md#what-it-needs)."},
		{"TargetsHealthy", "Normal", "", "A port that had no healthy target has one again.", nothing},
		{"UnAvailableLoadBalancer", "Warning", "", "No node can be a target; or pods are to be the targets, and none of the Service is ready.", "See that nodes are initialized and Ready, and which the node selector matches; or that pods are ready."},
	}
}
