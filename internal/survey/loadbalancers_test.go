package survey_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
	"github.com/underlay-ccm/underlay/lb"
)

// balanced is a healthy cluster with the Service default/web, whose load balancer is as the CCM
// creates it.
func balanced(t *testing.T) *survey.Snapshot {
	t.Helper()
	s := usual(t, 3)
	web := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "5f2e", CreationTimestamp: at(-30 * 60e9)},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeLoadBalancer,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
			Ports: []corev1.ServicePort{
				{Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP},
			},
		},
		Status: corev1.ServiceStatus{
			LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}}},
			Conditions: []metav1.Condition{{
				Type: "underlay.dev/Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", LastTransitionTime: at(-29 * 60e9),
			}},
		},
	}
	s.Services = []*corev1.Service{web}
	spec := s.Balancings()[0].Spec // the actual state is the one that the CCM wants
	b := lb.State{
		ID: 700, Name: spec.Name, Labels: spec.Labels(), Type: spec.Type, Location: "fsn1", NetworkZone: "eu-central",
		Algorithm: spec.Algorithm, Public: true, IPv4: addr("192.0.2.7"), Network: 1, PrivateIP: addr("10.0.0.200"),
		Listeners: spec.Listeners, Targets: spec.Targets,
		CheckResults: lb.CheckResults{
			Verdicts: map[int]map[lb.Target]lb.Verdict{80: verdicts(spec.Targets, 3)},
		},
		Created: now().Add(-30 * 60e9),
	}
	s.LoadBalancers = []lb.State{b}
	return s
}

func balancerLines(v table.Page) []string {
	short := strings.NewReplacer(" → ", ">", " tcp", "", " (private)", "")
	var out []string
	all := rows(v, "services")
	for i, r := range all {
		if r["SERVICE"] != "" {
			name := strings.TrimSuffix(r["SERVICE"], "gone")
			out = append(out, fmt.Sprintf("%s: %s [%s]", name, r["LOAD BALANCER"], r["ADDRESSES"]))
		}
		if r["LISTENER"] != "" {
			out = append(out, short.Replace(r["LISTENER"])+" "+r["CHECK"])
		}
		if r["TARGET"] != "" {
			out[len(out)-1] += " " + short.Replace(r["TARGET"]) + "=" + r["HEALTH"]
		}
		if i+1 < len(all) && all[i+1]["SERVICE"] == "" {
			continue
		}
		for _, op := range rows(v, "plan") {
			if op["SERVICE"] == owner(all[:i+1]) {
				out = append(out, "plan: "+op["OPERATION"])
			}
		}
	}
	return out
}

// owner returns the Service of the last row.
func owner(all []row) (name string) {
	for _, r := range all {
		name = cmp.Or(r["SERVICE"], name)
	}
	return name
}

