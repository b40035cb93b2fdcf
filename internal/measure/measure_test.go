package measure_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/secret"
)

func projectOver(way http.RoundTripper) *measure.Project {
	return measure.New(measure.Options{
		Token: secret.New("secret"), Endpoint: "http://cloud.test/v1", Transport: way, Version: "test",
		Location: "nbg1", ServerType: "cx23", Image: "debian-12", LoadBalancerType: "lb11",
	})
}

// facts returns those with the IDs or, without any, those that need only the API.
func facts(ids ...string) []measure.Fact {
	return slices.DeleteFunc(measure.Facts(), func(f measure.Fact) bool {
		return f.Packets || len(ids) > 0 && !slices.Contains(ids, f.ID)
	})
}

// measured measures a simulated cloud that is empty, and fails the test unless it is empty again.
func measured(
	t *testing.T, opts hcloudsim.Options, of []measure.Fact,
) (p profile.Profile, rows map[string]measure.Row) {
	t.Helper()
	rows = map[string]measure.Row{}
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(opts)
		project := projectOver(sim.Transport())
		err := project.Measure(t.Context(), of, profile.Profile{},
			func(r measure.Row, now profile.Profile) error {
				rows[r.Fact.ID], p = r, now
				return nil
			})
		if err := errors.Join(err, project.Sweep(t.Context()), project.Empty(t.Context())); err != nil {
			t.Error(err)
		}
		expectThings(t, sim, 0)
	})
	if len(rows) != len(of) {
		t.Errorf("%d rows of %d facts", len(rows), len(of))
	}
	return p, rows
}

func expectThings(t *testing.T, sim *hcloudsim.Simulator, want int) {
	t.Helper()
	n := len(sim.Servers()) + len(sim.Networks()) + len(sim.LoadBalancers()) + len(sim.FloatingIPs()) +
		len(sim.PrimaryIPs())
	if n != want {
		t.Errorf("%d things are in the project, want %d", n, want)
	}
}

// like are the options of a cloud whose actions take as long as the real one's.
func like() hcloudsim.Options {
	return hcloudsim.Options{
		Seed: 7, ActionTime: time.Second, ActionJitter: time.Second, Latency: 50 * time.Millisecond,
	}
}

func TestAnOrdinaryCloudIsAsAssumed(t *testing.T) {
	_, rows := measured(t, like(), facts())
	for id, r := range rows {
		want := "as assumed"
		if r.Fact.Quantity {
			want = "measured"
		}
		if r.Verdict() != want || r.Fact.Question == "" {
			t.Errorf("%s: %s, seen %q, want %q: %v", id, r.Verdict(), r.Seen, r.Assumed, r.Err)
		}
	}
}

// Each combination of the simulator's options is found.
func TestEachPositionIsFound(t *testing.T) {
	for mask := range 1 << 4 {
		on := func(bit int) *bool { return new(mask>>bit&1 == 1) }
		is := profile.Cloud{
			Busy: new(profile.Conflict), EffectsAtOnce: on(1),
			RefuseReassign: on(2), OneTargetPerServer: on(3),
			LatencySeconds: new(float64(50+mask) / 1000), RateLimit: new(3600 + mask),
		}
		if *on(0) {
			is.Busy = new(profile.Locked)
		}
		t.Run(fmt.Sprintf("%04b", mask), func(t *testing.T) {
			want, err := measure.Complete(profile.Profile{Cloud: is})
			if err != nil {
				t.Fatal(err)
			}
			_, rows := measured(t, hcloudsim.Options{ActionTime: time.Second}.With(is), facts())
			for id, r := range rows {
				if w := r.Fact.Words(want); id != "action-times" && r.Seen != w {
					t.Errorf("%s: %q, want %q: %v", id, r.Seen, w, r.Err)
				}
			}
		})
	}
}

func TestActionTimesAreThoseOfTheCloud(t *testing.T) {
	is := map[string][]float64{
		"add_route": {1.2}, "delete_route": {0.7}, "attach_to_network": {4.1}, "create_server": {12.5},
		"add_target": {0.3},
	}
	p, _ := measured(t, hcloudsim.Options{}.With(profile.Cloud{ActionSeconds: is}), facts())
	for command, times := range is {
		seen := p.Cloud.ActionSeconds[command]
		if len(seen) == 0 {
			t.Errorf("no %s was timed", command)
		}
		for _, s := range seen {
			if math.Abs(s-times[0]) > 0.1+times[0]/10 {
				t.Errorf("%s took %v s, measured %v s", command, times[0], seen)
				break
			}
		}
	}
	alone, _ := measured(t, like(), facts("action-times"))
	if n := len(alone.Cloud.ActionSeconds["add_route"]); n < 5 {
		t.Errorf("%d routes were timed", n)
	}
}

// Time-dependent facts are measured correctly, or not at all, in clouds of all speeds.
func TestNoHasteMakesAWrongResult(t *testing.T) {
	found := 0
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		opts := hcloudsim.Options{
			Seed: seed, ActionTime: time.Duration(random.IntN(600)) * time.Millisecond,
			ActionJitter:  time.Duration(random.IntN(300)) * time.Millisecond,
			Latency:       time.Duration(random.IntN(300)) * time.Millisecond,
			EffectsAtOnce: random.IntN(2) == 0,
		}
		p, rows := measured(t, opts, facts("busy", "effect-shows"))
		if p.Cloud.Busy != nil && *p.Cloud.Busy != profile.Conflict {
			t.Errorf("seed %d: busy is %s", seed, *p.Cloud.Busy)
		}
		if p.Cloud.EffectsAtOnce != nil && *p.Cloud.EffectsAtOnce != opts.EffectsAtOnce {
			t.Errorf("seed %d: effects at once: %t", seed, *p.Cloud.EffectsAtOnce)
		}
		for _, r := range rows {
			if r.Err == nil {
				found++
			} else if !strings.Contains(r.Err.Error(), "ended before") {
				t.Errorf("seed %d: %v", seed, r.Err)
			}
		}
	}
	if found < 40 {
		t.Errorf("%d results are too few for the trial to mean anything", found)
	}
}

