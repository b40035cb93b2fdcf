package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
)

func holderChecks() []check {
	return []check{
		newCheck("address-held-twice", Error, (*cluster).addresses, seesAddresses,
			"see why the node that is not the holder does not follow the ledger: "+agentLogs,
			addressHeldTwice),
		newCheck("address-in-use", Error, (*cluster).addresses, seesAddresses,
			"take the address from that machine, or leave it out of the pool and let the Service get another one", addressInUse),
		newCheck("address-not-held", Error, (*cluster).addresses, seesAddresses|survey.PartEndpointSlices,
			"follow the reasons, of which underlayctl addresses -o wide shows all; AddressOffSegment: take the pool's ranges from a segment that the nodes are on, or give the pool mover: bgp; "+agentLogs, addressNotHeld),
		newCheck("address-silent", Error, (*cluster).addresses, seesAddresses|survey.PartEndpointSlices,
			"see that kube-proxy and the agent run on that node, that its ports 10256 and 10267 can be reached from other nodes, and that other nodes could hold the address: underlayctl addresses -o wide", addressSilent),
		newCheck("address-router", Error,
			func(x *cluster) bool { return len(x.Config.Addresses.BGP.Peers) > 0 }, seesAddresses,
			"compare both sides' addresses, autonomous systems and passwords (key addresses.bgp.peers of underlay-config), and see that TCP port 179 is open between them; "+agentLogs, addressRouter),
		newCheck("address-node", Warning, (*cluster).addresses, seesAddresses,
			"update the agent, and see that its configuration has addresses.pools: "+agentLogs,
			eachNode(addressNode)),
	}
}

func addressHeldTwice(x *cluster) (found []Finding) {
	for _, h := range x.holdings {
		if h.State == survey.AddressHeldTwice {
			found = append(found, about(addressObject(h.Address),
				"%s hold it, and by the ledger only %s is to: packets reach either",
				strings.Join(h.HeldBy, " and "), h.Holder))
		}
	}
	return found
}

func addressInUse(x *cluster) (found []Finding) {
	for _, h := range x.holdings {
		if by, node := x.otherUser(h); node != "" {
			found = append(found, about(addressObject(h.Address),
				"another machine (%s) replies for it too, or instead, as %s reports", by, node))
		}
	}
	return found
}

// otherUser returns the hardware address of a machine that uses the address, and the node that
// reports it.
func (x *cluster) otherUser(h survey.AddressHolding) (by, node string) {
	for _, n := range x.Nodes {
		p, refuses := x.addressing.Refusal(n.Name, h.Address)
		if refuses && p.Reason == addresses.InUse {
			return cmp.Or(p.By, "unknown"), n.Name
		}
	}
	return "", ""
}

// carried reports whether traffic to the address reaches a node.
func carried(h survey.AddressHolding) bool {
	return h.State == survey.AddressHeld || h.State == survey.AddressHeldTwice
}

func addressNotHeld(x *cluster) (found []Finding) {
	for _, h := range x.holdings {
		_, reporter := x.otherUser(h) // address-in-use reports this
		if carried(h) || h.State == survey.AddressMoving || reporter != "" || x.idle(h) {
			continue
		}
		f := about(addressObject(h.Address), "%s is to hold it, and does not", strings.Join(h.Assigned(),
			", "))
		switch h.State {
		case survey.AddressNoHolder:
			f.What = "no node could hold it so far"
		case survey.AddressNotHeld:
			f.What += " report that it does"
		}
		if len(h.Notes) > 0 {
			f.What += ": " + strings.Join(h.Notes, "; ")
		}
		found = append(found, f)
	}
	return found
}

// idle reports whether the address needs no holder: only nodes with ready endpoints may hold it,
// and there are none.
func (x *cluster) idle(h survey.AddressHolding) bool {
	if !h.Local() {
		return false
	}
	// With policy Local, the address is not shared.
	name := types.NamespacedName{Namespace: h.Shares[0].Namespace, Name: h.Shares[0].Name}
	return !slices.ContainsFunc(x.EndpointsByService()[name], func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Endpoints, readyEndpoint)
	})
}

func readyEndpoint(e discoveryv1.Endpoint) bool {
	return e.Conditions.Ready == nil || *e.Conditions.Ready
}

func addressSilent(x *cluster) (found []Finding) {
	if !x.addressing.Settled {
		return nil // addresses may be moving
	}
	for _, h := range x.holdings {
		ports := x.lasting.SilentOf(h.Holder, h.Ports())
		if h.Holder != "" && len(ports) > 0 && !x.idle(h) {
			found = append(found, about(addressObject(h.Address),
				"%s holds it, and as the nodes that watch it report, its port %d has not responded well for a minute", h.Holder, ports[0]))
		}
	}
	return found
}

func addressRouter(x *cluster) (found []Finding) {
	for _, peer := range x.Config.Addresses.BGP.Peers {
		var down []string
		var state string
		all := 0
		for _, n := range x.Nodes {
			for _, r := range x.lasting.Reports[n.Name].Routers {
				if r.Name != peer.Name {
					continue
				}
				if all++; !r.Established {
					down, state = append(down, n.Name), r.State
				}
			}
		}
		if len(down) == 0 {
			continue
		}
		f := about("router/"+peer.Name, "%d of %d nodes that are to speak with it (%s) do not: %s",
			len(down), all, peer.Address, few(down))
		if len(down) < all {
			f.Severity = Warning
		}
		if state != "" {
			f.What += "; the session is " + state
		}
		found = append(found, f)
	}
	return found
}

func addressNode(x *cluster, n *corev1.Node) (what, remedy string) {
	_, old := x.waiting(n)
	_, reports := x.addressing.Reports[n.Name]
	unreadable := x.addressing.Unreadable[n.Name]
	unfit := x.lasting.Reports[n.Name].Unfit
	silent := x.lasting.SilentOf(n.Name, []int{addresses.ProxyPort, addresses.AgentPort})
	switch {
	case !old || !kube.Ready(n):
		return "", "" // other checks report this
	case unreadable != nil:
		return unreadable.Error(),
			"see that nothing but the agent writes the annotation " + addresses.ReportAnnotation +
				", and that the agent is of the version of the cloud controller manager"
	case !reports && x.reporting(n):
		return "its agent reports nothing about addresses, so it gets none", ""
	case unfit != "":
		return "it holds no addresses: " + unfit, "see that kube-proxy runs there and is healthy: kubectl -n kube-system logs -l k8s-app=kube-proxy"
	case len(silent) > 0:
		return fmt.Sprintf("it is given no addresses: as the nodes that watch it report, its port %d has not responded well for a minute", silent[0]),
			"let the nodes reach each other at TCP ports 10256 (kube-proxy) and 10267 (the agent), and see that both run there"
	}
	return "", ""
}

// reporting reports whether the Node's agent should report addresses: it could announce some, or
// the cloud could route some to it.
func (x *cluster) reporting(n *corev1.Node) bool {
	_, notDedicated := kube.ParseDedicatedID(n.Spec.ProviderID)
	return slices.ContainsFunc(x.Config.Addresses.Pools, func(p config.AddressPool) bool {
		return p.Mover != addresses.Failover || notDedicated == nil
	})
}
