package experiment

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// packetIDs are the facts by packets of throw-away servers.
func packetIDs() (out []measure.FactID) {
	for _, f := range measure.Facts() {
		if f.Needs.Inside && !f.Needs.Dedicated {
			out = append(out, f.ID)
		}
	}
	return out
}

// bench is one in the world.
func (w *world) bench(t *testing.T) *Bench {
	t.Helper()
	b := benchOf(projectOver(t, w.way))
	b.Location, b.Programs, b.Progress = "fsn1", w, func(s string) { t.Log(s) }
	return b
}

// defaults is what the simulator assumes, by fact.
func defaults(t *testing.T) map[measure.FactID]string {
	t.Helper()
	out := map[measure.FactID]string{}
	for _, id := range packetIDs() {
		fact, ok := measure.Of(id)
		if !ok {
			t.Fatalf("no fact %s", id)
		}
		out[id] = fact.Assumed(profile.Default())
	}
	return out
}

func TestPacketPositions(t *testing.T) {
	own := "2001:db8:77::9"
	tests := map[string]struct {
		is   position
		want map[measure.FactID]string // where it is not what the simulator assumes
		led  []float64                 // when routes lead packets, between; none: at the end of their actions
	}{
		"as the simulator has it": {},
		"actions take their time": {is: position{options: hcloudsim.Options{ActionTime: 2 * time.Second}}},
		"any source": {
			is:   position{network: profile.Network{AnySource: new(true)}},
			want: map[measure.FactID]string{measure.SourceCheck: measure.Forwarded},
		},
		"smaller packets": {
			is:   position{network: profile.Network{PrivateMTU: new(1371), PublicMTU: new(1442)}},
			want: map[measure.FactID]string{measure.PrivateMTU: measure.Bytes(1371), measure.PublicMTU: measure.Bytes(1442)},
		},
		"larger packets": {
			is:   position{network: profile.Network{PrivateMTU: new(1500)}},
			want: map[measure.FactID]string{measure.PrivateMTU: measure.Bytes(1500)},
		},
		"version 1": {
			is:   position{network: profile.Network{ProxyProtocol: new(1)}},
			want: map[measure.FactID]string{measure.ProxyProtocol: measure.Version(1)},
		},
		"headers in checks": {
			is:   position{cloud: profile.Cloud{ProxyHeaderInChecks: new(true)}},
			want: map[measure.FactID]string{measure.ProxyInChecks: measure.WithHeader},
		},
		"unknown targets are served": {
			is:   position{cloud: profile.Cloud{ServeUnjudged: new(true)}},
			want: map[measure.FactID]string{measure.UnjudgedTargets: measure.Served},
		},
		"another source of IPv6": {
			is:   position{cloud: profile.Cloud{IPv6Source: &own}},
			want: map[measure.FactID]string{measure.SourceIPv6: measure.OtherAddress},
		},
		"routes that wait": {
			is:  position{network: profile.Network{RouteSeconds: []float64{1.5}}},
			led: []float64{1.5, 1.8},
		},
		"routes from the start of their action": {
			is: position{
				cloud: profile.Cloud{EffectsAtOnce: new(true)}, options: hcloudsim.Options{ActionTime: 2 * time.Second},
			},
			led: []float64{-2.3, -1.7},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := defaults(t)
				for id, words := range tt.want {
					want[id] = words
				}
				led := tt.led
				if led == nil {
					led = []float64{-0.3, 0.3}
				}
				w := newWorld(t, tt.is)
				b := w.bench(t)
				found := profile.Default()
				for _, o := range Run(t.Context(), b, packetIDs()) {
					if o.Record != nil {
						o.Record(&found)
					}
					fact, _ := measure.Of(o.Fact)
					if !fact.Quantity && o.Seen != want[o.Fact] {
						t.Errorf("%s: saw %q (%s), want %q", o.Fact, o.Seen, o.Why, want[o.Fact])
					}
					if o.Record != nil && fact.Assumed(found) != o.Seen {
						t.Errorf("%s: recorded %q, saw %q", o.Fact, fact.Assumed(found), o.Seen)
					}
				}
				times := found.Network.RouteSeconds
				if len(times) != routeTries || times[0] < led[0] || times[routeTries-1] > led[1] {
					t.Errorf("routes led packets after %v, want %d times between %v", times, routeTries, led)
				}
				w.expectAsBefore(t)
			})
		})
	}
}

// expectAsBefore fails the test if an experiment has left something that others don't expect.
func (w *world) expectAsBefore(t *testing.T) {
	t.Helper()
	now := w.sim.DataPlane()
	for _, lb := range now.LoadBalancers {
		if len(lb.Services) > 0 || len(lb.Targets) > 0 {
			t.Errorf("the load balancer has %d services and %d targets, want none", len(lb.Services), len(lb.Targets))
		}
	}
	for _, n := range now.Networks {
		if len(n.Routes) > 0 {
			t.Errorf("the network has %d routes, want none", len(n.Routes))
		}
	}
	for _, p := range w.programs {
		if len(p.added) > 0 || p.mtu["eth0"] != 1500 || p.mtu["enp7s0"] != 1450 {
			t.Errorf("%s has added addresses %v and MTUs %v", p.name, p.added, p.mtu)
		}
	}
}