// Whichever request the run is interrupted at, everything is deleted, and nothing is created later.
func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	for at, done := 1, false; !done; at += 3 {
		synctest.Test(t, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			sim := hcloudsim.New(like())
			changes := 0
			project := projectOver(roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodGet {
					if changes++; changes == at {
						time.AfterFunc(time.Second, interrupt) // during the request
						return slow(sim, r)
					}
				}
				return sim.Transport().RoundTrip(r)
			}))
			err := project.Measure(ctx, facts(), profile.Profile{},
				func(measure.Row, profile.Profile) error { return nil })
			if done = err == nil; !done && !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted at %d: %v", at, err)
			}
			if err := project.Sweep(t.Context()); err != nil {
				t.Errorf("interrupted at %d: %v", at, err)
			}
			time.Sleep(time.Minute)
			if err := project.Empty(t.Context()); err != nil {
				t.Errorf("interrupted at %d: %v", at, err)
			}
			expectThings(t, sim, 0)
		})
	}
}

// slow sends a request that the cloud executes after some seconds, also if the client disconnects.
func slow(sim *hcloudsim.Simulator, r *http.Request) (*http.Response, error) {
	type result struct {
		response *http.Response
		err      error
	}
	done := make(chan result, 1)
	go func() {
		time.Sleep(10 * time.Second)
		response, err := sim.Transport().RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
		done <- result{response, err}
	}()
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case is := <-done:
		return is.response, is.err
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Only an empty project is measured, and only objects with the label are deleted, in several
// attempts if necessary.
func TestOnlyCreatedObjectsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(like())
		project := projectOver(sim.Transport())
		if err := project.Empty(t.Context()); err != nil {
			t.Error(err)
		}
		labels := map[string]string{measure.Label: ""}
		for _, seed := range []hcloudsim.ServerSeed{
			{Name: "theirs"}, {Name: "ours", Labels: labels},
		} {
			if _, err := sim.CreateServer(seed); err != nil {
				t.Fatal(err)
			}
		}
		network := hcloudsim.NetworkSeed{
			Name: "n", IPRange: netip.MustParsePrefix("10.0.0.0/8"), Labels: labels,
		}
		if _, err := sim.CreateNetwork(network); err != nil {
			t.Fatal(err)
		}
		if err := project.Empty(t.Context()); err == nil || !strings.Contains(err.Error(), "(theirs)") {
			t.Errorf("a project with a server is empty: %v", err)
		}
		refuse := func(times int) {
			f := hcloudsim.Fault{Match: "DELETE /servers/{id}", Times: times, Code: "locked"}
			if err := sim.Inject(f); err != nil {
				t.Fatal(err)
			}
		}
		refuse(3)
		if err := project.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if left := sim.Servers(); len(left) != 1 || left[0].Name != "theirs" || len(sim.Networks()) > 0 {
			t.Errorf("left are %v and %v", left, sim.Networks())
		}
		if _, err := sim.CreateServer(hcloudsim.ServerSeed{Name: "locked", Labels: labels}); err != nil {
			t.Fatal(err)
		}
		refuse(100000)
		if err := project.Sweep(t.Context()); err == nil || !strings.Contains(err.Error(), "(locked)") {
			t.Errorf("what could not be deleted is not named: %v", err)
		}
	})
}

// Every option of the profile that a temporary project can show is one fact.
func TestEachSwitchIsOneFact(t *testing.T) {
	yes, times := new(true), map[string][]float64{"add_route": {0.5}}
	for name, change := range map[string]func(*profile.Profile){
		"busy":             func(p *profile.Profile) { p.Cloud.Busy = new("locked") },
		"effects at once":  func(p *profile.Profile) { p.Cloud.EffectsAtOnce = yes },
		"action seconds":   func(p *profile.Profile) { p.Cloud.ActionSeconds = times },
		"latency":          func(p *profile.Profile) { p.Cloud.LatencySeconds = new(0.1) },
		"rate limit":       func(p *profile.Profile) { p.Cloud.RateLimit = new(7) },
		"refuse reassign":  func(p *profile.Profile) { p.Cloud.RefuseReassign = yes },
		"one target":       func(p *profile.Profile) { p.Cloud.OneTargetPerServer = yes },
		"header in checks": func(p *profile.Profile) { p.Cloud.ProxyHeaderInChecks = yes },
		"serve unjudged":   func(p *profile.Profile) { p.Cloud.ServeUnjudged = yes },
		"IPv6 source":      func(p *profile.Profile) { p.Cloud.IPv6Source = new("2001:db8::1") },
		"private MTU":      func(p *profile.Profile) { p.Network.PrivateMTU = new(1400) },
		"public MTU":       func(p *profile.Profile) { p.Network.PublicMTU = new(1400) },
		"any source":       func(p *profile.Profile) { p.Network.AnySource = yes },
		"route seconds":    func(p *profile.Profile) { p.Network.RouteSeconds = []float64{2} },
		"PROXY protocol":   func(p *profile.Profile) { p.Network.ProxyProtocol = new(1) },
	} {
		changed := profile.Default()
		change(&changed)
		n := 0
		for _, f := range measure.Facts() {
			if f.Words(profile.Default()) != f.Words(changed) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s changes %d facts, want one", name, n)
		}
	}
}
