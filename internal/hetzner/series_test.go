package hetzner_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// series counts the requests since the last call: changes, those of them with a temporary error,
// and polls of actions.
func (lab *balancerLab) series() (changes, refused, polls int) {
	for _, r := range lab.sim.Requests() {
		switch {
		case r.Method != http.MethodGet:
			changes++
			if r.Code == "conflict" || r.Code == "locked" {
				refused++
			}
		case strings.Contains(r.Path, "/actions"):
			polls++
		}
	}
	lab.sim.ResetRequests()
	return changes, refused, polls
}

func additions(targets ...lb.Target) (ops []lb.Op) {
	for _, t := range targets {
		ops = append(ops, lb.AddTarget{Target: t})
	}
	return ops
}

// Several targets cost a request for each, and one for all of their actions.
func TestTargetsTogetherCostOneRequestEach(t *testing.T) {
	for _, busy := range []hcloudsim.Busy{hcloudsim.BusyConflict, hcloudsim.BusyLocked} {
		inLabOf(t, hcloudsim.Options{Busy: busy, ActionJitter: 30 * time.Millisecond},
			func(t *testing.T, lab *balancerLab, pod func(server, host int) lb.Target) {
				have := lab.created(t)
				batch := func(first int) (ops []lb.Op) {
					for i := range 20 {
						ops = append(ops, lb.AddTarget{Target: pod(i%5, first+i)})
					}
					return ops
				}
				took := 0
				for round := range 5 {
					lab.series()
					ops := batch(1 + 20*round)
					begun := time.Now()
					if err := errors.Join(lab.ApplyTargets(t.Context(), have, ops)...); err != nil {
						t.Fatal(err)
					}
					changes, refused, polls := lab.series()
					took = changes + polls
					t.Logf("round %d: %d changes, %d of them refused for now, %d polls, %s", round, changes, refused, polls, time.Since(begun))
					if now := lab.observed(t); len(now.Targets) != 20 {
						t.Fatalf("%d targets", len(now.Targets))
					}
					var removals []lb.Op
					for _, op := range ops {
						removals = append(removals, lb.RemoveTarget{Target: op.(lb.AddTarget).Target})
					}
					if err := errors.Join(lab.ApplyTargets(t.Context(), have, removals)...); err != nil {
						t.Fatal(err)
					}
				}
				if took > 27 {
					t.Errorf("20 targets took %d requests when it is known how long they take", took)
				}
			})
	}
}

// The failure of one doesn't affect the others.
func TestTargetsTogetherFailByThemselves(t *testing.T) {
	inLabOf(t, hcloudsim.Options{},
		func(t *testing.T, lab *balancerLab, pod func(server, host int) lb.Target) {
			have := lab.created(t)
			stranger := lb.Target{Server: lab.servers[0], Address: pod(1, 7).Address}
			ops := additions(pod(0, 1), stranger, pod(0, 2), lb.Target{Server: lab.servers[2]}, pod(0, 3))
			if err := lab.sim.Inject(hcloudsim.Fault{FailAction: "action_failed"}); err != nil {
				t.Fatal(err)
			}
			errs := lab.ApplyTargets(t.Context(), have, ops)
			var rejected *lb.RejectedError
			if !errors.As(errs[1], &rejected) || rejected.Code != "ip_not_assigned_to_server" {
				t.Errorf("another server's address: %v", errs[1])
			}
			failed := 0
			for i, err := range errs {
				if now := lab.observed(t); i != 1 &&
					(err == nil) != slices.Contains(now.Targets, ops[i].(lb.AddTarget).Target) {
					t.Errorf("%s: %v, with targets %v", ops[i], err, now.Targets)
				}
				if errors.Is(err, lb.ErrFailed) {
					failed++
				}
			}
			if failed != 1 {
				t.Errorf("%d failed in the cloud: %v", failed, errs)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if errs := lab.ApplyTargets(ctx, have, additions(pod(1, 1), pod(1, 2))); errs[0] == nil ||
				errs[1] == nil {
				t.Errorf("after the end: %v", errs)
			}
		})
}
