package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/policy"
	"github.com/underlay-ccm/underlay/routes"
)

// seeded is a healthy cluster with one fault, and the expected finding.
type seeded struct {
	name  string
	shape shape
	seed  func(*survey.Snapshot)
	// check, severity and object are the finding's; says are parts of its text, and do of its
	// remedy.
	check    string
	severity Severity
	object   string
	reports  []string
	do       string
	// also are other checks with a finding from the same fault.
	also []string
}

func TestSeeded(t *testing.T) {
	cases := slices.Concat(seededProxy(), seededRivals(), seededManager(), seededAgent(),
		seededPools(), seededNodes(), seededTunnels(), seededRoutes(), seededVSwitch(), seededServices(),
		seededAddresses())
	reached := map[string]bool{}
	for _, c := range cases {
		reached[c.check] = true
		t.Run(c.name, func(t *testing.T) {
			snap := healthy(t, c.shape)
			c.seed(snap)
			expectFound(t, c, Examine(snap))
		})
	}
	for _, c := range checks() {
		if !reached[c.name] {
			t.Errorf("nothing is seeded for check %s", c.name)
		}
	}
}

func expectFound(t *testing.T, c seeded, findings []Finding) {
	t.Helper()
	hits := 0
	for _, f := range findings {
		if f.What == "" || f.Remedy == "" {
			t.Errorf("a finding without text or remedy: %+v", f)
		}
		if f.Check != c.check {
			if f.Severity != Info && !slices.Contains(c.also, f.Check) {
				t.Errorf("found besides: %+v", f)
			}
			continue
		}
		missing := func(part string) bool { return !strings.Contains(f.What, part) }
		if f.Severity == c.severity && f.Object == c.object && !slices.ContainsFunc(c.reports, missing) &&
			strings.Contains(f.Remedy, c.do) {
			hits++
		}
	}
	if hits != 1 {
		t.Errorf("%d findings are the expected one (%s, %s, %s, %q, remedy %q) of %+v", hits, c.check, c.severity, c.object, c.reports, c.do, findings)
	}
	if m := written(t)[c.check]; c.severity != Info && !slices.Contains(strings.Split(m, ", "), string(c.severity)) {
		t.Errorf("the document has the severities %q of check %s, and not %s", m, c.check, c.severity)
	}
}

// withProxyConfig changes a line of kube-proxy's configuration.
func withProxyConfig(old, new string) func(*survey.Snapshot) {
	return func(s *survey.Snapshot) {
		data := s.KubeProxy.Data
		changed := strings.Replace(data["config.conf"], old, new, 1)
		if changed == data["config.conf"] {
			panic("the fixture has no " + old)
		}
		data["config.conf"] = changed
	}
}

