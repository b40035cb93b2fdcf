package lb_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// at returns the target of an address.
func at(address string) lb.Target { return lb.AddressTarget(netip.MustParseAddr(address)) }

// dedicated returns a node on a dedicated server, with the addresses that are not empty.
func dedicated(private, public string) lb.Node {
	n := lb.Node{Name: "bare"}
	n.Private, _ = netip.ParseAddr(private)
	n.Public, _ = netip.ParseAddr(public)
	return n
}

func removes(want lb.Spec, have lb.State, t lb.Target) bool {
	return slices.Contains(lb.Diff(want, have), lb.Op(lb.RemoveTarget{Target: t}))
}

// A node without an address of the wanted kind stays a target at its other address, which may be
// the only healthy target; also after the takeover, and if the Service is refused. While a node has
// no address at all, each unknown address may be its own.
func TestUnaddressedNodesStayTargets(t *testing.T) {
	cloud, public, private := lb.Node{Name: "cloud-1", Server: 11}, "203.0.113.5", "10.1.0.5"
	for _, c := range []struct {
		name    string
		private bool // use-private-ip
		node    lb.Node
		have    string
		stays   bool
		noted   bool
	}{
		{"no address in the network, and a target at its public one", true, dedicated("", public), public, true, true},
		{"no public address, and a target in the network", false, dedicated(private, ""), private, true, true},
		{"no address in the network, and an address of nobody is a target", true, dedicated("", public), "203.0.113.99", true, true},
		{"no address at all", false, lb.Node{Name: "bare"}, public, true, true},
		{"no address at all, and targets are reached in the network", true, lb.Node{Name: "bare"}, private, true, true},
		{"an excluded node's address", false, lb.Node{Name: "bare"}, "203.0.113.7", false, true},
		{"an address of nobody, and all have theirs", false, dedicated(private, public), "203.0.113.99", false, false},
	} {
		other := at(c.have)
		server := lb.Target{Server: 11, Private: c.private}
		spec := lb.Spec{Owner: owner, Type: "lb11", Network: 7, Public: !c.private, Targeting: lb.Targeting{UsePrivateIP: c.private}}
		spec.Takeover.Annotated.Targets = true
		spec.Excluded = []lb.Node{{Name: "excluded", Public: netip.MustParseAddr("203.0.113.7")}}
		nodes := []lb.Node{c.node, cloud}
		have := lb.State{
			ID: 1, Type: "lb11", Network: 7, Public: true,
			Listeners: []lb.Listener{{Port: 80, DestinationPort: 30080}},
			Targets:   []lb.Target{server, other},
			CheckResults: lb.CheckResults{
				Verdicts: map[int]map[lb.Target]lb.Verdict{80: {server: lb.Unhealthy, other: lb.Healthy}},
			},
		}
		for _, labels := range []map[string]string{nil, owner.Labels()} {
			have.Labels = labels
			want, notes := spec.WithTargets(nodes).Against(have, nodes[:1])
			noted := slices.ContainsFunc(notes, func(n lb.Note) bool {
				return n.Reason == lb.ReasonTargetAddressMissing && n.Grade == lb.Error
			})
			open := c.stays && !other.Private || !c.private // also before the first verdict
			if removes(want, have, other) == c.stays || noted != c.noted || want.Public != open {
				t.Errorf("%s, owned %t: targets %v, noted %t, public %t", c.name, labels != nil, want.Targets, noted, want.Public)
			}
			// No other target can be healthy, so only the plan keeps it.
			healthy := func(t lb.Target) bool { return t == other }
			now, _, _ := lb.Rollout{Expected: healthy, Possible: healthy}.Next(want, have)
			if c.stays && (removes(now, have, other) || !other.Private && !now.Public) {
				t.Errorf("%s, owned %t: in the end %v, public %t", c.name, labels != nil, now.Targets, now.Public)
			}
		}
		if plan := misread(have, nodes, spec.Excluded...); removes(plan.Spec, have, other) == c.stays {
			t.Errorf("%s, the Service is refused: targets %v", c.name, plan.Spec.Targets)
		}
	}
}

