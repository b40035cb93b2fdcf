package experiment

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

// streamed is how many packets are sent from each source.
const streamed = 25

// Foreign packets that nothing came with are not taken for those that the cloud drops.
func TestSourceCheckOfLosingPaths(t *testing.T) {
	tests := map[string]struct {
		loses func(n int) bool // the n-th packet, from 0
		why   string           // empty: foreign packets are forwarded
	}{
		"the path opens after the foreign packets": {loses: func(n int) bool { return n < streamed }},
		"the path opens late":                      {loses: func(n int) bool { return n < 5*streamed }},
		"the path closes again": {
			loses: func(n int) bool { return n < streamed || n >= 2*streamed }, why: "at one time and not at another",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, position{network: profile.Network{AnySource: new(true)}})
				n := -1
				w.loses = func(inside.Packet) bool {
					n++
					return tt.loses(n)
				}
				o := Run(t.Context(), w.bench(t), []measure.FactID{measure.SourceCheck})[0]
				switch {
				case tt.why == "" && o.Seen != measure.Forwarded:
					t.Errorf("saw %q (%s), want %q", o.Seen, o.Why, measure.Forwarded)
				case tt.why != "" && (o.Seen != "" || o.Record != nil || !strings.Contains(o.Why, tt.why)):
					t.Errorf("saw %q (%s), want a reason with %q alone", o.Seen, o.Why, tt.why)
				}
			})
		})
	}
}