func seededProxy() []seeded {
	mode := func(to string) func(*survey.Snapshot) {
		return withProxyConfig("detectLocalMode: InterfaceNamePrefix", "detectLocalMode: "+to)
	}
	const object = "ConfigMap/kube-system/kube-proxy"
	return []seeded{
		{name: "kube-proxy waits for podCIDRs", seed: mode("NodeCIDR"), check: "kube-proxy-local-mode", severity: Error, object: object, reports: []string{"NodeCIDR"}, do: "InterfaceNamePrefix"},
		{name: "kube-proxy takes every pod for local", seed: mode("ClusterCIDR"), check: "kube-proxy-local-mode", severity: Warning, object: object, reports: []string{"ClusterCIDR", "10.244.0.0/16"}, do: "rollout restart daemonset/kube-proxy"},
		{name: "kubeadm's own default", seed: mode(`""`), check: "kube-proxy-local-mode", severity: Warning, object: object, reports: []string{"ClusterCIDR"}},
		{name: "kube-proxy looks for a bridge", seed: mode("BridgeInterface"), check: "kube-proxy-local-mode", severity: Error, object: object, reports: []string{"BridgeInterface"}},
		{name: "kube-proxy looks for other interfaces", seed: withProxyConfig("interfaceNamePrefix: veth", "interfaceNamePrefix: cali"), check: "kube-proxy-local-mode", severity: Error, object: object, reports: []string{`"cali"`}},
		{
			name: "no ConfigMap of kube-proxy", seed: func(s *survey.Snapshot) { s.KubeProxy = nil },
			check: "kube-proxy-local-mode", severity: Info, reports: []string{"not checked: there is no ConfigMap kube-system/kube-proxy"},
		},
		{
			name: "NodePorts on the primary address, load balancers on the public one",
			seed: func(s *survey.Snapshot) {
				withProxyConfig("nodePortAddresses:\n- 10.0.0.0/16", "nodePortAddresses: []")(s)
				toPublic(s)
			},
			check: "kube-proxy-node-ports", severity: Error, object: object, reports: []string{"mode nftables", "primary", "203.0.113.2 of control-1"}, do: "nodePortAddresses",
		},
		{name: "NodePorts on another range", seed: withProxyConfig("- 10.0.0.0/16", "- 192.168.0.0/16"), check: "kube-proxy-node-ports", severity: Error, object: object, reports: []string{"192.168.0.0/16", "10.0.0.2 of control-1", "10.0.0.4 of worker-2"}, do: "set nodePortAddresses to"},
		{name: "NodePorts closed where a dedicated server is a target", seed: onDedicated("10.1.0.5", lb.Healthy), check: "kube-proxy-node-ports", severity: Error, object: object, reports: []string{"10.1.0.5 of worker-2"}},
		{
			name: "NodePorts on another range, before the first load balancer",
			seed: func(s *survey.Snapshot) {
				withProxyConfig("- 10.0.0.0/16", "- localhost")(s)
				s.LoadBalancers, s.Services = nil, s.Services[:1]
			},
			check: "kube-proxy-node-ports", severity: Error, object: object, reports: []string{"localhost", "10.0.0.2 of control-1"},
		},
		{name: "kube-proxy's health on loopback", seed: withProxyConfig(`healthzBindAddress: ""`, "healthzBindAddress: 127.0.0.1:10256"), check: "kube-proxy-health-port", severity: Error, object: object, reports: []string{"127.0.0.1:10256"}, do: "0.0.0.0:10256"},
		{name: "kube-proxy's health on another port", seed: withProxyConfig(`healthzBindAddress: ""`, "healthzBindAddress: 0.0.0.0:10999"), check: "kube-proxy-health-port", severity: Error, object: object, reports: []string{"10999"}},
	}
}

// toPublic makes load balancers use public addresses.
func toPublic(s *survey.Snapshot) {
	s.Config.LoadBalancers.UsePrivateIP = false
	b := &s.LoadBalancers[0]
	for i := range b.Targets {
		b.Targets[i].Private = false
	}
	b.Verdicts[80] = verdicts(b.Targets, machines)
}

// onDedicated puts the third Node on a dedicated server, at an address that is a target.
func onDedicated(address string, health lb.Verdict) func(*survey.Snapshot) {
	return func(s *survey.Snapshot) {
		n, b := s.Nodes[2], &s.LoadBalancers[0]
		n.Spec.ProviderID = "hrobot://4711"
		n.Status.Addresses = append([]corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
			n.Status.Addresses...)
		s.Servers, s.Network.Routes = s.Servers[:2], s.Network.Routes[:2]
		b.Targets[2] = lb.AddressTarget(netip.MustParseAddr(address))
		b.Verdicts[80] = verdicts(b.Targets, machines)
		b.Verdicts[80][b.Targets[2]] = health
	}
}

// kcm is the pod of kube-controller-manager.
func kcm(s *survey.Snapshot) *corev1.Container {
	return &s.Pods[len(s.Pods)-1].Spec.Containers[0]
}