// Nodes without a known address do not delay others, healthy or not.
func TestUnaddressedNodesHoldUpNoOther(t *testing.T) {
	for _, verdict := range []lb.Verdict{lb.Healthy, lb.Unhealthy, lb.Unknown} {
		all := []lb.Target{{Server: 1}, {Server: 3}, at("203.0.113.5")}
		health := healthOf(lb.Healthy, append(targetsOf(true, 1, 3), targetsOf(false, 1, 3)...)...)
		health[all[2]] = verdict
		r := newRoller(t, lb.State{Targets: all}, health)
		want := lb.Spec{Owner: owner, Type: "lb11", Network: 7, Targeting: lb.Targeting{UsePrivateIP: true}, Listeners: r.have.Listeners}
		want.Takeover.OptedIn, want.Takeover.Annotated.Targets = true, true
		want, _ = want.WithTargets(append(nodesOf([]int64{1, 3}), dedicated("", "203.0.113.5"))).Against(r.have, nil)
		want.Name, want.Algorithm = r.have.Name, r.have.Algorithm
		looks, _ := r.run(want, everyServer)
		if got := fmt.Sprint(r.have.Targets); got != "[server 1 (private) server 3 (private) IP 203.0.113.5]" || looks > 10 || len(r.notes) > 0 || !r.have.Public {
			t.Errorf("%s: after %d looks: %s, notes %v, public %t", verdict, looks, got, r.notes, r.have.Public)
		}
	}
}

// New targets get the kind of address that targets on servers have, and that of address targets
// only if there is no server: a dedicated server may have a single address.
func TestServersDetermineHowTargetsAreReached(t *testing.T) {
	inside, outside := lb.Target{Server: 11, Private: true}, lb.Target{Server: 11}
	for _, c := range []struct {
		name string
		have []lb.Target
		add  string
		kept string
	}{
		{"a server in the network", []lb.Target{inside}, "[add server 12 (private)]", "private-targets"},
		{"a server in the network, a public address", []lb.Target{inside, at("203.0.113.5")}, "[add server 12 (private)]", "private-targets"},
		{"a public server, an address in the network", []lb.Target{outside, at("10.1.0.5")}, "[add server 12]", "public-targets"},
		{"addresses in the network alone", []lb.Target{at("10.1.0.5")}, "[add server 11 (private) add server 12 (private)]", "private-targets"},
	} {
		svc, d := plain()
		d.UsePrivateIP = c.kept == "public-targets"
		nodes := nodesOf([]int64{11, 12})
		for _, target := range c.have {
			switch {
			case target.Private && target.Address.IsValid():
				nodes = append(nodes, dedicated("10.1.0.5", ""))
			case target.Address.IsValid():
				nodes = append(nodes, dedicated("", "203.0.113.5"))
			}
		}
		found := peer(1, "a0a1b2c3d00004000800000000000000", svc.UID)
		found.Network, found.Algorithm, found.Targets = 7, lb.RoundRobin, c.have
		have := found
		for _, when := range []string{"takeover", "after it"} {
			spec, _ := parse(t, svc, d).WithTargets(nodes).Against(have, nil)
			ops := lb.Diff(spec, have)
			if got := onTargets(ops); when == "takeover" && got != c.add || when != "takeover" && len(ops) > 0 {
				t.Errorf("%s, %s: %s, want %s", c.name, when, got, c.add)
			}
			after, err := apply(have, ops)
			if err != nil {
				t.Fatal(err)
			}
			if have = after; have.Labels[lb.LabelKept] != c.kept {
				t.Errorf("%s, %s: label %q, want %q", c.name, when, have.Labels[lb.LabelKept], c.kept)
			}
		}
		ops := misread(found, nodes).Ops
		labels := ops[0].(lb.SetLabels).Labels
		if got := onTargets(ops); got != c.add || !strings.HasPrefix(labels[lb.LabelKept], c.kept+".") || labels[lb.LabelCheck] != "kept" || !owner.Owns(labels) {
			t.Errorf("%s, the Service is refused: %s, want %s; labels %v", c.name, got, c.add, labels)
		}
	}
}
