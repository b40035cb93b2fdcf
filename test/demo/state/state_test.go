package state_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/demo/state"
	"github.com/underlay-ccm/underlay/test/demo/state/statetest"
)

// observe passes the cluster's state at a number of seconds to a timeline, and returns its events,
// a line for each.
func observe(w *state.State, t *state.Timeline, seconds float64) []string {
	var lines []string
	now := statetest.Epoch().Add(time.Duration(seconds * float64(time.Second)))
	for _, e := range t.Observe(now, w.Facts()) {
		over := ""
		if e.Over {
			over = "!"
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s%s", e.Since, e.Subject, over, e.What))
	}
	return lines
}

func expect(t *testing.T, when string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", when, strings.Join(got, " | "), strings.Join(want, " | "))
	}
}

func TestTimelineOfAMachine(t *testing.T) {
	w, line := state.New(statetest.Layout()), state.NewTimeline()
	expect(t, "nothing yet", observe(w, line, 0))

	w.SetCloud(state.Cloud{Servers: []state.Server{statetest.Server(1)}})
	expect(t, "rented", observe(w, line, 1), "0s node-1: server")

	n := state.Node{Name: "node-1", Taints: []string{"a/uninitialized"}}
	w.SetNode(n)
	expect(t, "its time starts when it joins", observe(w, line, 2), "0s node-1: joined")

	n.Unavailable.Status = "True"
	w.SetNode(n)
	expect(t, "gated", observe(w, line, 2.5), "500ms node-1: NetworkUnavailable=True")

	w.SetNode(statetest.Node(1))
	w.SetCloud(state.Cloud{
		Servers: []state.Server{statetest.Server(1)}, Routes: []state.Route{statetest.Route(1)},
	})
	expect(t, "in the order of the milestones, and that a stage has passed is no news", observe(w, line, 3),
		"1s node-1: podCIDRs", "1s node-1: initialized", "1s node-1: NetworkUnavailable=False",
		"1s node-1: taints gone", "1s node-1: Ready", "1s node-1: route")
	expect(t, "what stays is no news", observe(w, line, 4))

	w.SetCloud(state.Cloud{Routes: []state.Route{statetest.Route(1)}})
	expect(t, "its time starts again when the server is deleted", observe(w, line, 10), "0s node-1: !server deleted in the cloud")

	w.RemoveNode("node-1")
	expect(t, "a route is told by who had the podCIDR", observe(w, line, 12), "2s node-1: !Node deleted")
	w.SetCloud(state.Cloud{})
	expect(t, "the end", observe(w, line, 13), "3s node-1: !route removed")

	if since, ok := line.Reached("node-1", state.Ready); !ok || since != time.Second {
		t.Errorf("Ready was reached: %t, after %s; want after 1s, also when it is gone", ok, since)
	}
}

func TestTimelineNeverGoesBack(t *testing.T) {
	w, line := state.New(statetest.Layout()), state.NewTimeline()
	w.SetNode(state.Node{Name: "node-1", Taints: []string{"x"}})
	observe(w, line, 2)
	n := state.Node{Name: "node-1", Taints: []string{"x"}}
	n.Ready.Status = "True"
	w.SetNode(n)
	expect(t, "seen earlier, told later", observe(w, line, 1), "0s node-1: Ready")
	line.Restart("node-1", statetest.Epoch().Add(4*time.Second))
	w.RemoveNode("node-1")
	expect(t, "after a restart", observe(w, line, 5), "1s node-1: !Node deleted")
}