func TestLoadBalancers(t *testing.T) {
	const head = "default/web: a5f2e (700) [192.0.2.7,10.0.0.200]"
	const all = "80>30080 http :10256/healthz node-0001=healthy node-0002=healthy node-0003=healthy"
	for _, c := range []struct {
		name   string
		change func(*survey.Snapshot)
		want   []string
		note   string // text of one of the notes
	}{
		{"as it should be", func(*survey.Snapshot) {}, []string{head, all}, ""},
		{
			"an unhealthy target, and one not judged yet", func(s *survey.Snapshot) {
				b := s.LoadBalancers[0]
				b.Verdicts[80][b.Targets[0]] = lb.Unhealthy
				delete(b.Verdicts[80], b.Targets[2])
			},
			[]string{head, "80>30080 http :10256/healthz node-0001=unhealthy node-0002=healthy node-0003=unknown"},
			"",
		},
		{
			"changed by hand", func(s *survey.Snapshot) {
				b := &s.LoadBalancers[0]
				b.Targets = append(b.Targets[1:], lb.Target{Server: 999, Private: true})
				b.Type = "lb21"
			},
			[]string{
				head, "80>30080 http :10256/healthz node-0002=healthy node-0003=healthy server 999=unknown",
				"plan: remove server 999 (private)", "plan: change type to lb11", "plan: add server 101 (private)",
			},
			"",
		},
		{
			"a dedicated server, and one that is no Node", func(s *survey.Snapshot) {
				n, b := s.Nodes[2], &s.LoadBalancers[0]
				n.Spec.ProviderID, n.Status.Addresses = "hrobot://4711", []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.0.5"}}
				s.Servers = s.Servers[:2]
				bare, stray := lb.AddressTarget(addr("10.1.0.5")), lb.AddressTarget(addr("10.1.0.99"))
				b.Targets = append(b.Targets[:2], bare, stray)
				b.Verdicts[80][bare] = lb.Healthy
			},
			[]string{head, "80>30080 http :10256/healthz node-0001=healthy node-0002=healthy node-0003=healthy IP 10.1.0.99=unknown", "plan: remove IP 10.1.0.99"},
			"",
		},
		{
			"a dedicated server without an address in the network", func(s *survey.Snapshot) {
				n, b := s.Nodes[2], &s.LoadBalancers[0]
				n.Spec.ProviderID, n.Status.Addresses = "hrobot://4711", []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "203.0.113.5"}}
				s.Servers, b.Targets = s.Servers[:2], b.Targets[:2]
			},
			[]string{head, "80>30080 http :10256/healthz node-0001=healthy node-0002=healthy"},
			"no InternalIP in the network's vSwitch subnet",
		},
		{
			"a server that is gone, and with it its target", func(s *survey.Snapshot) {
				s.Servers, s.LoadBalancers[0].Targets = s.Servers[:2], s.LoadBalancers[0].Targets[:2]
			},
			[]string{head, "80>30080 http :10256/healthz node-0001=healthy node-0002=healthy"},
			"",
		},
		{
			"a server that is gone, and its target not yet", func(s *survey.Snapshot) { s.Servers = s.Servers[:2] },
			[]string{head, all, "plan: remove server 103 (private)"},
			"",
		},
		{
			"none yet", func(s *survey.Snapshot) { s.LoadBalancers = nil },
			[]string{"default/web:  [192.0.2.7]", `plan: create "a5f2e" with 1 listeners and 3 targets`},
			"",
		},
		{
			"its name is taken", func(s *survey.Snapshot) { s.LoadBalancers[0].Labels = map[string]string{"owner": "me"} },
			[]string{"default/web:  [192.0.2.7]"},
			"has another owner",
		},
		{
			"two of them", func(s *survey.Snapshot) {
				twin := s.LoadBalancers[0]
				twin.ID = 701
				s.LoadBalancers = append(s.LoadBalancers, twin)
			},
			[]string{"default/web:  [192.0.2.7]"},
			"more than one load balancer carries the labels",
		},
		{
			"its Service is gone", func(s *survey.Snapshot) { s.Services = nil },
			[]string{": a5f2e (700) [192.0.2.7,10.0.0.200]", all},
			"",
		},
		{
			"another class", func(s *survey.Snapshot) { s.Services[0].Spec.LoadBalancerClass = ptr.To("other.example/lb") },
			nil, "",
		},
		{
			"an annotation that is wrong", func(s *survey.Snapshot) {
				s.Services[0].Annotations = map[string]string{"load-balancer.hetzner.cloud/algorithm-type": "dice"}
			},
			[]string{head, all},
			"algorithm-type",
		},
		{
			"policy Local, one endpoint", func(s *survey.Snapshot) {
				s.Services[0].Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
				s.Services[0].Spec.HealthCheckNodePort = 32000
				s.EndpointSlices = []*discoveryv1.EndpointSlice{{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
					Endpoints:  []discoveryv1.Endpoint{{NodeName: ptr.To("node-0002")}},
				}}
			},
			[]string{head, all, "plan: update listener 80 → 30080, http :32000/healthz every 10s, timeout 15s, 3 tries"},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := balanced(t)
			c.change(s)
			v, err := survey.LoadBalancersOf(s)
			if err != nil {
				t.Fatal(err)
			}
			expectTexts(t, "load balancers", balancerLines(v), c.want...)
			var notes []string
			for _, note := range v.Notes {
				if strings.HasPrefix(note, "default/web: ") {
					notes = append(notes, note)
				}
			}
			if c.note == "" != (len(notes) == 0) || !strings.Contains(strings.Join(notes, "\n"), c.note) {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
		})
	}
}

// If most servers are missing, the note is about the list, not the targets.
func TestLoadBalancersOfAnotherProject(t *testing.T) {
	s := balanced(t)
	s.Servers = nil
	v, err := survey.LoadBalancersOf(s)
	if err != nil || owner(rows(v, "services")) != "default/web" || len(rows(v, "plan")) > 0 {
		t.Fatalf("%v, %+v", err, v)
	}
	if len(v.NotSeen) != 1 || !strings.Contains(v.NotSeen[0], "check that the token belongs to this cluster's project") {
		t.Errorf("not seen %q", v.NotSeen)
	}
}

// Without the cloud, the Services' own status is shown.
func TestLoadBalancersWithoutSight(t *testing.T) {
	s := balanced(t)
	lose(s, survey.Cloud, "there is no token")
	v, err := survey.LoadBalancersOf(s)
	if err != nil || len(v.NotSeen) != 1 || len(rows(v, "plan")) > 0 {
		t.Fatalf("%v, %+v", err, v)
	}
	expectTexts(t, "what Services have", balancerLines(v), "default/web:  [192.0.2.7]")
	lose(s, survey.PartServices, "not allowed")
	if _, err := survey.LoadBalancersOf(s); err == nil || !strings.Contains(err.Error(), "Services can't be seen: not allowed") {
		t.Errorf("without Services: %v", err)
	}
}

func TestLoadBalancersSwitchedOff(t *testing.T) {
	s := balanced(t)
	s.Config.LoadBalancers.Enabled = false
	v, err := survey.LoadBalancersOf(s)
	if err != nil || len(v.Tables) > 0 || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "loadBalancers.enabled is false") {
		t.Errorf("%v, %+v", err, v)
	}
}

// verdicts marks a number of the targets as healthy, and the others as unknown.
func verdicts(targets []lb.Target, healthy int) map[lb.Target]lb.Verdict {
	out := make(map[lb.Target]lb.Verdict, len(targets))
	for i, t := range targets {
		if out[t] = lb.Unknown; i < healthy {
			out[t] = lb.Healthy
		}
	}
	return out
}
