package webui_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/doctor"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
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

func viewOf(s *survey.Snapshot) *webui.View { return webui.ViewOf(survey.Live{Snapshot: s}) }

// part returns the part with an ID.
func part(t *testing.T, v *webui.View, id string) webui.Part {
	t.Helper()
	i := slices.IndexFunc(v.Parts, func(p webui.Part) bool { return p.ID == id })
	if i < 0 {
		t.Fatalf("there is no part %s", id)
	}
	return v.Parts[i]
}

// row returns the first row of a part about an object, as text.
func row(p webui.Part, about string) string {
	for _, t := range p.Tables {
		for _, r := range t.Rows {
			if r.About == about {
				var texts []string
				for _, c := range r.Cells {
					texts = append(texts, c.Text)
				}
				return strings.Join(texts, " ")
			}
		}
	}
	return ""
}

// The page has the tables of the commands, complete, and the object of each row.
func TestThePageShowsTheCommandsTables(t *testing.T) {
	s := eventful(t, 3)
	v := webui.ViewOf(survey.Live{Snapshot: s, Trouble: "it is away"})
	if v.Trouble != "it is away" || v.Cluster != "kubernetes on network cluster, 10.0.0.0/8" || !v.Taken.Equal(s.Taken) {
		t.Errorf("%q, %q, %s", v.Trouble, v.Cluster, v.Taken)
	}
	for _, c := range []struct {
		part, about string
		want        []string
	}{
		{"findings", "Service/games/lobby", []string{"error", "service-refused"}},
		{"nodes", "Node/worker-1", []string{"10.240.2.0/24", "stands", "hcloud://"}},
		{"nodes", "Node/worker-2", []string{"missing", "NoRouteCreated"}},
		{"nodes", "Node/worker-gone", []string{"11:58:30", "12:03:30"}},
		{"lb", "Service/shop/web", []string{"auidweb (700)", "192.0.2.7", "healthy"}},
		{"routes", "Node/worker-1", []string{"10.240.2.0/24", "ours"}},
		{"routes", "Node/worker-2", []string{"missing"}},
		{"routes", "routes/10.240.7.0/24", []string{"ambiguous"}},
		{"pools", "pools/default-ipv4", []string{"16", "12"}},
	} {
		got := row(part(t, v, c.part), c.about)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s is %q, and lacks %q", c.part, c.about, got, want)
			}
		}
	}
	if lines := part(t, v, "pools").Lines; len(lines) != 1 || lines[0] != "Room for 12 more Nodes." {
		t.Errorf("%q", lines)
	}
	if notes := part(t, v, "addresses").Notes; len(notes) != 1 || !strings.Contains(notes[0], "no pool of addresses") {
		t.Errorf("addresses: %q", notes)
	}
	for _, p := range v.Parts {
		for _, shown := range p.Tables {
			if slices.ContainsFunc(shown.Rows, func(r table.Row) bool {
				return r.Narrow || len(r.Cells) != len(shown.Columns)
			}) {
				t.Errorf("%s has rows for a narrow terminal, or of other columns", p.ID)
			}
		}
	}
}

// Unread parts are shown neither as healthy nor as missing.
func TestWithoutSight(t *testing.T) {
	s := eventful(t, 3)
	s.Parts &^= survey.Cloud
	s.Servers, s.Network, s.LoadBalancers = nil, nil, nil
	for _, part := range []survey.Part{
		survey.PartNetwork, survey.PartServers, survey.PartLoadBalancers,
	} {
		s.Gaps = append(s.Gaps, survey.Gap{Part: part, Reason: "there is no token for the cloud"})
	}
	v := viewOf(s)
	if len(v.NotSeen) != 1 || !strings.Contains(v.NotSeen[0], "there is no token") {
		t.Errorf("not seen: %q", v.NotSeen)
	}
	if got := row(part(t, v, "nodes"), "Node/worker-1"); !strings.Contains(got, survey.RouteNotSeen) {
		t.Errorf("the Node: %q", got)
	}
	if got := row(part(t, v, "lb"), "Service/shop/web"); !strings.Contains(got, "192.0.2.7") {
		t.Errorf("the Service: %q", got)
	}
	if notes := part(t, v, "routes").Notes; len(notes) != 1 || !strings.Contains(notes[0], "there is no token") {
		t.Errorf("routes: %q", notes)
	}
	other := eventful(t, 3)
	other.Servers = other.Servers[:0] // the token of another project
	v = viewOf(other)
	if text := strings.Join(append(part(t, v, "routes").Notes, v.NotSeen...), " "); !strings.Contains(text, "project") {
		t.Errorf("what is wrong with the token is not shown: %q", text)
	}
	nothing := viewOf(&survey.Snapshot{Gaps: []survey.Gap{{Part: survey.PartNodes, Reason: "no right"}}})
	if len(nothing.NotSeen) != 1 || len(nothing.Parts) != 6 {
		t.Errorf("%+v", nothing)
	}
	text, err := json.Marshal(nothing)
	if err != nil || strings.Contains(string(text), "null,") {
		t.Errorf("the page draws lists, and gets %s", text)
	}
}

// Skipped checks are one row for each reason.
func TestFindingsThatWereNotMade(t *testing.T) {
	s := eventful(t, 3)
	infos := 0
	for _, r := range part(t, viewOf(s), "findings").Tables[0].Rows {
		if r.Cells[0].Text == string(doctor.Info) {
			infos++
		}
	}
	if infos != 2 {
		t.Errorf("%d rows of checks that were not made", infos)
	}
}

func TestFind(t *testing.T) {
	v := viewOf(eventful(t, 100))
	for _, c := range []struct {
		text string
		all  int
		want string // the first hit, with the reason
	}{
		{"worker-42", 1, "Node/worker-42 worker-42"},
		{"WORKER-42 ", 1, "Node/worker-42 worker-42"},
		{"worker", 101, "Node/worker-1 worker-1"},
		// The pool contains it, too.
		{"10.240.45.9", 2, "Node/worker-42 10.240.45.0/24"},
		{"10.240.45.0/25", 2, "Node/worker-42 10.240.45.0/24"},
		{"fd00:10:244:2d::9", 2, "Node/worker-42 fd00:10:244:2d::/64"},
		{"10.0.0.46", 1, "Node/worker-42 10.0.0.46"},
		{"hcloud://145", 1, "Node/worker-42 hcloud://145"},
		{"192.0.2.7", 1, "Service/shop/web 192.0.2.7"},
		{"auidweb", 1, "Service/shop/web auidweb (700)"},
		{"192.168.178.77", 1, "routes/192.168.178.0/24 192.168.178.0/24"},
		{"10.240.102.0/24", 2, "Node/worker-gone 10.240.102.0/24"},
		{"203.0.113.1", 0, ""},
		{"nobody", 0, ""},
		{" ", 0, ""},
	} {
		hits, all := v.Find(c.text, 5)
		first := ""
		if len(hits) > 0 {
			first = hits[0].About + " " + hits[0].Why
		}
		if all != c.all || first != c.want || len(hits) != min(all, 5) {
			t.Errorf("%q: %d, %q, want %d, %q", c.text, all, first, c.all, c.want)
		}
	}
}
