package doctor

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/vswitch"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// dedicatedWorker makes worker-2 a dedicated server with pods inside the vSwitch's
// subnet.
func dedicatedWorker(s *survey.Snapshot) {
	subnet := netip.MustParsePrefix("10.1.0.0/16")
	s.Config.VSwitch.Subnet = subnet
	s.Config.IPAM.Pools = append(s.Config.IPAM.Pools, config.Pool{
		Name: "dedicated", Prefix: netip.MustParsePrefix("10.1.128.0/17"), NodeMask: 24, VSwitch: true,
		Selector: labels.SelectorFromSet(labels.Set{"dedicated": "true"}),
	})
	s.Network.Subnets = append(s.Network.Subnets, subnet)
	s.Network.Coupling = routes.Coupling{Subnets: []netip.Prefix{subnet}, Exposed: true}
	n := s.Nodes[2]
	n.Labels = map[string]string{"dedicated": "true"}
	n.Spec.ProviderID, n.Spec.PodCIDR, n.Spec.PodCIDRs = "hrobot://4711", "10.1.128.0/24", []string{"10.1.128.0/24"}
	n.Status.Addresses[1].Address = "10.1.0.5"
	s.Ledger[0].Data[n.Name] = "uid=" + string(n.UID) + " id=hrobot://4711 10.1.128.0/24@dedicated"
	s.Servers, s.LoadBalancers[0].Targets = s.Servers[:2], s.LoadBalancers[0].Targets[:2]
	s.LoadBalancers[0].Verdicts[80] = verdicts(s.LoadBalancers[0].Targets, 2)
	s.Network.Routes = s.Network.Routes[:2]
	withProxyConfig("clusterCIDR: 10.244.0.0/16", "clusterCIDR: 10.1.128.0/17,10.244.0.0/16")(s)
	withProxyConfig("- 10.0.0.0/16", "- 10.0.0.0/15")(s)
}

// memberIs sets the condition of worker-2, a dedicated server, about its state in the vSwitch at
// Robot.
func memberIs(status corev1.ConditionStatus) func(*survey.Snapshot) {
	return func(s *survey.Snapshot) {
		dedicatedWorker(s)
		setCondition(s.Nodes[2], vswitch.MemberCondition, status, "AsRobotSays", "what Robot says; what to do", time.Hour)
	}
}

// memberNoMore is a Node's remaining condition in a cluster that doesn't use the vSwitch.
func memberNoMore(s *survey.Snapshot) {
	setCondition(s.Nodes[2], vswitch.MemberCondition, corev1.ConditionFalse, "AsRobotSaid", "what Robot said; what to do", time.Hour)
}

