//go:build linux

package measure

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// all are the facts that packets of throw-away servers tell.
func all() []measure.FactID {
	return []measure.FactID{
		measure.SourceCheck, measure.PrivateMTU, measure.PublicMTU, measure.RouteEffect,
		measure.SourceIPv6, measure.ProxyProtocol, measure.ProxyInChecks, measure.UnjudgedTargets,
	}
}

// What packets of throw-away servers tell is found in a cloud as the simulator has it, and in one
// that has it the other way round in everything.
func TestPacketsTell(t *testing.T) {
	source := "2001:db8:ffff:1::9"
	other := profile.Profile{
		Cloud: profile.Cloud{
			ServeUnjudged: new(true), ProxyHeaderInChecks: new(true), IPv6Source: &source,
		},
		Network: profile.Network{
			PrivateMTU: new(1371), PublicMTU: new(1442), AnySource: new(true),
			RouteSeconds: []float64{1.5}, ProxyProtocol: new(1),
		},
	}
	tests := map[string]struct {
		facts []measure.FactID
		is    profile.Profile
		takes time.Duration // each action
		// led bounds how long after the end of its action a route led packets, the median: what
		// else the machine does moves single ones. The ranges of the cases are disjoint.
		led [2]float64
	}{
		"as the simulator has it": {facts: all(), led: [2]float64{-0.5, 0.9}},
		"the other way round": {
			facts: all(), is: other, led: [2]float64{0.9, 2.5},
		},
		"routes lead from the start of their action": {
			facts: []measure.FactID{measure.RouteEffect}, takes: 2 * time.Second,
			is: profile.Profile{Cloud: profile.Cloud{EffectsAtOnce: new(true)}}, led: [2]float64{-2.6, -1.5},
		},
		"routes lead before their action ends": {
			facts: []measure.FactID{measure.RouteEffect}, takes: 2 * time.Second,
			is: profile.Profile{Network: profile.Network{RouteSeconds: []float64{-1}}}, led: [2]float64{-1.5, -0.5},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := start(t, netlab.CloudLabOptions{
				Cloud: hcloudsim.Options{ActionTime: cmp.Or(tt.takes, 300*time.Millisecond)}.With(tt.is.Cloud), Network: tt.is.Network,
			})
			found := l.expect(tt.facts, with(tt.is), nil)
			led := slices.Sorted(slices.Values(found.Network.RouteSeconds))
			if n := len(led); n == 0 || led[n/2] < tt.led[0] || led[n/2] > tt.led[1] {
				t.Errorf("routes led packets after %v s, want the median between %v", led, tt.led)
			}
			text, err := json.Marshal(found)
			t.Logf("%s (%v)", text, err)
		})
	}
}
