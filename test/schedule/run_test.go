package schedule

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	schedules = flag.Int("schedules", 400/slowdown, "how many random schedules to run")
	firstSeed = flag.Uint64("first-seed", 0, "the seed of the first schedule")
	history   = flag.Bool("history", false, "print the history of every schedule")
	requests  = flag.Bool("requests", false, "put every request into the history")
	all       = flag.Bool("all", false, "go on after a schedule that breaks an invariant")
)

// Node IPAM and routes under one schedule: no prefix is assigned twice, none while a route sends it
// elsewhere, no Node is reachable without its route, no living Node's route is deleted, and in the
// end all Nodes have podCIDRs and routes.
func TestSchedules(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	shards := runtime.GOMAXPROCS(0)
	t.Run("shards", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for i := shard; i < *schedules; i += shards {
					seed := *firstSeed + uint64(i)
					broken, detected, log := run(t, seed)
					mu.Lock()
					for what, n := range detected {
						seen[what] += n
					}
					mu.Unlock()
					if *history && len(broken) == 0 {
						t.Log(log)
					}
					if len(broken) == 0 {
						continue
					}
					// The order of goroutines doesn't depend on the seed: another run may differ.
					t.Errorf("seed %d (run it with -schedules 1 -first-seed %d):\n%s\n%s", seed, seed, strings.Join(broken, "\n"), log)
					if !*all {
						return
					}
				}
			})
		}
	})
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%6d %s", seen[what], what)
	}
}
