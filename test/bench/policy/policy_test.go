//go:build linux

package policy_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/netfilter"
	"github.com/underlay-ccm/underlay/policy"
	"github.com/underlay-ccm/underlay/test/bench/results"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// BenchmarkAPodStarts starts a pod of another node, which node-0's policies allow, and ends it:
// from the change of the object to the filter in the kernel.
func BenchmarkAPodStarts(b *testing.B) {
	space := netns.New(b)
	before := heap()
	began := time.Now()
	x, pods := cluster(b)
	rules := x.Ruleset()
	built := time.Since(began)
	used := heap() - before
	runtime.KeepAlive(pods)
	var table *netfilter.PolicyTable
	apply := func(r policy.Ruleset) {
		var err error
		space.Do(func() {
			if table == nil {
				table, err = netfilter.NewPolicyTable()
			}
			if err == nil {
				_, err = table.Apply(b.Context(), &r)
			}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	began = time.Now()
	apply(rules)
	filled := time.Since(began)
	elements := 0
	for _, s := range rules.Sets {
		elements += len(s.Elements[0]) + len(s.Elements[1])
	}
	extra := kube.PodOf(podOf(podCount + 1)) // of node-1, in a namespace of pods of node-0
	var decided, total []time.Duration
	for b.Loop() {
		began := time.Now()
		x.SetPod(extra)
		r := x.Ruleset()
		decided = append(decided, time.Since(began))
		apply(r)
		total = append(total, time.Since(began))
		x.DeletePod(extra.Name)
		apply(x.Ruleset())
	}
	if len(rules.Sets) == 0 || len(rules.Pods) == 0 {
		b.Fatalf("%d sets and %d pods", len(rules.Sets), len(rules.Pods))
	}
	slices.Sort(decided)
	slices.Sort(total)
	median := func(all []time.Duration) float64 {
		return float64(all[len(all)/2].Microseconds()) / 1000
	}
	for _, f := range []struct {
		quantity, unit string
		value          float64
		text           string
	}{
		{"a pod that starts, median", "ms", median(total), "of another node, from the change of the object to the filter in the kernel."},
		{"filter from none", "ms", 1000 * filled.Seconds(), "all sets and chains, in one transaction."},
		{"memory of policies", "MiB", used, "of the agent's process: its cache of Pods, and what it derives from them."},
	} {
		results.Explain(b, results.Note{Quantity: f.quantity, Text: f.text})
		results.Record(b, results.Figure{
			Scenario: scenario, Contender: ours, Quantity: f.quantity, Unit: f.unit, Value: f.value,
		})
	}
	b.ReportMetric(median(decided), "ms-decided")
	b.ReportMetric(median(total), "ms-in-kernel")
	b.ReportMetric(built.Seconds()*1000, "ms-to-build")
	b.ReportMetric(filled.Seconds()*1000, "ms-to-fill")
	b.ReportMetric(used, "MiB")
	b.ReportMetric(float64(len(rules.Sets)), "sets")
	b.ReportMetric(float64(elements), "elements")
}
