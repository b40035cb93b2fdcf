package main

import (
	"math"
	"net/netip"

	"github.com/underlay-ccm/underlay/internal/survey"
)

func someAddresses() survey.AddressesView {
	return survey.AddressesView{
		Addresses: []survey.AddressRow{
			{
				Address: ip("192.0.2.17"), Services: []string{"shop/mail", "shop/web"}, Pool: "segment", Mover: "layer2",
				Holder: "worker-1", Epoch: 3, Local: true, Check: 30123, HeldBy: []string{"worker-1"}, State: survey.AddressHeld,
			},
			{
				Address: ip("192.0.2.18"), Services: []string{"shop/api"}, Pool: "segment", Mover: "layer2",
				Holder: "worker-2", Epoch: 1, Check: 10256, HeldBy: []string{}, State: survey.AddressRefused,
				Notes: []string{"worker-2: AddressInUse by 02:00:00:00:00:09: a machine that is none of the cluster's\nanswers for it"},
			},
			{
				Address: ip("192.0.2.19"), Services: []string{"shop/old"}, Holder: "worker-2", Epoch: 12, HeldBy: []string{"worker-1", "worker-2"},
				State: survey.AddressHeldTwice, Notes: []string{"it is of no configured pool", "held by worker-1 too"},
			},
			{
				Address: ip("198.51.100.7"), Services: []string{"shop/web"}, Pool: "routed", Mover: "bgp",
				Nodes: []string{"control-1", "worker-1", "worker-2"}, HeldBy: []string{"control-1", "worker-1"}, State: survey.AddressHeld,
			},
			{Address: ip("2001:db8:1::101"), Services: []string{"shop/web"}, Pool: "segment", Mover: "layer2", HeldBy: []string{}, State: survey.AddressNoHolder},
		},
		Waiting: []survey.WaitingRow{
			{Service: "blog/web", Accepted: &survey.ConditionRow{Status: "False", Reason: "AddressPoolExhausted", Message: "the pools have no free address: add a range"}},
			{Service: "blog/new", Has: []netip.Addr{ip("192.0.2.20")}},
		},
		Pools: []survey.AddressPoolRow{
			{Name: "segment", Family: "IPv4", Ranges: []string{"192.0.2.16-192.0.2.19"}, Mover: "layer2", Size: 4, Used: 4},
			{Name: "segment", Family: "IPv6", Ranges: []string{"2001:db8:1::-2001:db8:1::ffff:ffff:ffff:ffff"}, Mover: "layer2", Size: math.MaxUint64, Used: 1, Free: math.MaxUint64},
			{Name: "routed", Family: "IPv4", Ranges: []string{"198.51.100.0-198.51.100.15"}, Mover: "bgp", OnRequest: true, Namespaces: "team=web", Size: 16, Used: 1, Free: 15},
		},
		Nodes: []survey.AddressNodeRow{
			{Node: "control-1", Assigned: 1, Held: 1, Reports: true},
			{Node: "worker-1", Assigned: 2, Held: 3, Reports: true},
			{Node: "worker-2", Assigned: 3, Held: 1, Refused: 1, Reports: true, Why: []string{"unfit: kube-proxy answers 503"}},
			{Node: "worker-3", Why: []string{"its agent has said nothing about addresses"}},
		},
		Routers: []survey.RouterRow{
			{Node: "control-1", Router: "edge", Established: true, Announced: 1},
			{Node: "worker-2", Router: "edge", State: "Active"},
		},
		Notes: []string{"a note"}, NotSeen: []string{"Services: not allowed"},
	}
}

// noAddresses is a cluster with an unused pool.
func noAddresses() survey.AddressesView {
	return survey.AddressesView{Pools: []survey.AddressPoolRow{{Name: "segment", Family: "IPv4", Mover: "layer2", Size: 4, Free: 4}}}
}
