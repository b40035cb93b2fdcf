package experiment

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// TestAnOrdinaryCloudIsAsAssumed measures a simulator without any switch.
func TestAnOrdinaryCloudIsAsAssumed(t *testing.T) {
	for id, o := range measured(t, like(nil), apiFacts()...) {
		fact, _ := measure.Of(id)
		if o.Seen == "" || o.Why != "" {
			t.Errorf("not found: %s", describe(o))
		}
		if want := fact.Assumed(profile.Default()); !fact.Quantity && o.Seen != want {
			t.Errorf("seen %q, assumed %q: %s", o.Seen, want, describe(o))
		}
	}
}

// TestEachPositionIsFound measures a simulator with each combination of what can be switched, and
// wants exactly that in the profile.
func TestEachPositionIsFound(t *testing.T) {
	for mask := range 1 << 6 {
		if mask%slowdown != 0 {
			continue
		}
		on := func(bit int) bool { return mask>>bit&1 == 1 }
		is := profile.Cloud{
			Busy: new(profile.Conflict), EffectsAtOnce: new(on(1)), AddressesInTurn: new(on(2)),
			RefuseReassign:     new(on(3)),
			OneTargetPerServer: new(on(4)), ZoneIgnoresPrimaryIPs: new(on(5)),
			LatencySeconds: new(float64(50+mask) / 1000), RateLimit: new(3600 + mask),
		}
		if on(0) {
			is.Busy = new(profile.Locked)
		}
		t.Run(fmt.Sprintf("%06b", mask), func(t *testing.T) {
			all := measured(t, hcloudsim.Options{ActionTime: time.Second}.With(is), apiFacts()...)
			seen := recorded(all).Cloud
			seen.ActionSeconds = nil // are tried below
			if got, want := asJSON(t, seen), asJSON(t, is); got != want {
				t.Errorf("measured %s\nthe cloud is %s", got, want)
				for _, o := range all {
					t.Log(describe(o))
				}
			}
		})
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestActionTimesAreThoseOfTheCloud(t *testing.T) {
	is := map[string][]float64{
		"add_route": {1.2}, "delete_route": {0.7}, "attach_to_network": {4.1}, "create_server": {12.5},
		"add_target": {0.3},
	}
	all := measured(t, hcloudsim.Options{}.With(profile.Cloud{ActionSeconds: is}), apiFacts()...)
	seen := recorded(all).Cloud.ActionSeconds
	for command, times := range is {
		if len(seen[command]) == 0 {
			t.Errorf("no %s was timed", command)
		}
		for _, s := range seen[command] {
			if math.Abs(s-times[0]) > 0.2+times[0]/10 {
				t.Errorf("%s took %v s, measured %v s", command, times[0], seen[command])
				break
			}
		}
	}
	for _, command := range []string{"add_route", "delete_route"} {
		if n := len(seen[command]); n < enough {
			t.Errorf("%d of %s were timed, not %d", n, command, enough)
		}
	}
}

// TestRoutesAreTimedAlone has action times without any other experiment that has actions.
func TestRoutesAreTimedAlone(t *testing.T) {
	all := measured(t, like(nil), measure.ActionTimes)
	seen := recorded(all).Cloud.ActionSeconds
	if len(seen["add_route"]) < enough || len(seen["delete_route"]) < enough {
		t.Errorf("timed %v", seen)
	}
}

// TestWhatIsTooShortIsNotGuessed has a cloud whose actions are over before their reply.
func TestWhatIsTooShortIsNotGuessed(t *testing.T) {
	all := measured(t, hcloudsim.Options{}, measure.Busy, measure.EffectShows)
	for _, o := range all {
		if o.Seen != "" || o.Record != nil || !strings.Contains(o.Why, "before another request came") {
			t.Errorf("%s", describe(o))
		}
	}
}

// TestAZoneWithOneLocationTellsNothing says so, and makes nothing.
func TestAZoneWithOneLocationTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(like(nil))
		b := benchOf(projectOver(t, sim.Transport()))
		b.Location, b.ServerType = "ash", "cpx11"
		o := Run(t.Context(), b, []measure.FactID{measure.ZonePrimaryIPs})[0]
		if o.Seen != "" || o.Record != nil || !strings.Contains(o.Why, "--location") {
			t.Errorf("%s", describe(o))
		}
		if n := len(sim.LoadBalancers()) + len(sim.PrimaryIPs()); n != 0 {
			t.Errorf("%d things were made", n)
		}
	})
}

