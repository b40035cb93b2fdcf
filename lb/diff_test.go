package lb_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

var owner = lb.Owner{Cluster: "demo", UID: "u1"}

// differences compares a load balancer with the spec, independently of Diff.
func differences(want lb.Spec, before, got lb.State) []string {
	var d []string
	differ := func(what string, got, want any) {
		if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
			d = append(d, fmt.Sprintf("%s is %s, want %s", what, g, w))
		}
	}
	differ("name", got.Name, want.Name)
	labels := maps.Clone(before.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, want.Owner.Labels())
	differ("labels", got.Labels, labels)
	differ("type", got.Type, want.Type)
	differ("algorithm", got.Algorithm, want.Algorithm)
	differ("public", got.Public, want.Public)
	if want.Network != 0 {
		differ("network", got.Network, want.Network)
	} else {
		differ("network", got.Network, before.Network)
	}
	differ("listeners", got.Listeners, append([]lb.Listener{}, want.Listeners...))
	differ("targets", got.Targets, append([]lb.Target{}, want.Targets...))
	differ("targets of others", got.OtherTargets, before.OtherTargets)
	return d
}

var types = []string{"lb11", "lb21", "lb31", "lb99"}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func randomListeners(r *rand.Rand, most int) []lb.Listener {
	listeners := []lb.Listener{}
	for port := 1; port <= 9 && len(listeners) < most; port++ {
		if r.IntN(2) == 0 {
			continue
		}
		l := lb.Listener{Port: port, DestinationPort: 30000 + r.IntN(2), Protocol: "tcp", ProxyProtocol: r.IntN(2) == 0}
		l.Check = lb.HealthCheck{Protocol: pick(r, "tcp", "http"), Port: 10256, Interval: seconds(3 + r.IntN(2)), Timeout: seconds(5), Retries: 3}
		listeners = append(listeners, l)
	}
	return listeners
}

func randomServers(r *rand.Rand, most int) []int64 {
	ids := r.Perm(30)[:r.IntN(min(most, 30)+1)]
	slices.Sort(ids)
	servers := make([]int64, len(ids))
	for i, id := range ids {
		servers[i] = int64(100 + id)
	}
	return servers
}

