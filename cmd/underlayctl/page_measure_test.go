package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// somePrices are enough for a plan of nearly everything.
func somePrices() measure.Prices {
	return measure.Prices{
		Location: "nbg1", Currency: "EUR",
		Servers:       []measure.ServerType{{Name: "cx23", Architecture: "x86", Price: measure.Price{Hourly: 6_900, Monthly: 4_150_000}}},
		LoadBalancers: map[string]measure.Price{"lb11": {Hourly: 10_500, Monthly: 6_410_000}},
		IPv4:          &measure.Price{Hourly: 900, Monthly: 595_000},
		FloatingIP:    &measure.Price{Monthly: 1_190_000},
	}
}

func somePlan() planView {
	plan, err := measure.NewPlan(measure.Facts(), somePrices(), measure.Wanted{
		Ceiling: 500_000, TimeLimit: 30 * time.Minute, Cleaning: cleaning, LoadBalancerType: "lb11", Inside: true,
	})
	if err != nil {
		panic(err)
	}
	return planView{
		Endpoint: "api.hetzner.cloud", Location: "nbg1", Existing: measure.Things{Servers: 3, Networks: 1, LoadBalancers: 1},
		Facts: plan.Facts, LeftOut: plan.LeftOut, Makes: plan.Things, Bill: plan.Bill, Ceiling: 500_000, Minutes: 30, Leftovers: []earlierRun{{"20261124-0930-aaaaaa", "3d", false}, {"20261127-0930-bbbbbb", "5m", true}}, plan: plan,
	}
}

// floatingPlan makes one thing that is paid by the month.
func floatingPlan() planView {
	plan, err := measure.NewPlan(measure.Facts(), somePrices(), measure.Wanted{
		Only: []measure.FactID{measure.FloatingReassign}, Ceiling: 2_000_000, TimeLimit: time.Hour, Cleaning: cleaning,
	})
	if err != nil {
		panic(err)
	}
	return planView{Endpoint: "api.hetzner.cloud", Location: "nbg1", Facts: plan.Facts, Makes: plan.Things, Bill: plan.Bill, Ceiling: 2_000_000, Minutes: 60, plan: plan}
}

func someMeasured() resultView {
	plan := somePlan()
	seen := []measure.Observation{
		{Fact: measure.Latency, Seen: measure.Took(84 * time.Millisecond), Note: "20 requests: 71 ms to 180 ms", Record: func(p *profile.Profile) { p.Cloud.LatencySeconds = new(0.084) }},
		{Fact: measure.RateLimit, Seen: measure.Requests(3600)},
		{Fact: measure.Busy, Seen: profile.Locked, Note: "10 times of 10", Record: func(p *profile.Profile) { p.Cloud.Busy = new(profile.Locked) }},
		{Fact: measure.EffectShows, Seen: measure.AtEnd, Record: func(p *profile.Profile) { p.Cloud.EffectsAtOnce = new(false) }},
		{Fact: measure.RemovedTwice, Seen: "not_found"},
		{Fact: measure.SubnetInUse, Why: "making server 1: the API has none of type cx23 left"},
		{Fact: measure.PrivateMTU, Seen: measure.Bytes(1450)},
		{Fact: measure.HealthDetails, Seen: measure.Details("layer4_no_connection", "layer4_timeout", "layer4_timeout", "unexpected_http_status", "unexpected_http_content")},
		{Fact: measure.ActionTimes, Seen: measure.Between([]time.Duration{350 * time.Millisecond, 11 * time.Second}), Note: "add_route: 5, median 1.0 s"},
	}
	var tried []measure.FactID
	for _, o := range seen {
		tried = append(tried, o.Fact)
	}
	return resultView{
		Result: measure.Result{
			Version: "v1.0.0", Started: time.Date(2026, 11, 25, 18, 30, 0, 0, time.UTC), Seconds: 312, Endpoint: "api.hetzner.cloud", Location: "nbg1",
			ServerType: "cx23", Image: "debian-12", LoadBalancerType: "lb11", Bill: plan.Bill, LeftOut: plan.LeftOut,
			Rows: measure.Rows(measure.Facts(), tried, seen, profile.Default(), measure.Redaction{}),
		},
		Profile: measure.Recorded(profile.Profile{Location: "nbg1"}, seen),
	}
}

// What --only names is said to be left out also if nobody can do anything about it; else it is not.
func TestWhatIsNamedIsNotDroppedInSilence(t *testing.T) {
	for _, named := range []bool{false, true} {
		v := planView{named: named, LeftOut: []measure.LeftOut{{Fact: measure.MembersCount, Why: "never: it takes 100 servers"}}}
		if said := slices.ContainsFunc(planPage(v).lines, func(l string) bool { return strings.HasPrefix(l, "Not tried: members-count, never") }); said != named {
			t.Errorf("named: %t, and said: %t", named, said)
		}
	}
}

// A result fits into 80 columns, whatever was seen.
func TestResultsFitIntoATerminal(t *testing.T) {
	for _, line := range strings.Split(painter{}.page(resultPage(someMeasured(), "", "", false)), "\n") {
		if line == "" {
			break // below the table there are sentences
		}
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
