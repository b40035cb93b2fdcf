package lb_test

import (
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

func TestInTurns(t *testing.T) {
	const all = "replace server 1 by server 1 (private) replace server 2 by server 2 (private) replace server 3 by server 3 (private)"
	const first = "replace server 1 by server 1 (private)"
	judged := func(healthy, unhealthy, unknown int) lb.Health {
		return lb.Health{Healthy: healthy, Unhealthy: unhealthy, Unknown: unknown}
	}
	for _, c := range []struct {
		name   string
		health map[int]lb.Health
		waited bool
		want   string // of the replacements and what depends on them
	}{
		{"nobody knows", nil, false, all + " off"},
		{"all are healthy", map[int]lb.Health{80: judged(3, 0, 0)}, false, first},
		{"two are healthy", map[int]lb.Health{80: judged(2, 1, 0)}, false, first},
		{"one is healthy", map[int]lb.Health{80: judged(1, 2, 0)}, false, first},
		{"none is healthy", map[int]lb.Health{80: judged(0, 3, 0)}, false, all + " off"},
		{"none is judged", map[int]lb.Health{80: judged(0, 0, 3)}, false, all + " off"},
		{"one is not judged", map[int]lb.Health{80: judged(2, 0, 1)}, false, ""},
		{"of one nobody knows", map[int]lb.Health{80: judged(2, 0, 0)}, false, ""},
		{"one is not judged for long", map[int]lb.Health{80: judged(2, 0, 1)}, true, first},
		{"one is healthy, the others are not judged for long", map[int]lb.Health{80: judged(1, 0, 2)}, true, first},
		{"another listener has nothing to lose", map[int]lb.Health{80: judged(3, 0, 0), 443: judged(0, 1, 2)}, false, first},
		{"another listener waits", map[int]lb.Health{80: judged(3, 0, 0), 443: judged(1, 0, 2)}, false, ""},
	} {
		have := lb.State{ID: 1, Type: "lb11", Public: true, Network: 7, Health: c.health, Targets: lb.Spec{}.WithTargets(upTo(3)).Targets}
		want := lb.Spec{Type: "lb21", Network: 7, UsePrivateIP: true}.WithTargets(upTo(4))
		ops := lb.Diff(want, have)
		now, left := lb.InTurns(ops, have, c.waited)
		got, others := "", 0
		for _, op := range now {
			switch op.(type) {
			case lb.ReplaceTarget:
				got += " " + op.String()
			case lb.SetPublicInterface:
				got += " off"
			default:
				others++
			}
		}
		if got != "" {
			got = got[1:]
		}
		if got != c.want || left != (c.want != all+" off") {
			t.Errorf("%s: %q, left %t; want %q", c.name, got, left, c.want)
		}
		if len(ops) != others+4 { // three replacements and the interface
			t.Errorf("%s: of %v only %v", c.name, ops, now)
		}
	}
}

// Of many targets half are replaced at once: one by one it would take an hour.
func TestATurnIsHalfOfTheHealthyTargets(t *testing.T) {
	have := lb.State{ID: 1, Health: map[int]lb.Health{80: {Healthy: 20, Unhealthy: 5}}, Targets: lb.Spec{}.WithTargets(upTo(25)).Targets}
	now, left := lb.InTurns(lb.Diff(lb.Spec{UsePrivateIP: true, Network: 7}.WithTargets(upTo(25)), have), have, false)
	replaced := 0
	for _, op := range now {
		if _, ok := op.(lb.ReplaceTarget); ok {
			replaced++
		}
	}
	if replaced != 10 || !left {
		t.Errorf("%d of 20 healthy targets in one turn, left %t", replaced, left)
	}
}
