package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/cni"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// removed is the Event that Kubernetes writes when it removes a Node.
func removed(uid types.UID, at time.Time) *corev1.Event {
	return &corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "gone", UID: uid},
		Reason:         "RemovingNode", Type: corev1.EventTypeNormal, LastTimestamp: metav1.NewTime(at),
	}
}

// unready makes a pod of the agent unready.
func unready(s *survey.Snapshot, node string) {
	for _, p := range s.Pods {
		if p.Name == "underlay-agent-"+node {
			p.Status.Conditions[0].Status = corev1.ConditionFalse
		}
	}
	s.DaemonSets[1].Status.NumberReady--
}

// cniMessage is the message of internal/cni about a machine where a foreign file comes first, or
// that has no plugins.
func cniMessage() string {
	network := cni.New(cni.Options{ConfDir: "testdata/net.d", BinDirs: []string{"testdata/no-plugins"}, StateDir: "testdata/no-state"})
	_, _, err := network.Plan(context.Background(), cni.Desired{PodCIDRs: prefixes("10.244.1.0/24"), MTU: 1450})
	return fmt.Sprint("cni: ", err)
}

func seededAgent() []seeded {
	const object, node = "DaemonSet/kube-system/underlay-agent", "worker-1"
	return []seeded{
		{name: "an agent is not ready", seed: func(s *survey.Snapshot) { unready(s, node) }, check: "agent", severity: Error, object: object, reports: []string{"2 of 3", "none is on worker-1"}, do: "logs"},
		{
			name: "an agent is missing", seed: func(s *survey.Snapshot) {
				unready(s, node)
				s.Pods = slices.DeleteFunc(s.Pods, func(p *corev1.Pod) bool { return p.Name == "underlay-agent-worker-1" })
			},
			check: "agent", severity: Error, object: object, reports: []string{"none is on worker-1"},
		},
		{name: "no agents", seed: func(s *survey.Snapshot) { s.DaemonSets = s.DaemonSets[:1] }, check: "agent", severity: Warning, do: "deploy/agent"},
		{name: "no agents, and no pod network", seed: func(s *survey.Snapshot) {
			withoutAgents(s)
			for _, n := range s.Nodes {
				setCondition(n, corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready", time.Minute)
			}
		}, check: "agent", severity: Warning, do: "deploy/agent", also: []string{"service-refused"}},
		{name: "no agents on metal", shape: shape{metal: true}, seed: func(s *survey.Snapshot) { s.DaemonSets = s.DaemonSets[:1] }, check: "agent", severity: Error},
		{name: "agents fit no node", seed: func(s *survey.Snapshot) { s.DaemonSets[1].Status.DesiredNumberScheduled = 0 }, check: "agent", severity: Error, object: object},
	}
}

func setCondition(
	n *corev1.Node, kind corev1.NodeConditionType, status corev1.ConditionStatus,
	reason, message string, before time.Duration,
) {
	c := corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: ago(before),
	}
	if old := kube.Condition(n, kind); old != nil {
		*old = c
		return
	}
	n.Status.Conditions = append(n.Status.Conditions, c)
}

// fill adds ledger entries for nearly all podCIDRs, as of existing Nodes.
func fill(n int) func(*survey.Snapshot) {
	return func(s *survey.Snapshot) {
		s.Config.Routes.Enabled = false // a route table is too small for so many
		for i := machines; i < n; i++ {
			node := nodeOf(shape{}, 0)
			node.Name, node.UID = fmt.Sprintf("x-%03d", i), types.UID(fmt.Sprintf("uid-%d", i))
			node.Spec.ProviderID, node.Spec.PodCIDRs = fmt.Sprint("hrobot://", i+1), []string{fmt.Sprintf("10.244.%d.0/24", i)}
			node.Status.Addresses = node.Status.Addresses[:1]
			s.Nodes = append(s.Nodes, node)
			s.Ledger[0].Data[node.Name] = recordOf(node, time.Time{})
		}
	}
}

