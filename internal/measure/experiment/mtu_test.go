package experiment

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

// A path that loses packets of a size for another cause than the size is seen through, or nothing is
// said of it. Packets of 1400 bytes arrive at most; 1390 is the first size that halving tries.
func TestMTUOfLosingPaths(t *testing.T) {
	tests := map[string]struct {
		loses func(sent map[int]int, size int) bool // sent counts the packets of each size before
		why   string                                // empty: 1400 is found
	}{
		"a size is lost for a moment": {
			loses: func(sent map[int]int, size int) bool { return size == 1390 && sent[size] < sizeTries },
		},
		"every size is lost for a moment": {
			loses: func(sent map[int]int, size int) bool { return sent[size] < sizeTries },
		},
		"a size is lost for longer": {
			loses: func(sent map[int]int, size int) bool { return size == 1390 && sent[size] < 2*sizeTries },
			why:   "packets of 1390 bytes arrive at one time and not at another",
		},
		"the largest size arrives once": {
			loses: func(sent map[int]int, size int) bool { return size == 1400 && sent[size] >= sizeTries },
			why:   "packets of 1400 bytes arrive at one time and not at another",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, position{network: profile.Network{PrivateMTU: new(1400)}})
				sent := map[int]int{}
				w.loses = func(p inside.Packet) bool {
					defer func() { sent[p.Size]++ }()
					return tt.loses(sent, p.Size)
				}
				o := Run(t.Context(), w.bench(t), []measure.FactID{measure.PrivateMTU})[0]
				switch {
				case tt.why == "" && o.Seen != measure.Bytes(1400):
					t.Errorf("saw %q (%s), want 1400 bytes", o.Seen, o.Why)
				case tt.why != "" && (o.Seen != "" || o.Record != nil || !strings.Contains(o.Why, tt.why)):
					t.Errorf("saw %q (%s), want a reason with %q alone", o.Seen, o.Why, tt.why)
				}
				w.expectAsBefore(t)
			})
		})
	}
}
