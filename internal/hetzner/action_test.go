package hetzner_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// tables creates a number of networks, each with its own lock for changes.
func tables(
	t *testing.T, sim *hcloudsim.Simulator, c *hetzner.Client, count int,
) []*hetzner.Network {
	t.Helper()
	var all []*hetzner.Network
	for i := range count {
		seeded, err := sim.CreateNetwork(hcloudsim.NetworkSeed{Name: fmt.Sprintf("net-%d", i), IPRange: netip.MustParsePrefix("10.0.0.0/8")})
		if err != nil {
			t.Fatal(err)
		}
		network, err := c.Network(t.Context(), fmt.Sprint(seeded.ID))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, network)
	}
	sim.ResetRequests()
	return all
}

// addAll adds the route to all tables, each a given time after the previous one.
func addAll(ctx context.Context, all []*hetzner.Network, stagger time.Duration) []error {
	done := make(chan int, len(all))
	errs := make([]error, len(all))
	for i, table := range all {
		go func() {
			time.Sleep(time.Duration(i)*stagger + 1)
			errs[i] = table.Add(ctx, entry("10.244.1.0/24", "10.0.0.2"))
			done <- i
		}()
	}
	for range all {
		<-done
	}
	return errs
}

// polls returns the IDs in each poll.
func polls(t *testing.T, sim *hcloudsim.Simulator) [][]string {
	t.Helper()
	var all [][]string
	for _, r := range sim.Requests() {
		if r.Method != "GET" || r.Path != "/v1/actions" {
			continue
		}
		query, err := url.ParseQuery(r.Query)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, query["id"])
	}
	return all
}

// Polls are requests: many actions at once need hardly more of them than one.
func TestActionsArePolledTogether(t *testing.T) {
	cost := func(count int, stagger time.Duration) (n int) {
		synctest.Test(t, func(t *testing.T) {
			sim, c, _ := project(t, hcloudsim.Options{
				ActionTime: 900 * time.Millisecond, Latency: 20 * time.Millisecond,
			})
			all := tables(t, sim, c, count)
			for i, err := range addAll(t.Context(), all, stagger) {
				if err != nil {
					t.Errorf("network %d: %v", i, err)
				}
			}
			for _, ids := range polls(t, sim) {
				if n++; len(ids) > 25 {
					t.Errorf("one poll for %d actions: the answer would have a second page", len(ids))
				}
			}
		})
		return n
	}
	one, twenty, staggered, sixty := cost(1, 0), cost(20, 0), cost(20, 10*time.Millisecond), cost(60,
		0)
	t.Logf("polls: %d for one action, %d for 20 at once, %d for 20 in a fifth of a second, %d for 60 at once", one, twenty, staggered, sixty)
	if twenty > one {
		t.Errorf("20 actions at once cost %d polls, one costs %d", twenty, one)
	}
	if staggered > one+4 {
		t.Errorf("20 actions within a fifth of a second cost %d polls, one costs %d", staggered, one)
	}
	if sixty > 3*one {
		t.Errorf("60 actions at once cost %d polls, want at most 3 for each of %d", sixty, one)
	}
}

// An action that is due is polled together with those that aren't, and one that ended early is
// noticed early.
func TestAPollTakesAllAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, _ := project(t, hcloudsim.Options{ActionTime: 2 * time.Second})
		all := tables(t, sim, c, 2)
		began := time.Now()
		for _, err := range addAll(t.Context(), all, 300*time.Millisecond) {
			if err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 3500*time.Millisecond {
			t.Errorf("two actions of 2 s took %s", took)
		}
		together := slices.ContainsFunc(polls(t, sim), func(ids []string) bool { return len(ids) == 2 })
		if !together {
			t.Errorf("never asked about both: %v", polls(t, sim))
		}
	})
}

// The failure of one action doesn't affect waits for others.
func TestActionsFailEachByItself(t *testing.T) {
	for name, c := range map[string]struct {
		fault hcloudsim.Fault
		want  func(error) bool
	}{
		"fails": {
			hcloudsim.Fault{Match: "POST /networks/{rest...}", FailAction: "action_failed"},
			func(err error) bool {
				var failed hcloud.ActionError
				return errors.As(err, &failed) && failed.Code == "action_failed"
			},
		},
		"is lost": {
			hcloudsim.Fault{Match: "POST /networks/{rest...}", LoseAction: true},
			func(err error) bool { return err != nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, cl, _ := project(t, hcloudsim.Options{ActionTime: time.Second})
				all := tables(t, sim, cl, 5)
				if err := sim.Inject(c.fault); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for i, err := range addAll(t.Context(), all, time.Millisecond) {
					if i == 0 && !c.want(err) || i > 0 && err != nil {
						t.Errorf("network %d: %v", i, err)
					}
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it was known only after %s", took)
				}
			})
		})
	}
}

// If one waiter stops, the others keep waiting; after the last one has stopped, polling ends.
func TestAWaiterThatStopsStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, _ := project(t, hcloudsim.Options{ActionTime: time.Second})
		all := tables(t, sim, c, 2)
		stays := make(chan error, 1)
		hurried, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		go func() {
			time.Sleep(100 * time.Millisecond)
			stays <- all[1].Add(t.Context(), entry("10.244.1.0/24", "10.0.0.2"))
		}()
		if err := all[0].Add(hurried, entry("10.244.1.0/24", "10.0.0.2")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one who is in a hurry: %v", err)
		}
		if err := <-stays; err != nil {
			t.Errorf("one who stays: %v", err)
		}
		synctest.Wait()
		sim.ResetRequests()
		time.Sleep(time.Minute)
		if n := len(polls(t, sim)); n != 0 {
			t.Errorf("%d polls although nobody waits", n)
		}
	})
}

// A failed poll has no information about the actions.
func TestAFailedPollIsRepeated(t *testing.T) {
	for name, fault := range map[string]hcloudsim.Fault{
		"503":        {Match: "GET /actions", Times: 2, Status: 503},
		"429":        {Match: "GET /actions", Times: 2, Status: 429},
		"no answer":  {Match: "GET /actions", Times: 2, DropBeforeApply: true},
		"no JSON":    {Match: "GET /actions", Times: 2, NotJSON: true},
		"half of it": {Match: "GET /actions", Times: 2, TornBody: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c, _ := project(t, hcloudsim.Options{ActionTime: time.Second})
				all := tables(t, sim, c, 3)
				if err := sim.Inject(fault); err != nil {
					t.Fatal(err)
				}
				for i, err := range addAll(t.Context(), all, 0) {
					if err != nil {
						t.Errorf("network %d: %v", i, err)
					}
				}
			})
		})
	}
}
