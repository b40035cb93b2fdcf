package routes

import (
	"fmt"
	"net/netip"
	"slices"
)

// VSwitch describes nodes without routes: dedicated servers with podCIDRs inside the subnet
// that is coupled with their vSwitch. The subnet's gateway resolves their pods by ARP, like
// any host of the subnet, and the nodes answer. Routes to them are impossible: no gateway can
// be behind the vSwitch, and no destination may overlap a subnet.
type VSwitch struct {
	// Subnet is the coupled subnet, or the zero Prefix.
	Subnet netip.Prefix
	// Ranges are the pools inside Subnet.
	Ranges []Range
}

// Coupling is the connection of a network with a vSwitch.
type Coupling struct {
	// Subnets are the network's coupled subnets.
	Subnets []netip.Prefix
	// Exposed means that the network announces its routes to the vSwitch.
	Exposed bool
}

// Check compares the configuration with the network. Findings about the subnet have it as
// their Prefix; findings about the coupling have none.
func (v VSwitch) Check(c Coupling) []Finding {
	switch {
	case !v.Subnet.IsValid():
		return nil
	case len(c.Subnets) == 0:
		return []Finding{{
			v.Subnet, true, "is not coupled with a vSwitch: the network has no subnet of type vswitch",
			fmt.Sprintf("couple one: hcloud network add-subnet NETWORK --type vswitch --network-zone eu-central --vswitch-id ID --ip-range %s", v.Subnet),
		}}
	case !slices.Contains(c.Subnets, v.Subnet):
		return []Finding{{
			v.Subnet, true, "is no subnet of the network that is coupled with a vSwitch",
			"use one of " + join(c.Subnets),
		}}
	case len(v.Ranges) > 0 && !c.Exposed:
		return []Finding{{
			netip.Prefix{},
			true, "the network doesn't expose its routes to the vSwitch, so pods of dedicated servers don't reach those of cloud servers",
			"set vswitch.exposeRoutes: true, or: hcloud network expose-routes-to-vswitch NETWORK",
		}}
	}
	return nil
}

// Holds reports whether a podCIDR needs no route because it is inside the subnet.
func (v VSwitch) Holds(podCIDR netip.Prefix) bool { return cutsAny(v.Ranges, podCIDR) }

// divide moves podCIDRs inside the subnet from Dsts to Inside.
func (v VSwitch) divide(nodes []Node) {
	if len(v.Ranges) == 0 {
		return
	}
	for i := range nodes {
		n := &nodes[i]
		dsts := n.Dsts
		n.Subnet, n.Dsts, n.Inside = v.Subnet, nil, nil
		for _, dst := range dsts {
			if v.Holds(dst) {
				n.Inside = append(n.Inside, dst)
			} else {
				n.Dsts = append(n.Dsts, dst)
			}
		}
	}
}

// shadows reports whether a route overrides the subnet for a part of dst: the longer prefix wins.
func shadows(r Route, dst, subnet netip.Prefix) bool {
	return r.Dst.Bits() >= subnet.Bits() && r.Dst.Overlaps(dst)
}

// obstacles returns findings about a route that overlaps the pools in the vSwitch's subnet.
func (v VSwitch) obstacles(r Route) []Finding {
	var found []Finding
	for _, pods := range v.Ranges {
		if shadows(r, pods.Prefix, v.Subnet) {
			found = append(found, Finding{
				Prefix: r.Dst,
				Problem: fmt.Sprintf("has a route via %s and overlaps the pool %s inside the vSwitch's subnet, so packets for podCIDRs in it don't get there",
					r.Via, pods.Prefix),
				Remedy: "remove the route",
			})
		}
	}
	return found
}

// insideStatus returns why a node's pods in the vSwitch's subnet can't be reached, or ok.
func (o outlook) insideStatus(n Node) (status NodeStatus, ok bool) {
	if d, ok := o.duplicate(n.Name, n.Inside); ok {
		return duplicate(d), false
	}
	switch {
	case len(n.Inside) == 0:
		return NodeStatus{}, true
	case n.Via.IsValid():
		return notInVSwitch(n, fmt.Sprintf("and the Node's server %s is one of the cloud, where the subnet's gateway doesn't find pods; "+
			"take the label off that the pool's nodeSelector picks, delete this Node and let it join again",
			n.Via)), false
	case len(n.InternalIPs) == 0:
		return NodeStatus{
			Reason: NoRouteCreated, Unproved: true, Message: "waiting for the Node's internal address",
		}, false
	case !slices.ContainsFunc(n.InternalIPs, n.Subnet.Contains):
		return notInVSwitch(n, fmt.Sprintf("and no internal address of the Node does (%s), so the subnet's gateway doesn't find its pods; "+
			"give the server an address of the subnet on its VLAN interface, and its kubelet that one with --node-ip", join(n.InternalIPs))), false
	}
	for _, r := range o.have {
		if slices.ContainsFunc(n.Inside, func(dst netip.Prefix) bool {
			return shadows(r, dst, n.Subnet)
		}) {
			return NodeStatus{
				Reason: NoRouteCreated, Event: EventRouteAmbiguous,
				Message: fmt.Sprintf("route %s takes packets for podCIDR %s, which lies inside the vSwitch's subnet and needs no route; remove that route from the network",
					r, join(n.Inside)),
			}, false
		}
	}
	return NodeStatus{}, true
}

func notInVSwitch(n Node, why string) NodeStatus {
	return NodeStatus{
		Reason: NotInVSwitch, Event: string(NotInVSwitch),
		Message: fmt.Sprintf("podCIDR %s lies inside the vSwitch's subnet %s, %s", join(n.Inside),
			n.Subnet, why),
	}
}
