package doctor

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/routes/agent"
)

func shapes() []shape {
	return []shape{{}, {dual: true}, {metal: true}, {dual: true, metal: true}}
}

func TestNothingIsWrongWithAHealthyCluster(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.String(), func(t *testing.T) {
			for _, f := range Examine(healthy(t, s)) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// Each check that lacks its data reports this once, and never passes silently.
func TestMissingDataIsReported(t *testing.T) {
	blind := &survey.Snapshot{Taken: now(), Gaps: []survey.Gap{{Part: survey.PartNodes, Reason: `ask for a role with the verb "list" on "nodes"`}}}
	seen := map[string]int{}
	for _, f := range Examine(blind) {
		seen[f.Check]++
		if f.Severity != Info || !strings.HasPrefix(f.What, "not checked: ") {
			t.Errorf("a finding about what was not seen: %+v", f)
		}
	}
	for _, c := range checks() {
		if seen[c.name] != 1 {
			t.Errorf("check %s is told %d times, want once", c.name, seen[c.name])
		}
		if len(seen) == 0 {
			t.Fatal("nothing is told")
		}
	}
}

// Each part is needed by the checks that use it: without any one of them, some report so, none has
// a finding, and the others work.
func TestWithoutOnePart(t *testing.T) {
	for part := survey.Part(1); part <= survey.PartLoadBalancers; part <<= 1 {
		t.Run(part.String(), func(t *testing.T) {
			snap := healthy(t, shape{dual: true})
			hide(snap, part)
			snap.Parts &^= part
			snap.Gaps = []survey.Gap{{Part: part, Reason: "hidden by the test"}}
			findings := Examine(snap)
			if len(findings) == 0 {
				t.Error("nobody says that it was not seen")
			}
			seen := map[string]bool{}
			for _, f := range findings {
				if f.Severity != Info || !strings.Contains(f.What, "hidden by the test") || seen[f.Check] {
					t.Errorf("%+v", f)
				}
				seen[f.Check] = true
			}
		})
	}
}

// hide removes a part from a Snapshot, as if it could not be read.
func hide(s *survey.Snapshot, part survey.Part) {
	switch part {
	case survey.PartConfig:
		s.Config, s.ConfigWarnings = config.Config{}, nil
	case survey.PartNodes:
		s.Nodes = nil
	case survey.PartLedger:
		clear(s.Ledger[:])
	case survey.PartRouteRecord:
		s.RouteRecord = nil
	case survey.PartAddresses:
		s.AddressLedger = nil
	case survey.PartServiceCIDRs:
		s.ServiceCIDRs = nil
	case survey.PartServices:
		s.Services = nil
	case survey.PartEndpointSlices:
		s.EndpointSlices = nil
	case survey.PartEvents:
		s.Events = nil
	case survey.PartWorkloads:
		s.Deployments, s.DaemonSets, s.Pods = nil, nil, nil
	case survey.PartSetup:
		s.KubeProxy, s.Lease, s.Policies, s.PolicyBindings = nil, nil, nil, nil
	case survey.PartServers:
		s.Servers = nil
	case survey.PartNetwork:
		s.Network = nil
	case survey.PartLoadBalancers:
		s.LoadBalancers, s.Certificates = nil, nil
	}
}

// A cluster without Underlay's workloads is healthy if its objects are.
func TestWithoutWorkloads(t *testing.T) {
	snap := healthy(t, shape{})
	withoutAgents(snap)
	snap.Deployments = nil
	for _, f := range Examine(snap) {
		t.Errorf("%+v", f)
	}
	snap.Parts &^= survey.PartSetup
	hide(snap, survey.PartSetup)
	if found := Examine(snap); !slices.ContainsFunc(found, func(f Finding) bool {
		return f.Check == "cloud-controller" && f.Severity == Info
	}) {
		t.Errorf("%+v, want that cloud-controller was not checked without the lease", found)
	}
}

// withoutAgents assigns the pods' network to another program.
func withoutAgents(s *survey.Snapshot) {
	s.DaemonSets = s.DaemonSets[:1]
	for _, n := range s.Nodes {
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == agent.PeersReachable
		})
	}
}

