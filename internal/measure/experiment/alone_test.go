package experiment

import (
	"net/http"
	urlpath "path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// TestEachFactCanBeFoundAlone finds each in a run of its own, and makes no more for it than the plan says.
func TestEachFactCanBeFoundAlone(t *testing.T) {
	for _, f := range measure.Facts() {
		t.Run(string(f.ID), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, owner(profile.Cloud{}))
				b, _ := dedicatedBench(t, w, profile.Network{})
				b.Robot = robotClient(t, robotAccount(t, robotsim.Options{VSwitchTime: 30 * time.Second}))
				if err := b.Dedicated.Look(t.Context(), b.Robot); err != nil {
					t.Fatal(err)
				}
				made := &counted{next: w.sim.Transport()}
				b.Project = projectOver(t, made)
				o := Run(t.Context(), b, []measure.FactID{f.ID})[0]
				if o.Seen == "" {
					t.Error(describe(o))
				}
				if plan := measure.ThingsOf([]measure.Fact{f}); made.things != plan {
					t.Errorf("made %s, planned %s", made.things, plan)
				}
				if _, err := b.Project.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// counted counts what is made.
type counted struct {
	next   http.RoundTripper
	things measure.Things
}

func (c *counted) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(q)
	if err == nil && q.Method == http.MethodPost && answer.StatusCode == http.StatusCreated {
		switch urlpath.Base(q.URL.Path) {
		case "servers":
			c.things.Servers++
		case "networks":
			c.things.Networks++
		case "load_balancers":
			c.things.LoadBalancers++
		case "floating_ips":
			c.things.FloatingIPs++
		case "primary_ips":
			c.things.PrimaryIPs++
		}
	}
	return answer, err
}
