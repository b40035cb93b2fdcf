package measure_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

func TestRowsCompareWhatWasSeenWithWhatIsAssumed(t *testing.T) {
	tried := []measure.FactID{measure.Busy, measure.EffectShows, measure.Latency, measure.AddressReuse, measure.PrivateMTU}
	seen := []measure.Observation{
		{Fact: measure.EffectShows, Seen: measure.AtEnd},
		{Fact: measure.Busy, Seen: "locked", Note: "5 times"},
		{Fact: measure.Latency, Seen: "84 ms"},
		{Fact: measure.AddressReuse, Why: "the server could not be attached"},
	}
	rows := measure.Rows(measure.Facts(), tried, seen, profile.Default())
	got := map[measure.FactID][3]string{}
	for _, r := range rows {
		got[r.Fact] = [3]string{r.Assumed, r.Seen, string(r.Verdict)}
	}
	for fact, want := range map[measure.FactID][3]string{
		measure.Busy:         {"conflict", "locked", "differs"},
		measure.EffectShows:  {"at its end", "at its end", "as assumed"},
		measure.Latency:      {"none", "84 ms", "measured"},
		measure.AddressReuse: {"the first free one", "", "not found out"},
		measure.PrivateMTU:   {"1450 bytes", "", "not found out"},
	} {
		if got[fact] != want {
			t.Errorf("%s: %v, want %v", fact, got[fact], want)
		}
	}
	if len(rows) != len(tried) {
		t.Errorf("%d rows of %d facts", len(rows), len(tried))
	}
	if got, want := measure.Summary(rows), "5 facts: 1 as assumed, 1 differs, 1 measured, 2 not found out."; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	if why := rows[slices.IndexFunc(rows, func(r measure.Row) bool { return r.Fact == measure.PrivateMTU })].Why; !strings.Contains(why, "ended") {
		t.Errorf("a fact that nothing was seen of says %q", why)
	}
}

// Every switch of a profile changes what is assumed of exactly one fact, so that a measured cloud
// has no difference to the simulator that runs with its profile.
func TestEachSwitchIsOneFact(t *testing.T) {
	yes := new(true)
	for name, change := range map[string]func(*profile.Profile){
		"busy":                     func(p *profile.Profile) { p.Cloud.Busy = new("locked") },
		"effects at once":          func(p *profile.Profile) { p.Cloud.EffectsAtOnce = yes },
		"action seconds":           func(p *profile.Profile) { p.Cloud.ActionSeconds = map[string][]float64{"add_route": {0.5}} },
		"latency":                  func(p *profile.Profile) { p.Cloud.LatencySeconds = new(0.1) },
		"rate limit":               func(p *profile.Profile) { p.Cloud.RateLimit = new(7) },
		"addresses in turn":        func(p *profile.Profile) { p.Cloud.AddressesInTurn = yes },
		"refuse reassign":          func(p *profile.Profile) { p.Cloud.RefuseReassign = yes },
		"one target":               func(p *profile.Profile) { p.Cloud.OneTargetPerServer = yes },
		"refuse IPv6 targets":      func(p *profile.Profile) { p.Cloud.RefuseIPv6Targets = yes },
		"zone ignores primary IPs": func(p *profile.Profile) { p.Cloud.ZoneIgnoresPrimaryIPs = yes },
		"one vSwitch subnet":       func(p *profile.Profile) { p.Cloud.OneVSwitchSubnet = yes },
		"header in checks":         func(p *profile.Profile) { p.Cloud.ProxyHeaderInChecks = yes },
		"serve unjudged":           func(p *profile.Profile) { p.Cloud.ServeUnjudged = yes },
		"IPv6 source":              func(p *profile.Profile) { p.Cloud.IPv6Source = new("2001:db8::1") },
		"private MTU":              func(p *profile.Profile) { p.Network.PrivateMTU = new(1400) },
		"public MTU":               func(p *profile.Profile) { p.Network.PublicMTU = new(1400) },
		"vSwitch MTU":              func(p *profile.Profile) { p.Network.VSwitchMTU = new(1350) },
		"any source":               func(p *profile.Profile) { p.Network.AnySource = yes },
		"any source, vSwitch":      func(p *profile.Profile) { p.Network.VSwitchAnySource = yes },
		"route seconds":            func(p *profile.Profile) { p.Network.RouteSeconds = []float64{-0.1, 2} },
		"PROXY protocol":           func(p *profile.Profile) { p.Network.ProxyProtocol = new(1) },
		"refuse proxied":           func(p *profile.Profile) { p.Network.RefuseProxied = yes },
		"neighbors":                func(p *profile.Profile) { p.Network.Neighbors = new(20) },
		"forbidden login":          func(p *profile.Profile) { p.Robot.ForbiddenLogin = yes },
		"processing":               func(p *profile.Profile) { p.Robot.Processing = yes },
		"latency of Robot":         func(p *profile.Profile) { p.Robot.LatencySeconds = new(0.1) },
	} {
		changed := profile.Default()
		change(&changed)
		var differ []measure.FactID
		for _, f := range measure.Facts() {
			if f.Assumed != nil && f.Assumed(profile.Default()) != f.Assumed(changed) {
				differ = append(differ, f.ID)
			}
		}
		if len(differ) != 1 {
			t.Errorf("%s: changes what is assumed of %v, want one fact", name, differ)
		}
	}
}

func TestAProfileKeepsWhatWasNotSeen(t *testing.T) {
	p := profile.Profile{Cloud: profile.Cloud{Busy: new("locked"), RateLimit: new(3600)}}
	set := func(limit int) func(*profile.Profile) {
		return func(p *profile.Profile) { p.Cloud.RateLimit = &limit }
	}
	got := measure.Recorded(p, []measure.Observation{
		{Fact: measure.RateLimit, Seen: measure.Requests(7200), Record: set(7200)},
		{Fact: measure.RateLimit, Why: "there was no answer", Record: set(0)},
		{Fact: measure.AddressReuse, Seen: measure.Lowest},
	})
	if *got.Cloud.RateLimit != 7200 || *got.Cloud.Busy != "locked" || got.Version != profile.Version {
		t.Errorf("recorded %d, %s, version %d", *got.Cloud.RateLimit, *got.Cloud.Busy, got.Version)
	}
}

func TestTimesInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 84400 * time.Microsecond: "84 ms", -12 * time.Millisecond: "-12 ms", 999600 * time.Microsecond: "1.0 s", 1240 * time.Millisecond: "1.2 s", 75 * time.Second: "75.0 s",
	} {
		if got := measure.Took(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
	if got := measure.Between([]time.Duration{2 * time.Second, 20 * time.Millisecond}); got != "20 ms to 2.0 s" {
		t.Error(got)
	}
	ms := func(all ...time.Duration) (out []time.Duration) {
		for _, d := range all {
			out = append(out, d*time.Millisecond)
		}
		return out
	}
	for want, all := range map[string][]time.Duration{
		"none": nil, "266 ms before to 20 ms after": ms(20, -266), "20 ms to 2.0 s after": ms(2000, 20),
		"300 ms to 40 ms before": ms(-40, -300), "0 ms after": ms(0), "5 ms before": ms(-5),
	} {
		if got := measure.Around(all); got != want {
			t.Errorf("%v: %q, want %q", all, got, want)
		}
	}
	if got := measure.Between(nil); got != "none" {
		t.Error(got)
	}
}