// An installation in another namespace is found there, healthy or not, and the commands of remedies
// have that namespace.
func TestInAnotherNamespace(t *testing.T) {
	move := func(s *survey.Snapshot) {
		s.Namespace, s.LeaseName = "infra", types.NamespacedName{Namespace: "leases", Name: "ccm"}
		s.Deployments[0].Namespace, s.DaemonSets[1].Namespace = "infra", "infra"
	}
	snap := healthy(t, shape{})
	move(snap)
	for _, f := range Examine(snap) {
		t.Errorf("%+v", f)
	}
	for _, c := range []struct {
		name       string
		seed       func(*survey.Snapshot)
		object, do string
	}{
		{"no CCM runs", func(s *survey.Snapshot) { s.Deployments[0].Status.AvailableReplicas = 0 }, "Deployment/infra/underlay-ccm", "kubectl -n infra describe pod -l app.kubernetes.io/name=underlay-ccm; kubectl -n infra logs deployment/underlay-ccm"},
		{"scaled down", func(s *survey.Snapshot) { *s.Deployments[0].Spec.Replicas = 0 }, "Deployment/infra/underlay-ccm", "kubectl -n infra scale deployment underlay-ccm --replicas=2"},
		{"no lease", func(s *survey.Snapshot) { s.Lease = nil }, "Lease/leases/ccm", "kubectl -n infra logs deployment/underlay-ccm"},
		{"an agent is not ready", func(s *survey.Snapshot) { unready(s, "worker-1") }, "DaemonSet/infra/underlay-agent", "kubectl -n infra logs -l app.kubernetes.io/name=underlay-agent"},
		{"kube-proxy is where it was", func(s *survey.Snapshot) {
			withProxyConfig("interfaceNamePrefix: veth", "interfaceNamePrefix: cali")(s)
		}, "ConfigMap/kube-system/kube-proxy", "kubectl -n kube-system edit configmap kube-proxy"},
		{"another CCM in kube-system", func(s *survey.Snapshot) {
			other := s.Deployments[0].DeepCopy()
			other.Namespace, other.Name, other.Labels = "kube-system", "hcloud-cloud-controller-manager", nil
			s.Deployments = append(s.Deployments, other)
		}, "Deployment/kube-system/hcloud-cloud-controller-manager", "kubectl -n kube-system delete deployment hcloud-cloud-controller-manager"},
	} {
		t.Run(c.name, func(t *testing.T) {
			snap := healthy(t, shape{})
			move(snap)
			c.seed(snap)
			findings := Examine(snap)
			if len(findings) != 1 || findings[0].Object != c.object ||
				!strings.Contains(findings[0].Remedy, c.do) {
				t.Errorf("%+v, want %s with %q", findings, c.object, c.do)
			}
		})
	}
}

func TestOrderOfFindings(t *testing.T) {
	snap := healthy(t, shape{})
	snap.PolicyBindings = nil                      // two warnings
	snap.Lease = nil                               // an error
	snap.Parts &^= survey.PartEvents               // infos
	snap.Nodes[2].Spec.PodCIDRs[0] = "10.9.0.0/24" // further findings
	findings := Examine(snap)
	var keys []string
	for _, f := range findings {
		keys = append(keys, string('a'+rune(f.Severity.rank()))+f.Check+" "+f.Object)
	}
	if !slices.IsSorted(keys) || len(keys) < 5 {
		t.Errorf("not in order: %q", keys)
	}
	if worst := Worst(findings); worst != Error {
		t.Errorf("the worst is %q", worst)
	}
	if worst := Worst(nil); worst != "" {
		t.Errorf("the worst of nothing is %q", worst)
	}
}