func seededRivals() []seeded {
	const pod = "Pod/kube-system/kube-controller-manager-control-1"
	arguments := func(args ...string) func(*survey.Snapshot) {
		return func(s *survey.Snapshot) {
			kcm(s).Command = append([]string{"kube-controller-manager", "--cluster-cidr=10.244.0.0/16"}, args...)
			s.PolicyBindings = s.PolicyBindings[1:]
		}
	}
	unguarded := []string{"admission-policies"}
	peer := func(replicas int32) func(*survey.Snapshot) {
		return func(s *survey.Snapshot) {
			d := s.Deployments[0].DeepCopy()
			d.Name, d.Labels, d.Spec.Replicas = "hcloud-cloud-controller-manager", nil, &replicas
			d.Spec.Template = template("docker.io/hetznercloud/hcloud-cloud-controller-manager:v1.35.0")
			d.Status = appsv1.DeploymentStatus{Replicas: replicas}
			s.Deployments = append(s.Deployments, d)
		}
	}
	return []seeded{
		{name: "a second allocator", seed: arguments("--allocate-node-cidrs=true"), check: "second-allocator", severity: Error, object: pod, reports: []string{"--allocate-node-cidrs"}, do: "--allocate-node-cidrs=false", also: unguarded},
		{name: "a second allocator, flag without value", seed: arguments("--allocate-node-cidrs", "--controllers=*"), check: "second-allocator", severity: Error, object: pod, also: unguarded},
		{
			name: "a second allocator that the policy holds off", seed: func(s *survey.Snapshot) { kcm(s).Command = append(kcm(s).Command, "--allocate-node-cidrs=true") },
			check: "second-allocator", severity: Warning, object: pod,
		},
		{
			name:  "podCIDRs set by another program",
			seed:  func(s *survey.Snapshot) { s.Nodes[2].ManagedFields[0] = setBy("kube-controller-manager", time.Hour) },
			check: "second-allocator", severity: Error, object: "Node/worker-2", reports: []string{"kube-controller-manager", "60m ago", "worker-2"},
		},
		{
			name: "arguments of kube-controller-manager unseen", seed: func(s *survey.Snapshot) { s.Pods = s.Pods[:len(s.Pods)-1] },
			check: "second-allocator", severity: Info, reports: []string{"not checked: no pod of kube-controller-manager"},
		},
		{name: "no policy", seed: func(s *survey.Snapshot) { s.Policies = s.Policies[1:] }, check: "admission-policies", severity: Warning, object: "ValidatingAdmissionPolicy/underlay-podcidrs", do: "podcidr-policy.yaml"},
		{name: "no binding", seed: func(s *survey.Snapshot) { s.PolicyBindings = s.PolicyBindings[1:] }, check: "admission-policies", severity: Warning, object: "ValidatingAdmissionPolicyBinding/underlay-podcidrs"},
		{
			name: "a binding that only warns", seed: func(s *survey.Snapshot) {
				s.PolicyBindings[0].Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
			},
			check: "admission-policies", severity: Warning, object: "ValidatingAdmissionPolicyBinding/underlay-podcidrs", reports: []string{"Warn"},
		},
		{name: "no policy for kubelets", seed: func(s *survey.Snapshot) { s.Policies = s.Policies[:3] }, check: "admission-policies", severity: Warning, object: "ValidatingAdmissionPolicy/underlay-kubelet-addresses", do: "kubelet-policy.yaml"},
		{name: "no policy for agents", seed: func(s *survey.Snapshot) { s.Policies = slices.Delete(s.Policies, 1, 2) }, check: "admission-policies", severity: Warning, object: "ValidatingAdmissionPolicy/underlay-agent-node-status", do: "node-status-policy.yaml"},
		{name: "no policy for agents' Events", seed: func(s *survey.Snapshot) { s.Policies = slices.Delete(s.Policies, 2, 3) }, check: "admission-policies", severity: Warning, object: "ValidatingAdmissionPolicy/underlay-agent-events", do: "events-policy.yaml"},
		{name: "the Hetzner CCM still runs", seed: peer(1), check: "other-cloud-controller", severity: Error, object: "Deployment/kube-system/hcloud-cloud-controller-manager", reports: []string{"Hetzner"}, do: "kubectl -n kube-system delete deployment hcloud-cloud-controller-manager"},
		{
			name: "the Hetzner CCM as a DaemonSet under another name",
			seed: func(s *survey.Snapshot) {
				d := s.DaemonSets[0].DeepCopy()
				d.Name, d.Labels, d.Spec.Template = "ccm", nil, template("hetznercloud/hcloud-cloud-controller-manager@sha256:00")
				s.DaemonSets = append(s.DaemonSets, d)
			},
			check: "other-cloud-controller", severity: Error, object: "DaemonSet/kube-system/ccm",
		},
		{
			name: "the Hetzner CCM holds the lease", seed: func(s *survey.Snapshot) { s.Lease.ManagedFields[0].Manager = "hcloud-cloud-controller-manager" },
			check: "other-cloud-controller", severity: Error, object: "Lease/kube-system/cloud-controller-manager", reports: []string{"hcloud-cloud-controller-manager"},
		},
		{
			name: "another pod network",
			seed: func(s *survey.Snapshot) {
				d := s.DaemonSets[0].DeepCopy()
				d.Name, d.Spec.Template = "kube-flannel-ds", template("ghcr.io/flannel-io/flannel:v0.27.0")
				s.DaemonSets = append(s.DaemonSets, d)
			},
			check: "other-pod-network", severity: Error, object: "DaemonSet/kube-system/kube-flannel-ds", reports: []string{"flannel"},
		},
		{
			name: "two enforcers of NetworkPolicies",
			seed: func(s *survey.Snapshot) {
				d := s.DaemonSets[0].DeepCopy()
				d.Name, d.Spec.Template = "policies", template("registry.k8s.io/networking/kube-network-policies:v1.0.0")
				s.DaemonSets = append(s.DaemonSets, d)
			},
			check: "network-policy", severity: Warning, object: "DaemonSet/kube-system/policies", do: "networkPolicy",
		},
		{
			name: "no enforcer of NetworkPolicies",
			seed: func(s *survey.Snapshot) {
				s.Config.NetworkPolicy, s.NetworkPolicies = false, policy.NewIndex("")
			},
			check: "network-policy", severity: Info, reports: []string{"have no effect"},
		},
		{
			name: "a NetworkPolicy that selects nothing",
			seed: func(s *survey.Snapshot) {
				s.NetworkPolicies = policy.NewIndex("")
				s.NetworkPolicies.SetPolicy(policy.Policy{Name: policy.Name{Namespace: "shop", Name: "db"}})
			},
			check: "network-policy", severity: Warning, object: "NetworkPolicy/shop/db", reports: []string{"matches no pod"}, do: "kubectl -n shop edit networkpolicy db",
		},
	}
}

