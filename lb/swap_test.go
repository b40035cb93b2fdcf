package lb_test

import (
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// Only replacements wait for their turn, and the public interface, which a replaced target may need again.
func TestInTurns(t *testing.T) {
	have := lb.State{ID: 1, Type: "lb11", Public: true, Network: 7, Targets: lb.Spec{}.WithTargets(upTo(3)).Targets}
	ops := lb.Diff(lb.Spec{Type: "lb21", Network: 7, UsePrivateIP: true}.WithTargets(upTo(4)), have)
	if all := lb.Replaced(ops); !slices.Equal(all, []int64{1, 2, 3}) {
		t.Fatalf("replaced are %v", all)
	}
	for _, servers := range [][]int64{nil, {2}, {1, 3}, {1, 2, 3}} {
		now, others := lb.InTurns(ops, servers), 0
		for _, op := range now {
			switch op := op.(type) {
			case lb.ReplaceTarget:
			case lb.SetPublicInterface:
				t.Errorf("of %v: %s", servers, op)
			default:
				others++
			}
		}
		if got := lb.Replaced(now); !slices.Equal(got, servers) {
			t.Errorf("replaced are %v, want %v", got, servers)
		}
		if len(ops) != others+4 { // three replacements and the interface
			t.Errorf("of %v only %v", ops, now)
		}
	}
	on := []lb.Op{lb.SetPublicInterface{Enabled: true}}
	if now := lb.InTurns(on, nil); len(now) != 1 {
		t.Error("the public interface is not switched on")
	}
}

// What listeners say of targets, counted and by target. A listener that says nothing of any has none to wait for.
func TestVerdicts(t *testing.T) {
	with := func(http, https map[int64]lb.Verdict) lb.State {
		return lb.State{
			ID: 1, Targets: lb.Spec{}.WithTargets(upTo(3)).Targets, Listeners: []lb.Listener{{Port: 443}, {Port: 80}},
			Verdicts: map[int]map[int64]lb.Verdict{80: http, 443: https, 81: {1: lb.Healthy, 2: lb.Unknown}}, // which is gone
		}
	}
	all := map[int64]lb.Verdict{1: lb.Healthy, 2: lb.Healthy, 3: lb.Unhealthy}
	for name, c := range map[string]struct {
		have   lb.State
		judged bool
		first  []int // ports at which the first is healthy
		http   lb.Health
	}{
		"nobody knows":        {with(nil, nil), true, []int{81}, lb.Health{}},
		"all are judged":      {with(all, all), true, []int{80, 81, 443}, lb.Health{Healthy: 2, Unhealthy: 1}},
		"by one listener":     {with(all, nil), true, []int{80, 81}, lb.Health{Healthy: 2, Unhealthy: 1}},
		"one is not judged":   {with(map[int64]lb.Verdict{1: lb.Unhealthy, 2: lb.Unhealthy, 3: lb.Unknown}, nil), false, []int{81}, lb.Health{Unhealthy: 2, Unknown: 1}},
		"of one nobody knows": {with(map[int64]lb.Verdict{1: lb.Healthy, 2: lb.Healthy}, nil), false, []int{80, 81}, lb.Health{Healthy: 2}},
	} {
		if got := c.have.Judged(); got != c.judged {
			t.Errorf("%s: judged %t", name, got)
		}
		if got := c.have.HealthyAt(1); !slices.Equal(got, c.first) {
			t.Errorf("%s: the first is healthy at %v, want %v", name, got, c.first)
		}
		c.have.Verdicts[81] = nil
		if got, want := c.have.Dead(), c.http.Healthy == 0 && c.http != (lb.Health{}); got != want {
			t.Errorf("%s: dead %t", name, got)
		}
		if got := c.have.Health(80); got != c.http {
			t.Errorf("%s: %+v, want %+v", name, got, c.http)
		}
	}
}
