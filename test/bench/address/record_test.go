//go:build linux

package address_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

// record prints and records the effects of a fault.
func record(b *testing.B, contender, scenario string, o outcome) {
	b.Helper()
	yes := map[bool]float64{true: 1}
	results.Explain(
		b,
		results.Note{Text: "Three machines on one segment with real kube-proxy and pods; a client on the segment sends a packet of UDP every 5 ms and makes a connection every 20 ms, another one resolves the address and connects ten times a second. No pod is on the holder."},
		results.Note{Quantity: gapUDP, Text: "the longest time between two answers."},
		results.Note{Quantity: refused, Text: "connections that were closed before they were answered."},
		results.Note{Quantity: twoHolders, Text: "from the fault's end to the last claim by a machine that is not the holder in the end."},
		results.Note{Quantity: writes, Text: "requests that write, but for leases and Events."},
	)
	fmt.Printf("%s, %s\n", contender, scenario)
	for _, f := range []struct {
		quantity, unit string
		value          float64
	}{
		{gapUDP, "ms", milliseconds(o.udp.Gap)},
		{"packets of UDP lost", "", float64(o.udp.Lost)},
		{refused, "", float64(o.tcp.Refused + o.tcp.Broken)},
		{"connections unanswered", "", float64(o.tcp.Unanswered)},
		{"a long connection broke", "", yes[o.talk.Broken != nil]},
		{"longest gap of a client without neighbor entry", "ms", milliseconds(o.fresh.Gap)},
		{"until another machine claims", "ms", milliseconds(o.moved)},
		{twoHolders, "ms", milliseconds(o.both)},
		{"client has the wrong neighbor entry in the end", "", yes[o.wrong]},
		{"announcements", "", float64(o.announcements)},
		{writes, "", float64(o.writes)},
	} {
		fmt.Printf("    %-50s %10.0f %s\n", f.quantity, f.value, f.unit)
		results.Record(b, results.Figure{
			Scenario: scenario, Contender: contender, Quantity: f.quantity, Unit: f.unit, Value: f.value,
		})
	}
}

// The figures that are explained by a note.
const (
	gapUDP     = "longest gap of UDP"
	refused    = "connections refused"
	twoHolders = "two claim the address"
	writes     = "writes to the API server"
)

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
