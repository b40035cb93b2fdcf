package hetzner_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// A network allows one change at a time. A hundred routes take hardly longer than their actions and
// one round trip each, and two requests each: the one that adds the route, and one that finds its
// action ended.
func TestRoutesAtThePaceOfTheCloud(t *testing.T) {
	const count, action = 100, 300 * time.Millisecond
	for _, c := range []struct {
		latency, jitter time.Duration
		longer          float64 // than actions and round trips, at most
	}{
		{0, 0, 1.06},
		{20 * time.Millisecond, 0, 1.06},
		{100 * time.Millisecond, 0, 1.06},
		// If durations vary, the end of an action can't be predicted: finding nine in ten of them
		// ended by the first poll takes 1.11 times as long at best.
		{0, action * 30 / 100, 1.14},
		{20 * time.Millisecond, action * 30 / 100, 1.14},
		{100 * time.Millisecond, action * 30 / 100, 1.14},
	} {
		t.Run(fmt.Sprintf("latency %s, jitter %s", c.latency, c.jitter), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, cl, _ := project(t, hcloudsim.Options{
					ActionTime: action, ActionJitter: c.jitter, Latency: c.latency,
				})
				network := tables(t, sim, cl, 1)[0]
				began := time.Now()
				for i := range count {
					if err := network.Add(t.Context(), entry(fmt.Sprintf("10.244.%d.0/24", i), "10.0.0.2")); err != nil {
						t.Fatal(err)
					}
				}
				took := time.Since(began)
				var refused int
				for _, r := range sim.Requests() {
					if r.Status >= 400 {
						refused++
					}
				}
				floor := count * (action + c.jitter/2 + c.latency)
				t.Logf("%d requests, %s; actions and round trips: %s", len(sim.Requests()), took, floor)
				if len(sim.Requests()) > count*215/100 || refused > 0 {
					t.Errorf("%d requests, of which %d were refused", len(sim.Requests()), refused)
				}
				if float64(took) > c.longer*float64(floor) {
					t.Errorf("%s, want at most %.2f × %s", took, c.longer, floor)
				}
			})
		})
	}
}
