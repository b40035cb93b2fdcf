package experiment

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// TestTimesAreNotGuessedWithoutABudget has a budget of requests that is used up: what takes a second is
// looked at every 10 s.
func TestTimesAreNotGuessedWithoutABudget(t *testing.T) {
	for _, fact := range []measure.FactID{measure.RouteEffect, measure.ActionTimes} {
		synctest.Test(t, func(t *testing.T) {
			const limit = 360
			w := newWorld(t, position{options: hcloudsim.Options{ActionTime: time.Second, RateLimit: limit}})
			b := w.bench(t)
			n, err := b.Network(t.Context()) // the budget is full until then
			if err == nil && fact == measure.RouteEffect {
				_, _, err = b.pair(t.Context())
			}
			for left := limit; err == nil && left > 1; {
				var answer *hcloud.Response
				if _, answer, err = w.cloud.Location.List(t.Context(), hcloud.LocationListOpts{}); err == nil {
					left = answer.Meta.Ratelimit.Remaining
				}
			}
			if err == nil {
				_, _, err = b.client().Network.GetByID(t.Context(), n.ID) // tells of it
			}
			if err != nil {
				t.Fatal(err)
			}
			if fact == measure.ActionTimes {
				for _, all := range b.Project.Took() {
					t.Fatalf("timed before: %v", all)
				}
			}
			o := Run(t.Context(), b, []measure.FactID{fact})[0]
			if o.Seen != "" || o.Record != nil || !strings.Contains(o.Why, "used up") {
				t.Error(describe(o))
			}
			for _, n := range w.sim.Networks() {
				if len(n.Routes) > 0 {
					t.Errorf("routes are left: %v", n.Routes)
				}
			}
		})
	}
}
