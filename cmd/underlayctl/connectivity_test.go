package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/underlay-ccm/underlay/internal/connectivity"
)

// trialsBetween are the results between all nodes, modified by change.
func trialsBetween(
	nodes []string, change func(*connectivity.Result),
) (results []connectivity.Result) {
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
		}
	})
	untried := []connectivity.Untried{{Node: "worker-3", Reason: "the Node is not Ready"}}
	return tried{connectivity.NewReport(nodes, untried, results), []string{"2 of 3 nodes are tried"}}
}

// manyOpen has too many nodes for a matrix.
func manyOpen() tried {
	var nodes []string
	for i := range widest + 1 {
		nodes = append(nodes, fmt.Sprintf("worker-%02d", i))
	}
	return tried{
		Report: connectivity.NewReport(nodes, nil, trialsBetween(nodes, func(*connectivity.Result) {})),
	}
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
		"all is open":          {connectivity.NewReport(nodes, nil, open), 0},
		"something is closed":  {connectivity.NewReport(nodes, nil, closed), connectivity.SomethingClosed},
		"something is untried": {connectivity.NewReport(nodes, untried, open), connectivity.NotTried},
		"both":                 {connectivity.NewReport(nodes, untried, closed), connectivity.SomethingClosed},
		"nothing was tried":    {connectivity.NewReport(nil, nil, nil), connectivity.NotTried},
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
	node := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.NodeSpec{Unschedulable: true}, // doesn't exclude it
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
			},
		}
	}
	client := fake.NewClientset(
		node("d", corev1.ConditionTrue), node("a", corev1.ConditionTrue), node("c", corev1.ConditionUnknown),
		node("b", corev1.ConditionTrue))
	for name, c := range map[string]struct {
		trying         trying
		want, untried  string
		notes, refusal string
	}{
		"all":          {trying{most: 9}, "a b d", "c", "", ""},
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
