package measure_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure"
)

func money(t *testing.T, text string) measure.Money {
	t.Helper()
	m, err := measure.ParseMoney(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// prices are round ones.
func prices(t *testing.T) measure.Prices {
	per := func(hour, month string) measure.Price {
		return measure.Price{Hourly: money(t, hour), Monthly: money(t, month)}
	}
	address, floating := per("0.001", "0.5"), per("0", "3")
	return measure.Prices{
		Location: "nbg1", Currency: "EUR",
		Servers: []measure.ServerType{
			{Name: "big", Architecture: "x86", Price: per("0.1", "60")},
			{Name: "arm", Architecture: "arm", Price: per("0.001", "1")},
			{Name: "small", Architecture: "x86", Price: per("0.01", "6")},
		},
		LoadBalancers: map[string]measure.Price{"lb11": per("0.02", "12")},
		IPv4:          &address,
		FloatingIP:    &floating,
	}
}

// wanted is a run of half an hour.
func wanted(t *testing.T) measure.Wanted {
	return measure.Wanted{
		Ceiling: money(t, "0.5"), TimeLimit: 30 * time.Minute, Cleaning: 10 * time.Minute, LoadBalancerType: "lb11", Inside: true,
	}
}

func plan(t *testing.T, w measure.Wanted) measure.Plan {
	t.Helper()
	p, err := measure.NewPlan(measure.Facts(), prices(t), w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestThePlanStaysUnderTheCeiling(t *testing.T) {
	all := wanted(t)
	all.Dedicated, all.DedicatedProgram, all.VSwitch, all.Robot = true, true, true, true
	for _, ceiling := range []string{"0", "0.01", "0.05", "0.1", "0.2", "0.5", "3.5", "100"} {
		all.Ceiling = money(t, ceiling)
		p := plan(t, all)
		if p.Bill.Total > all.Ceiling {
			t.Errorf("--max-cost %s: the bill is %s", ceiling, p.Bill.Total)
		}
		named := slices.Clone(p.Facts)
		for _, l := range p.LeftOut {
			named = append(named, l.Fact)
		}
		if len(named) != len(measure.Facts()) {
			t.Errorf("--max-cost %s: %d facts are planned or left out, of %d", ceiling, len(named), len(measure.Facts()))
		}
	}
}

// What is free is found out whatever the ceiling.
func TestWithoutMoneyThereAreNetworks(t *testing.T) {
	w := wanted(t)
	w.Ceiling = 0
	p := plan(t, w)
	if want := []measure.FactID{measure.Latency, measure.RateLimit, measure.Busy, measure.EffectShows, measure.RemovedTwice, measure.ActionTimes}; !slices.Equal(p.Facts, want) {
		t.Errorf("facts %v, want %v", p.Facts, want)
	}
	if p.Things.Servers != 0 || p.Things.LoadBalancers != 0 || p.Things.Networks == 0 {
		t.Errorf("things %+v", p.Things)
	}
}

func TestTheBill(t *testing.T) {
	w := wanted(t)
	w.Only = []measure.FactID{measure.PrivateMTU, measure.SourcePublic, measure.FloatingReassign}
	p := plan(t, w)
	if want := []measure.FactID{measure.PrivateMTU, measure.SourcePublic}; !slices.Equal(p.Facts, want) {
		t.Fatalf("facts %v, want %v", p.Facts, want)
	}
	// Two hours: two servers for 0.01, a load balancer for 0.02, three addresses for 0.001.
	if got, want := p.Bill.Total, money(t, "0.086"); got != want {
		t.Errorf("total %s, want %s: %+v", got.Fine(), want.Fine(), p.Bill.Items)
	}
	if p.ServerType != "small" {
		t.Errorf("server type %s, want the cheapest of x86", p.ServerType)
	}
	if len(p.LeftOut) != 1 || !strings.Contains(p.LeftOut[0].Why, "--max-cost 3.09") {
		t.Errorf("left out %+v, want the floating IP with what it takes", p.LeftOut)
	}
	w.Ceiling = money(t, "3.09")
	if p := plan(t, w); len(p.LeftOut) != 0 {
		t.Errorf("with what it takes, %+v is left out", p.LeftOut)
	}
}

// What is left out for its price is tried with the ceiling that it is said to take, whatever else is
// left out.
func TestTheCeilingThatIsAdvisedIsEnough(t *testing.T) {
	w := wanted(t)
	w.Dedicated, w.DedicatedProgram, w.VSwitch, w.Robot = true, true, true, true
	tried := 0
	for _, ceiling := range []string{"0", "0.01", "0.05", "0.07", "0.1", "0.2"} {
		w.Ceiling = money(t, ceiling)
		for _, left := range plan(t, w).LeftOut {
			advised, found := strings.CutPrefix(left.Why, "only with --max-cost ")
			if !found {
				continue
			}
			tried++
			more := w
			more.Ceiling = money(t, advised)
			if !slices.Contains(plan(t, more).Facts, left.Fact) {
				t.Errorf("with --max-cost %s %s is said to take %s, and is left out with that too", ceiling, left.Fact, advised)
			}
		}
	}
	if tried == 0 {
		t.Error("nothing is left out for its price")
	}
}

func TestChargedHours(t *testing.T) {
	for d, want := range map[time.Duration]int{time.Minute: 2, 40 * time.Minute: 2, 58 * time.Minute: 2, time.Hour: 3, 61 * time.Minute: 3, 119 * time.Minute: 3, 2 * time.Hour: 4} {
		if got := measure.Hours(d); got != want {
			t.Errorf("%s: %d hours, want %d", d, got, want)
		}
	}
}

func TestWhatCanNotBePlanned(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*measure.Wanted)
		want   string
	}{
		"an unknown fact":          {func(w *measure.Wanted) { w.Only = []measure.FactID{"bussy"} }, `--only names "bussy"`},
		"an unknown one to skip":   {func(w *measure.Wanted) { w.Skip = []measure.FactID{"bussy"} }, `--skip names "bussy"`},
		"a server type":            {func(w *measure.Wanted) { w.ServerType = "huge" }, `"huge" is not on offer in location nbg1: choose one of big, arm, small`},
		"a load balancer type":     {func(w *measure.Wanted) { w.LoadBalancerType = "lb99" }, "choose one of lb11"},
		"nothing remains":          {func(w *measure.Wanted) { w.Only, w.Skip = []measure.FactID{"busy"}, []measure.FactID{"busy"} }, "--skip"},
		"only what is too dear":    {func(w *measure.Wanted) { w.Only = []measure.FactID{measure.FloatingReassign} }, "--max-cost 3.05"},
		"only what is impossible":  {func(w *measure.Wanted) { w.Only = []measure.FactID{measure.RobotQuota} }, "an hour's quota"},
		"packets without programs": {func(w *measure.Wanted) { w.Only, w.Inside = []measure.FactID{measure.SourceCheck}, false }, "--api-only"},
	} {
		w := wanted(t)
		c.change(&w)
		_, err := measure.NewPlan(measure.Facts(), prices(t), w)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}

// What has no price isn't free.
func TestWhatHasNoPriceIsNotMade(t *testing.T) {
	w := wanted(t)
	w.Ceiling = money(t, "100")
	known := prices(t)
	known.FloatingIP = nil
	p, err := measure.NewPlan(measure.Facts(), known, w)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.LeftOut, func(l measure.LeftOut) bool { return l.Fact == measure.FloatingReassign })
	if i < 0 || !strings.Contains(p.LeftOut[i].Why, "no price of a floating IPv6 address in location nbg1") {
		t.Errorf("left out %+v", p.LeftOut)
	}
	if p.Things.FloatingIPs != 0 || p.Things.Servers == 0 {
		t.Errorf("things %s", p.Things)
	}
	known.IPv4 = nil
	if p, err = measure.NewPlan(measure.Facts(), known, w); err != nil || p.Bill.Total != 0 || p.Things.Networks == 0 {
		t.Errorf("without a price of addresses: %+v, %v", p.Bill, err)
	}
	if got := p.Things; got.Servers+got.LoadBalancers+got.PrimaryIPs+got.FloatingIPs != 0 {
		t.Errorf("things %s", got)
	}
}

// Whatever is found out alone: servers and load balancers that are shared are in a network.
func TestWhatIsInANetworkNeedsOne(t *testing.T) {
	for _, f := range measure.Facts() {
		things := measure.ThingsOf([]measure.Fact{f})
		if inIt := f.Needs.Servers > 0 || f.Needs.LoadBalancer; inIt && things.Networks == 0 {
			t.Errorf("%s alone makes %s", f.ID, things)
		}
	}
}

// A wrong login is only tried by who asks for it.
func TestWhatIsTriedOnlyWhenNamed(t *testing.T) {
	w := wanted(t)
	w.Robot = true
	if p := plan(t, w); slices.Contains(p.Facts, measure.RobotLogin) {
		t.Error("robot-login is tried without being named")
	}
	w.Only = []measure.FactID{measure.RobotLogin}
	if p := plan(t, w); !slices.Contains(p.Facts, measure.RobotLogin) {
		t.Error("robot-login is not tried though it is named")
	}
}

func TestMoney(t *testing.T) {
	for text, want := range map[string][2]string{
		"0.0063000000000000": {"0.01", "0.0063"}, "0.0000001": {"0.01", "0.0001"}, "3": {"3.00", "3.0000"},
		"0.50": {"0.50", "0.5000"}, "1.005": {"1.01", "1.0050"}, "0": {"0.00", "0.0000"}, "12.345678": {"12.35", "12.3457"},
	} {
		m := money(t, text)
		if got := [2]string{m.String(), m.Fine()}; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"", ".5", "-1", "1,5", "1e3", "0.00000a", "0.123456x", "99999999999999999999", "abc", "1.2.3"} {
		if m, err := measure.ParseMoney(text); err == nil {
			t.Errorf("%q is %s", text, m)
		}
	}
}

// An ID is used once, and each fact says what it is.
func TestTheFactsAreWhole(t *testing.T) {
	seen := map[measure.FactID]bool{}
	for _, f := range measure.Facts() {
		if seen[f.ID] || f.Question == "" {
			t.Errorf("%s: twice, or without a question", f.ID)
		}
		seen[f.ID] = true
	}
}
