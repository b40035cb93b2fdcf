package robotsim_test

import (
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

// The default profile equals the zero options, and each measured field changes an option of its
// own.
func TestProfiles(t *testing.T) {
	for _, none := range []profile.Robot{{}, profile.Default().Robot} {
		if got := (robotsim.Options{}).With(none); !reflect.DeepEqual(got, robotsim.Options{}) {
			t.Errorf("options are %+v, want none", got)
		}
	}
	otherwise := profile.Robot{
		ForbiddenLogin: new(true), Processing: new(true), VSwitchSeconds: []float64{30, 40},
		LatencySeconds: new(0.5),
	}
	changed := map[string]bool{}
	for field, value := range reflect.ValueOf(otherwise).Fields() {
		var one profile.Robot
		reflect.ValueOf(&one).Elem().FieldByIndex(field.Index).Set(value)
		count := 0
		for option, set := range reflect.ValueOf(robotsim.Options{}.With(one)).Fields() {
			if !set.IsZero() {
				count++
				changed[option.Name] = true
			}
		}
		if count != 1 {
			t.Errorf("%s changes %d options, want one", field.Name, count)
		}
	}
	if len(changed) != reflect.TypeFor[profile.Robot]().NumField() {
		t.Errorf("the fields change %v, want an option each", changed)
	}
	set := robotsim.Options{VSwitchTime: time.Hour, Latency: time.Second}
	if got := set.With(otherwise); got.VSwitchTimes != nil || got.VSwitchTime != time.Hour ||
		got.Latency != time.Second {
		t.Errorf("options are %+v, want what was set to stay", got)
	}
}

// A vSwitch is in process for the measured times: each of them is drawn, and the same seed draws
// the same.
func TestVSwitchTakesMeasuredTimes(t *testing.T) {
	times := []time.Duration{20 * time.Second, 45 * time.Second}
	run := func(seed uint64) (took []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			sim := seeded(t, robotsim.Options{VSwitchTimes: times, Seed: seed})
			for range 10 {
				for _, change := range []string{"POST", "DELETE"} {
					do(change+" /vswitch/4321/server server[]=421")(t, sim)
					begun := time.Now()
					for slices.Contains(members(t, sim, 4321), "421 in process") {
						time.Sleep(5 * time.Second)
					}
					took = append(took, time.Since(begun))
				}
			}
		})
		return took
	}
	first := run(1)
	if drawn := slices.Compact(slices.Sorted(slices.Values(first))); !slices.Equal(drawn, times) {
		t.Errorf("changes took %v, want each of %v", drawn, times)
	}
	if !slices.Equal(run(1), first) || slices.Equal(run(2), first) {
		t.Error("times are not drawn by the seed")
	}
}
