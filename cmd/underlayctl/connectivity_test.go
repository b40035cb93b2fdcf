package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/underlay-ccm/underlay/internal/connectivity"
	"github.com/underlay-ccm/underlay/internal/doctor"
)

// trialsBetween are the results between all nodes, modified by change.
func trialsBetween(nodes []string, change func(*connectivity.Result)) (results []connectivity.Result) {
	for i, from := range nodes {
		for j, to := range nodes {
			for _, at := range []string{"10.244.%d.2", "fd00:10:244:%d::2"} {
				for _, kind := range []connectivity.Kind{connectivity.TCP, connectivity.UDP, connectivity.MTU} {
					results = append(results, connectivity.Result{
						Trial: connectivity.Trial{
							Path: connectivity.Pod, Kind: kind, From: from, To: to,
							At: netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(at, j)), connectivity.Port),
						},
						Took: int64(100*(i+1) + 1000*j),
					})
				}
			}
		}
		results = append(results,
			connectivity.Result{Trial: connectivity.Trial{Path: connectivity.Service, Kind: connectivity.TCP, From: from, At: netip.MustParseAddrPort("10.96.0.9:8080")}, Took: 400},
			connectivity.Result{Trial: connectivity.Trial{Path: connectivity.Outside, Kind: connectivity.Dial, From: from, At: netip.MustParseAddrPort("203.0.113.7:443")}, Took: 120_000})
	}
	for i := range results {
		change(&results[i])
	}
	return results
}

func someTrials() tried {
	nodes := []string{"control-1", "worker-1", "worker-2"}
	results := trialsBetween(nodes, func(r *connectivity.Result) {
		switch {
		case r.To == "worker-2" && r.From != r.To && r.Family() == 6:
			r.Failure, r.Took = connectivity.Silent, 0
		case r.To == "worker-1" && r.From == "control-1" && r.Kind == connectivity.MTU:
			r.Carried, r.Interface = 1400, 1450
		case r.To == "control-1" && r.From == "worker-1" && r.Kind == connectivity.UDP && r.Family() == 4:
			r.Sent, r.Lost = 20, 3
		}
	})
	for service, at := range map[string]string{"default/web": "203.0.113.10:80", "default/api": "203.0.113.11:443"} {
		r := connectivity.Result{Trial: connectivity.Trial{
			Path: connectivity.LoadBalancer, Kind: connectivity.Dial, From: here, To: service, At: netip.MustParseAddrPort(at),
		}, Took: 31_000}
		if service == "default/api" {
			r.Failure, r.Took = connectivity.Silent, 0
		}
		results = append(results, r)
	}
	return tried{
		Report: connectivity.NewReport(nodes, []connectivity.Untried{{Node: "worker-3", Reason: "the Node is not Ready"}}, results, 100*time.Millisecond),
		Doctor: []doctor.Finding{{Check: "peers-unreachable", Severity: doctor.Warning, Object: "Node/worker-2", What: "has no way to its peers", Remedy: "give it an address"}},
		Notes:  []string{"Node win is left out: its system is windows"}, NotSeen: []string{"servers: there is no token"},
	}
}

// manyOpen has too many nodes for a matrix.
func manyOpen() tried {
	var nodes []string
	for i := range widest + 1 {
		nodes = append(nodes, fmt.Sprintf("worker-%02d", i))
	}
	return tried{Report: connectivity.NewReport(nodes, nil, trialsBetween(nodes, func(*connectivity.Result) {}), 0)}
}

