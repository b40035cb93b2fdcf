package hetzner_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/routes"
)

// mishaps leave the result of a write unknown, or seem to.
var mishaps = []hcloudsim.Fault{
	{DropBeforeApply: true},
	{DropAfterApply: true},
	{Status: http.StatusServiceUnavailable},
	{Status: http.StatusServiceUnavailable, Applied: true},
	{Status: http.StatusGatewayTimeout, Applied: true},
	{NotJSON: true, Applied: true},
	{TornBody: true},
	{FailAction: "action_failed"},
	{LoseAction: true},
}

// Whatever happens to writes and their replies, a client that reads after an error reaches the
// wanted routes; and between a write with an unknown result and the next write there is always a
// read.
func TestLostRepliesAreLookedInto(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { loseReplies(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func loseReplies(t *testing.T, r *rand.Rand) {
	sim, c, _ := project(t, hcloudsim.Options{
		ActionTime: 300 * time.Millisecond, EffectsAtOnce: r.IntN(2) == 0, RateLimit: hcloudsim.Unlimited,
	})
	table, err := c.Network(t.Context(), "cluster")
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		want := wanted(r)
		for range 3 {
			fault := mishaps[r.IntN(len(mishaps))]
			fault.Match = "POST /networks/{rest...}"
			if err := sim.Inject(fault); err != nil {
				t.Fatal(err)
			}
		}
		if err := converge(t.Context(), table, want); err != nil {
			t.Fatalf("%v\n%s", err, written(sim))
		}
	}
	unsure := false
	for _, q := range sim.Requests() {
		switch {
		case q.Method == http.MethodGet && strings.HasPrefix(q.Path, "/v1/networks/"):
			unsure = false
		case q.Method == http.MethodPost && unsure:
			t.Fatalf("written again without a look:\n%s", written(sim))
		case q.Method == http.MethodPost:
			unsure = q.Dropped || q.Status >= http.StatusInternalServerError
		}
	}
}

// wanted returns some of a few routes, each by one of a few gateways.
func wanted(r *rand.Rand) (want []routes.Route) {
	for i := range 4 {
		if r.IntN(3) > 0 {
			want = append(want, entry(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("10.0.0.%d", 2+r.IntN(3))))
		}
	}
	return want
}

// converge acts as a routes controller: it reads, decides, writes, and reads again, whatever the
// result.
func converge(ctx context.Context, table routes.Table, want []routes.Route) error {
	var last error
	for range 40 {
		have, err := table.List(ctx)
		if err != nil {
			return err
		}
		write := next(table, want, have)
		if write == nil {
			return nil
		}
		if last = write(ctx); last != nil {
			time.Sleep(time.Second)
		}
	}
	return fmt.Errorf("the routes that are wanted don't stand after 40 looks; the last error was %w", last)
}

// next returns a write toward the wanted routes, or nil if there is no difference.
func next(table routes.Table, want, have []routes.Route) func(context.Context) error {
	for _, h := range have {
		if slices.Contains(want, h) {
			continue
		}
		if i := slices.IndexFunc(want, func(w routes.Route) bool { return w.Dst == h.Dst }); i >= 0 {
			return func(ctx context.Context) error { return table.Replace(ctx, h, want[i], time.Time{}) }
		}
		return func(ctx context.Context) error { return table.Delete(ctx, h, time.Time{}) }
	}
	for _, w := range want {
		if !slices.Contains(have, w) {
			return func(ctx context.Context) error { return table.Add(ctx, w) }
		}
	}
	return nil
}

// written lists the writes of networks.
func written(sim *hcloudsim.Simulator) string {
	var lines []string
	for _, q := range sim.Requests() {
		lines = append(lines, fmt.Sprintf("%s %s %s %d %s dropped=%v", q.Time.Format("05.000"), q.Method, q.Path, q.Status, q.Code, q.Dropped))
	}
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return !strings.Contains(l, "/networks") }), "\n")
}