func seededManager() []seeded {
	const lease = "Lease/kube-system/cloud-controller-manager"
	unseen := func(err error) func(*survey.Snapshot) {
		return func(s *survey.Snapshot) {
			for _, part := range []survey.Part{survey.PartNetwork, survey.PartServers} {
				s.Gaps = append(s.Gaps, survey.Gap{Part: part, Reason: err.Error(), Err: err})
			}
			s.Parts &^= survey.PartNetwork | survey.PartServers
			s.Network, s.Servers = nil, nil
		}
	}
	return []seeded{
		{
			name: "a wrong configuration",
			seed: func(s *survey.Snapshot) {
				s.ConfigErrors = config.Errors{{Field: "routes.limit", Value: "0", Problem: "is no number from 1 to 1000", Remedy: "give one"}}
				s.Parts &^= survey.PartConfig
				s.Config = config.Config{}
			},
			check: "configuration", severity: Error, object: "routes.limit", reports: []string{`"0" is no number`}, do: "give one",
		},
		{
			name: "a doubtful configuration", seed: func(s *survey.Snapshot) {
				s.ConfigWarnings = []config.Warning{{Field: "exclude", Problem: "10.9.0.0/24 lies in no pool"}}
			},
			check: "configuration", severity: Warning, object: "exclude", reports: []string{"10.9.0.0/24"},
		},
		{name: "a token of another project", seed: unseen(fmt.Errorf("network %q: %w", "cluster", hetzner.ErrNoNetwork)), check: "cloud-access", severity: Error, reports: []string{`no network "cluster"`}, do: "token"},
		{
			name: "a token of a project with a network of that name", seed: func(s *survey.Snapshot) {
				for i := range s.Servers {
					s.Servers[i].ID += 5000
				}
			},
			check: "cloud-access", severity: Error, reports: []string{"3 of 3 Nodes are missing from the project"},
		},
		{name: "the cloud doesn't answer", seed: unseen(errors.New("no route to host")), check: "cloud-access", severity: Info, reports: []string{"not checked", "no route to host"}},
		{name: "no CCM runs", seed: func(s *survey.Snapshot) { s.Deployments[0].Status.AvailableReplicas = 0 }, check: "cloud-controller", severity: Error, object: "Deployment/kube-system/underlay-ccm", reports: []string{"none of 2"}, do: "describe pod"},
		{name: "scaled down", seed: func(s *survey.Snapshot) { *s.Deployments[0].Spec.Replicas = 0 }, check: "cloud-controller", severity: Error, object: "Deployment/kube-system/underlay-ccm", do: "--replicas=2"},
		{name: "one replica is missing", seed: func(s *survey.Snapshot) { s.Deployments[0].Status.AvailableReplicas = 1 }, check: "cloud-controller", severity: Warning, object: "Deployment/kube-system/underlay-ccm", reports: []string{"1 of 2"}},
		{name: "a CCM without a Deployment, and none leads", seed: func(s *survey.Snapshot) { s.Deployments, s.Lease = nil, nil }, check: "leader", severity: Error, object: lease, also: []string{"cloud-controller"}},
		{name: "no lease", seed: func(s *survey.Snapshot) { s.Lease = nil }, check: "leader", severity: Error, object: lease},
		{
			name: "the lease is not renewed", seed: func(s *survey.Snapshot) {
				r := metav1.NewMicroTime(now().Add(-10 * time.Minute))
				s.Lease.Spec.RenewTime = &r
			},
			check: "leader", severity: Error, object: lease, reports: []string{"control-1_0f", "10m"}, do: "logs deployment/underlay-ccm",
		},
		{name: "the lease was given up", seed: func(s *survey.Snapshot) { s.Lease.Spec.HolderIdentity = new(string) }, check: "leader", severity: Error, object: lease, reports: []string{"has no holder"}},
	}
}

