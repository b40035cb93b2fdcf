package experiment

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
)

// projectOver is a project whose requests go over a transport.
func projectOver(t testing.TB, way http.RoundTripper) *project.Project {
	t.Helper()
	return project.New(project.Options{
		Token: secret.New("secret"), Endpoint: "http://cloud.test/v1", Transport: way, Version: "test",
	})
}

func benchOf(p *project.Project) *Bench {
	return &Bench{
		Project: p, Location: "nbg1", ServerType: "cx23", Image: "debian-12", LoadBalancerType: "lb11",
	}
}

// kept is what a project holds, without what it remembers of the past.
func kept(t testing.TB, sim *hcloudsim.Simulator) string {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(sim.Snapshot(), &all); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, kind := range []string{"servers", "networks", "load_balancers", "primary_ips", "floating_ips", "certificates", "ssh_keys"} {
		out = append(out, kind+": "+string(all[kind]))
	}
	return strings.Join(out, "\n")
}

// apiFacts are those by the API alone.
func apiFacts() []measure.FactID {
	var all []measure.FactID
	for _, f := range measure.Facts() {
		if !f.Needs.Inside && !f.Needs.Dedicated && !f.Needs.VSwitch && !f.Needs.Robot {
			all = append(all, f.ID)
		}
	}
	return all
}

// found are what a run has seen, by fact.
func found(t testing.TB, all []measure.Observation) map[measure.FactID]measure.Observation {
	t.Helper()
	by := map[measure.FactID]measure.Observation{}
	for _, o := range all {
		if _, twice := by[o.Fact]; twice {
			t.Errorf("%s was seen twice", o.Fact)
		}
		by[o.Fact] = o
	}
	return by
}

// measured runs the API's facts in a world.
func measured(t *testing.T, opts hcloudsim.Options, facts ...measure.FactID) map[measure.FactID]measure.Observation {
	t.Helper()
	var all []measure.Observation
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(opts)
		all = Run(t.Context(), benchOf(projectOver(t, sim.Transport())), facts)
	})
	if len(all) != len(facts) {
		t.Fatalf("%d observations of %d facts", len(all), len(facts))
	}
	return found(t, all)
}

// like are the options of a cloud whose actions take as long as the real one's.
func like(change func(*hcloudsim.Options)) hcloudsim.Options {
	opts := hcloudsim.Options{
		Seed: 7, ActionTime: time.Second, ActionJitter: time.Second, Latency: 50 * time.Millisecond,
	}
	if change != nil {
		change(&opts)
	}
	return opts
}

// recorded is the profile that observations make.
func recorded(all map[measure.FactID]measure.Observation) profile.Profile {
	p := profile.Profile{Version: profile.Version}
	for _, o := range all {
		if o.Record != nil {
			o.Record(&p)
		}
	}
	return p
}

func describe(o measure.Observation) string {
	return fmt.Sprintf("%s: seen %q, why %q, note %q", o.Fact, o.Seen, o.Why, o.Note)
}
