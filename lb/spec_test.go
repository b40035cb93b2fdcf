package lb_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

func servers(targets []lb.Target) []int64 {
	var ids []int64
	for _, t := range targets {
		ids = append(ids, t.Server)
	}
	return ids
}

// nodesOf returns the nodes on these cloud servers.
func nodesOf(servers []int64) (nodes []lb.Node) {
	for _, id := range servers {
		nodes = append(nodes, lb.Node{Name: fmt.Sprint("node-", id), Server: id})
	}
	return nodes
}

func upTo(n int) []int64 {
	var ids []int64
	for i := range n {
		ids = append(ids, int64(i+1))
	}
	return ids
}

func TestFitKeepsExistingTargets(t *testing.T) {
	spec := lb.Spec{Type: "lb11"}.WithTargets(nodesOf(upTo(40)))
	first, notes := spec.Fit(lb.State{}, nil)
	if got := servers(first.Targets); !slices.Equal(got, upTo(25)) || len(notes) != 1 ||
		notes[0].Reason != lb.ReasonTargetsTruncated {
		t.Fatalf("new load balancer: targets %v, notes %v", got, notes)
	}
	if _, again := (lb.Spec{Type: "lb11"}).WithTargets(nodesOf(upTo(41))).Fit(lb.State{}, nil); again[0].String() != notes[0].String() || !strings.Contains(notes[0].Text, "25 nodes") {
		t.Errorf("the note is %v, and %v with one more node: want one text, with the limit", notes, again)
	}

	present := []lb.Target{{Server: 40}, {Server: 30}}
	second, _ := spec.Fit(lb.State{Targets: present, OtherTargets: 5}, nil)
	if got, want := servers(second.Targets), append(upTo(18), 30, 40); !slices.Equal(got, want) {
		t.Errorf("existing load balancer: targets %v, want %v", got, want)
	}
	if len(spec.Targets) != 40 {
		t.Error("Fit changed the spec it was given")
	}

	for _, c := range []lb.Spec{{Type: "lb99"}, {Type: "lb21"}} {
		if got, notes := c.WithTargets(nodesOf(upTo(40))).Fit(lb.State{}, nil); len(got.Targets) != 40 ||
			len(notes) != 0 {
			t.Errorf("%s: %d targets, notes %v", c.Type, len(got.Targets), notes)
		}
	}
	if got, _ := spec.Fit(lb.State{OtherTargets: 99}, nil); len(got.Targets) != 0 {
		t.Errorf("no room at all: %d targets", len(got.Targets))
	}
}

