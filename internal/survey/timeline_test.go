package survey_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
)

func event(kind, namespace, name, reason string, ago time.Duration, count int32) *corev1.Event {
	e := &corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name},
		Reason:         reason, Message: "said so", Type: corev1.EventTypeWarning, Count: count,
		LastTimestamp: at(-ago), FirstTimestamp: at(-ago - time.Minute), Source: corev1.EventSource{Component: "underlay-ccm"},
	}
	return e
}

func timeLines(v table.Page) []string {
	var out []string
	for _, e := range v.Tables[1].Rows {
		mark := ""
		if e.Cells[2].Tone == table.Bad {
			mark = "!"
		}
		at, _ := time.Parse(time.RFC3339, e.Cells[0].Text)
		out = append(out, fmt.Sprintf("-%s%s %s: %s", now().Sub(at), mark, e.Cells[1].Text, e.Cells[2].Text))
	}
	return out
}

func factOf(v table.Page, name string) string {
	var values []string
	for _, f := range rows(v, "facts") {
		if f["FACT"] == name {
			values = append(values, f["VALUE"])
		}
	}
	return strings.Join(values, " | ")
}

func TestInspectNode(t *testing.T) {
	s := usual(t, 2)
	node := s.Nodes[0]
	node.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute, TimeAdded: ptrTime(-5 * time.Minute)}}
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	node.Status.Conditions[0].LastTransitionTime = at(-6 * time.Minute)
	setAt := at(-49 * time.Minute)
	node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "underlay-node-ipam", Time: &setAt, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:podCIDRs":{}}}`)}}
	s.Events = []*corev1.Event{
		event("Node", "", "node-0001", "RouteTableFull", 20*time.Minute, 3),
		event("Node", "", "node-0002", "Other", time.Minute, 1),
		event("Service", "default", "node-0001", "Other", time.Minute, 1),
	}
	v, err := survey.InspectNode(s, "node-0001")
	if err != nil {
		t.Fatal(err)
	}
	expectTexts(t, "timeline", timeLines(v),
		"-1h0m0s server: created",
		"-50m0s Node: created",
		"-49m0s podCIDRs: 10.244.1.0/24 written by underlay-node-ipam",
		"-49m0s condition: NetworkUnavailable=False RouteCreated",
		"-20m0s! Event: RouteTableFull: said so (underlay-ccm) (3 times since 2026-11-22T11:39:00Z)",
		"-6m0s! condition: Ready=Unknown KubeletReady",
		"-5m0s! taint: node.kubernetes.io/unreachable:NoExecute",
	)
	for name, want := range map[string]string{
		"podcidrs": "10.244.1.0/24", "route": "stands", "via": "10.0.0.2", "provider id": "hcloud://101",
		"ledger": "uid=uid-node-0001 id=hcloud://101 10.244.1.0/24@default-ipv4", "server": "node-0001 (running)", "type": "cx22 in fsn1",
	} {
		if got := factOf(v, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func ptrTime(d time.Duration) *metav1.Time {
	t := at(d)
	return &t
}

// A deleted Node can be inspected as long as the ledger has its entry.
func TestInspectNodeThatIsGone(t *testing.T) {
	s := usual(t, 2)
	release(s, "node-0002", 3*time.Minute)
	v, err := survey.InspectNode(s, "node-0002")
	if err != nil {
		t.Fatal(err)
	}
	expectTexts(t, "timeline", timeLines(v), "-3m0s ledger: Node with UID uid-node-0002 seen to be gone: 10.244.2.0/24 in quarantine")
	if !strings.Contains(factOf(v, "state"), "gone") {
		t.Errorf("facts %+v", rows(v, "facts"))
	}
	s.Ledger[0].Data["node-0009"] = "nonsense"
	if v, err = survey.InspectNode(s, "node-0002"); err != nil || len(v.NotSeen) != 1 || !strings.Contains(v.NotSeen[0], `key "node-0009"`) {
		t.Errorf("with a damaged ledger: %v, %q", err, v.NotSeen)
	}
	delete(s.Ledger[0].Data, "node-0002")
	if _, err := survey.InspectNode(s, "node-0002"); !errors.Is(err, survey.ErrNoObject) {
		t.Errorf("a Node that nobody knows: %v", err)
	}
}

func TestInspectService(t *testing.T) {
	s := balanced(t)
	s.LoadBalancers[0].Targets = s.LoadBalancers[0].Targets[:2]
	s.Events = []*corev1.Event{event("Service", "default", "web", "EnsuredLoadBalancer", 10*time.Minute, 1), event("Service", "other", "web", "Other", 0, 1)}
	v, err := survey.InspectService(s, types.NamespacedName{Namespace: "default", Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	expectTexts(t, "timeline", timeLines(v),
		"-30m0s Service: created",
		"-30m0s load balancer: created",
		"-29m0s condition: underlay.dev/Accepted=True Accepted",
		"-10m0s! Event: EnsuredLoadBalancer: said so (underlay-ccm)",
	)
	for name, want := range map[string]string{
		"operation": "add server 103 (private)", "listener": "80 → 30080 tcp", "check": "http :10256/healthz",
		"target": "node-0001 (private) | node-0002 (private)", "health": "healthy | healthy",
	} {
		if got := factOf(v, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	s.Services[0].Spec.Type = corev1.ServiceTypeClusterIP
	if v, err = survey.InspectService(s, types.NamespacedName{Namespace: "default", Name: "web"}); err != nil || !strings.HasPrefix(factOf(v, "served"), "not by Underlay") {
		t.Errorf("of another type: %v, %+v", err, rows(v, "facts"))
	}
	if _, err := survey.InspectService(s, types.NamespacedName{Namespace: "other", Name: "web"}); !errors.Is(err, survey.ErrNoObject) {
		t.Errorf("none of the name: %v", err)
	}
}

// Entries are in chronological order, whatever the order in which they were found.
func TestTimelineIsInOrder(t *testing.T) {
	s := usual(t, 1)
	for i := range 20 {
		s.Events = append(s.Events, event("Node", "", "node-0001", fmt.Sprint("Event", i), time.Duration(i*7%20)*time.Minute, 1))
	}
	v, err := survey.InspectNode(s, "node-0001")
	if err != nil || len(v.Tables[1].Rows) < 20 {
		t.Fatalf("%v, %d entries", err, len(v.Tables[1].Rows))
	}
	if !slices.IsSortedFunc(rows(v, "timeline"), func(a, b row) int { return strings.Compare(a["TIME"], b["TIME"]) }) {
		t.Errorf("not in order: %q", timeLines(v))
	}
}

func TestObjects(t *testing.T) {
	for _, about := range []string{"Node/", "Node", "Service/web", "Service//web", "Service/a/b/c", "routes/10.0.0.0/8", ""} {
		if _, _, err := survey.ParseObject(about); err == nil || !strings.Contains(err.Error(), "Node/NAME") {
			t.Errorf("%q: %v", about, err)
		}
	}
	for _, about := range []string{"Node/node-0001", "Service/default/web"} {
		want, of, err := survey.ParseObject(about)
		if err != nil {
			t.Fatal(err)
		}
		found, err := of(balanced(t))
		if err != nil || found.Tables[0].Title != about || len(found.Tables[1].Rows) == 0 {
			t.Errorf("%s: %v, %+v", about, err, found)
		}
		if (want.Node == "") == (want.Service.Name == "") {
			t.Errorf("%s: %+v", about, want)
		}
	}
}
