package routes_test

import (
	"slices"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/bench/results"
	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
)

const (
	ours = "underlay"
	// theirs is the controller that Underlay replaces on this cloud. It doesn't run here.
	theirs       = "Hetzner CCM 1.35"
	theirsSource = "measured in 2026 with v1.35 against another fake of the API, 20 ms a request and 300 ms an action"

	requestsMade = "requests"
	untilAll     = "until all are reachable"
)

func seconds(scenario, contender, quantity string, d time.Duration) results.Figure {
	return results.Figure{Scenario: scenario, Contender: contender, Quantity: quantity, Unit: "s", Value: d.Seconds()}
}

func count(scenario, contender string, n int) results.Figure {
	return results.Figure{
		Scenario: scenario, Contender: contender, Quantity: requestsMade, Value: float64(n),
	}
}

func sourced(f results.Figure) results.Figure {
	f.Source = theirsSource
	return f
}

// recordActionsAlike records the figures that are comparable with the published ones of the peer.
func recordActionsAlike(t *testing.T, r joined) {
	t.Helper()
	const scenario = "100 Nodes join at once, actions of 300 ms"
	results.Explain(
		t,
		results.Note{Text: "The cloud is simulated, on its own clock: a request takes 20 ms, an action what the scenario says, and a network allows one change at a time, as the real one does. So times are exact and don't depend on the machine. Upstream is `k8s.io/cloud-provider`'s route controller over our client of the cloud, with its gate `CloudControllerManagerWatchBasedRoutesReconciliation` off (polling) and on (watching)."},
		results.Note{Quantity: requestsMade, Text: "to the cloud's API, all of them, refused ones too."},
		results.Note{Quantity: untilAll, Text: "from the first Node's registration with podCIDRs to the moment when the last one's NetworkUnavailable is False."},
		results.Note{Quantity: "until the first is reachable", Text: "the same for the first Node."},
		results.Note{Quantity: "until half are reachable", Text: "the same for the median Node."},
	)
	results.Record(
		t,
		count(scenario, ours, r.spent.All), seconds(scenario, ours, untilAll, r.took),
		sourced(count(scenario, theirs, 1127)), sourced(seconds(scenario, theirs, untilAll,
			47*time.Second)),
	)
}

// recordCompared records one column of the comparison with upstream, and the times of its requests.
func recordCompared(t *testing.T, who string, r joined) {
	t.Helper()
	const scenario = "100 Nodes join at once, actions of 200 to 600 ms"
	results.Compare(t, results.Library(t, "k8s.io/cloud-provider"))
	results.Record(
		t,
		count(scenario, who, r.spent.All), seconds(scenario, who, untilAll, r.took),
		seconds(scenario, who, "until the first is reachable", r.first), seconds(scenario, who, "until half are reachable", r.median),
	)
	slices.Sort(r.requests)
	line := results.Line{Plot: "Requests while 100 Nodes get their routes", Contender: who, X: "seconds since the first Node's registration", Y: "requests to the cloud"}
	for i, at := range r.requests {
		line.Points = append(line.Points, [2]float64{at.Seconds(), float64(i + 1)})
	}
	results.Draw(t, line)
	reachable := results.Line{Plot: "Reachable Nodes while 100 get their routes", Contender: who, X: line.X, Y: "reachable Nodes"}
	for i, at := range r.told {
		reachable.Points = append(reachable.Points, [2]float64{at.Seconds(), float64(i + 1)})
	}
	results.Draw(t, reachable)
}

// recordRest records the cost of an idle hour.
func recordRest(t *testing.T, notReady int, spent simcluster.Spent) {
	t.Helper()
	scenario := "An hour at rest, 100 Nodes"
	if notReady > 0 {
		scenario += ", ten of them NotReady"
	}
	results.Record(t, count(scenario, ours, spent.All))
	if notReady == 0 {
		results.Record(t, sourced(count(scenario, theirs, 720)))
	}
}

// recordOneJoin records how much longer than its route's action each Node waited, in any order.
func recordOneJoin(t *testing.T, beyond []time.Duration) {
	t.Helper()
	const scenario = "One Node joins 50"
	results.Explain(t, results.Note{Scenario: scenario, Text: "a hundred times; from a Node's podCIDRs to its NetworkUnavailable False, less what its route's action took."})
	sorted := slices.Sorted(slices.Values(beyond))
	results.Record(
		t,
		results.Figure{Scenario: scenario, Contender: ours, Quantity: "beyond the action, median", Unit: "ms", Value: sorted[len(sorted)/2].Seconds() * 1000},
		results.Figure{Scenario: scenario, Contender: ours, Quantity: "beyond the action, p99", Unit: "ms", Value: sorted[len(sorted)*99/100].Seconds() * 1000},
	)
}
