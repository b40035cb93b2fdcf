package lb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

const (
	ours = "underlay"
	// peer is the controller that Underlay replaces. It doesn't run here.
	peer       = "Hetzner CCM 1.35"
	peerSource = "measured in 2026 with v1.35 against another fake of the API with the same times"
)

// record records a line of the table.
func (r row) record(t *testing.T, c cost) {
	t.Helper()
	const scenario = "Requests to the cloud"
	results.Explain(
		t,
		results.Note{Text: "The real controller and client between the simulated cloud and client-go's fake API server."},
		results.Note{Scenario: scenario, Text: "all that one change takes until nothing happens any more, on the simulated cloud's clock: reads, writes, and polls of actions. A request takes 20 ms, an action 300 ms."},
	)
	results.Record(t, results.Figure{
		Scenario: scenario, Contender: ours, Quantity: r.what, Value: float64(c.all()),
	})
	if r.peer > 0 {
		results.Record(t, results.Figure{
			Scenario: scenario, Contender: peer, Quantity: r.what, Value: float64(r.peer),
			Source: peerSource,
		})
	}
}

// recordResync records one restart.
func recordResync(b *testing.B, took time.Duration, c cost) {
	b.Helper()
	scenario := fmt.Sprintf("A restart with %d load balancers of %d nodes", manyServices, manyNodes)
	results.Explain(b, results.Note{Scenario: scenario, Text: "the controller starts and looks at everything, which is as it should be; a request takes no time."})
	results.Record(
		b,
		results.Figure{Scenario: scenario, Contender: ours, Quantity: "until everything was read", Unit: "ms", Value: took.Seconds() * 1000},
		results.Figure{Scenario: scenario, Contender: ours, Quantity: "requests to the cloud", Value: float64(c.all())},
	)
}
