package experiment

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// A load balancer that takes longer to know of a target than nobody has to be served is not taken
// for one that serves only healthy targets.
func TestUnjudgedTargetsOfSlowBalancers(t *testing.T) {
	for _, want := range []string{measure.Served, measure.NotServed} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, position{cloud: profile.Cloud{ServeUnjudged: new(want == measure.Served)}})
				w.learns = unknownFor + 10*time.Second
				o := Run(t.Context(), w.bench(t), []measure.FactID{measure.UnjudgedTargets})[0]
				if o.Seen != want {
					t.Errorf("saw %q (%s), want %q", o.Seen, o.Why, want)
				}
				w.expectAsBefore(t)
			})
		})
	}
}

// A server without an IPv6 address says nothing of where load balancers connect to one from.
func TestSourceIPv6WithoutAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorld(t, position{}).bench(t)
		server, err := b.Server(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		server.Public6 = netip.Addr{}
		o := Run(t.Context(), b, []measure.FactID{measure.SourceIPv6})[0]
		if o.Seen != "" || o.Record != nil || !strings.Contains(o.Why, "no public IPv6") {
			t.Errorf("%s: saw %q (%s), want a reason alone", o.Fact, o.Seen, o.Why)
		}
	})
}