func seededPools() []seeded {
	const stored = "ConfigMap/kube-system/underlay-node-ipam"
	return []seeded{
		{name: "Services inside the pool", seed: func(s *survey.Snapshot) { s.ServiceCIDRs = append(s.ServiceCIDRs, prefixes("10.244.240.0/24")...) }, check: "pool-overlap", severity: Error, object: "10.244.0.0/16", reports: []string{"Service range 10.244.240.0/24"}, do: "apart"},
		{name: "Services inside the IPv6 pool", shape: shape{dual: true, metal: true}, seed: func(s *survey.Snapshot) { s.ServiceCIDRs = append(s.ServiceCIDRs, prefixes("fd00:10:244:ff::/112")...) }, check: "pool-overlap", severity: Error, object: "fd00:10:244::/56", reports: []string{"fd00:10:244:ff::/112"}},
		{name: "a subnet inside the pool", seed: func(s *survey.Snapshot) {
			s.Network.Subnets = append(s.Network.Subnets, prefixes("10.244.200.0/24")...)
		}, check: "pool-overlap", severity: Error, object: "10.244.0.0/16", reports: []string{"subnet 10.244.200.0/24"}},
		{name: "the pool outside the network", seed: func(s *survey.Snapshot) { s.Network.IPRange = netip.MustParsePrefix("10.0.0.0/16") }, check: "pool-overlap", severity: Warning, object: "10.244.0.0/16", reports: []string{"not inside the network 10.0.0.0/16"}},
		{name: "an exhausted pool", seed: fill(256), check: "pool-room", severity: Error, object: "pool/default-ipv4", reports: []string{"0 of 256"}, do: "add a pool"},
		{name: "a pool at 90 %", seed: fill(231), check: "pool-room", severity: Warning, object: "pool/default-ipv4", reports: []string{"25 of 256", "231 Nodes"}},
		{
			name: "an exhausted pool beside one for other Nodes",
			seed: func(s *survey.Snapshot) {
				fill(256)(s)
				other := config.Pool{Name: "gpu", Prefix: netip.MustParsePrefix("10.245.0.0/16"), NodeMask: 24, Selector: labels.SelectorFromSet(labels.Set{"gpu": "yes"})}
				s.Config.IPAM.Pools = append(s.Config.IPAM.Pools, other)
			},
			check: "pool-room", severity: Error, object: "pool/default-ipv4",
		},
		{name: "a pool that was removed", seed: func(s *survey.Snapshot) {
			s.Config.IPAM.Pools[0].Name, s.Config.IPAM.Pools[0].Prefix = "new", netip.MustParsePrefix("10.32.0.0/16")
		}, check: "removed-pool", severity: Error, object: "pool/default-ipv4", reports: []string{"control-1 (10.244.0.0/24)"}, do: "state: draining", also: []string{"foreign-podcidr"}},
		{name: "no ledger", seed: func(s *survey.Snapshot) { clear(s.Ledger[:]) }, check: "ledger", severity: Error, object: stored, reports: []string{"lost"}},
		{name: "a damaged ledger", seed: func(s *survey.Snapshot) { s.Ledger[0].Data["worker-1"] = "uid=uid-worker-1 10.244.1.0" }, check: "ledger", severity: Error, object: stored, reports: []string{`"worker-1"`, `"10.244.1.0"`}, do: "edit configmap"},
		{
			name: "a damaged shard", seed: func(s *survey.Snapshot) {
				s.Ledger[2].Data["worker-9"] = "uid=uid-worker-9"
			},
			check: "ledger", severity: Error, object: stored + "-2", reports: []string{`"worker-9"`, "underlay-node-ipam-2"}, do: "edit configmap underlay-node-ipam-2",
		},
		{
			name: "the ledger of another version", seed: func(s *survey.Snapshot) { s.Ledger[2].Data["_shard"] = "2 of 64" },
			check: "ledger", severity: Error, object: stored + "-2", reports: []string{`"_shard"`, `"2 of 16"`}, do: "edit configmap underlay-node-ipam-2",
		},
		{
			name: "a shard that was deleted", seed: func(s *survey.Snapshot) { s.Ledger[2] = nil },
			check: "ledger", severity: Error, object: stored + "-2", reports: []string{"lost", "doesn't exist"}, do: "backup",
		},
		{
			name: "a shard that was emptied", seed: func(s *survey.Snapshot) { clear(s.Ledger[2].Data) },
			check: "ledger", severity: Error, object: stored + "-2", reports: []string{"lost", "no entries"}, do: "backup",
		},
		{
			name: "a record without a Node", seed: func(s *survey.Snapshot) {
				s.Ledger[0].Data["gone"] = "uid=uid-gone id=hcloud://55 10.244.9.0/24@default-ipv4"
			},
			check: "ledger-leftover", severity: Warning, object: stored, reports: []string{"gone (UID uid-gone)", "10.244.9.0/24"},
		},
		{
			name: "a record without a Node for more than a minute", seed: func(s *survey.Snapshot) {
				s.Ledger[0].Data["gone"] = "uid=uid-gone id=hcloud://55 10.244.9.0/24@default-ipv4"
				s.Events = append(s.Events, removed("uid-gone", s.Taken.Add(-time.Minute)))
			},
			check: "ledger-leftover", severity: Warning, object: stored, reports: []string{"gone (UID uid-gone)"},
		},
		{
			name: "a record without a Node, while another of its name was deleted", seed: func(s *survey.Snapshot) {
				s.Ledger[0].Data["gone"] = "uid=uid-gone id=hcloud://55 10.244.9.0/24@default-ipv4"
				s.Events = append(s.Events, removed("uid-other", s.Taken))
			},
			check: "ledger-leftover", severity: Warning, object: stored, reports: []string{"gone (UID uid-gone)"},
		},
		{
			name: "a quarantine without end",
			seed: func(s *survey.Snapshot) {
				s.Ledger[0].Data["gone"] = "uid=uid-gone id=hcloud://55 10.244.9.0/24@default-ipv4 released=2026-11-21T04:00:00Z"
				s.Network.Routes = append(s.Network.Routes, s.Network.Routes[0])
				s.Network.Routes[machines].Dst = netip.MustParsePrefix("10.244.9.0/24")
				recordAll(s)
			},
			check: "ledger-leftover", severity: Warning, object: stored, reports: []string{"24h", "5m"},
		},
	}
}