func TestConnectivitysExitCode(t *testing.T) {
	nodes := []string{"a", "b"}
	open := trialsBetween(nodes, func(*connectivity.Result) {})
	closed := trialsBetween(nodes, func(r *connectivity.Result) { r.Failure = connectivity.Refused })
	untried := []connectivity.Untried{{Node: "c"}}
	for name, c := range map[string]struct {
		report connectivity.Report
		want   int
	}{
		"all is open":          {connectivity.NewReport(nodes, nil, open, 0), 0},
		"something is closed":  {connectivity.NewReport(nodes, nil, closed, 0), connectivity.SomethingClosed},
		"something is untried": {connectivity.NewReport(nodes, untried, open, 0), connectivity.NotTried},
		"both":                 {connectivity.NewReport(nodes, untried, closed, 0), connectivity.SomethingClosed},
		"nothing was tried":    {connectivity.NewReport(nil, nil, nil, 0), connectivity.NotTried},
	} {
		got := 0
		if err := outcome(c.report.Outcome()); err != nil {
			got = err.(findings).code
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// connectivity writes nothing outside of its own namespace.
func TestTheGateOfConnectivity(t *testing.T) {
	var behind reached
	gate := writesThere{&behind}
	for _, c := range []struct {
		method, path string
		through      bool
	}{
		{http.MethodGet, "/api/v1/nodes", true},
		{http.MethodPost, "/api/v1/namespaces", true},
		{http.MethodPost, "/api/v1/namespaces/underlay-connectivity/pods", true},
		{http.MethodPost, "/clusters/7/api/v1/namespaces/underlay-connectivity/services", true},
		{http.MethodDelete, "/api/v1/namespaces/underlay-connectivity/pods/a", true},
		{http.MethodDelete, "/api/v1/namespaces/underlay-connectivity", true},
		{http.MethodDelete, "/api/v1/namespaces/kube-system", false},
		{http.MethodPost, "/api/v1/namespaces/kube-system/pods", false},
		{http.MethodDelete, "/api/v1/namespaces/underlay-connectivity-2/pods/a", false},
		{http.MethodDelete, "/api/v1/nodes/a", false},
		{http.MethodPatch, "/api/v1/namespaces/underlay-connectivity/pods/a", false},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, "https://api.example"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := gate.RoundTrip(request)
		if err == nil {
			answer.Body.Close()
		}
		if c.through != (err == nil) {
			t.Errorf("%s %s: %v", c.method, c.path, err)
		}
	}
}

func TestWhichNodesAreTried(t *testing.T) {
	node := func(name, os string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: os}},
			Spec:       corev1.NodeSpec{Unschedulable: true}, // doesn't exclude it
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	client := fake.NewClientset(
		node("d", "linux", corev1.ConditionTrue), node("a", "linux", corev1.ConditionTrue), node("c", "linux", corev1.ConditionUnknown),
		node("b", "linux", corev1.ConditionTrue), node("w", "windows", corev1.ConditionTrue))
	for name, c := range map[string]struct {
		trying         trying
		want, untried  string
		notes, refusal string
	}{
		"all":          {trying{most: 9}, "a b d", "c", "w is left out", ""},
		"two":          {trying{most: 2}, "a b", "c", "2 of 3 nodes are tried", ""},
		"those named":  {trying{most: 9, nodes: []string{"d", "a"}}, "a d", "", "", ""},
		"one unknown":  {trying{most: 9, nodes: []string{"d", "x"}}, "", "", "", "--node x: there is no such Node"},
		"none of them": {trying{most: 9, nodes: []string{"c"}}, "", "", "", "no Node can be tried"},
	} {
		chosen, skipped, notes, err := c.trying.choose(t.Context(), client)
		if (err == nil) != (c.refusal == "") || err != nil && !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s: %v, want %q", name, err, c.refusal)
		}
		var names, untried []string
		for _, n := range chosen {
			names = append(names, n.Name)
		}
		for _, u := range skipped {
			untried = append(untried, u.Node)
		}
		if got := strings.Join(names, " "); got != c.want || strings.Join(untried, " ") != c.untried || !strings.Contains(strings.Join(notes, " "), c.notes) {
			t.Errorf("%s: %s, untried %v, notes %q", name, got, untried, notes)
		}
	}
}

func TestTheAgentsImage(t *testing.T) {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "underlay-agent", Namespace: "kube-system"}}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sidecar", Image: "other"}, {Name: "underlay-agent", Image: "agent:v1"}}
	client := fake.NewClientset(set)
	if got, err := agentImage(t.Context(), client, "kube-system"); got != "agent:v1" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := agentImage(t.Context(), client, "elsewhere"); err == nil || !strings.Contains(err.Error(), "--image") {
		t.Errorf("without a DaemonSet: %v", err)
	}
}

// The findings of doctor that may be causes are shown.
func TestCauses(t *testing.T) {
	all := []connectivity.Finding{{Checks: []string{"peers-unreachable", "route-table"}, Nodes: []string{"a", "b"}}}
	known := []doctor.Finding{
		{Check: "peers-unreachable", Severity: doctor.Warning, Object: "Node/a"},
		{Check: "peers-unreachable", Severity: doctor.Warning, Object: "Node/z"},
		{Check: "route-table", Severity: doctor.Error},
		{Check: "route-table", Severity: doctor.Info, What: "not checked"},
		{Check: "leader", Severity: doctor.Error},
	}
	if got := related(known, all); !slices.Equal(got, []doctor.Finding{known[0], known[2]}) {
		t.Errorf("%+v", got)
	}
}

