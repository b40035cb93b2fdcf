package measure_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/measure"
)

// wanted has everything that there is to find out more with.
func wanted() measure.Wanted {
	return measure.Wanted{Inside: true, Dedicated: true, DedicatedProgram: true, VSwitch: true, Robot: true}
}

func plan(t *testing.T, w measure.Wanted) measure.Plan {
	t.Helper()
	p, err := measure.NewPlan(measure.Facts(), w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Each fact is planned or left out, with what it takes.
func TestThePlanIsWhole(t *testing.T) {
	for name, w := range map[string]measure.Wanted{"everything": wanted(), "by the API": {}, "packets": {Inside: true}} {
		p := plan(t, w)
		if got := len(p.Facts) + len(p.LeftOut); got != len(measure.Facts()) {
			t.Errorf("%s: %d facts are planned or left out, of %d", name, got, len(measure.Facts()))
		}
	}
	w := measure.Wanted{Only: []measure.FactID{measure.PrivateMTU, measure.SourceIPv6, measure.ZonePrimaryIPs}, Inside: true}
	if got, want := plan(t, w).Things, (measure.Things{Servers: 2, Networks: 1, LoadBalancers: 3, PrimaryIPs: 2}); got != want {
		t.Errorf("%s are made, want %s", got, want)
	}
}

func TestWhatCanNotBePlanned(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*measure.Wanted)
		want   string
	}{
		"an unknown fact":          {func(w *measure.Wanted) { w.Only = []measure.FactID{"bussy"} }, `--only names "bussy"`},
		"an unknown one to skip":   {func(w *measure.Wanted) { w.Skip = []measure.FactID{"bussy"} }, `--skip names "bussy"`},
		"nothing remains":          {func(w *measure.Wanted) { w.Only, w.Skip = []measure.FactID{"busy"}, []measure.FactID{"busy"} }, "--skip"},
		"packets without programs": {func(w *measure.Wanted) { w.Only, w.Inside = []measure.FactID{measure.SourceCheck}, false }, "--api-only"},
	} {
		w := wanted()
		c.change(&w)
		_, err := measure.NewPlan(measure.Facts(), w)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
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
	w := wanted()
	if p := plan(t, w); slices.Contains(p.Facts, measure.RobotLogin) {
		t.Error("robot-login is tried without being named")
	}
	w.Only = []measure.FactID{measure.RobotLogin}
	if p := plan(t, w); !slices.Contains(p.Facts, measure.RobotLogin) {
		t.Error("robot-login is not tried though it is named")
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