func seededVSwitch() []seeded {
	const worker = "Node/worker-2"
	with := func(change func(*survey.Snapshot)) func(*survey.Snapshot) {
		return func(s *survey.Snapshot) {
			dedicatedWorker(s)
			change(s)
		}
	}
	return []seeded{
		{
			name: "the vSwitch is uncoupled", seed: with(func(s *survey.Snapshot) { s.Network.Coupling = routes.Coupling{Exposed: true} }),
			check: "vswitch-network", severity: Error, object: "10.1.0.0/16", reports: []string{"not coupled"}, do: "hcloud network add-subnet",
		},
		{
			name: "the routes are not exposed", seed: with(func(s *survey.Snapshot) { s.Network.Coupling.Exposed = false }),
			check: "vswitch-network", severity: Error, reports: []string{"doesn't expose its routes"}, do: "vswitch.exposeRoutes",
		},
		{
			name: "the network is coupled with others", seed: with(func(s *survey.Snapshot) {
				s.Network.Coupling.Subnets = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("10.3.0.0/16")}
			}),
			check: "vswitch-network", severity: Error, object: "10.1.0.0/16", reports: []string{"is no subnet"}, do: "use one of 10.2.0.0/16, 10.3.0.0/16",
		},
		{
			name: "no attachment may be left, if dedicated servers count", seed: with(func(s *survey.Snapshot) { s.Network.Servers, s.Network.LoadBalancers = 98, 1 }),
			check: "attachments", severity: Warning, reports: []string{"98 servers and 1 load balancers", "1 dedicated servers", "not documented"}, do: "resource_limit_exceeded",
		},
		{
			name: "another node-ip", seed: with(func(s *survey.Snapshot) {
				s.Nodes[2].Status.Addresses[1].Address = "192.0.2.5"
				setCondition(s.Nodes[2], corev1.NodeNetworkUnavailable, corev1.ConditionTrue, "NotInVSwitch", "no internal address does", time.Hour)
			}),
			check: "vswitch-node", severity: Error, object: worker, reports: []string{"10.1.128.0/24", "192.0.2.5"}, do: "--node-ip", also: []string{"network-unavailable", "kube-proxy-node-ports"},
		},
		{
			name: "their pool is full, and others' room is of no use", seed: with(func(s *survey.Snapshot) {
				s.Config.IPAM.Pools[len(s.Config.IPAM.Pools)-1].Prefix = netip.MustParsePrefix("10.1.128.0/24")
			}),
			check: "pool-room", severity: Error, object: "pool/dedicated", reports: []string{"0 of 1 podCIDRs"}, do: "add a pool",
		},
		{
			name: "a cloud server is selected", seed: func(s *survey.Snapshot) {
				dedicatedWorker(s)
				s.Nodes[1].Labels = map[string]string{"dedicated": "true"}
			},
			check: "vswitch-node", severity: Error, object: "Node/worker-1", reports: []string{"hcloud://102"}, do: "delete the Node",
		},
		{
			name: "no pool is inside the vSwitch's subnet", seed: with(func(s *survey.Snapshot) {
				n := s.Nodes[2]
				s.Config.VSwitch.Subnet = netip.Prefix{}
				s.Config.IPAM.Pools = s.Config.IPAM.Pools[:len(s.Config.IPAM.Pools)-1]
				n.Labels, n.Spec.PodCIDR, n.Spec.PodCIDRs = nil, "10.244.2.0/24", []string{"10.244.2.0/24"}
				s.Ledger[0].Data[n.Name] = "uid=" + string(n.UID) + " id=hrobot://4711 10.244.2.0/24@default-ipv4"
				withProxyConfig("clusterCIDR: 10.1.128.0/17,10.244.0.0/16", "clusterCIDR: 10.244.0.0/16")(s)
				setCondition(n, corev1.NodeNetworkUnavailable, corev1.ConditionTrue, "NotAttached", "dedicated server 4711: no route of the network can lead to it", time.Hour)
			}),
			check: "network-unavailable", severity: Error, object: worker, reports: []string{"NotAttached"}, do: "source: vswitch",
		},
		{
			name: "the interface on the vSwitch takes too large packets", seed: with(func(s *survey.Snapshot) {
				setCondition(s.Nodes[2], agent.PeersReachable, corev1.ConditionTrue, agent.ReasonAtRisk, "warning: vswitch0 has an MTU of 1500, and the vSwitch drops packets of more than 1400 bytes; set it to 1400", time.Minute)
			}),
			check: "network-at-risk", severity: Warning, object: worker, reports: []string{"MTU of 1500"}, do: "on that node",
		},
		{
			name: "its membership has failed", seed: with(func(s *survey.Snapshot) {
				setCondition(s.Nodes[2], vswitch.MemberCondition, corev1.ConditionFalse, "VSwitchMemberFailed", "Robot failed to configure the port of dedicated server 4711; remove the server and add it again", time.Minute)
			}),
			check: "vswitch-member", severity: Error, object: worker, reports: []string{"VSwitchMemberFailed", "failed to configure the port of dedicated server 4711"}, do: "remove the server and add it again",
		},
		{
			name: "a dedicated server isn't selected", seed: with(func(s *survey.Snapshot) {
				n := s.Nodes[2]
				n.Labels, n.Spec.PodCIDR, n.Spec.PodCIDRs = nil, "10.244.2.0/24", []string{"10.244.2.0/24"}
				s.Ledger[0].Data[n.Name] = "uid=" + string(n.UID) + " id=hrobot://4711 10.244.2.0/24@default-ipv4"
			}),
			check: "vswitch-node", severity: Error, object: worker, reports: []string{"hrobot://4711", "10.244.2.0/24"}, do: "delete the Node",
		},
	}
}
