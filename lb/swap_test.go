package lb_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// Only replacements wait for their turn, and the public interface, which a replaced target may need again.
func TestInTurns(t *testing.T) {
	have := lb.State{ID: 1, Type: "lb11", Public: true, Network: 7, Targets: lb.Spec{}.WithTargets(upTo(3)).Targets}
	ops := lb.Diff(lb.Spec{Type: "lb21", Network: 7, UsePrivateIP: true}.WithTargets(upTo(4)), have)
	for most, want := range [][]int64{{}, {1}, {1, 2}, {1, 2, 3}, {1, 2, 3}} {
		now, moved, left := lb.InTurns(ops, most)
		var replaced []int64
		others := 0
		for _, op := range now {
			switch op := op.(type) {
			case lb.ReplaceTarget:
				replaced = append(replaced, op.New.Server)
			case lb.SetPublicInterface:
				t.Errorf("%d at most: %s", most, op)
			default:
				others++
			}
		}
		if !slices.Equal(replaced, want) || !slices.Equal(moved, want) || left != (len(want) < 3) {
			t.Errorf("%d at most: replaced %v, told %v, left %t; want %v", most, replaced, moved, left, want)
		}
		if len(ops) != others+4 { // three replacements and the interface
			t.Errorf("%d at most: of %v only %v", most, ops, now)
		}
	}
	on := []lb.Op{lb.SetPublicInterface{Enabled: true}}
	if now, _, _ := lb.InTurns(on, 0); len(now) != 1 {
		t.Error("the public interface is not switched on")
	}
}

// What has no healthy target has nothing to lose, and is not waited for.
func TestStakes(t *testing.T) {
	judged := func(healthy, unhealthy, unknown int) lb.Health {
		return lb.Health{Healthy: healthy, Unhealthy: unhealthy, Unknown: unknown}
	}
	for _, c := range []struct {
		name   string
		health map[int]lb.Health
		stakes []int // ports
		judged bool
	}{
		{"nobody knows", nil, nil, true},
		{"all are healthy", map[int]lb.Health{80: judged(3, 0, 0)}, []int{80}, true},
		{"one is healthy", map[int]lb.Health{80: judged(1, 2, 0)}, []int{80}, true},
		{"none is healthy", map[int]lb.Health{80: judged(0, 3, 0)}, nil, true},
		{"none is judged", map[int]lb.Health{80: judged(0, 0, 3)}, nil, true},
		{"one is not judged", map[int]lb.Health{80: judged(2, 0, 1)}, []int{80}, false},
		{"of one nobody knows", map[int]lb.Health{80: judged(2, 0, 0)}, []int{80}, false},
		{"another listener has nothing to lose", map[int]lb.Health{80: judged(3, 0, 0), 443: judged(0, 1, 2)}, []int{80}, true},
		{"another listener waits", map[int]lb.Health{80: judged(3, 0, 0), 443: judged(1, 0, 2)}, []int{80, 443}, false},
		{"a listener that is gone", map[int]lb.Health{80: judged(3, 0, 0), 81: judged(1, 0, 2)}, []int{80, 81}, true},
	} {
		have := lb.State{ID: 1, Health: c.health, Targets: lb.Spec{}.WithTargets(upTo(3)).Targets, Listeners: []lb.Listener{{Port: 80}, {Port: 443}}}
		stakes := have.Stakes()
		if got := slices.Sorted(maps.Keys(stakes)); !slices.Equal(got, c.stakes) {
			t.Errorf("%s: ports %v can lose something, want %v", c.name, got, c.stakes)
		}
		if got := have.Judged(maps.Keys(stakes)); got != c.judged {
			t.Errorf("%s: judged %t", c.name, got)
		}
	}
}
