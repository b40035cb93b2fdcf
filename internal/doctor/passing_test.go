package doctor

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// joining is the third Node in its first minute.
func joining(s *survey.Snapshot) {
	n := s.Nodes[2]
	n.CreationTimestamp, n.ManagedFields = ago(time.Minute), nil
	n.Spec.ProviderID, n.Spec.PodCIDR, n.Spec.PodCIDRs = "", "", nil
	n.Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}}
	setCondition(n, corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", "cni plugin not initialized", time.Minute)
	setCondition(n, corev1.NodeNetworkUnavailable, corev1.ConditionTrue, "NoRouteCreated", "waiting for a podCIDR and its route", time.Minute)
	delete(s.Ledger[0].Data, n.Name)
	if s.Network != nil {
		s.Network.Routes = s.Network.Routes[:2]
	}
	unready(s, n.Name)
}

// TestTemporaryStatesCauseNoFinding tests states that a healthy cluster has now and then, and
// foreign objects in any state.
func TestTemporaryStatesCauseNoFinding(t *testing.T) {
	metal := shape{dual: true, metal: true}
	cases := []struct {
		name  string
		shape shape
		seed  func(*survey.Snapshot)
	}{
		{"a Node joins", shape{}, joining},
		{"a full table, with tunnels", shape{}, func(s *survey.Snapshot) {
			s.Config.WireGuard.Mode, s.Config.Routes.Limit = config.WireGuardOverflow, len(s.Network.Routes)
			for i, n := range s.Nodes {
				metav1.SetMetaDataAnnotation(&n.ObjectMeta, kube.WireGuardAnnotation, fmt.Sprintf(`{"keys": [{"publicKey": "%cAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "port": 51820}]}`, 'A'+i))
			}
		}},
		{"a Node joins on metal", metal, joining},
		{"a server is not attached yet", shape{}, func(s *survey.Snapshot) {
			joining(s)
			s.Servers[2].PrivateIP = netip.Addr{}
		}},
		{"a Node that Kubernetes told of was deleted", shape{}, func(s *survey.Snapshot) {
			s.Ledger[0].Data["gone"] = "uid=uid-gone id=hcloud://55 10.244.9.0/24@default-ipv4"
			s.Events = append(s.Events, removed("uid-gone", s.Taken.Add(-59*time.Second)))
		}},
		{"a new load balancer", shape{}, func(s *survey.Snapshot) {
			sicken(s, machines)
			s.LoadBalancers[0].Created = now().Add(-time.Minute)
		}},
		{"no endpoints", shape{}, func(s *survey.Snapshot) {
			sicken(s, machines)
			s.EndpointSlices = nil
		}},
		{"policy Local: nodes without endpoints are unhealthy", shape{}, func(s *survey.Snapshot) {
			web(s).Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			web(s).Spec.HealthCheckNodePort = 31000
			sicken(s, 1) // of control-1, and the endpoint is on worker-1
		}},
		{"a Service of another class", shape{}, func(s *survey.Snapshot) {
			class := "example.com/other"
			web(s).Spec.LoadBalancerClass = &class
			web(s).Status.Conditions = nil
			s.LoadBalancers = nil
		}},
		{"a Node is gone, its podCIDRs in quarantine", shape{}, func(s *survey.Snapshot) {
			s.Ledger[0].Data["gone"] = "uid=uid-gone id=hcloud://55 10.244.9.0/24@default-ipv4 released=" + now().Add(-4*time.Minute).Format(time.RFC3339)
		}},
		{"a Node is gone, its route not yet", shape{}, func(s *survey.Snapshot) {
			s.Ledger[0].Data["gone"] = "uid=uid-gone id=hcloud://55 10.244.9.0/24@default-ipv4 released=" + now().Add(-4*time.Minute).Format(time.RFC3339)
			s.Network.Routes = append(s.Network.Routes, routes.Route{Dst: netip.MustParsePrefix("10.244.9.0/24"), Via: netip.MustParseAddr("10.0.0.99")})
			recordAll(s)
		}},
		{"a cluster that moved here", shape{}, func(s *survey.Snapshot) {
			for _, n := range s.Nodes {
				n.ManagedFields[0] = setBy("kube-controller-manager", 90*24*time.Hour)
			}
		}},
		{"podCIDRs set by hand", shape{}, func(s *survey.Snapshot) { s.Nodes[0].ManagedFields[0] = setBy("kubectl-edit", time.Hour) }},
		{"another allocator, long stopped", shape{}, func(s *survey.Snapshot) {
			s.Nodes[0].ManagedFields[0] = setBy("kube-controller-manager", 30*time.Hour)
		}},
		{"kube-controller-manager without node IPAM", shape{}, func(s *survey.Snapshot) {
			kcm(s).Command = []string{"kube-controller-manager", "--allocate-node-cidrs", "--controllers=*,-node-ipam-controller"}
		}},
		{"the Hetzner CCM scaled to nothing", shape{}, func(s *survey.Snapshot) {
			none := int32(0)
			d := s.Deployments[0].DeepCopy()
			d.Name, d.Labels, d.Spec.Replicas, d.Status.Replicas = "hcloud-cloud-controller-manager", nil, &none, 0
			s.Deployments = append(s.Deployments, d)
		}},
		{"a NAT gateway's default route", shape{}, func(s *survey.Snapshot) {
			s.Network.Routes = append(s.Network.Routes, s.Network.Routes[0])
			s.Network.Routes[machines].Dst = netip.MustParsePrefix("0.0.0.0/0")
		}},
		{"NodePorts on the primary address, where load balancers send", shape{}, withProxyConfig("nodePortAddresses:\n- 10.0.0.0/16", "nodePortAddresses: []")},
		{"NodePorts everywhere in mode iptables", shape{}, func(s *survey.Snapshot) {
			withProxyConfig("mode: nftables\nnodePortAddresses:\n- 10.0.0.0/16", "mode: iptables\nnodePortAddresses: null")(s)
			toPublic(s)
		}},
		{"kube-proxy's health by its keyless default", shape{}, withProxyConfig("healthzBindAddress: \"\"\n", "")},
		{"NodePorts matter to no load balancer on metal", metal, withProxyConfig("- 10.0.0.0/16", "- 192.168.0.0/16")},
		{"a full pool beside one with room", shape{}, func(s *survey.Snapshot) {
			fill(256)(s)
			s.Config.IPAM.Pools = append(s.Config.IPAM.Pools, config.Pool{Name: "more", Prefix: netip.MustParsePrefix("10.245.0.0/16"), NodeMask: 24})
			withProxyConfig("clusterCIDR: 10.244.0.0/16", "clusterCIDR: 10.244.0.0/15")(s)
		}},
		{"a dedicated server beside the cloud's", shape{}, func(s *survey.Snapshot) {
			s.Nodes[2].Spec.ProviderID = "hrobot://4711"
			s.Servers, s.LoadBalancers[0].Targets = s.Servers[:2], s.LoadBalancers[0].Targets[:2]
			s.LoadBalancers[0].Verdicts[80] = verdicts(s.LoadBalancers[0].Targets, 2)
			s.Network.Routes = s.Network.Routes[:2]
		}},
		{"a dedicated server that is a target", shape{}, func(s *survey.Snapshot) {
			onDedicated("10.1.0.5", lb.Healthy)(s)
			withProxyConfig("- 10.0.0.0/16", "- 10.0.0.0/15")(s)
		}},
		{"a dedicated server with pods inside the vSwitch's subnet", shape{}, dedicatedWorker},
		{"Robot is configuring its port there", shape{}, memberIs(corev1.ConditionUnknown)},
		{"its membership had failed", shape{}, memberIs(corev1.ConditionTrue)},
		{"one had failed, and nothing rests on it", shape{}, memberNoMore},
		{"a dedicated server with an address that the cloud doesn't know", shape{}, func(s *survey.Snapshot) {
			s.Nodes[2].Spec.ProviderID = "hrobot://4711"
			setCondition(s.Nodes[2], corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown", "silent", time.Hour)
			s.Servers = s.Servers[:2]
		}},
		{"the target of a server that was deleted just now", shape{}, func(s *survey.Snapshot) {
			s.Servers = s.Servers[:2]
			s.Nodes[2].DeletionTimestamp = &metav1.Time{Time: now()}
			sicken(s, 0)
			s.LoadBalancers[0].Verdicts[80][s.LoadBalancers[0].Targets[2]] = lb.Unhealthy
		}},
		{"a load balancer of another cluster", shape{}, func(s *survey.Snapshot) {
			other := s.LoadBalancers[0]
			other.ID, other.Name, other.Labels = 901, "other", lb.Owner{Cluster: "another", UID: "u"}.Labels()
			s.LoadBalancers = append(s.LoadBalancers, other)
		}},
		{"a load balancer that two Services share", shape{}, func(s *survey.Snapshot) {
			web(s).Annotations = map[string]string{lb.AnnotationShared: "edge"}
			mail := web(s).DeepCopy()
			mail.Name, mail.UID, mail.CreationTimestamp = "mail", "uid-mail", ago(time.Hour)
			mail.Spec.Ports[0].Port = 25
			s.Services = append(s.Services, mail)
			b := &s.LoadBalancers[0]
			b.Labels = lb.GroupOwner("kubernetes", "shop.edge").Labels()
			for port, uid := range map[string]string{"80": "uid-web", "25": "uid-mail"} {
				b.Labels["underlay.dev/svc-"+uid], b.Labels["underlay.dev/port-"+port] = "", uid
			}
			smtp := b.Listeners[0]
			smtp.Port = 25
			b.Listeners, b.Verdicts[25] = append(b.Listeners, smtp), verdicts(b.Targets,
				0) // no pod serves it
		}},
		{"a headless Service of both families", shape{}, func(s *survey.Snapshot) {
			s.Services[0].Spec.ClusterIP = corev1.ClusterIPNone
			s.Services[0].Spec.IPFamilies = append(s.Services[0].Spec.IPFamilies, corev1.IPv6Protocol)
		}},
		{"a kubelet that has just registered", shape{}, func(s *survey.Snapshot) {
			joining(s)
			s.Nodes[2].Spec.Taints = nil
		}},
		{"a target that has just joined", shape{}, func(s *survey.Snapshot) {
			s.Nodes[0].CreationTimestamp = ago(time.Minute)
			sicken(s, 1)
		}},
		{"a target whose Node is down", shape{}, func(s *survey.Snapshot) {
			setCondition(s.Nodes[0], corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown", "silent", time.Hour)
			sicken(s, 1)
		}},
		{"a peer is silent for a moment", metal, func(s *survey.Snapshot) {
			setCondition(s.Nodes[2], agent.PeersReachable, corev1.ConditionFalse, "PeersUnreachable", "worker-1 is silent", time.Minute)
		}},
		{"a lease that is due", shape{}, func(s *survey.Snapshot) {
			renewed := metav1.NewMicroTime(now().Add(-20 * time.Second))
			s.Lease.Spec.RenewTime = &renewed
		}},
		{"a Service that was made just now", shape{}, func(s *survey.Snapshot) {
			web(s).Status.Conditions, web(s).CreationTimestamp = nil, ago(time.Minute)
			s.LoadBalancers = nil
		}},
		{"addresses of nodes that are excluded", shape{}, func(s *survey.Snapshot) {
			s.Config.IPAM.Exclude = prefixes("10.244.99.0/24")
			s.Nodes[2].Status.Addresses[2].Address = "10.244.99.4"
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			snap := healthy(t, c.shape)
			c.seed(snap)
			for _, f := range Examine(snap) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A Node whose server is deleted is removed automatically, and then its route. While it is Ready
// the cause could also be a wrong provider ID, and the finding mentions that; no action is needed.
func TestANodeThatOutlivesItsServer(t *testing.T) {
	for _, c := range []struct {
		name string
		seed func(*survey.Snapshot, *corev1.Node)
		seen bool
	}{
		{"just now", func(*survey.Snapshot, *corev1.Node) {}, true},
		{"its kubelet is missed", func(s *survey.Snapshot, n *corev1.Node) {
			setCondition(n, corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown", "silent", 4*time.Minute)
			unready(s, n.Name)
		}, false},
		{"its route never stood", func(s *survey.Snapshot, n *corev1.Node) {
			s.Network.Routes = s.Network.Routes[:2]
			setCondition(n, corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown", "silent", 4*time.Minute)
			setCondition(n, corev1.NodeNetworkUnavailable, corev1.ConditionTrue, "NotAttached", "no matching server", time.Hour)
		}, false},
		{"no network is configured", func(s *survey.Snapshot, _ *corev1.Node) {
			s.Config.Network, s.Config.Routes.Enabled, s.Network = "", false, nil
			s.Services, s.LoadBalancers = s.Services[:1], nil // its targets are in the network
			for i := range s.Servers {
				s.Servers[i].PrivateIP = netip.Addr{}
			}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := healthy(t, shape{})
			s.Servers, s.LoadBalancers[0].Targets = s.Servers[:2], s.LoadBalancers[0].Targets[:2]
			c.seed(s, s.Nodes[2])
			findings := Examine(s)
			if c.seen && len(findings) == 1 && findings[0].Check == "node-server" {
				f := findings[0]
				if f.Severity != Info || f.Object != "Node/worker-2" || !strings.HasPrefix(f.What, "not checked: ") || !strings.Contains(f.What, "no server has the ID 103") || !strings.HasPrefix(f.Remedy, "look again in a minute") {
					t.Errorf("%+v", f)
				}
			} else if c.seen || len(findings) > 0 {
				t.Errorf("%+v, want one: %t", findings, c.seen)
			}
		})
	}
}
