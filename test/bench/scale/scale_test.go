// Package scale measures underlay-ccm in a cluster of 15,000 Nodes, each as large as a kubelet
// makes it, on a real API server: its startup time, its memory, the wait of one Node, and the
// duration of a change of leader. Then Nodes are replaced for ten minutes behind a fault-injecting
// proxy while leaders are killed, and every Node's podCIDRs are watched all the time.
//
// It asserts that nothing is assigned twice, that every Node gets its podCIDRs, and the number of
// requests; times and sizes are printed and fail nothing. Run it with `make bench-scale`.
package scale_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/bench/results"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

const (
	nodeCount = 15_000
	// podRanges have room for 16,384 Nodes, so that ranges are reused within the ten minutes.
	podRanges = "--cluster-cidr=100.64.0.0/10,fd00:64::/48"
	// joins is how many Nodes join one after the other, takeovers how often a leader is stopped,
	// and how often one is killed.
	joins, takeovers = 30, 3
	// restFor is the idle time before the memory is read.
	restFor = 30 * time.Second
	// limit is the time limit of the whole run.
	limit = 40 * time.Minute
	// smallLimit is the time limit of the test with few Nodes.
	smallLimit = 5 * time.Minute
)

// How a leader ends.
const toldToStop, isKilled = "leader told to stop", "leader killed"

// deployed are the flags of leader election with which deploy/ runs the manager.
var deployed = election{lease: 8 * time.Second, renew: 6 * time.Second, retry: time.Second}

var replaceFor = flag.Duration("replace", 10*time.Minute, "how long the benchmark replaces Nodes")

func BenchmarkScale(b *testing.B) {
	for b.Loop() {
		ctx, cancel := context.WithTimeoutCause(b.Context(), limit, fmt.Errorf("the benchmark takes longer than %s", limit))
		measure(ctx, b)
		cancel()
	}
}

func measure(ctx context.Context, b *testing.B) {
	b.Helper()
	f := startField(ctx, b, podRanges)
	record := func(quantity, unit string, value float64) {
		fmt.Printf("%s: %.2f %s\n", quantity, value, unit)
		b.ReportMetric(value, unit+"-"+strings.ReplaceAll(quantity, " ", "-"))
		results.Record(b, results.Figure{Scenario: "15,000 Nodes", Contender: "underlay", Quantity: quantity, Unit: unit, Value: value})
	}

	explain(b)
	f.populate(ctx, b, nodeCount, record)

	m := f.start(ctx, b, deployed, "")
	began := time.Now()
	late := f.join(ctx, b, "start")
	f.served(ctx, b, late)
	record(untilServing, "s", time.Since(began).Seconds())
	stop := f.kubelets(ctx, b, nodeCount)
	f.rest(ctx, b, restFor)
	used := cpu(b, m.PID())
	f.rest(ctx, b, restFor)
	record(cpuAtRest, "%", 100*(cpu(b, m.PID())-used)/restFor.Seconds())
	record(atRest, "MiB", resident(b, m.PID(), "VmRSS"))
	record(atMost, "MiB", resident(b, m.PID(), "VmHWM"))

	var waits []time.Duration
	for i := range joins {
		n := f.join(ctx, b, fmt.Sprint("join-", i))
		f.served(ctx, b, n)
		waits = append(waits, n.waited())
	}
	record(joinMedian, "ms", 1000*median(waits).Seconds())
	record(joinLongest, "ms", 1000*longest(waits).Seconds())

	m = f.takeover(ctx, b, m, toldToStop, syscall.SIGTERM, record)
	f.takeover(ctx, b, m, isKilled, syscall.SIGKILL, record)
	f.stopManagers()
	stop()

	r := f.replace(ctx, b, replacement{
		every: 400 * time.Millisecond, // one percent a minute
		lasts: *replaceFor, kills: 4, election: deployed, quarantine: 5 * time.Minute, seed: 1,
	})
	r.check(b)
	fmt.Println(r)
	record(replacedHere, "", float64(r.replaced))
	record(faultMedian, "ms", 1000*median(r.waits).Seconds())
	record(faultLongest, "s", longest(r.waits).Seconds())
	record(faultCost, "requests", float64(r.requests.all())/float64(r.replaced))
}

// takeover ends the leader and measures the time until the other has assigned podCIDRs to a Node
// that is created at that moment. It returns the last leader.
func (f *field) takeover(
	ctx context.Context, b *testing.B, leader *cluster.Manager, what string, end syscall.Signal,
	record func(quantity, unit string, value float64),
) *cluster.Manager {
	b.Helper()
	var all, beyond []time.Duration
	for i := range takeovers {
		next := f.start(ctx, b, deployed, "")
		f.waits(ctx, b, next)
		if err := leader.Signal(end); err != nil {
			b.Fatal(err)
		}
		ended := time.Now()
		n := f.join(ctx, b, fmt.Sprintf("takeover-%d-%d", end, i))
		f.served(ctx, b, n)
		all = append(all, time.Since(ended))
		beyond = append(beyond, time.Since(f.acquired(ctx, b)))
		leader = next
	}
	whole, elected := takenOver(what)
	record(whole, "s", median(all).Seconds())
	record(elected, "s", median(beyond).Seconds())
	return leader
}

// Some Nodes are replaced behind the fault-injecting proxy, in a small cluster and much faster than
// nodes fail.
func TestReplacementUnderFaults(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), smallLimit, fmt.Errorf("the test takes longer than %s", smallLimit))
	defer cancel()
	f := startField(ctx, t, "--cluster-cidr=100.64.0.0/15,fd00:64::/55")
	f.populate(ctx, t, 300, func(string, string, float64) {})
	r := f.replace(ctx, t, replacement{
		every: 100 * time.Millisecond, lasts: 20 * time.Second, kills: 2,
		seed: 1, quarantine: time.Minute,
		election: election{lease: 4 * time.Second, renew: 3 * time.Second, retry: 500 * time.Millisecond},
	})
	r.check(t)
	t.Log(r)
}