func TestWithTargets(t *testing.T) {
	got := lb.Spec{Targeting: lb.Targeting{UsePrivateIP: true}}.WithTargets(nodesOf([]int64{
		3, 1, 3, 2,
	})).Targets
	want := []lb.Target{
		{Server: 1, Private: true}, {Server: 2, Private: true}, {Server: 3, Private: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestIngress(t *testing.T) {
	v4, v6, private := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("10.0.0.2")
	have := lb.State{ID: 1, Public: true, IPv4: v4, IPv6: v6, Network: 7, PrivateIP: private}
	inside, nowhere := have, have
	inside.Public = false
	nowhere.Network, nowhere.PrivateIP, nowhere.IPv6 = 0, netip.Addr{}, netip.Addr{}
	all := lb.Publish{IPv6: true, Private: true}
	for _, c := range []struct {
		name    string
		publish lb.Publish
		have    lb.State
		want    string
	}{
		{"everything", all, have, "[203.0.113.1 2001:db8::1 10.0.0.2]"},
		{"no IPv6", lb.Publish{Private: true}, have, "[203.0.113.1 10.0.0.2]"},
		{"no private ingress", lb.Publish{IPv6: true}, have, "[203.0.113.1 2001:db8::1]"},
		{"not public", all, inside, "[10.0.0.2]"},
		{"not attached", all, nowhere, "[203.0.113.1]"},
		{"nothing there", all, lb.State{}, "[]"},
	} {
		if got := lb.Ingress(lb.Spec{Publish: c.publish}, c.have); fmt.Sprint(got) != c.want {
			t.Errorf("%s: got %v, want %s", c.name, got, c.want)
		}
	}
}

// misread returns the plan for a load balancer with an invalid Service.
func misread(have lb.State, nodes []lb.Node, excluded ...lb.Node) lb.Plan {
	have.ID = 1
	return lb.Input{Owner: owner, Have: have, Members: []lb.Member{{
		Spec: lb.Spec{Owner: owner, Targeting: lb.Targeting{Excluded: excluded}}, Standing: lb.Frozen,
		Nodes:   nodes,
		Service: lb.Service{Ports: []lb.Port{{Number: 80, Protocol: "TCP", NodePort: 30080}}},
	}}}.Plan()
}

func TestTargetsOfAMisreadService(t *testing.T) {
	for _, c := range []struct {
		name    string
		have    lb.State
		servers []int64
		want    string
	}{
		{"nothing to do", lb.State{Type: "lb11", Public: true, Targets: []lb.Target{{Server: 1}}}, []int64{1}, "[]"},
		{"one comes, one goes", lb.State{Type: "lb11", Public: true, Targets: []lb.Target{{Server: 1}, {Server: 2}}}, []int64{3, 2}, "[remove server 1 add server 3]"},
		{"private ones", lb.State{Type: "lb11", Public: true, Targets: []lb.Target{{Server: 1, Private: true}}}, []int64{1, 2}, "[add server 2 (private)]"},
		{"what is there keeps its address", lb.State{Type: "lb11", Public: true, Targets: []lb.Target{{Server: 1}, {Server: 2, Private: true}}}, []int64{1, 2}, "[]"},
		{"no public interface, no targets", lb.State{Type: "lb11"}, []int64{1}, "[add server 1 (private)]"},
		{"no room", lb.State{Type: "lb11", Public: true, OtherTargets: 24, Targets: []lb.Target{{Server: 9}}}, []int64{1, 9}, "[]"},
	} {
		c.have.Labels = owner.Labels()
		plan := misread(c.have, nodesOf(c.servers))
		if got := fmt.Sprint(plan.Ops); got != c.want || (len(plan.Notes) > 0) != (c.name == "no room") {
			t.Errorf("%s: got %s, notes %v; want %s", c.name, got, plan.Notes, c.want)
		}
	}
}

func TestServicesOfAState(t *testing.T) {
	s := lb.State{Labels: map[string]string{"underlay.dev/cluster": "demo", "underlay.dev/svc-u2": "", "underlay.dev/svc-u1": "", "team": "web"}}
	if got := s.Services(); !slices.Equal(got, []string{"u1", "u2"}) {
		t.Errorf("got %v", got)
	}
}

func TestOwns(t *testing.T) {
	for _, c := range []struct {
		labels map[string]string
		want   bool
	}{
		{owner.Labels(), true},
		{map[string]string{"underlay.dev/cluster": "demo", "underlay.dev/svc-u1": "", "team": "web"}, true},
		{map[string]string{"underlay.dev/cluster": "demo", "underlay.dev/svc-u2": ""}, false},
		{map[string]string{"underlay.dev/cluster": "other", "underlay.dev/svc-u1": ""}, false},
		{map[string]string{"underlay.dev/svc-u1": ""}, false},
		{nil, false},
	} {
		if got := owner.Owns(c.labels); got != c.want {
			t.Errorf("%v: got %t", c.labels, got)
		}
	}
}

func TestEveryOpHasItsKind(t *testing.T) {
	ops := []lb.Op{
		lb.Create{},
		lb.SetLabels{},
		lb.Rename{},
		lb.ChangeType{},
		lb.ChangeAlgorithm{},
		lb.SetPublicInterface{},
		lb.AttachNetwork{},
		lb.DetachNetwork{},
		lb.AddListener{},
		lb.UpdateListener{},
		lb.DeleteListener{},
		lb.AddTarget{},
		lb.RemoveTarget{},
		lb.Delete{},
	}
	kinds := make(map[string]bool)
	for _, op := range ops {
		kinds[lb.Kind(op)] = true
		if op.String() == "" || lb.Title(op) == "" {
			t.Errorf("%s prints nothing", reflect.TypeOf(op))
		}
	}
	if len(kinds) != len(ops) || kinds["unknown"] {
		t.Errorf("%d kinds of %d ops: %v", len(kinds), len(ops), kinds)
	}
}
