package survey_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/survey"
)

// unsure is the note about a Node that is Ready and whose server doesn't exist.
const unsure = "the Node counts as Ready: if the server was deleted just now, it will not for longer than a minute, and the cloud controller manager then deletes it; else the provider ID is wrong"

// withoutServer is a cluster of three whose second Node's server was deleted.
func withoutServer(t *testing.T) (*survey.Snapshot, *corev1.Node) {
	t.Helper()
	s := usual(t, 3)
	s.Servers = slices.Delete(s.Servers, 1, 2)
	return s, s.Nodes[1]
}

func readiness(n *corev1.Node, status corev1.ConditionStatus, since time.Duration) {
	n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = status, at(-since)
}

func TestOutlookOfANodeWithoutAServer(t *testing.T) {
	uninitialized := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}
	// another server has the Node's name since that time.
	another := func(s *survey.Snapshot, since time.Duration) {
		again := s.Servers[0]
		again.ID, again.Name, again.PrivateIP, again.Created = 205, "node-0002", addr("10.0.0.99"), now().Add(-since)
		s.Servers = append(s.Servers, again)
	}
	for _, c := range []struct {
		name   string
		change func(*survey.Snapshot, *corev1.Node)
		want   survey.Outlook
		says   string
	}{
		{"nobody has noticed", func(*survey.Snapshot, *corev1.Node) {}, survey.Unsure, unsure},
		{"it is found to be silent", func(_ *survey.Snapshot, n *corev1.Node) { readiness(n, corev1.ConditionUnknown, time.Second) }, survey.Leaving, "deletes such Nodes"},
		{"it is not Ready", func(_ *survey.Snapshot, n *corev1.Node) { readiness(n, corev1.ConditionFalse, 299*time.Second) }, survey.Leaving, "deletes such Nodes"},
		{"it is not Ready for too long", func(_ *survey.Snapshot, n *corev1.Node) { readiness(n, corev1.ConditionUnknown, 5*time.Minute) }, survey.Overdue, "not Ready since 2026-11-22T11:55:00Z"},
		{"it never was Ready", func(_ *survey.Snapshot, n *corev1.Node) { n.Status.Conditions = nil }, survey.Overdue, "not Ready since 2026-11-22T11:10:00Z"},
		{"it has just joined", func(_ *survey.Snapshot, n *corev1.Node) {
			n.Status.Conditions, n.CreationTimestamp = nil, at(-time.Minute)
		}, survey.Leaving, "deletes such Nodes"},
		{"it is being deleted", func(_ *survey.Snapshot, n *corev1.Node) {
			readiness(n, corev1.ConditionUnknown, time.Hour)
			n.DeletionTimestamp = ptrTime(-time.Second)
		}, survey.Leaving, "is being deleted"},
		{"it was never initialized", func(_ *survey.Snapshot, n *corev1.Node) { n.Spec.Taints = []corev1.Taint{uninitialized} }, survey.Misnamed, "a provider ID that is not its server's"},
		{"it is not initialized yet", func(_ *survey.Snapshot, n *corev1.Node) {
			n.Spec.Taints, n.CreationTimestamp = []corev1.Taint{uninitialized}, at(-time.Minute)
		}, survey.Unsure, unsure},
		{"a server was made anew under its name", func(s *survey.Snapshot, _ *corev1.Node) { another(s, 5*time.Minute) }, survey.Misnamed, "server hcloud://205 has the Node's name since 2026-11-22T11:55:00Z"},
		{"a server is being made anew", func(s *survey.Snapshot, _ *corev1.Node) { another(s, time.Minute) }, survey.Unsure, unsure},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, n := withoutServer(t)
			c.change(s, n)
			absent, err := s.Absences()
			if err != nil || len(absent) != 1 {
				t.Fatalf("%v, %+v", err, absent)
			}
			a := absent["node-0002"]
			if a.Outlook != c.want || !strings.HasPrefix(a.Text, "no server has the ID 102 of its provider ID; ") || !strings.Contains(a.Text, c.says) {
				t.Errorf("%+v\nwant %s with %q", a, c.want, c.says)
			}
			if passes := c.want == survey.Leaving || c.want == survey.Unsure; a.Passes() != passes {
				t.Errorf("passes by itself: %t, want %t", a.Passes(), passes)
			}
		})
	}
}

// Only Nodes with a provider ID of the cloud can have a deleted server.
func TestNoOtherNodeIsAbsent(t *testing.T) {
	for name, change := range map[string]func(*survey.Snapshot, *corev1.Node){
		"a dedicated server":         func(_ *survey.Snapshot, n *corev1.Node) { n.Spec.ProviderID = "hrobot://4711" },
		"no provider ID yet":         func(_ *survey.Snapshot, n *corev1.Node) { n.Spec.ProviderID = "" },
		"a provider ID that is none": func(_ *survey.Snapshot, n *corev1.Node) { n.Spec.ProviderID = "hcloud://two" },
		"a server out of the network": func(s *survey.Snapshot, _ *corev1.Node) {
			s.Servers[1].PrivateIP, s.Nodes = netip.Addr{}, slices.Delete(s.Nodes, 1, 2)
		},
	} {
		s, n := withoutServer(t)
		change(s, n)
		if absent, err := s.Absences(); err != nil || len(absent) > 0 {
			t.Errorf("%s: %v, %+v", name, err, absent)
		}
	}
	s := usual(t, 3)
	s.Servers = nil
	if absent, err := s.Absences(); err == nil || len(absent) > 0 {
		t.Errorf("servers of another project: %v, %+v", err, absent)
	}
}

// A Node whose server is deleted is shown without one, and the actions of a missing server are not
// requested.
func TestInspectNodeWithoutAServer(t *testing.T) {
	s, _ := withoutServer(t)
	v, err := survey.InspectNode(s, "node-0002")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"server": "does not exist", "route": "stale",
		"why": "no server has the ID 102 of its provider ID; " + unsure,
	} {
		if got := factOf(v, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