// TestALocationThatIsNoneIsNamed is told of a wrong --location.
func TestALocationThatIsNoneIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(like(nil))
		b := benchOf(projectOver(t, sim.Transport()))
		b.Location = "nbg9"
		if o := Run(t.Context(), b, []measure.FactID{measure.Busy})[0]; !strings.Contains(o.Why, `"nbg9"`) {
			t.Errorf("%s", describe(o))
		}
	})
}

// TestThingsAreMadeOnce counts what is left at the end of a whole run by the API: what is shared is
// there once.
func TestThingsAreMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(like(nil))
		b := benchOf(projectOver(t, sim.Transport()))
		Run(t.Context(), b, apiFacts())
		Run(t.Context(), b, apiFacts()) // finds everything
		s, n, l := len(sim.Servers()), len(sim.Networks()), len(sim.LoadBalancers())
		if s != 2 || n != 2 || l != 1 {
			t.Errorf("%d servers, %d networks, %d load balancers", s, n, l)
		}
		for _, n := range sim.Networks() {
			if len(n.Routes) > 0 || len(n.Subnets) != 1 {
				t.Errorf("network %s has routes %v and subnets %v", n.Name, n.Routes, n.Subnets)
			}
		}
		for _, l := range sim.LoadBalancers() {
			if len(l.Targets) > 0 {
				t.Errorf("the load balancer has targets %v", l.Targets)
			}
		}
		for _, s := range sim.Servers() {
			if len(s.PrivateNet) != 1 {
				t.Errorf("server %s is in %d networks, not in the shared one alone", s.Name, len(s.PrivateNet))
			}
		}
	})
}

// TestNoHasteMakesAWrongAnswer has clouds of all speeds: what depends on the moment is found as it is,
// or not found.
func TestNoHasteMakesAWrongAnswer(t *testing.T) {
	found := 0
	for seed := range uint64(80 / slowdown) {
		random := rand.New(rand.NewPCG(seed, 1))
		is := profile.Cloud{Busy: new(profile.Conflict), EffectsAtOnce: new(random.IntN(2) == 0)}
		opts := hcloudsim.Options{
			Seed: seed, ActionTime: time.Duration(random.IntN(600)) * time.Millisecond,
			ActionJitter: time.Duration(random.IntN(300)) * time.Millisecond,
			Latency:      time.Duration(random.IntN(300)) * time.Millisecond,
		}.With(is)
		all := measured(t, opts, measure.Busy, measure.EffectShows)
		seen := recorded(all).Cloud
		if seen.Busy != nil && *seen.Busy != *is.Busy || all[measure.Busy].Seen == measure.Taken {
			t.Errorf("seed %d: %s", seed, describe(all[measure.Busy]))
		}
		if seen.EffectsAtOnce != nil && *seen.EffectsAtOnce != *is.EffectsAtOnce {
			t.Errorf("seed %d: %s", seed, describe(all[measure.EffectShows]))
		}
		for _, o := range all {
			if o.Seen != "" {
				found++
			} else if !strings.Contains(o.Why, "before another request came") {
				t.Errorf("seed %d: %s", seed, describe(o))
			}
		}
	}
	if found < 80/slowdown {
		t.Errorf("%d answers are too few for the trial to tell anything", found)
	}
}
