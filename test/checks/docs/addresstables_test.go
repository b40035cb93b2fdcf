package docs

func addressesOfServices() []told {
	return []told{
		{"Accepted", "", "underlay.dev/Accepted=True", "The Service has the addresses that it asks for. The message may say that none of its pods is ready.", nothing},
		{"AddressAssigned", "Normal", "", "The Service got addresses. The message names them.", nothing},
		{"AddressMoved", "Normal", "", "An address moved to another node. The message says from which one, and why.", nothing},
		{"InvalidField", "Warning", unaccepted, "An annotation or `spec.loadBalancerIP` has a value that it can't have. The Service keeps what it has.", "Correct it: [what a Service can ask for](addresses.md)."},
		{"UnknownAnnotation", "Warning", "", "An annotation that is a slip of one that is read, ours, MetalLB's or kube-vip's.", "Correct its name, or take it out."},
		{"NoAddressPool", "Warning", unaccepted, "There is no pool of that name, none of the Service's address family, or none that admits its namespace.", "Name another pool, label the namespace, or add a pool (`addresses.pools`)."},
		{"AddressPoolExhausted", "Warning", unaccepted, "The pools that the Service may use have no free address.", "Add a range, or delete Services. The oldest that waits is served first."},
		{"AddressOutsidePools", "Warning", unaccepted, "The address that the Service asks for is in no pool that it may use.", "Ask for another one, or add it to a pool."},
		{"AddressTaken", "Warning", unaccepted, "Another Service has the address that this one asks for, and both don't [share](addresses.md#sharing) it.", "Ask for another one, or set the same sharing key at both."},
		{"AddressPortTaken", "Warning", unaccepted, "A Service with the same sharing key has a port of this one already.", "Use another port in one of them, or let this one have an address of its own."},
		{"AddressInUse", "Warning", unaccepted, "A machine that is none of the cluster's answers for an address of the Service. The message has its hardware address.", "Take the address from that machine, or leave it out of the pool: [UnderlayAddressesInUse](../runbooks/UnderlayAddressesInUse.md)."},
		{"NoNodeForAddress", "Warning", unaccepted, "No node may hold an address of the Service; the message says what speaks against them. An address that had a holder stays there.", "See [UnderlayAddressesNotHeld](../runbooks/UnderlayAddressesNotHeld.md)."},
		{"AddressRoutingFailed", "Warning", "", "The cloud or Robot did not lead an address to its node. It is tried again; each cause is told once.", "See the message, and [UnderlayAddressRoutingFailing](../runbooks/UnderlayAddressRoutingFailing.md)."},
		{"AddressStatusOverwritten", "Warning", "", "Another controller goes on writing the status of the Service, with addresses of its own. It is put right less and less often, at last once a minute.", "Set `spec.loadBalancerClass`, so that one of them serves the Service, or stop the other one."},
	}
}

func addressesOfNodes() []told {
	return []told{
		{"AddressInUse", "", unaccepted, "A machine that is none of the cluster's answers for the address; `by` is its hardware address. The node probes again every 30 seconds.", "Take the address from that machine, or leave it out of the pool."},
		{"AddressOffSegment", "", "", "The node is on no segment with the address. Another node is chosen.", "If no node is: take the pool's ranges from a segment of the nodes, or give it `mover: bgp`."},
		{"NoRouter", "", "", "The node has no session with a router that takes the address.", "See [UnderlayAddressRoutersDown](../runbooks/UnderlayAddressRoutersDown.md)."},
		{"AddressNotHeld", "", "", "The node tried to hold the address and could not; `text` says why.", "Do what the text says; see the agent's log."},
	}
}

func addressLedgerReasons() []told {
	return []told{
		{"AddressLedgerDamaged", "Warning", "", "The ledger can't be read. No address is handed out, and none moves.", "[UnderlayAddressLedgerDamaged](../runbooks/UnderlayAddressLedgerDamaged.md)."},
		{"AddressLedgerRebuilt", "Warning", "", "There was no ledger, and Services have addresses of the pools: it is rebuilt from those, and from what nodes say that they hold.", "Find out who deleted the ConfigMap."},
	}
}
