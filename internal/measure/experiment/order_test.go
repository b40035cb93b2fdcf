package experiment

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// says is an experiment that sees the same always.
func says(err error, all ...measure.Observation) func(context.Context, *Bench) ([]measure.Observation, error) {
	return func(context.Context, *Bench) ([]measure.Observation, error) { return all, err }
}

func TestEveryFactIsAnswered(t *testing.T) {
	broken := errors.New("adding a route: the API is tired")
	known := []Experiment{
		{Facts: []measure.FactID{"a"}, Run: says(nil, measure.Observation{Fact: "a", Seen: "yes"})},
		{Facts: []measure.FactID{"b", "c"}, Run: says(broken, measure.Observation{Fact: "b", Seen: "half"})},
		{Facts: []measure.FactID{"f"}, Run: says(broken, measure.Observation{Fact: "f"})},
		{Facts: []measure.FactID{"d"}, Run: says(nil)},
		{Facts: []measure.FactID{"unwanted"}, Run: func(context.Context, *Bench) ([]measure.Observation, error) {
			t.Error("an experiment was done that no fact needs")
			return nil, nil
		}},
		{Facts: []measure.FactID{"busy"}, Run: says(nil, measure.Observation{
			Fact: "busy", Record: func(p *profile.Profile) { p.Cloud.Busy = new(profile.Locked) },
		})},
	}
	var told []measure.FactID
	b := &Bench{Found: func(o measure.Observation) { told = append(told, o.Fact) }}
	facts := []measure.FactID{"busy", "d", "c", "b", "a", "e", "f"}
	want := []measure.Observation{
		{Fact: "busy", Seen: profile.Locked},
		{Fact: "d", Why: "nothing was seen"},
		{Fact: "c", Why: broken.Error()},
		{Fact: "b", Seen: "half"},
		{Fact: "a", Seen: "yes"},
		{Fact: "e", Why: "there is no experiment for it"},
		{Fact: "f", Why: broken.Error()},
	}
	all := run(t.Context(), b, known, facts)
	for i, o := range all {
		o.Record = nil
		if describe(o) != describe(want[i]) {
			t.Errorf("%s, not %s", describe(o), describe(want[i]))
		}
	}
	if want := []measure.FactID{"a", "b", "c", "f", "d", "busy"}; !slices.Equal(told, want) {
		t.Errorf("told of %v, not of %v as they were found", told, want)
	}
}

func TestNothingIsTriedOnceTheTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := []Experiment{
			{Facts: []measure.FactID{"a"}, Run: says(nil, measure.Observation{Fact: "a", Seen: "yes"})},
			{Facts: []measure.FactID{"b"}, Run: func(ctx context.Context, _ *Bench) ([]measure.Observation, error) {
				return nil, wait(ctx, time.Hour)
			}},
			{Facts: []measure.FactID{"c"}, Run: func(context.Context, *Bench) ([]measure.Observation, error) {
				t.Error("an experiment was begun after the end")
				return nil, nil
			}},
		}
		facts := []measure.FactID{"a", "b", "c"}
		for _, why := range []string{"--time-limit", "interrupted"} {
			ctx, cancel := context.WithCancel(t.Context())
			if why == "interrupted" {
				time.AfterFunc(time.Minute, cancel)
			} else {
				ctx, cancel = context.WithTimeoutCause(ctx, time.Minute, errors.New("late"))
			}
			defer cancel()
			all := run(ctx, &Bench{}, known, facts)
			if all[0].Seen != "yes" {
				t.Errorf("what was seen before was lost: %s", describe(all[0]))
			}
			for _, o := range all[1:] {
				if o.Seen != "" || !strings.Contains(o.Why, why) {
					t.Errorf("%s", describe(o))
				}
			}
		}
	})
}

// TestEachFactHasOneExperiment compares the table of facts with what is done.
func TestEachFactHasOneExperiment(t *testing.T) {
	by := map[measure.FactID]int{}
	for _, e := range All() {
		for _, f := range e.Facts {
			by[f]++
		}
	}
	for _, f := range measure.Facts() {
		if by[f.ID] != 1 {
			t.Errorf("%s has %d experiments, not one", f.ID, by[f.ID])
		}
		delete(by, f.ID)
	}
	for id := range by {
		t.Errorf("an experiment finds out %s, which is no fact", id)
	}
}