func TestFactsAreNotGivenAway(t *testing.T) {
	whole := statetest.Node(1)
	tests := map[string]struct {
		spoil func(*state.Node, *state.Cloud)
		lacks []string
	}{
		"whole":         {spoil: func(*state.Node, *state.Cloud) {}},
		"one family":    {spoil: func(n *state.Node, _ *state.Cloud) { n.PodCIDRs = n.PodCIDRs[:1] }, lacks: []string{state.PodCIDRs}},
		"no labels":     {spoil: func(n *state.Node, _ *state.Cloud) { n.InstanceType = "" }, lacks: []string{state.Initialized}},
		"still tainted": {spoil: func(n *state.Node, _ *state.Cloud) { n.Taints = []string{"x"} }, lacks: []string{state.Untainted}},
		"uninitialized": {spoil: func(n *state.Node, _ *state.Cloud) {
			n.Taints = []string{"node.cloudprovider.kubernetes.io/uninitialized"}
		}, lacks: []string{state.Initialized, state.Untainted}},
		"unavailable":        {spoil: func(n *state.Node, _ *state.Cloud) { n.Unavailable.Status = "True" }, lacks: []string{state.Available}},
		"no route":           {spoil: func(_ *state.Node, c *state.Cloud) { c.Routes = nil }, lacks: []string{state.Routed}},
		"route to elsewhere": {spoil: func(_ *state.Node, c *state.Cloud) { c.Routes[0].Via = netip.MustParseAddr("10.0.0.99") }, lacks: []string{state.Routed}},
		"not ready":          {spoil: func(n *state.Node, _ *state.Cloud) { n.Ready.Status = "Unknown" }, lacks: []string{state.Ready}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, line := state.New(statetest.Layout()), state.NewTimeline()
			n, c := whole, state.Cloud{
				Servers: []state.Server{statetest.Server(1)}, Routes: []state.Route{statetest.Route(1)},
			}
			gated := n
			gated.Unavailable.Status = "True"
			w.SetNode(gated)
			observe(w, line, 0)
			test.spoil(&n, &c)
			w.SetNode(n)
			w.SetCloud(c)
			observe(w, line, 1)
			missing := w.Missing(line, state.Want{Machines: []string{"node-1"}})
			if len(test.lacks) == 0 {
				expect(t, "missing", missing)
				return
			}
			want := "node-1: " + strings.Join(test.lacks, ", ") + " ("
			if len(missing) != 1 || !strings.HasPrefix(missing[0], want) {
				t.Errorf("missing %q, want one line that begins with %q", missing, want)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	want := state.Want{Machines: []string{"node-1", "node-2"}, Service: "web", Foreign: statetest.Foreign(), Books: true}
	tests := map[string]struct {
		spoil func(*state.State)
		want  []string // beginnings
	}{
		"whole":               {spoil: func(*state.State) {}},
		"a Node too many":     {spoil: func(w *state.State) { w.SetNode(statetest.Node(3)) }, want: []string{"node-3: joined must go"}},
		"a Node too few":      {spoil: func(w *state.State) { w.RemoveNode("node-2") }, want: []string{"node-2: joined, podCIDRs, initialized, NetworkUnavailable=False, taints gone, Ready (there is no such Node)"}},
		"no Service":          {spoil: func(w *state.State) { w.RemoveService("web") }, want: []string{"web: Service, load balancer, listen port, health check, address, target node-1, node-1 healthy, target node-2, node-2 healthy"}},
		"no address":          {spoil: func(w *state.State) { s := statetest.Service(); s.Addresses = nil; w.SetService(s) }, want: []string{"web: address"}},
		"another's balancer":  {spoil: func(w *state.State) { w.Cloud.Balancers[0].Labels = nil }, want: []string{"web: load balancer, "}},
		"wrong NodePort":      {spoil: func(w *state.State) { w.Cloud.Balancers[0].Listeners[0].NodePort++ }, want: []string{"web: listen port"}},
		"check of a TCP port": {spoil: func(w *state.State) { w.Cloud.Balancers[0].Listeners[0].Check.Protocol = "tcp" }, want: []string{"web: health check"}},
		"check of any port":   {spoil: func(w *state.State) { w.Cloud.Balancers[0].Listeners[0].Check.Port++ }, want: []string{"web: health check"}},
		"unknown health":      {spoil: func(w *state.State) { w.Cloud.Balancers[0].Targets[1].Health = "unknown" }, want: []string{"web: node-2 healthy"}},
		"a target too many": {
			spoil: func(w *state.State) {
				w.Cloud.Balancers[0].Targets = append(w.Cloud.Balancers[0].Targets, state.Target{Server: 9})
			},
			want: []string{"web: target server 9 must go"},
		},
		"a route too many": {spoil: func(w *state.State) {
			w.SetNode(statetest.Node(3))
			w.RemoveNode("node-3")
			w.Cloud.Routes = append(w.Cloud.Routes, statetest.Route(3))
		}, want: []string{"node-3: route must go"}},
		"foreign route lost": {spoil: func(w *state.State) { w.Cloud.Routes = w.Cloud.Routes[1:] }, want: []string{"the route 192.168.178.0/24 via 10.0.0.250, which is somebody else's"}},
		"overlap": {
			spoil: func(w *state.State) {
				n := statetest.Node(2)
				n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix("10.244.1.128/25"))
				w.SetNode(n)
			},
			want: []string{"podCIDRs that do not overlap (10.244.1.0/24 of node-1, 10.244.1.128/25 of node-2)"},
		},
		"refused":         {spoil: func(w *state.State) { w.Requests[1].Refused = 2 }, want: []string{"no refused request (2 of GET /servers)"}},
		"no writes":       {spoil: func(w *state.State) { w.Writes = w.Writes[:1] }, want: []string{"writes to node-2 in the audit log"}},
		"too many writes": {spoil: func(w *state.State) { w.Writes[0].Routes = 3 }, want: []string{"at most 3 writes to node-1 by IPAM and routes (4)"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, line := statetest.State()
			test.spoil(w)
			missing := w.Missing(line, want)
			if len(missing) != len(test.want) {
				t.Fatalf("missing %q, want %q", missing, test.want)
			}
			for i, begin := range test.want {
				if !strings.HasPrefix(missing[i], begin) {
					t.Errorf("missing %q, want %q", missing[i], begin)
				}
			}
		})
	}
}

func TestBudget(t *testing.T) {
	w, _ := statetest.State()
	if got, want := w.Budget(), (state.Budget{Limit: 100, Ours: 2, Foreign: 1}); got != want ||
		got.Free() != 97 {
		t.Errorf("budget %+v with %d free, want %+v with 97", got, got.Free(), want)
	}
}
