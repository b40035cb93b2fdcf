package lb_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// TestVerdicts tests the verdicts of listeners on targets, counted and by target. A listener
// without verdicts has no target to wait for.
func TestVerdicts(t *testing.T) {
	one, two, three := lb.Target{Server: 1}, lb.Target{Server: 2}, lb.AddressTarget(netip.MustParseAddr("203.0.113.7"))
	with := func(http, https map[lb.Target]lb.Verdict) lb.State {
		return lb.State{
			ID: 1, Targets: []lb.Target{one, two, three}, Listeners: []lb.Listener{{Port: 443}, {Port: 80}},
			CheckResults: lb.CheckResults{
				Verdicts: map[int]map[lb.Target]lb.Verdict{
					80: http, 443: https, 81: {one: lb.Healthy, two: lb.Unknown},
				},
			}, // deleted listener
		}
	}
	all := map[lb.Target]lb.Verdict{one: lb.Healthy, two: lb.Healthy, three: lb.Unhealthy}
	for name, c := range map[string]struct {
		have  lb.State
		first []int // ports at which the first is healthy
		http  lb.Health
	}{
		"nobody knows":        {with(nil, nil), []int{81}, lb.Health{}},
		"all are judged":      {with(all, all), []int{80, 81, 443}, lb.Health{Healthy: 2, Unhealthy: 1}},
		"by one listener":     {with(all, nil), []int{80, 81}, lb.Health{Healthy: 2, Unhealthy: 1}},
		"one is not judged":   {with(map[lb.Target]lb.Verdict{one: lb.Unhealthy, two: lb.Unhealthy, three: lb.Unknown}, nil), []int{81}, lb.Health{Unhealthy: 2, Unknown: 1}},
		"of one nobody knows": {with(map[lb.Target]lb.Verdict{one: lb.Healthy, two: lb.Healthy}, nil), []int{80, 81}, lb.Health{Healthy: 2}},
	} {
		if got := c.have.HealthyAt(one); !slices.Equal(got, c.first) {
			t.Errorf("%s: the first is healthy at %v, want %v", name, got, c.first)
		}
		c.have.Verdicts[81] = nil
		if got := c.have.Health(80); got != c.http {
			t.Errorf("%s: %+v, want %+v", name, got, c.http)
		}
	}
}
