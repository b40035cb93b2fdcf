package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/routes"
)

// Packets to podCIDRs without a node are rejected, with one route for each part of the pools that
// contains only pods.
func TestPodCIDRsWithoutANodeAreRejected(t *testing.T) {
	pools := prefixes([]string{"10.244.0.0/16", "fd01::/48"})
	for name, c := range map[string]struct {
		change func(*Situation)
		want   []string
	}{
		"kernel routes": {func(*Situation) {}, []string{"10.244.0.0/16", "10.244.1.0/24", "fd01:1::/64", "fd01::/48"}},
		"what is excluded is somebody else's": {
			func(s *Situation) { s.PodRanges = PodRanges(pools, prefixes([]string{"10.244.128.0/17"})) },
			[]string{"10.244.0.0/17", "10.244.1.0/24", "fd01:1::/64", "fd01::/48"},
		},
		"a pool for one node": {
			func(s *Situation) { s.PodRanges = prefixes([]string{"10.244.1.0/24"}) },
			[]string{"10.244.1.0/24", "fd01:1::/64"},
		},
		"the cloud routes IPv4, and nobody IPv6": {
			func(s *Situation) { s.Modes = routes.Modes{IPv4: routes.ByCloud, IPv6: routes.Unrouted} },
			[]string{"10.244.1.0/24", "fd01:1::/64"},
		},
	} {
		s := segment()
		s.PodRanges = pools
		c.change(&s)
		d, err := Decide(s)
		if err != nil {
			t.Fatal(err)
		}
		var refused []string
		for _, wanted := range d.Plan.Add {
			if wanted.Kind == Unreachable {
				refused = append(refused, wanted.Dst.String())
				if wanted.Metric != MetricWorst || wanted.Protocol != Protocol {
					t.Errorf("%s: %+v", name, wanted)
				}
			}
		}
		slices.Sort(refused)
		if !slices.Equal(refused, c.want) {
			t.Errorf("%s: refused are %q, want %q", name, refused, c.want)
		}
	}
}

// The route of a pool is deleted with the pool, and a peer that has a whole pool keeps its own
// route beside it.
func TestARefusedPoolFollowsTheConfiguration(t *testing.T) {
	s := segment()
	s.Nodes = append(s.Nodes, aNode("b", "10.0.0.2", "10.250.0.0/24"))
	s.PodRanges = []netip.Prefix{prefix("10.250.0.0/24")}
	s.Table = append(s.Table, refusing(prefix("10.244.0.0/16")))
	d, err := Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.Plan.Delete, []Entry{refusing(prefix("10.244.0.0/16"))}) {
		t.Errorf("deleted are %v", d.Plan.Delete)
	}
	for _, e := range []Entry{refusing(prefix("10.250.0.0/24")), ours("10.250.0.0/24", "10.0.0.2", 2)} {
		if !slices.ContainsFunc(d.Plan.Add, func(c WantedEntry) bool { return c.Entry == e }) {
			t.Errorf("%s is not among %v", e, d.Plan.Add)
		}
	}
}
