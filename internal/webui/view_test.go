package webui_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/doctor"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/webui"
	"github.com/underlay-ccm/underlay/test/testenv/snapshots"
)

func eventful(t *testing.T, count int) *survey.Snapshot {
	t.Helper()
	s, err := snapshots.Eventful(count)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func machines(v webui.View) map[string]webui.Machine {
	out := map[string]webui.Machine{}
	for _, g := range v.Groups {
		for _, m := range g.Machines {
			out[m.Name] = m
		}
	}
	return out
}

func ago(d time.Duration) metav1.Time { return metav1.NewTime(snapshots.Now().Add(-d)) }

// How a Node fares, by what is known of it. Its condition 0 is Ready, 1 is
// NetworkUnavailable.
func TestHowANodeFares(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(*survey.Snapshot, *corev1.Node)
		tone  webui.Tone
		state string
	}{
		{"all is well", func(*survey.Snapshot, *corev1.Node) {}, webui.OK, "serves"},
		{"cordoned", func(_ *survey.Snapshot, n *corev1.Node) { n.Spec.Unschedulable = true }, webui.OK, "cordoned"},
		{"not Ready", func(_ *survey.Snapshot, n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, webui.Bad, "not Ready"},
		{"young and not Ready", func(_ *survey.Snapshot, n *corev1.Node) {
			n.CreationTimestamp, n.Status.Conditions[0].Status = ago(time.Second), corev1.ConditionFalse
		}, webui.Waits, "not Ready"},
		{"without podCIDRs", func(_ *survey.Snapshot, n *corev1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "", nil }, webui.Bad, "without podCIDRs"},
		{"its route is gone", func(s *survey.Snapshot, _ *corev1.Node) { s.Network.Routes = s.Network.Routes[:2] }, webui.Bad, "route missing"},
		{"NetworkUnavailable", func(_ *survey.Snapshot, n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionTrue }, webui.Bad, "network unavailable"},
		{"being deleted", func(_ *survey.Snapshot, n *corev1.Node) { n.DeletionTimestamp = new(ago(time.Second)) }, webui.Waits, "being deleted"},
		{"peers are far", func(_ *survey.Snapshot, n *corev1.Node) { n.Status.Conditions[2].Status = corev1.ConditionFalse }, webui.Bad, "has trouble"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := snapshots.Healthy(3)
			if err != nil {
				t.Fatal(err)
			}
			c.do(s, s.Node("worker-2"))
			v := webui.ViewOf(s)
			m := machines(v)
			if got := m["worker-2"]; got.Tone != c.tone || got.State != c.state {
				t.Errorf("%s, %s, want %s, %s: %q", got.Tone, got.State, c.tone, c.state, got.Why)
			}
			if other := m["worker-1"]; other.Tone != webui.OK {
				t.Errorf("another Node: %+v", other)
			}
		})
	}
}

func TestWhatHappens(t *testing.T) {
	v := webui.ViewOf(eventful(t, 3))
	var got []string
	for _, m := range v.Groups[0].Machines {
		got = append(got, fmt.Sprintf("%s %s %s %d ranges", m.Name, m.Tone, m.State, len(m.Ranges)))
	}
	expect(t, got, []string{
		"control-1 ok serves 2 ranges", "worker-1 ok serves 2 ranges", "worker-2 bad network unavailable 2 ranges",
		"worker-new wait not initialized yet 0 ranges", "worker-gone off gone 2 ranges",
	})
	if why := v.Groups[0].Machines[4].Why[0]; !strings.Contains(why, "11:58:30") || !strings.Contains(why, "free again at 12:03:30") {
		t.Errorf("quarantine: %q", why)
	}
	got = nil
	for _, s := range v.Services {
		got = append(got, fmt.Sprintf("%s %s %s, %d targets", s.Name, s.Tone, s.State, len(s.Targets)))
	}
	expect(t, got, []string{
		"games/lobby bad not accepted, 0 targets", "mail/smtp wait waits for its load balancer, 0 targets",
		"shop/api wait 2 of 3 targets healthy, 3 targets", "shop/web ok 3 targets healthy, 3 targets",
	})
	got = nil
	for _, r := range v.Table.Routes {
		got = append(got, fmt.Sprintf("%s %s %s %q", r.Destination, r.Whose, r.Tone, r.Node))
	}
	expect(t, got, []string{
		`10.240.7.0/24 ambiguous bad ""`, `10.240.3.0/24 missing wait "node/worker-2"`, `192.168.178.0/24 foreign off ""`,
		`10.240.1.0/24 ours ok "node/control-1"`, `10.240.2.0/24 ours ok "node/worker-1"`,
	})
	want := webui.Counts{Machines: 4, Waiting: 1, Failing: 1, Services: 4, Unserved: 3, Errors: 1, Warnings: 2}
	if v.Counts != want {
		t.Errorf("counts %+v, want %+v", v.Counts, want)
	}
	if v.Room != "room for 12 more Nodes" || v.Cluster != "kubernetes on network cluster, 10.0.0.0/8" {
		t.Errorf("%q, %q", v.Room, v.Cluster)
	}
}