func seededNodes() []seeded {
	const late = "Node/worker-2"
	third := func(change func(*corev1.Node)) func(*survey.Snapshot) {
		return func(s *survey.Snapshot) { change(s.Nodes[2]) }
	}
	withoutID := func(n *corev1.Node) { n.Spec.ProviderID = "" }
	holds := func(podCIDR string) func(*survey.Snapshot) {
		return func(s *survey.Snapshot) {
			s.Nodes[2].Spec.PodCIDR, s.Nodes[2].Spec.PodCIDRs[0] = podCIDR, podCIDR
			s.Network.Routes = s.Network.Routes[:2]
		}
	}
	return []seeded{
		{name: "a kubelet without a cloud provider", seed: third(withoutID), check: "kubelet-cloud-provider", severity: Error, object: late, reports: []string{"24h ago"}, do: "--cloud-provider=external"},
		{
			name: "a Node that stays uninitialized", seed: third(func(n *corev1.Node) {
				withoutID(n)
				n.Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}}
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
					Type: kube.AddressesMatch, Status: corev1.ConditionFalse, Message: "192.0.2.7 is no address of server 3",
				})
			}),
			check: "node-uninitialized", severity: Error, object: late, reports: []string{"192.0.2.7 is no address of server 3"}, do: "--node-ip",
		},
		{
			name: "a kubelet that names every address", seed: third(func(n *corev1.Node) {
				for i := range 9 {
					n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: fmt.Sprintf("198.51.100.%d", i)})
				}
			}),
			check: "node-addresses", severity: Warning, object: late, reports: []string{"11 addresses", "203.0.113.4"}, do: "--node-ip",
		},
		{
			name: "a cloned machine", seed: func(s *survey.Snapshot) { s.Nodes[2].Spec.ProviderID = s.Nodes[1].Spec.ProviderID },
			check: "node-provider-id", severity: Error, object: late, reports: []string{"worker-1"}, do: "delete the Node", also: []string{"node-server"},
		},
		{
			name: "a server outside the network", seed: func(s *survey.Snapshot) {
				s.Servers[2].PrivateIP = netip.Addr{}
				s.Network.Routes = s.Network.Routes[:2]
			},
			check: "node-server", severity: Error, object: late, reports: []string{"hcloud://103 is not attached"}, do: "attach-to-network",
		},
		{
			name: "a server that is gone, and its Node stays", seed: func(s *survey.Snapshot) {
				s.Servers = s.Servers[:2]
				setCondition(s.Nodes[2], corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown", "silent", 6*time.Minute)
				setCondition(s.Nodes[2], corev1.NodeNetworkUnavailable, corev1.ConditionTrue, "NotAttached", "no matching server", 6*time.Minute)
				unready(s, "worker-2")
			},
			check: "node-server", severity: Error, object: late, reports: []string{"no server has the ID 103", "not Ready since 2026-11-22T03:54:00Z"},
			do: "kubectl -n kube-system logs deployment/underlay-ccm; or by hand: kubectl delete node worker-2", also: []string{"stale-routes"},
		},
		{
			name: "a server that was made anew under the same name", seed: func(s *survey.Snapshot) { s.Servers[2].ID, s.Servers[2].Created = 205, now().Add(-time.Hour) },
			check: "node-server", severity: Error, object: late, reports: []string{"no server has the ID 103", "hcloud://205 has the Node's name"},
			do: "kubectl delete node worker-2, and restart the kubelet", also: []string{"foreign-routes"},
		},
		{
			name: "a provider ID of no server", seed: func(s *survey.Snapshot) {
				s.Nodes[2].Spec.ProviderID = "hcloud://4711"
				s.Nodes[2].Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}}
			},
			check: "node-server", severity: Error, object: late, reports: []string{"no server has the ID 4711"}, do: "--provider-id=hcloud://ID", also: []string{"node-uninitialized", "foreign-routes"},
		},
		{
			name: "a provider ID that is none", seed: third(func(n *corev1.Node) { n.Spec.ProviderID = "hcloud://worker-2" }),
			check: "node-server", severity: Error, object: late, reports: []string{`"hcloud://worker-2": want hcloud://<number>`}, do: "--provider-id=hcloud://ID", also: []string{"foreign-routes"},
		},
		{
			name: "a Node without podCIDRs", seed: third(func(n *corev1.Node) {
				n.Spec.PodCIDR, n.Spec.PodCIDRs, n.ManagedFields = "", nil, nil
				setCondition(n, "underlay.dev/PodCIDRsAllocated", corev1.ConditionFalse, "NoPool", "No active pool is for this Node", time.Hour)
			}),
			check: "node-without-podcidr", severity: Error, object: late, reports: []string{"24h ago", "NoPool"}, also: []string{"stale-routes"},
		},
		{
			name: "a Node without a route", seed: third(func(n *corev1.Node) {
				setCondition(n, corev1.NodeNetworkUnavailable, corev1.ConditionTrue, "RouteTableFull", "no room in the network's route table", 12*time.Minute)
			}),
			check: "network-unavailable", severity: Error, object: late, reports: []string{"12m", "RouteTableFull", "no room"}, do: "routes.limit",
		},
		{
			name: "a node that reaches no other", shape: shape{metal: true}, seed: third(func(n *corev1.Node) {
				setCondition(n, agent.PeersReachable, corev1.ConditionFalse, "PeersUnreachable", "pods of 1 nodes can't be reached from this node: worker-1: silent", 3*time.Minute)
			}),
			check: "peers-unreachable", severity: Error, object: late, reports: []string{"worker-1: silent"},
		},
		{
			name: "a node without CNI plugins, where another configuration comes first", seed: third(func(n *corev1.Node) {
				setCondition(n, agent.PeersReachable, corev1.ConditionFalse, "NetworkNotReady", cniMessage(), 3*time.Minute)
			}),
			check: "peers-unreachable", severity: Error, object: late, reports: []string{"the CNI plugin ptp is not in", "00-bridge.conf", "sorts before 05-underlay.conflist"},
		},
		{
			name: "a node where Docker drops what is forwarded", shape: shape{metal: true}, seed: third(func(n *corev1.Node) {
				setCondition(n, agent.PeersReachable, corev1.ConditionTrue, agent.ReasonAtRisk, "warning: the chain FORWARD of nftables table ip filter drops", time.Minute)
			}),
			check: "network-at-risk", severity: Warning, object: late, reports: []string{"chain FORWARD"}, do: "on that node",
		},
		{name: "two Nodes with one podCIDR", seed: func(s *survey.Snapshot) { holds("10.244.1.0/24")(s); s.Nodes[2].CreationTimestamp = ago(time.Hour) }, check: "duplicate-podcidr", severity: Error, object: late, reports: []string{"10.244.1.0/24", "worker-1"}, do: "recreate"},
		{
			name: "two Nodes with one podCIDR, as the ledger has them too", seed: func(s *survey.Snapshot) {
				holds("10.244.1.0/24")(s)
				s.Nodes[1].CreationTimestamp = ago(time.Hour)
				for _, n := range s.Nodes[1:] {
					s.Ledger[0].Data[n.Name] = recordOf(n, time.Time{})
				}
			},
			check: "duplicate-podcidr", severity: Error, object: "Node/worker-1", reports: []string{"Node worker-2 had 10.244.1.0/24 before"},
		},
		{name: "two Nodes with one podCIDR on metal", shape: shape{metal: true}, seed: func(s *survey.Snapshot) {
			s.Nodes[2].Spec.PodCIDRs[0] = "10.244.1.0/25"
			s.Nodes[2].CreationTimestamp = ago(time.Hour)
		}, check: "duplicate-podcidr", severity: Error, object: late, also: []string{"foreign-podcidr"}},
		{name: "a podCIDR of no pool", seed: holds("10.9.0.0/24"), check: "foreign-podcidr", severity: Warning, object: late, reports: []string{"10.9.0.0/24", "no pool"}, do: "add a pool"},
		{name: "only one family", shape: shape{dual: true, metal: true}, seed: third(func(n *corev1.Node) { n.Spec.PodCIDRs = n.Spec.PodCIDRs[:1] }), check: "missing-family", severity: Warning, object: late, reports: []string{"none of the address family IPv6"}, do: "join again"},
	}
}

