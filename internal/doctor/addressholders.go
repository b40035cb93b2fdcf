package doctor

import (
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
			"see why the node that is not the holder does not follow the ledger: "+agentLogs, addressHeldTwice),
		newCheck("address-in-use", Error, (*cluster).addresses, seesAddresses,
			"take the address from that machine, or leave it out of the pool and let the Service get another one", addressInUse),
		newCheck("address-off-segment", Error, (*cluster).addresses, seesAddresses,
			"take the pool's ranges from a segment that the nodes are on, or give the pool mover: bgp", addressOffSegment),
		newCheck("address-not-held", Error, (*cluster).addresses, seesAddresses|survey.PartEndpointSlices,
			"find the reason with underlayctl addresses -o wide; "+agentLogs, addressNotHeld),
		newCheck("address-silent", Error, (*cluster).addresses, seesAddresses|survey.PartEndpointSlices,
			"see that kube-proxy and the agent run on that node, that its ports 10256 and 10267 can be reached from other nodes, and that other nodes could hold the address: underlayctl addresses -o wide", addressSilent),
		newCheck("address-router", Error, func(x *cluster) bool { return len(x.Config.Addresses.BGP.Peers) > 0 }, seesAddresses,
			"compare both sides' addresses, autonomous systems and passwords (key addresses.bgp.peers of underlay-config), and see that TCP port 179 is open between them; "+agentLogs, addressRouter),
		newCheck("address-node", Warning, (*cluster).addresses, seesAddresses,
			"update the agent, and see that its configuration has addresses.pools: "+agentLogs, addressNode),
	}
}

func addressHeldTwice(x *cluster) (found []Finding) {
	for _, row := range x.addressView.Addresses {
		if row.State != survey.AddressHeldTwice {
			continue
		}
		found = append(found, about(addressObject(row.Address),
			"%s hold it, and by the ledger only %s is to: packets reach either", strings.Join(row.HeldBy, " and "), row.Holder))
	}
	return found
}

// refused calls tell for each address that nodes refuse for the reason, with these nodes and the
// first node's problem.
func (x *cluster) refused(reason addresses.ProblemReason, find func(survey.AddressRow, []string, addresses.Problem) (Finding, bool)) (found []Finding) {
	for _, row := range x.addressView.Addresses {
		var nodes []string
		var first addresses.Problem
		for _, n := range x.Nodes {
			if p, refuses := x.addressing.Refusal(n.Name, row.Address); refuses && p.Reason == reason {
				if nodes = append(nodes, n.Name); len(nodes) == 1 {
					first = p
				}
			}
		}
		if len(nodes) == 0 {
			continue
		}
		if f, is := find(row, nodes, first); is {
			f.Object = addressObject(row.Address)
			found = append(found, f)
		}
	}
	return found
}

func addressInUse(x *cluster) []Finding {
	return x.refused(addresses.InUse, func(row survey.AddressRow, nodes []string, p addresses.Problem) (Finding, bool) {
		f := Finding{What: fmt.Sprintf("another machine replies for it, as %s reports", few(nodes))}
		if p.By != "" {
			f.What = fmt.Sprintf("the machine with hardware address %s replies for it too, or instead, as %s reports", p.By, few(nodes))
		}
		return f, true
	})
}

// addressOffSegment reports no problem if a node on the segment holds the address.
func addressOffSegment(x *cluster) []Finding {
	return x.refused(addresses.OffSegment, func(row survey.AddressRow, nodes []string, p addresses.Problem) (Finding, bool) {
		what := fmt.Sprintf("no node holds it, and %s is on no segment with it", few(nodes))
		if p.Text != "" {
			what += ": " + p.Text
		}
		return Finding{What: what}, !carried(row) && row.State != survey.AddressMoving
	})
}

// carried reports whether traffic to the address reaches a node.
func carried(row survey.AddressRow) bool {
	return row.State == survey.AddressHeld || row.State == survey.AddressHeldTwice
}

