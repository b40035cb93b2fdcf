package experiment

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

// TestEachFactCanBeFoundAlone has consent to what the fact's needs say, and to nothing else.
func TestEachFactCanBeFoundAlone(t *testing.T) {
	for _, f := range measure.Facts() {
		if f.Needs.Impossible != "" {
			continue
		}
		t.Run(string(f.ID), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, owner(profile.Cloud{}))
				b, _ := dedicatedBench(t, w, profile.Network{})
				b.Robot = robotClient(t, robotAccount(t, robotsim.Options{VSwitchTime: 30 * time.Second}))
				if err := b.Dedicated.Look(t.Context(), b.Robot); err != nil {
					t.Fatal(err)
				}
				plan := plenty()
				plan.Things = measure.ThingsOf([]measure.Fact{f})
				b.Project = projectWith(t, w.sim.Transport(), plan)
				o := Run(t.Context(), b, []measure.FactID{f.ID})[0]
				if o.Seen == "" || strings.Contains(o.Why, project.ErrRefused.Error()) {
					t.Errorf("with %s: %s", plan.Things, describe(o))
				}
				var left *project.LeftBehind
				if _, err := b.Project.(*project.Project).Sweep(t.Context()); errors.As(err, &left) {
					t.Error(err)
				}
			})
		})
	}
}