// web is the Service of type LoadBalancer.
func web(s *survey.Snapshot) *corev1.Service { return s.Services[1] }

// sicken makes targets unhealthy, the first n.
func sicken(s *survey.Snapshot, n int) {
	b := &s.LoadBalancers[0]
	for _, target := range b.Targets[:n] {
		b.Verdicts[80][target] = lb.Unhealthy
	}
}

// podsAreTargets replaces the load balancer's nodes by n unhealthy pods.
func podsAreTargets(s *survey.Snapshot, n int) {
	b := &s.LoadBalancers[0]
	server := b.Targets[0].Server
	b.Targets, b.Verdicts[80] = nil, map[lb.Target]lb.Verdict{}
	for i := range n {
		pod := lb.Target{
			Server: server, Address: netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 15: byte(i + 1)}),
		}
		b.Targets = append(b.Targets, pod)
		b.Verdicts[80][pod] = lb.Unhealthy
	}
}

// because sets the cause of all unhealthy targets.
func because(s *survey.Snapshot, why lb.Cause) {
	b := &s.LoadBalancers[0]
	b.Why = map[int]map[lb.Target]lb.Cause{80: {}}
	for _, target := range b.Targets {
		b.Why[80][target] = why
	}
}

func seededServices() []seeded {
	const object = "Service/shop/web"
	refused := func(reason, message string) func(*survey.Snapshot) {
		return func(s *survey.Snapshot) {
			web(s).Status.Conditions[0] = metav1.Condition{Type: "underlay.dev/Accepted", Status: metav1.ConditionFalse, Reason: reason, Message: message}
		}
	}
	return []seeded{
		{name: "a Service refused", seed: refused("InvalidField", "load-balancer.hetzner.cloud/type: no such type"), check: "service-refused", severity: Error, object: object, reports: []string{"InvalidField", "no such type"}, do: "annotations.md"},
		{
			name: "an unsupported ask", seed: func(s *survey.Snapshot) { web(s).Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
			check: "service-refused", severity: Error, object: object, reports: []string{"UnsupportedField", "sessionAffinity"},
		},
		{
			name: "an annotation that nobody reads", seed: func(s *survey.Snapshot) {
				web(s).Annotations = map[string]string{"load-balancer.hetzner.cloud/tpye": "lb21"}
			},
			check: "service-refused", severity: Warning, object: object, reports: []string{"UnknownAnnotation", "tpye"},
		},
		{
			name: "a Service that nobody looks at", seed: func(s *survey.Snapshot) { web(s).Status.Conditions = nil; s.LoadBalancers = nil },
			check: "service-refused", severity: Error, object: object, reports: []string{"24h ago"}, do: "leads",
		},
		{name: "IPv6 asked for without a pool", seed: func(s *survey.Snapshot) {
			s.Services[0].Spec.IPFamilies = append(s.Services[0].Spec.IPFamilies, corev1.IPv6Protocol)
		}, check: "service-family", severity: Warning, object: "Service/default/kubernetes", reports: []string{"IPv6"}, do: "pools"},
		{name: "a load balancer of somebody else", seed: refused("LoadBalancerNotOwned", `load balancer "web" has another owner`), check: "load-balancer-owner", severity: Error, object: object, reports: []string{"another owner"}, do: "adopt"},
		{
			name: "a name that is taken", seed: func(s *survey.Snapshot) {
				web(s).Annotations = map[string]string{"load-balancer.hetzner.cloud/name": "web"}
				s.LoadBalancers[0].Labels = map[string]string{"hcloud-ccm/service-uid": "uid-of-another"}
			},
			check: "load-balancer-owner", severity: Error, object: object, reports: []string{`"web" has another owner`},
		},
		{
			name: "two load balancers of one Service", seed: func(s *survey.Snapshot) {
				other := s.LoadBalancers[0]
				other.ID, other.Name, other.Labels = 901, "copy", maps.Clone(other.Labels)
				s.LoadBalancers = append(s.LoadBalancers, other)
			},
			check: "load-balancer-owner", severity: Error, object: object, reports: []string{"more than one"}, do: "remove-label",
		},
		{name: "a load balancer of no Service", seed: func(s *survey.Snapshot) { s.Services = s.Services[:1] }, check: "load-balancer-owner", severity: Warning, object: "load-balancer/web", reports: []string{"900", "cluster kubernetes"}, do: "delete 900"},
		{name: "a firewalled health port", seed: func(s *survey.Snapshot) { sicken(s, machines) }, check: "load-balancer-health", severity: Error, object: object, reports: []string{"port 80", "3 of 3", "http :10256/healthz", "worker-1", "no traffic"}, do: "curl -i http://10.0.0.2:10256/healthz"},
		{name: "a firewalled health port with TLS", seed: func(s *survey.Snapshot) {
			sicken(s, machines)
			c := &s.LoadBalancers[0].Listeners[0].Check
			c.Port, c.Path, c.TLS, c.Domain = 8443, "/up", true, "web.example"
		}, check: "load-balancer-health", severity: Error, object: object, do: "curl -ik -H 'Host: web.example' https://10.0.0.2:8443/up"},
		{name: "pods that the load balancer doesn't reach", seed: func(s *survey.Snapshot) { podsAreTargets(s, 2) }, check: "load-balancer-health", severity: Error, object: object, reports: []string{"2 of 2 targets", "2001:db8::1", "no traffic"}, do: "loadBalancers.podTargetSources"},
		{name: "one node with a firewalled health port", seed: func(s *survey.Snapshot) { sicken(s, 1) }, check: "load-balancer-health", severity: Warning, object: object, reports: []string{"1 of 3", "control-1"}},
		{name: "a node that refuses connections", seed: func(s *survey.Snapshot) {
			sicken(s, 1)
			because(s, lb.Cause{Detail: lb.DetailNoConnection})
		}, check: "load-balancer-health", severity: Warning, object: object, reports: []string{"control-1 (no connection)"}, do: "something listens on its TCP port 10256"},
		{name: "nodes whose kube-proxy says no", seed: func(s *survey.Snapshot) {
			sicken(s, machines)
			because(s, lb.Cause{Detail: lb.DetailHTTPStatus, HTTPStatus: 503})
		}, check: "load-balancer-health", severity: Error, object: object, reports: []string{"worker-1 (HTTP status 503)"}, do: "kube-proxy returns 503"},
		{name: "a dedicated server with a firewalled health port", seed: func(s *survey.Snapshot) {
			onDedicated("10.0.0.200", lb.Unhealthy)(s)
		}, check: "load-balancer-health", severity: Warning, object: object, reports: []string{"1 of 3", "worker-2"}, do: "curl -i http://10.0.0.200:10256/healthz"},
		{
			name: "the one node with endpoints is unhealthy", seed: func(s *survey.Snapshot) {
				web(s).Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
				web(s).Spec.HealthCheckNodePort = 31000
				s.LoadBalancers[0].Listeners[0].Check.Port = 31000
				sicken(s, machines)
			},
			check: "load-balancer-health", severity: Error, object: object, reports: []string{"http :31000/healthz", "among them worker-1"}, do: "31000",
		},
	}
}