func addressNotHeld(x *cluster) (found []Finding) {
	for _, row := range x.addressView.Addresses {
		if carried(row) || row.State == survey.AddressMoving || x.idle(row) || x.coveredElsewhere(row) {
			continue
		}
		f := Finding{Object: addressObject(row.Address)}
		switch row.State {
		case survey.AddressNoHolder:
			f.What = "no node could hold it so far"
		case survey.AddressRefused:
			f.What = row.By() + " is to hold it, and does not"
		default:
			f.What = row.By() + " is to hold it, and does not report that it does"
		}
		if len(row.Notes) > 0 {
			f.What += ": " + strings.Join(row.Notes, "; ")
		}
		found = append(found, f)
	}
	return found
}

// coveredElsewhere reports whether another check reports the cause.
func (x *cluster) coveredElsewhere(row survey.AddressRow) bool {
	return slices.ContainsFunc(x.Nodes, func(n *corev1.Node) bool {
		p, refuses := x.addressing.Refusal(n.Name, row.Address)
		return refuses && (p.Reason == addresses.InUse || p.Reason == addresses.OffSegment)
	})
}

// idle reports whether the address needs no holder: only nodes with ready endpoints may hold it,
// and there are none.
func (x *cluster) idle(row survey.AddressRow) bool {
	if !row.Local || len(row.Services) == 0 {
		return false
	}
	// With policy Local, the address is not shared.
	namespace, name, _ := strings.Cut(row.Services[0], "/")
	for _, slice := range x.EndpointsByService()[types.NamespacedName{Namespace: namespace, Name: name}] {
		ready := func(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }
		if slices.ContainsFunc(slice.Endpoints, ready) {
			return false
		}
	}
	return true
}

func addressSilent(x *cluster) (found []Finding) {
	if !x.addressing.Settled {
		return nil // addresses may be moving
	}
	for _, row := range x.addressView.Addresses {
		ports := x.lasting.SilentOf(row.Holder, row.Ports())
		if row.Holder == "" || len(ports) == 0 || x.idle(row) {
			continue
		}
		found = append(found, about(addressObject(row.Address),
			"%s holds it, and as the nodes that watch it report, its port %d has not responded well for a minute", row.Holder, ports[0]))
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
		f := Finding{Object: "router/" + peer.Name, Severity: Warning}
		f.What = fmt.Sprintf("%d of %d nodes that are to speak with it (%s) do not: %s", len(down), all, peer.Address, few(down))
		if len(down) == all {
			f.Severity = Error
		}
		if state != "" {
			f.What += "; the session is " + state
		}
		found = append(found, f)
	}
	return found
}

func addressNode(x *cluster) []Finding {
	return eachNode(func(x *cluster, n *corev1.Node) (what, remedy string) {
		_, old := x.waiting(n)
		_, reports := x.addressing.Reports[n.Name]
		unreadable := x.addressing.Unreadable[n.Name]
		unfit := x.lasting.Reports[n.Name].Unfit
		silent := x.lasting.SilentOf(n.Name, []int{addresses.ProxyPort, addresses.AgentPort})
		switch {
		case !old || !kube.Ready(n):
			return "", "" // other checks report this
		case unreadable != nil:
			return unreadable.Error(), "see that nothing but the agent writes the annotation " + addresses.ReportAnnotation + ", and that the agent is of the version of the cloud controller manager"
		case !reports && x.reporting(n):
			return "its agent reports nothing about addresses, so it gets none", ""
		case unfit != "":
			return "it holds no addresses: " + unfit, "see that kube-proxy runs there and is healthy: kubectl -n kube-system logs -l k8s-app=kube-proxy"
		case len(silent) > 0:
			return fmt.Sprintf("it is given no addresses: as the nodes that watch it report, its port %d has not responded well for a minute", silent[0]),
				"let the nodes reach each other at TCP ports 10256 (kube-proxy) and 10267 (the agent), and see that both run there"
		}
		return "", ""
	})(x)
}

// reporting reports whether the Node's agent should report addresses: it could announce some, or
// the cloud could route some to it.
func (x *cluster) reporting(n *corev1.Node) bool {
	return slices.ContainsFunc(x.Config.Addresses.Pools, func(p config.AddressPool) bool {
		_, dedicated := kube.ParseDedicatedID(n.Spec.ProviderID)
		return p.Mover != config.Failover || dedicated == nil
	})
}