func TestMistakesOfConnectivity(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--target=example.com:443", "write 203.0.113.7:443"},
		{"--target=203.0.113.7", "write 203.0.113.7:443"},
		{"--max-nodes=0", "give 1 to 250"},
		{"--settle=-1s", "not negative"},
		{"--settle=2m", "at most 1m"},
		{"--output=xml", "table, wide, json, yaml"},
		{"--kubeconfig=/nowhere/at/all", "/nowhere/at/all"},
		{"--kubeconfig=/nowhere/at/all clean", "/nowhere/at/all"},
		{"--max-node=3", "unknown flag"},
		{"worker-1", `unknown command "worker-1"`},
	} {
		out, errs, code := called(t, "underlayctl", append([]string{"connectivity"}, strings.Fields(c.args)...)...)
		if code != exitFailed || out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %d, %q, %q", c.args, code, out, errs)
		}
	}
}

// The ports of load balancers are tried from this machine, and those that can't be tried are
// reported.
func TestWhichLoadBalancersAreTried(t *testing.T) {
	service := func(name string, ports []corev1.ServicePort, at ...string) corev1.Service {
		s := corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: ports},
		}
		for _, a := range at {
			in := corev1.LoadBalancerIngress{IP: a}
			if _, err := netip.ParseAddr(a); err != nil {
				in = corev1.LoadBalancerIngress{Hostname: a}
			}
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, in)
		}
		return s
	}
	web := []corev1.ServicePort{{Port: 80}, {Port: 443, Protocol: corev1.ProtocolTCP}, {Port: 443, Protocol: corev1.ProtocolUDP}}
	inside := service("inside", web, "203.0.113.9")
	inside.Spec.Type = corev1.ServiceTypeClusterIP
	trials, notes := balancedTrials([]corev1.Service{
		service("web", web, "203.0.113.1", "2001:db8::1"), service("named", web, "lb.example"), service("dns", web, "203.0.113.2"), inside, service("waits", web),
	}, netip.Addr.Is4)
	var got []string
	for _, trial := range trials {
		got = append(got, fmt.Sprint(trial.Kind, " ", trial.From, " ", trial.To, " ", trial.At))
	}
	want := []string{
		"dial this machine default/dns 203.0.113.2:80", "dial this machine default/dns 203.0.113.2:443",
		"dial this machine default/web 203.0.113.1:80", "dial this machine default/web 203.0.113.1:443",
	}
	if !slices.Equal(got, want) {
		t.Errorf("tried are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(notes) != 2 || !strings.Contains(notes[0], "Service default/named") || !strings.Contains(notes[1], "over IPv6") {
		t.Errorf("the notes are %q", notes)
	}
}

// On a node kube-proxy replies for load balancers, and private ones need not be reachable.
func TestBalanced(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := netip.MustParseAddrPort(l.Addr().String())
	closed, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	shut := netip.MustParseAddrPort(closed.Addr().String())
	balancer := func(name string, at netip.AddrPort) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: int32(at.Port())}}},
			Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: at.Addr().String()}}}},
		}
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}}},
	}
	client := fake.NewClientset(node, balancer("open", at), balancer("shut", shut))
	everywhere := machine{routed: func(netip.Addr) bool { return true }}
	results, notes := balanced(t.Context(), client, everywhere, 0)
	if len(results) != 2 || results[0].Failure != "" || results[1].Failure != connectivity.Refused || len(notes) > 0 {
		t.Errorf("%+v, %q", results, notes)
	}
	r := connectivity.NewReport(nil, nil, results, 0)
	if len(r.Findings) != 1 || len(r.Findings[0].Nodes) > 0 || !strings.HasPrefix(r.Findings[0].What, "load balancers: closed over IPv4: this machine → default/shut at "+shut.String()) {
		t.Errorf("%+v", r.Findings)
	}
	on := machine{addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, routed: everywhere.routed}
	if results, notes := balanced(t.Context(), client, on, 0); len(results) > 0 || len(notes) != 1 || !strings.Contains(notes[0], "Node one") {
		t.Errorf("on a node: %+v, %q", results, notes)
	}
}
