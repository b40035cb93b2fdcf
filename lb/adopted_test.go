package lb_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// Targets keep the kind of address with which they were found until the Service's annotation sets
// it, and new targets get the same kind. The configuration for all Services does not count.
func TestTakeoverKeepsHowTargetsAreReached(t *testing.T) {
	public := func(ids ...int64) (targets []lb.Target) {
		for _, id := range ids {
			targets = append(targets, lb.Target{Server: id})
		}
		return targets
	}
	private := func(ids ...int64) []lb.Target {
		return lb.Spec{Targeting: lb.Targeting{UsePrivateIP: true}}.WithTargets(nodesOf(ids)).Targets
	}
	mixed := append(public(1), private(2)...)
	for _, c := range []struct {
		name      string
		byDefault bool   // usePrivateIP in the configuration
		annotated string // use-private-ip
		publicOff bool   // disablePublicNetwork in the configuration
		unnetwork bool   // the configuration has no network
		have      []lb.Target
		servers   []int64
		ops       string // the ops on targets
		label     string
		note      string // empty: none
	}{
		{name: "public ones", byDefault: true, have: public(1, 2), servers: upTo(3), ops: "[add server 3]", label: "public-targets", note: "targets at their public addresses (load-balancer.hetzner.cloud/use-private-ip)"},
		{name: "private ones", have: private(1, 2), servers: upTo(3), ops: "[add server 3 (private)]", label: "private-targets", note: "targets at their private addresses"},
		{name: "private ones, and no network is configured", unnetwork: true, have: private(1), servers: upTo(2), ops: "[add server 2 (private)]", label: "private-targets", note: "targets at their private addresses"},
		{name: "as configured, public", have: public(1), servers: upTo(2), ops: "[add server 2]"},
		{name: "as configured, private", byDefault: true, have: private(1), servers: upTo(2), ops: "[add server 2 (private)]"},
		{name: "every node is another one", byDefault: true, have: public(1), servers: []int64{2}, ops: "[remove server 1 add server 2]", label: "public-targets", note: "targets at their public addresses"},
		{name: "both kinds", byDefault: true, have: mixed, servers: upTo(3), ops: "[add server 3 (private)]", label: "private-targets", note: "targets at the addresses that they have"},
		{name: "both kinds, public by default", have: mixed, servers: upTo(3), ops: "[add server 3]", label: "public-targets", note: "targets at the addresses that they have"},
		{name: "no targets", byDefault: true, servers: upTo(1), ops: "[add server 1 (private)]"},
		{name: "annotated", annotated: "true", have: public(1), servers: upTo(1), ops: "[replace server 1 by server 1 (private)]"},
		{name: "annotated against the default", byDefault: true, annotated: "false", have: private(1), servers: upTo(1), ops: "[replace server 1 (private) by server 1]"},
		{name: "annotated as it is", byDefault: true, annotated: "false", have: public(1), servers: upTo(2), ops: "[add server 2]"},
		{name: "no public interface is wanted", byDefault: true, publicOff: true, have: public(1), servers: upTo(1), ops: "[replace server 1 by server 1 (private)]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc, d := plain()
			d.UsePrivateIP, d.DisablePublicNetwork = c.byDefault, c.publicOff
			if c.unnetwork {
				d.Network = 0
			}
			svc.Annotations = map[string]string{hetzner + "use-private-ip": c.annotated}
			found := peer(1, "a0a1b2c3d00004000800000000000000", svc.UID)
			found.Network, found.Algorithm, found.Targets = 7, lb.RoundRobin, c.have

			spec, notes := parse(t, svc, d).WithTargets(nodesOf(c.servers)).Against(found, nil)
			ops := lb.Diff(spec, found)
			if got := onTargets(ops); got != c.ops {
				t.Errorf("targets: %s, want %s", got, c.ops)
			}
			if label := ops[0].(lb.SetLabels).Labels[lb.LabelKept]; label != c.label {
				t.Errorf("label %q, want %q", label, c.label)
			}
			annotated := keptNote(notes)
			if (annotated == "") != (c.note == "") || !strings.Contains(annotated, c.note) {
				t.Errorf("note %q, want %q", annotated, c.note)
			}

			after, err := settle(found, spec)
			if err != nil {
				t.Fatal(err)
			}
			spec, notes = parse(t, svc, d).WithTargets(nodesOf(c.servers)).Against(after, nil)
			if again := lb.Diff(spec, after); len(again) != 0 || keptNote(notes) != "" && c.note == "" {
				t.Errorf("after that: %v, notes %v", again, notes)
			}
		})
	}
}

// Settings of a load balancer that was taken over override the configuration for all Services, and
// annotations override both.
func TestAdoptedSettingsAreBetweenAnnotationsAndConfiguration(t *testing.T) {
	svc, d := plain()
	d.Type = "lb31"
	found := peer(1, "before", svc.UID)
	found.Network, found.Type, found.Algorithm = 7, "lb21", lb.LeastConnections
	for _, c := range []struct {
		name        string
		found       bool
		annotations map[string]string
		want, kept  string
	}{
		{"adopted", true, nil, "before lb21 least_connections", "[algorithm name type]"},
		{"annotated", true, map[string]string{"name": "web", "type": "lb11", "algorithm-type": "round_robin"}, "web lb11 round_robin", "[]"},
		{"one is annotated", true, map[string]string{"type": "lb11"}, "before lb11 least_connections", "[algorithm name]"},
		{"configured", false, map[string]string{"name": "web"}, "web lb31 round_robin", "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc.Annotations = map[string]string{}
			for name, value := range c.annotations {
				svc.Annotations[hetzner+name] = value
			}
			var have lb.State
			if c.found {
				have = found
			}
			spec, notes := parse(t, svc, d).Against(have, nil)
			if got := fmt.Sprint(spec.Name, " ", spec.Type, " ", spec.Algorithm); got != c.want || fmt.Sprint(spec.Kept) != c.kept {
				t.Errorf("%s, kept %v, want %s, kept %s", got, spec.Kept, c.want, c.kept)
			}
			if (keptNote(notes) == "") != (c.kept == "[]") {
				t.Errorf("note %q", keptNote(notes))
			}
		})
	}
}

