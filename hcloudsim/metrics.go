package hcloudsim

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	samplesDefault = 200
	samplesMost    = 500
	metricsKept    = 30 * 24 * time.Hour
)

// metrics returns the operation that reports metrics: the time series of each requested type. All
// values are 0, because simulated resources have no load, from the creation of the resource on.
func metrics[R resource](series map[string][]string) func(*call, R) (reply, error) {
	return func(c *call, r R) (reply, error) {
		query := c.request.URL.Query()
		var names []string
		for _, kind := range strings.Split(strings.Join(query["type"], ","), ",") {
			if series[kind] == nil {
				known := strings.Join(slices.Sorted(maps.Keys(series)), ", ")
				return reply{}, errInvalid("type", "must be of %s", known)
			}
			names = append(names, series[kind]...)
		}
		start, err := instant(query.Get("start"), "start")
		if err != nil {
			return reply{}, err
		}
		end, err := instant(query.Get("end"), "end")
		if err != nil {
			return reply{}, err
		}
		if !start.Before(end) {
			return reply{}, errInvalid("end", "must be after start")
		}
		period := min(end.Sub(start), metricsKept)
		step := seconds(period, samplesDefault)
		if query.Has("step") {
			if step, err = positive(query, "step", step); err != nil {
				return reply{}, err
			}
			step = min(max(step, seconds(period, samplesMost)), seconds(period, 1))
		}
		values := [][2]any{}
		for _, t := range samples(c.now, r.common().created, start, end, step) {
			values = append(values, [2]any{float64(t.UnixMilli()) / 1000, "0"})
		}
		out := map[string]any{}
		for _, name := range names {
			out[name] = map[string]any{"values": values}
		}
		return ok(http.StatusOK, "metrics", map[string]any{
			"start": query.Get("start"), "end": query.Get("end"), "step": step, "time_series": out,
		})
	}
}

// seconds returns the shortest step that divides a period into at most n samples.
func seconds(period time.Duration, n int) int {
	step := time.Duration(n) * time.Second
	return max(1, int((period+step-1)/step))
}

// samples returns the times of the samples that exist: since the creation, and not yet dropped.
func samples(now, created, start, end time.Time, step int) (times []time.Time) {
	for _, first := range []time.Time{created, now.Add(-metricsKept)} {
		if start.Before(first) {
			start = first
		}
	}
	for t := start; t.Before(end) && t.Before(now); t = t.Add(time.Duration(step) * time.Second) {
		times = append(times, t)
	}
	return times
}

func instant(text, field string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, errInvalid(field, "'%s' is not in ISO-8601 format", text)
	}
	return t, nil
}