func expect(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestManyAreFolded(t *testing.T) {
	for _, c := range []struct {
		count int
		want  []string
	}{
		{3, []string{"All 5 false"}},
		{22, []string{"All 24 false"}},
		{23, []string{"Need attention 2 false", "In fsn1 7 true", "In hel1 7 true", "In nbg1 8 true", "Gone, podCIDRs in quarantine 1 false"}},
		{500, []string{"Need attention 2 false", "In fsn1 166 true", "In hel1 166 true", "In nbg1 167 true", "Gone, podCIDRs in quarantine 1 false"}},
	} {
		v := webui.ViewOf(eventful(t, c.count))
		var got []string
		for _, g := range v.Groups {
			got = append(got, fmt.Sprintf("%s %d %t", g.Title, len(g.Machines), g.Folded))
		}
		expect(t, got, c.want)
		if len(machines(v)) != c.count+2 {
			t.Errorf("%d machines are in the groups of %d", len(machines(v)), c.count)
		}
		if ours := c.count - 1; ours > 24 && (v.Table.Folded != ours || len(v.Table.Routes) != 3) || ours <= 24 && v.Table.Folded != 0 {
			t.Errorf("%d routes are folded, %d are shown", v.Table.Folded, len(v.Table.Routes))
		}
	}
}

// Where locations tell nothing apart, names do.
func TestMachinesInOnePlaceAreGroupedByName(t *testing.T) {
	s, err := snapshots.Healthy(60)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Servers {
		s.Servers[i].Location = "fsn1"
	}
	var got []string
	for _, g := range webui.ViewOf(s).Groups {
		got = append(got, fmt.Sprintf("%s %d", g.Title, len(g.Machines)))
	}
	expect(t, got, []string{"control-… 3", "worker-… 57"})
}

func TestBars(t *testing.T) {
	v := webui.ViewOf(eventful(t, 3))
	got := []string{}
	for _, b := range append(v.Pools, *v.Table.Budget) {
		line := fmt.Sprintf("%s %s, %s:", b.Name, b.State, b.Tone)
		sum := 0.0
		for _, p := range b.Parts {
			line += fmt.Sprintf(" %s %s", p.Count, p.Kind)
			sum += p.Share
		}
		if sum < 0.99 || sum > 1.01 {
			t.Errorf("%s: the shares sum up to %f", b.Name, sum)
		}
		got = append(got, line)
	}
	expect(t, got, []string{
		"default-ipv4 12 of 16 free, ok: 3 used 1 quarantined 12 free",
		"default-ipv6 12 of 16 free, ok: 3 used 1 quarantined 12 free",
		"Routes 4 of 100, ok: 2 ours 1 ambiguous 1 foreign 96 free",
	})
	if full := webui.ViewOf(eventful(t, 500)).Table.Budget; full.Tone != webui.Waits {
		t.Errorf("a table that is nearly full: %+v", full)
	}
}

// What is not seen is neither healthy nor missing.
func TestWithoutSight(t *testing.T) {
	s := eventful(t, 3)
	s.Parts &^= survey.Cloud
	s.Servers, s.Network, s.LoadBalancers = nil, nil, nil
	for _, part := range []survey.Part{survey.PartNetwork, survey.PartServers, survey.PartLoadBalancers} {
		s.Gaps = append(s.Gaps, survey.Gap{Part: part, Reason: "there is no token for the cloud"})
	}
	v := webui.ViewOf(s)
	if len(v.NotSeen) != 1 || !strings.Contains(v.NotSeen[0], "there is no token") {
		t.Errorf("not seen: %q", v.NotSeen)
	}
	if m := machines(v)["worker-1"]; m.Tone != webui.OK || m.Ranges[0].Tone != webui.Unknown {
		t.Errorf("%+v", m)
	}
	for _, svc := range v.Services {
		if svc.Name == "shop/web" && (svc.Tone != webui.Unknown || svc.Addresses[0] != "192.0.2.7") {
			t.Errorf("%+v", svc)
		}
	}
	other := eventful(t, 3)
	other.Servers = other.Servers[:0] // the token of another project
	other.Gaps = []survey.Gap{{Part: survey.PartEvents, Reason: "no right"}}
	if v := webui.ViewOf(other); !strings.Contains(strings.Join(append(v.Table.Notes, v.NotSeen...), " "), "project") {
		t.Errorf("what is wrong with the token is not said: %q, %q, %q", v.Table.Notes, v.Notes, v.NotSeen)
	}
	nothing := webui.ViewOf(&survey.Snapshot{Gaps: []survey.Gap{{Part: survey.PartNodes, Reason: "no right"}}})
	if len(nothing.NotSeen) != 1 || len(nothing.Groups)+len(nothing.Services) > 0 {
		t.Errorf("%+v", nothing)
	}
	text, err := json.Marshal(nothing)
	if err != nil || strings.Contains(string(text), "null,") {
		t.Errorf("the page draws lists, and gets %s", text)
	}
}

// Findings lead to what they are about, and checks that were not made are one row for
// each reason.
func TestFindings(t *testing.T) {
	s := eventful(t, 3)
	v := webui.ViewOf(s)
	leads, infos := map[string]bool{}, 0
	for _, f := range v.Findings {
		leads[f.ID] = true
		if f.Severity == string(doctor.Info) {
			infos++
		}
	}
	if !leads["service/games/lobby"] || !leads["service/shop/api"] || infos != 2 {
		t.Errorf("%d infos, leads to %v", infos, leads)
	}
	unmade, named := 0, 0
	for _, f := range doctor.Examine(s) {
		if f.Severity != doctor.Info {
			continue
		}
		unmade++
		if slices.ContainsFunc(v.Findings, func(row webui.Finding) bool { return strings.Contains(row.What, f.Check) }) {
			named++
		}
	}
	if unmade == 0 || unmade != named {
		t.Errorf("%d checks were not made, %d are named", unmade, named)
	}
}

func TestFind(t *testing.T) {
	v := webui.ViewOf(eventful(t, 100))
	for _, c := range []struct {
		text string
		all  int
		want string // the first hit, with why
	}{
		{"worker-42", 1, "node/worker-42 serves"},
		{"WORKER-42 ", 1, "node/worker-42 serves"},
		{"worker", 99, "node/worker-97 network unavailable"},
		{"10.240.45.9", 1, "node/worker-42 podCIDR 10.240.45.0/24"},
		{"10.240.45.0/24", 1, "node/worker-42 podCIDR 10.240.45.0/24"},
		{"10.240.45.0/25", 1, "node/worker-42 podCIDR 10.240.45.0/24"},
		{"fd00:10:244:2d::9", 1, "node/worker-42 podCIDR fd00:10:244:2d::/64"},
		{"10.0.0.46", 1, "node/worker-42 address 10.0.0.46"},
		{"hcloud://145", 1, "node/worker-42 hcloud://145"},
		{"192.0.2.7", 1, "service/shop/web address 192.0.2.7"},
		{"192.0.2.0/24", 2, "service/shop/api address 192.0.2.8"},
		{"auidweb", 1, "service/shop/web load balancer auidweb (700), lb11 in fsn1"},
		{"192.168.178.77", 1, "route/192.168.178.0/24 10.0.255.250 foreign route to at no server of the network"},
		{"10.240.102.0/24", 1, "node/worker-gone podCIDR 10.240.102.0/24"},
		{"203.0.113.1", 0, ""},
		{"nobody", 0, ""},
		{" ", 0, ""},
	} {
		hits, all := v.Find(c.text, 5)
		first := ""
		if len(hits) > 0 {
			first = hits[0].ID + " " + hits[0].Why
		}
		if all != c.all || first != c.want || len(hits) != min(all, 5) {
			t.Errorf("%q: %d, %q, want %d, %q", c.text, all, first, c.all, c.want)
		}
	}
}

func TestSubjects(t *testing.T) {
	for _, id := range []string{"node/", "node", "service/web", "service//web", "service/a/b/c", "route/10.0.0.0/8 10.0.0.1", ""} {
		if _, err := webui.ParseSubject(id); err == nil || !strings.Contains(err.Error(), "node/NAME") {
			t.Errorf("%q: %v", id, err)
		}
	}
	for id, want := range map[string]string{"node/worker-1": "Node/worker-1", "service/shop/web": "Service/shop/web"} {
		x, err := webui.ParseSubject(id)
		if err != nil {
			t.Fatal(err)
		}
		told, err := x.Inspect(eventful(t, 3))
		if err != nil || told.Object != want || len(told.Timeline) == 0 {
			t.Errorf("%s: %v, %+v", id, err, told)
		}
		if want := x.Want(); want.Parts&survey.PartActions == 0 || (want.Node == "") == (want.Service.Name == "") {
			t.Errorf("%s: %+v", id, want)
		}
	}
	former, err := webui.ParseSubject("node/worker-1/uid-7")
	if err != nil {
		t.Fatal(err)
	}
	told, err := former.Inspect(eventful(t, 3))
	if err != nil || told.Facts[0].Name != "asked for" || !strings.Contains(told.Facts[0].Value, "UID uid-7; other Nodes have or had its name") {
		t.Errorf("a former Node: %v, %+v", err, told.Facts)
	}
}
