package lb_test

import (
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// What listeners say of targets, counted and by target. A listener that says nothing of any has
// none to wait for.
func TestVerdicts(t *testing.T) {
	with := func(http, https map[int64]lb.Verdict) lb.State {
		return lb.State{
			ID: 1, Targets: lb.Spec{}.WithTargets(upTo(3)).Targets, Listeners: []lb.Listener{{Port: 443}, {Port: 80}},
			Verdicts: map[int]map[int64]lb.Verdict{80: http, 443: https, 81: {1: lb.Healthy, 2: lb.Unknown}}, // which is gone
		}
	}
	all := map[int64]lb.Verdict{1: lb.Healthy, 2: lb.Healthy, 3: lb.Unhealthy}
	for name, c := range map[string]struct {
		have  lb.State
		first []int // ports at which the first is healthy
		http  lb.Health
	}{
		"nobody knows":        {with(nil, nil), []int{81}, lb.Health{}},
		"all are judged":      {with(all, all), []int{80, 81, 443}, lb.Health{Healthy: 2, Unhealthy: 1}},
		"by one listener":     {with(all, nil), []int{80, 81}, lb.Health{Healthy: 2, Unhealthy: 1}},
		"one is not judged":   {with(map[int64]lb.Verdict{1: lb.Unhealthy, 2: lb.Unhealthy, 3: lb.Unknown}, nil), []int{81}, lb.Health{Unhealthy: 2, Unknown: 1}},
		"of one nobody knows": {with(map[int64]lb.Verdict{1: lb.Healthy, 2: lb.Healthy}, nil), []int{80, 81}, lb.Health{Healthy: 2}},
	} {
		if got := c.have.HealthyAt(1); !slices.Equal(got, c.first) {
			t.Errorf("%s: the first is healthy at %v, want %v", name, got, c.first)
		}
		c.have.Verdicts[81] = nil
		if got := c.have.Health(80); got != c.http {
			t.Errorf("%s: %+v, want %+v", name, got, c.http)
		}
	}
}