// dedicatedNodes returns a fixed list of nodes on dedicated servers: with both addresses, or one.
func dedicatedNodes() (nodes []lb.Node) {
	for i := range byte(12) {
		n := lb.Node{Name: fmt.Sprint("dedicated-", i)}
		if i%4 != 1 {
			n.Private = netip.AddrFrom4([4]byte{10, 1, 0, 10 + i})
		}
		if i%4 != 2 {
			n.Public = netip.AddrFrom4([4]byte{203, 0, 113, 10 + i})
		}
		if i == 7 {
			n.Public = netip.MustParseAddr("2001:db8:7::2")
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// randomNodes returns nodes on servers of both kinds.
func randomNodes(r *rand.Rand, most int) []lb.Node {
	nodes, all := nodesOf(randomServers(r, most)), dedicatedNodes()
	for _, i := range r.Perm(len(all))[:r.IntN(len(all)+1)] {
		if len(nodes) < most {
			nodes = append(nodes, all[i])
		}
	}
	return nodes
}

func room(typ string) lb.Limits {
	if l := lb.LimitsOf(typ); l.Listeners <= 30 {
		return l
	}
	return lb.Limits{Listeners: 9, Targets: 30}
}

func randomSpec(r *rand.Rand) lb.Spec {
	s := lb.Spec{
		Owner: owner, Name: pick(r, "a", "b"), Type: pick(r, types...), Location: "fsn1",
		Algorithm: pick(r, lb.RoundRobin, lb.LeastConnections), Network: int64(r.IntN(3)), Public: true,
	}
	if s.Network != 0 {
		s.UsePrivateIP = r.IntN(2) == 0
		s.Public = !s.UsePrivateIP || r.IntN(2) == 0
	}
	s.Listeners = randomListeners(r, room(s.Type).Listeners)
	return s.WithTargets(randomNodes(r, room(s.Type).Targets))
}

// randomState returns a load balancer that the cloud allows, with random manual changes.
func randomState(r *rand.Rand) lb.State {
	s := lb.State{
		ID: 9, Name: pick(r, "a", "c"), Type: pick(r, types...), Location: "fsn1", NetworkZone: "eu-central",
		Algorithm: pick(r, lb.RoundRobin, lb.LeastConnections), Network: int64(r.IntN(3)), Public: true,
		Labels: pick(r, owner.Labels(), map[string]string{}, map[string]string{"team": "web", lb.LabelCluster: "wrong"}),
	}
	if s.Network != 0 {
		s.Public = r.IntN(2) == 0
	}
	s.Listeners = randomListeners(r, room(s.Type).Listeners)
	for _, id := range randomServers(r, room(s.Type).Targets) {
		private := !s.Public || s.Network != 0 && r.IntN(2) == 0
		s.Targets = append(s.Targets, lb.Target{Server: id, Private: private})
	}
	for _, n := range dedicatedNodes() {
		for _, target := range n.Targets() {
			reached := target.Private && s.Network != 0 || !target.Private && s.Public
			if reached && r.IntN(3) == 0 && len(s.Targets) < room(s.Type).Targets {
				s.Targets = append(s.Targets, target)
			}
		}
	}
	slices.SortFunc(s.Targets, lb.Target.Compare)
	return s
}

func TestApplyOfDiffIsTheSpec(t *testing.T) {
	for seed := range uint64(5_000) {
		r := rand.New(rand.NewPCG(seed, 0))
		want, have := randomSpec(r), randomState(r)
		if r.IntN(10) == 0 {
			have = lb.State{}
		}
		got, err := settle(have, want)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if d := differences(want, have, got); len(d) > 0 {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(d, "\n"))
		}
		if again := lb.Diff(want, got); len(again) > 0 {
			t.Fatalf("seed %d: a load balancer as wanted still gets %v", seed, again)
		}
	}
}

func TestAnyOrderOfEditsEndsTheSame(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		specs := []lb.Spec{randomSpec(r), randomSpec(r), randomSpec(r)}
		last := randomSpec(r)
		if last.Network == 0 {
			last.Network = 1 // without an opinion on the network, the former one is kept
		}
		fresh, err := apply(lb.State{}, lb.Diff(last, lb.State{}))
		if err != nil {
			t.Fatal(err)
		}
		have := lb.State{}
		for _, i := range r.Perm(len(specs)) {
			if have, err = settle(have, specs[i]); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if have, err = settle(have, last); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		have.ID, have.IPv4, have.IPv6, have.PrivateIP = fresh.ID, fresh.IPv4, fresh.IPv6, fresh.PrivateIP
		if got, want := fmt.Sprintf("%+v", have), fmt.Sprintf("%+v", fresh); got != want {
			t.Fatalf("seed %d:\n got %s\nwant %s", seed, got, want)
		}
	}
}

// A plan does not depend on the order of the cloud's lists.
func TestDiffIsSorted(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		want, have := randomSpec(r), randomState(r)
		plan := fmt.Sprint(lb.Diff(want, have))
		r.Shuffle(len(have.Listeners), func(i, j int) {
			have.Listeners[i], have.Listeners[j] = have.Listeners[j], have.Listeners[i]
		})
		r.Shuffle(len(have.Targets), func(i, j int) {
			have.Targets[i], have.Targets[j] = have.Targets[j], have.Targets[i]
		})
		if shuffled := fmt.Sprint(lb.Diff(want, have)); shuffled != plan {
			t.Fatalf("seed %d:\n%s\n%s", seed, plan, shuffled)
		}
	}
}

func TestDiffCases(t *testing.T) {
	base := lb.Spec{
		Owner: owner, Name: "web", Type: "lb11", Location: "fsn1", Algorithm: lb.RoundRobin, Public: true, Network: 1,
		Listeners: []lb.Listener{{Port: 80, DestinationPort: 30080, Protocol: "tcp"}, {Port: 443, DestinationPort: 30443, Protocol: "tcp"}},
	}
	base = base.WithTargets(nodesOf([]int64{11, 12}))
	have, err := apply(lb.State{}, lb.Diff(base, lb.State{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		want func(*lb.Spec)
		have func(*lb.State)
		plan string
	}{
		{name: "nothing", plan: "[]"},
		{
			name: "private targets, one after the other", want: func(s *lb.Spec) { s.UsePrivateIP = true; *s = s.WithTargets(nodesOf([]int64{11, 12})) },
			plan: "[replace server 11 by server 11 (private) replace server 12 by server 12 (private)]",
		},
		{
			name: "another network", want: func(s *lb.Spec) { s.Network = 2; s.UsePrivateIP = true; *s = s.WithTargets(nodesOf([]int64{11, 12})) },
			have: func(s *lb.State) {
				s.Targets = []lb.Target{{Server: 11, Private: true}, {Server: 12, Private: true}}
			},
			plan: "[move from network 1: attach to network 2 add server 11 (private) add server 12 (private)]",
		},
		{
			name: "no network configured", want: func(s *lb.Spec) { s.Network = 0 }, plan: "[]",
		},
		{
			name: "labels of others stay", have: func(s *lb.State) { s.Labels = map[string]string{"team": "web"} },
			plan: "[set 3 labels]",
		},
		{
			name: "smaller", want: func(s *lb.Spec) { *s = s.WithTargets(nodesOf([]int64{12})) }, have: func(s *lb.State) { s.Type = "lb21" },
			plan: "[remove server 11 change type to lb11]",
		},
		{
			name: "larger", want: func(s *lb.Spec) { s.Type = "lb31"; *s = s.WithTargets(nodesOf([]int64{12, 13})) },
			plan: "[remove server 11 change type to lb31 add server 13]",
		},
		{
			name: "a check edited by hand", have: func(s *lb.State) { s.Listeners[1].Check.Domain = "example.com" },
			plan: "[update listener 443 → 30443,  :0 every 0s, timeout 0s, 0 tries]",
		},
		{
			name: "one port for another", want: func(s *lb.Spec) { s.Listeners = s.Listeners[:1]; s.Listeners[0].DestinationPort = 1 },
			plan: "[delete listener 443 update listener 80 → 1,  :0 every 0s, timeout 0s, 0 tries]",
		},
		{
			name: "targets of others", have: func(s *lb.State) { s.OtherTargets = 3 }, plan: "[]",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, have := base, have
			want.Listeners, have.Listeners = slices.Clone(want.Listeners), slices.Clone(have.Listeners)
			if c.want != nil {
				c.want(&want)
			}
			if c.have != nil {
				c.have(&have)
			}
			if got := fmt.Sprint(lb.Diff(want, have)); got != c.plan {
				t.Errorf("\n got %s\nwant %s", got, c.plan)
			}
		})
	}
}

func TestImmovable(t *testing.T) {
	have := lb.State{ID: 1, Name: "web", Location: "fsn1", NetworkZone: "eu-central"}
	for _, c := range []struct {
		spec  lb.Spec
		field string
	}{
		{spec: lb.Spec{Location: "fsn1"}},
		{spec: lb.Spec{NetworkZone: "eu-central"}},
		{spec: lb.Spec{Location: "nbg1"}, field: lb.AnnotationLocation},
		{spec: lb.Spec{NetworkZone: "us-east"}, field: lb.AnnotationNetworkZone},
	} {
		if notes := lb.Immovable(c.spec, have); len(notes) != 0 {
			t.Errorf("%+v by default: got %v, want nothing", c.spec, notes)
		}
		c.spec.Takeover.Annotated.Place = true
		notes := lb.Immovable(c.spec, have)
		if c.field == "" && len(notes) != 0 || c.field != "" && (len(notes) != 1 || notes[0].Field != c.field) {
			t.Errorf("%+v: got %v, want a note about %q", c.spec, notes, c.field)
		}
		if len(lb.Immovable(c.spec, lb.State{})) != 0 {
			t.Errorf("%+v: a load balancer that is yet to be created can be anywhere", c.spec)
		}
	}
}
