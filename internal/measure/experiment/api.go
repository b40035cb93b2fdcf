package experiment

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

// reads is how many requests the median of the latency is of.
const reads = 20

func latency(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	b.say("timing %d requests that read", reads)
	var all []time.Duration
	for range reads {
		// What is read is small, and the same in every project.
		err := b.again(ctx, func() error {
			began := time.Now()
			_, err := b.client().Location.All(ctx)
			if err == nil {
				all = append(all, time.Since(began))
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading the locations: %w", err)
		}
	}
	slices.Sort(all)
	middle := rounded(median(all))
	return sees(measure.Observation{
		Fact: measure.Latency, Seen: measure.Took(middle),
		Note:   fmt.Sprintf("%d requests: %s", len(all), measure.Between(all)),
		Record: func(p *profile.Profile) { p.Cloud.LatencySeconds = new(middle.Seconds()) },
	})
}

func rateLimit(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	var limit hcloud.Ratelimit
	err := b.again(ctx, func() error {
		_, answer, err := b.client().Location.List(ctx, hcloud.LocationListOpts{})
		if err == nil {
			limit = answer.Meta.Ratelimit
		}
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the locations: %w", err)
	case limit.Limit == 0:
		return sees(unsure(measure.RateLimit, "the answer has no header RateLimit-Limit"))
	}
	return sees(measure.Observation{
		Fact: measure.RateLimit, Seen: measure.Requests(limit.Limit),
		Record: func(p *profile.Profile) { p.Cloud.RateLimit = new(limit.Limit) },
	})
}

// enough is how many times each a route is added and removed.
const enough = 5

// actionTimes tells how long the actions of the run took, and has some of routes at least.
func actionTimes(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	n, err := b.Network(ctx)
	if err != nil {
		return nil, err
	}
	took := b.Project.Took()
	missing := enough - min(len(took["add_route"]), len(took["delete_route"]))
	for i := range max(0, missing) {
		b.say("timing a route's actions, %d of %d", i+1, missing)
		if _, err := b.Change(ctx, "adding a route", b.adding(n, n.spare(timed))); err != nil {
			return nil, err
		}
		if err := b.deleteRoute(ctx, n, n.spare(timed)); err != nil {
			return nil, err
		}
	}
	took = b.Project.Took()
	seconds := map[string][]float64{}
	var notes []string
	for _, command := range slices.Sorted(maps.Keys(took)) {
		all := slices.Sorted(slices.Values(took[command]))
		for _, d := range all {
			seconds[command] = append(seconds[command], rounded(d).Seconds())
		}
		notes = append(notes, fmt.Sprintf("%d of %s took %s, the median %s",
			len(all), command, measure.Between(all), measure.Took(median(all))))
	}
	if len(seconds) == 0 {
		return sees(unsure(measure.ActionTimes, "no time of an action is known exactly: "+inexact))
	}
	return sees(measure.Observation{
		Fact: measure.ActionTimes, Note: strings.Join(notes, "; ") + "; each to within " + project.Exactness,
		Record: func(p *profile.Profile) { p.Cloud.ActionSeconds = seconds },
	})
}

// median is that of sorted values, of which there is one at least.
func median[T cmp.Ordered](sorted []T) T { return sorted[len(sorted)/2] }

// rounded is what a profile has of a time.
func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
