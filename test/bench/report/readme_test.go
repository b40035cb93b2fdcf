package main

import (
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

func rate(scenario, contender string, v float64) results.Entry {
	return figureOf(scenario, contender, "rate", v)
}

const (
	joinMany = "5,000 Nodes join, no client limit"
	waitMany = "5,000 Nodes wait for the allocator, no client limit"
)

const sample = `Intro. <!-- begin measured -->x<!-- end measured -->

<!-- begin measured -->

| | a | b | c |
|---|---|---|---|
| years | none | 1 | 2 |
| new load balancer, 5 nodes, 2 ports | old | old | old |
| 100 nodes join, routes | old | old | old |
| at rest, 100 nodes | old | old | old |
| 5,000 Nodes get podCIDRs | old | old | old |

<!-- end measured -->

- <!-- begin measured -->Slow.<!-- end measured -->
`

// Only recorded figures are replaced, and between the marks only rows with figures.
func TestMeasured(t *testing.T) {
	all := []section{collect("routes", []results.Entry{
		{Machine: &results.Machine{Date: "2026-11-25", Cores: 2}},
		figureOf("An hour at rest, 100 Nodes", ours, "requests", 84), figureOf("An hour at rest, 100 Nodes", hetzner, "requests", 720),
		figureOf("100 Nodes join at once, actions of 300 ms", ours, "requests", 213), // no record of the peer
	})}
	got, err := measured(sample, all)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(sample, "| at rest, 100 nodes | old | old | old |", "| at rest, 100 nodes | 84 requests an hour | 720 requests an hour | 720 requests an hour |")
	want = strings.ReplaceAll(want, "measured -->x<!--", "measured -->"+when(all)+"<!--")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again, err := measured(got, all); err != nil || again != got {
		t.Errorf("a second time it is another: %v\n%s", err, again)
	}
	if !strings.Contains(got, "measured in November 2026 on 2 cores") {
		t.Errorf("when and where is missing: %s", got)
	}
}

func TestMeasuredWithoutItsPlace(t *testing.T) {
	for name, text := range map[string]string{
		"a row is gone":  strings.ReplaceAll(sample, "| at rest, 100 nodes", "| at rest"),
		"a mark is gone": strings.Replace(sample, endMark, "", 1),
		"a part is gone": sample[:strings.LastIndex(sample, "- ")],
		"one too many":   sample + beginMark + endMark,
	} {
		if got, err := measured(text, nil); err == nil {
			t.Errorf("%s, and nobody says so:\n%s", name, got)
		}
	}
}

func TestFullSpeed(t *testing.T) {
	for name, c := range map[string]struct {
		joining, waiting float64 // the peer's; Underlay's is 100
		want             string
	}{
		"theirs is faster": {125, 200, "is 20 % slower than kube-controller-manager's while Nodes join, and 50 % slower than it with a backlog"},
		"each in one":      {80, 125, "is 25 % faster than kube-controller-manager's while Nodes join, and 20 % slower than it with a backlog"},
		"alike":            {100, 100, "is as fast as kube-controller-manager's while Nodes join, and as fast as it with a backlog"},
	} {
		all := []section{collect("ipam", []results.Entry{
			rate(joinMany, ours, 100), rate(waitMany, ours, 100), rate(joinMany, allocator, c.joining),
			rate(waitMany, allocator, c.waiting),
		})}
		if got := fullSpeed(all); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %q in it", name, got, c.want)
		}
	}
	if got := fullSpeed(nil); got != "" {
		t.Errorf("without figures: %s", got)
	}
}