// onTargets returns the ops on targets.
func onTargets(ops []lb.Op) string {
	var targets []lb.Op
	for _, op := range ops {
		switch op.(type) {
		case lb.AddTarget, lb.RemoveTarget, lb.ReplaceTarget:
			targets = append(targets, op)
		}
	}
	return fmt.Sprint(targets)
}

func keptNote(notes []lb.Note) string {
	for _, n := range notes {
		if n.Reason == lb.ReasonSettingsKept {
			return n.Text
		}
	}
	return ""
}

// A label remembers the kind of the targets' addresses while there are no targets, or both kinds;
// existing targets of one kind override it.
func TestHowTargetsAreReachedIsRemembered(t *testing.T) {
	svc, d := plain()
	d.UsePrivateIP = true
	have := peer(1, "a0a1b2c3d00004000800000000000000", svc.UID)
	have.Network, have.Algorithm = 7, lb.RoundRobin
	for k, v := range (lb.Owner{Cluster: d.Cluster, UID: svc.UID}).Labels() {
		have.Labels[k] = v
	}
	have.Labels[lb.LabelCheck] = "kept"
	for _, c := range []struct {
		name, label string
		targets     []lb.Target
		ops         string
	}{
		{"none are left", "public-targets", nil, "[add server 1]"},
		{"both kinds", "name.public-targets", []lb.Target{{Server: 2, Private: true}, {Server: 3}}, `[remove server 2 (private) remove server 3 add server 1]`},
		{"others are there", "private-targets", []lb.Target{{Server: 2}}, "[remove server 2 add server 1]"},
		{"nothing is remembered", "", []lb.Target{{Server: 1}}, "[replace server 1 by server 1 (private)]"},
		{"something else is remembered", "type", []lb.Target{{Server: 1}}, "[replace server 1 by server 1 (private)]"},
	} {
		have.Labels[lb.LabelKept], have.Targets = c.label, c.targets
		spec, _ := parse(t, svc, d).WithTargets(nodesOf(upTo(1))).Against(have, nil)
		if got := onTargets(lb.Diff(spec, have)); got != c.ops {
			t.Errorf("%s: %s, want %s", c.name, got, c.ops)
		}
	}
	// The network is deleted, and the label names private targets, which would never be reached.
	d.Network, d.UsePrivateIP, have.Network, have.Targets = 0, false, 0, nil
	have.Labels[lb.LabelKept] = "private-targets"
	spec, _ := parse(t, svc, d).WithTargets(nodesOf(upTo(1))).Against(have, nil)
	if len(spec.Targets) != 1 || spec.Targets[0].Private || len(spec.Kept) != 0 {
		t.Errorf("without a network: %v, kept %v", spec.Targets, spec.Kept)
	}
}

// A takeover keeps the address of each target with any load balancer and configuration, also if the
// network changes, while some or all nodes are replaced.
func TestATakeoverReplacesNoTarget(t *testing.T) {
	for seed := range uint64(1_000) {
		r := rand.New(rand.NewPCG(seed, 0))
		svc, d := plain()
		d.Network = int64(r.IntN(3))
		d.UsePrivateIP = d.Network != 0 && r.IntN(2) == 0
		found := randomState(r)
		found.Labels = pick(r, map[string]string{}, map[string]string{lb.LabelPeer: svc.UID})
		have := found
		for step, nodes := range [][]lb.Node{
			behind(found.Targets), randomNodes(r, 25), nil, randomNodes(r, 25),
		} {
			spec, _ := parse(t, svc, d).WithTargets(nodes).Against(have, nil)
			ops := lb.Diff(spec, have)
			after, err := apply(have, ops)
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if strings.Contains(onTargets(ops), "replace") {
				t.Fatalf("seed %d, step %d: %v", seed, step, ops)
			}
			for _, target := range after.Targets {
				if step == 0 && !slices.Contains(found.Targets, target) {
					t.Errorf("seed %d: %s after %v", seed, target, ops)
				}
				if way, uniform := onlyWay(found.Targets); uniform && target.Private != way {
					t.Errorf("seed %d, step %d: %s, they were reached as private: %t", seed, step, target, way)
				}
			}
			if again := lb.Diff(spec, after); len(again) != 0 {
				t.Errorf("seed %d, step %d: left to do: %v", seed, step, again)
			}
			have = after
		}
	}
}

// behind returns the nodes behind these targets.
func behind(targets []lb.Target) (nodes []lb.Node) {
	for _, target := range targets {
		if target.Server != 0 {
			nodes = append(nodes, nodesOf([]int64{target.Server})...)
		}
	}
	for _, n := range dedicatedNodes() {
		if slices.ContainsFunc(n.Targets(), func(t lb.Target) bool {
			return slices.Contains(targets, t)
		}) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// onlyWay returns the kind of the targets' addresses, and whether all have the same kind.
func onlyWay(targets []lb.Target) (private, uniform bool) {
	for i, target := range targets {
		if i > 0 && target.Private != private {
			return false, false
		}
		private = target.Private
	}
	return private, len(targets) > 0
}
