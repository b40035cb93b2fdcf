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
		start, startErr := time.Parse(time.RFC3339, query.Get("start"))
		end, endErr := time.Parse(time.RFC3339, query.Get("end"))
		switch {
		case startErr != nil:
			return reply{}, errInvalid("start", "is not in ISO-8601 format")
		case endErr != nil:
			return reply{}, errInvalid("end", "is not in ISO-8601 format")
		case !start.Before(end):
			return reply{}, errInvalid("end", "must be after start")
		}
		period := min(end.Sub(start), metricsKept)
		step, err := positive(query, "step", seconds(period, samplesDefault))
		if err != nil {
			return reply{}, err
		}
		step = min(max(step, seconds(period, samplesMost)), seconds(period, 1))
		for _, first := range []time.Time{r.common().created, c.now.Add(-metricsKept)} {
			if start.Before(first) {
				start = first
			}
		}
		values := [][2]any{}
		for t := start; t.Before(end) && t.Before(c.now); t = t.Add(time.Duration(step) * time.Second) {
			values = append(values, [2]any{float64(t.UnixMilli()) / 1000, "0"})
		}
		out := map[string]any{}
		for kind := range strings.SplitSeq(strings.Join(query["type"], ","), ",") {
			if series[kind] == nil {
				known := strings.Join(slices.Sorted(maps.Keys(series)), ", ")
				return reply{}, errInvalid("type", "must be of %s", known)
			}
			for _, name := range series[kind] {
				out[name] = map[string]any{"values": values}
			}
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
