package config

import "fmt"

const (
	vSwitchSubnet = "vswitch.subnet"
	vSwitchExpose = "vswitch.exposeRoutes"
)

// vSwitchSettings say where dedicated servers meet the cloud's network.
func vSwitchSettings(v *VSwitch) []setting {
	return []setting{
		{
			key: vSwitchSubnet, format: onePrefix(&v.Subnet),
			meaning: "The subnet of `network` that is coupled with the vSwitch of the dedicated servers; of several, the one of this cluster's. Its first address is the gateway between the two. Required by pools with `source: vswitch`.",
		},
		{
			key: vSwitchExpose, format: boolean(&v.ExposeRoutes), fallback: "false",
			meaning: "Have the network tell its routes to the vSwitch (`expose_routes_to_vswitch`), if it doesn't do so yet: without that, the pods of dedicated servers don't reach those of cloud servers.",
		},
	}
}

// vSwitch checks the subnet by itself.
func (r *resolver) vSwitch(d *draft) VSwitch {
	v := d.vSwitch
	switch {
	case d.provider == Metal:
		return VSwitch{}
	case r.isWrong(vSwitchSubnet):
	case !r.isSet(vSwitchSubnet):
		if v.ExposeRoutes {
			r.complain(vSwitchExpose, "true", "is about a subnet that is not given", "give "+vSwitchSubnet+", or remove it")
		}
	case !within(v.Subnet, private):
		r.complain(vSwitchSubnet, v.Subnet.String(), "lies outside RFC 1918, and the cloud's networks hold nothing else",
			"give the range of the network's subnet of type vswitch")
	case v.Subnet.Bits() > longestNodeMask(true):
		r.complain(vSwitchSubnet, v.Subnet.String(), "has no room for a gateway and a server",
			"give the range of the network's subnet of type vswitch")
	case d.network == "" && !r.isWrong("network") && !r.unread && !r.onNode:
		r.complain(vSwitchSubnet, v.Subnet.String(), "needs a network", "give the network's ID or name in network")
	}
	return v
}

// inVSwitch keeps the pools of dedicated servers inside the vSwitch's subnet, and
// all others out of it.
func (r *resolver) inVSwitch(c candidate, d *draft) {
	section, _, _ := cutLast(c.Field)
	source := section + ".source"
	known := r.isSet(vSwitchSubnet) && !r.isWrong(vSwitchSubnet)
	subnet := d.vSwitch.Subnet
	switch {
	case !c.VSwitch:
		if known && c.Prefix.Overlaps(subnet) {
			r.complain(c.Field, c.Prefix.String(), fmt.Sprintf("overlaps %v of %s, which is the dedicated servers'", subnet, vSwitchSubnet),
				"choose ranges that lie apart, or add source: vswitch if the pool is for dedicated servers")
		}
		return
	case d.provider == Metal:
		r.complain(source, sourceVSwitch, "takes a cloud, and with provider: metal there is none", "remove it")
		return
	case d.families.IPv4 != RoutedByCloud:
		r.complain(source, sourceVSwitch, "is for networks of the cloud, and "+familyIPv4+" is "+string(d.families.IPv4),
			"remove it, or set "+familyIPv4+": "+string(RoutedByCloud))
	}
	if c.Selector == nil && !r.isWrong(section+".nodeSelector") {
		r.complain(section+".nodeSelector", "", "is missing, and the pool is for dedicated servers alone",
			"give the label that their Nodes have, such as node.underlay.dev/dedicated: \"true\", and start their kubelets with it in --node-labels")
	}
	const remedy = "give a part of the subnet that leaves out its beginning, where the gateway and the servers are"
	gateway := d.vSwitch.Gateway()
	switch {
	case !known && !r.isWrong(vSwitchSubnet):
		r.complain(source, sourceVSwitch, "needs the subnet that it is carved from", "give the range of the network's subnet of type vswitch in "+vSwitchSubnet)
	case !known:
	case !contains(subnet, c.Prefix):
		r.complain(c.Field, c.Prefix.String(), fmt.Sprintf("lies outside %v of %s", subnet, vSwitchSubnet), remedy)
	case c.Prefix.Contains(gateway):
		r.complain(c.Field, c.Prefix.String(), fmt.Sprintf("holds %v, the gateway of %s", gateway, vSwitchSubnet), remedy)
	}
}