func seededRoutes() []seeded {
	add := func(n int, dst func(int) string, via func(int) string) func(*survey.Snapshot) {
		return func(s *survey.Snapshot) {
			for i := range n {
				s.Network.Routes = append(s.Network.Routes, routes.Route{
					Dst: netip.MustParsePrefix(dst(i)), Via: netip.MustParseAddr(via(i)),
				})
			}
		}
	}
	always := func(text string) func(int) string { return func(int) string { return text } }
	stranger := func(s *survey.Snapshot) {
		other := s.Servers[0]
		other.ID, other.Name, other.PrivateIP = 999, "somebody", netip.MustParseAddr("10.0.0.99")
		s.Servers = append(s.Servers, other)
		add(1, always("10.244.77.0/24"), always("10.0.0.99"))(s)
	}
	elsewhere := func(i int) string { return fmt.Sprintf("10.77.%d.0/24", i) }
	return []seeded{
		{name: "a route of others inside the pool", seed: add(1, always("10.244.128.0/20"), always("10.0.0.2")), check: "foreign-routes", severity: Warning, object: "route/10.244.128.0/20", reports: []string{"10.244.128.0/20", "10.244.0.0/16"}, do: "exclude"},
		{name: "a route of the pool to a stranger", seed: stranger, check: "foreign-routes", severity: Warning, object: "route/10.244.77.0/24", reports: []string{"10.0.0.99", "neither wrote nor adopted"}},
		{
			name: "another cluster with the same range",
			seed: func(s *survey.Snapshot) {
				s.Network.Routes = nil
				recordAll(s)
				stranger(s)
			},
			check: "foreign-routes", severity: Error, object: "route/10.244.77.0/24",
		},
		{name: "a route of the pool that nobody recorded", seed: add(1, always("10.244.50.0/24"), always("10.0.0.50")), check: "foreign-routes", severity: Warning, object: "route/10.244.50.0/24", reports: []string{"10.0.0.50", "neither wrote nor adopted"}, do: "remove the route"},
		{name: "a stale route", seed: func(s *survey.Snapshot) {
			add(1, always("10.244.50.0/24"), always("10.0.0.50"))(s)
			recordAll(s)
		}, check: "stale-routes", severity: Warning, object: "route/10.244.50.0/24", reports: []string{"10.0.0.50"}, do: "remove-route"},
		{name: "a full table", seed: add(97, elsewhere, always("10.0.0.2")), check: "route-table", severity: Error, reports: []string{"100 of 100 routes stand"}, do: "routes.limit"},
		{name: "no room for every Node", seed: add(98, elsewhere, always("10.0.0.2")), check: "route-table", severity: Error, reports: []string{"3 nodes", "room for 2"}},
		{name: "a table at 80 %", seed: add(77, elsewhere, always("10.0.0.2")), check: "route-table", severity: Warning, reports: []string{"80 of 100 routes stand"}, do: "before more nodes join"},
		{name: "many attachments", seed: func(s *survey.Snapshot) { s.Network.Servers, s.Network.LoadBalancers = 85, 5 }, check: "attachments", severity: Warning, reports: []string{"85 servers and 5 load balancers", "takes 100"}},
		{name: "no attachment left", seed: func(s *survey.Snapshot) { s.Network.Servers, s.Network.LoadBalancers = 95, 5 }, check: "attachments", severity: Error, do: "until then no further node can join"},
	}
}
