package routes_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/routes"
)

// sound returns a network without findings.
func sound() network {
	return network{
		Layout: routes.Layout{
			Pods: pods(), Services: []netip.Prefix{pfx("10.96.0.0/16")},
			Network: pfx("10.0.0.0/8"), Subnets: []netip.Prefix{pfx("10.0.0.0/16")},
		},
		Have:   []routes.Route{route("10.244.1.0/24", "10.0.0.2")},
		Budget: routes.Budget{Limit: 100}, Nodes: 10, Attached: 10,
	}
}

// network is a cluster's network layout, with the existing routes.
type network struct {
	routes.Layout
	routes.Budget
	Have                     []routes.Route
	Nodes, Attached, Perhaps int
}

// findings returns all findings.
func (n network) findings() []routes.Finding {
	o := recorded(n.Have, n.Pods)
	o.Nodes, o.Budget = make([]routes.Node, n.Nodes), n.Budget
	d := routes.Decide(o)
	found := append(routes.Check(n.Layout), d.Obstacles()...)
	if f, _, short := d.Shortage(); short {
		found = append(found, f)
	}
	if f, _, few := routes.Attachments(n.Attached, n.Perhaps, 100); few {
		found = append(found, f)
	}
	return found
}

func TestPreflight(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*network)
		want []string // "fatal"/"warning", then words of the finding; empty: none
	}{
		{"sound", func(*network) {}, nil},
		{"pods overlap a subnet", func(s *network) {
			s.Subnets = append(s.Subnets, pfx("10.244.128.0/24"))
		}, []string{"fatal 10.244.0.0/16 subnet 10.244.128.0/24"}},
		{"pods overlap the services", func(s *network) {
			s.Services = append(s.Services, pfx("10.244.0.0/20"))
		}, []string{"fatal 10.244.0.0/16 Service range 10.244.0.0/20"}},
		{"pods hold the gateway", func(s *network) {
			s.Network, s.Subnets, s.Have = pfx("10.244.0.0/16"), nil, nil
		}, []string{"fatal 10.244.0.0/16 gateway 10.244.0.1"}},
		{"pods outside the network", func(s *network) {
			s.Network = pfx("10.0.0.0/16")
		}, []string{"warning 10.244.0.0/16 is not inside via 10.0.0.1"}},
		{"another cluster has the range", func(s *network) {
			s.Have = []routes.Route{route("10.244.9.0/24", "10.0.0.99")}
		}, []string{"fatal 10.244.9.0/24 leads to 10.0.0.99 pod range of its own"}},
		{"a stray route of somebody's in a cluster that runs", func(s *network) {
			s.Have = append(s.Have, route("10.244.9.0/24", "10.0.0.99"))
		}, []string{"warning 10.244.9.0/24 leads to 10.0.0.99"}},
		{"a stale route is cleaned up, not reported", func(s *network) {
			s.Have = append(s.Have, route("10.244.9.0/24", "10.0.0.77"))
		}, nil},
		{"a route of others in the way", func(s *network) {
			s.Have = append(s.Have, route("10.244.64.0/18", "10.0.0.9"))
		}, []string{"warning 10.244.64.0/18 overlaps the pod range 10.244.0.0/16 exclude"}},
		{"a default route is in nobody's way", func(s *network) {
			s.Have = append(s.Have, route("0.0.0.0/0", "10.0.0.9"))
		}, nil},
		{"more nodes than routes", func(s *network) {
			s.Nodes, s.Reserve = 120, 5
			s.Have = append(s.Have, route("192.168.1.0/24", "10.0.0.9"))
		}, []string{"warning 120 nodes room for 94 takes 100, 5 are reserved, 1 are others' 26 nodes routes.limit"}},
		{"nearly as many nodes as routes", func(s *network) { s.Nodes = 80 }, []string{"warning 80 nodes before more nodes join"}},
		{"not yet nearly", func(s *network) { s.Nodes = 79 }, nil},
		{"all attachments taken", func(s *network) { s.Attached = 100 }, []string{"warning 100 servers takes 100 no further node"}},
		{"all attachments taken, with or without dedicated servers", func(s *network) { s.Attached, s.Perhaps = 100, 3 }, []string{"warning 100 servers 3 dedicated no further node"}},
		{"all attachments taken if dedicated servers count", func(s *network) { s.Attached, s.Perhaps = 60, 40 }, []string{"warning 60 servers 40 dedicated not documented resource_limit_exceeded"}},
		{"nearly all attachments taken if dedicated servers count", func(s *network) { s.Attached, s.Perhaps = 60, 25 }, []string{"warning 60 servers 25 dedicated before more nodes join"}},
		{"room whether dedicated servers count or not", func(s *network) { s.Attached, s.Perhaps = 50, 20 }, nil},
		{"nearly all attachments taken", func(s *network) { s.Attached = 85 }, []string{"warning 85 servers before more nodes join"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sound()
			c.edit(&s)
			got := s.findings()
			if len(got) != len(c.want) {
				t.Fatalf("found %v, want %d findings", got, len(c.want))
			}
			for i, want := range c.want {
				kind, words, _ := strings.Cut(want, " ")
				if got[i].Fatal != (kind == "fatal") {
					t.Errorf("%q is fatal: %v", got[i], got[i].Fatal)
				}
				if got[i].Remedy == "" || got[i].Problem == "" {
					t.Errorf("%q lacks the problem or the remedy", got[i])
				}
				for word := range strings.FieldsSeq(words) {
					if !strings.Contains(got[i].String(), word) {
						t.Errorf("%q does not say %q", got[i], word)
					}
				}
			}
		})
	}
}

// A route via another address of the node's server serves the node.
func TestARouteViaAnAliasServesTheNode(t *testing.T) {
	n := node("a", "10.244.1.0/24", "10.0.0.2", 1)
	n.Aliases = []netip.Addr{ip("10.0.0.3")}
	for _, c := range []struct {
		via  string
		want []string
	}{
		{"10.0.0.2", nil},
		{"10.0.0.3", nil},
		{"10.0.0.7", []string{"replace 10.244.1.0/24 via 10.0.0.7 by 10.244.1.0/24 via 10.0.0.2"}},
	} {
		have := []routes.Route{route("10.244.1.0/24", c.via)}
		w, owned := routes.Desired([]routes.Node{n}, pods()), ownership(have, pods())
		plan := routes.Diff(w, owned)
		if got := show(plan); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("via %s: %q, want %q", c.via, got, c.want)
		}
		if v := routes.NodeStatuses([]routes.Node{n}, have, w, plan)["a"]; v.Reachable != (c.want == nil) {
			t.Errorf("via %s: %+v", c.via, v)
		}
	}
}

// A held destination keeps its route, although no node of the list wants it.
func TestHeldDestinationsStay(t *testing.T) {
	have := []routes.Route{route("10.244.1.0/24", "10.0.0.2"), route("10.244.2.0/24", "10.0.0.3")}
	w := routes.Desired(nil, pods()).Hold([]netip.Prefix{pfx("10.244.2.0/24")})
	if got := show(routes.Diff(w, ownership(have, pods()))); len(got) != 1 || got[0] != "delete 10.244.1.0/24 via 10.0.0.2" {
		t.Errorf("got %q, want only the other one deleted", got)
	}
}

// Several pools, draining or not, with node prefixes of different lengths, are all ranges.
func TestSeveralRanges(t *testing.T) {
	both := append(pods(), routes.Range{Prefix: pfx("10.200.0.0/20"), NodeBits: 26})
	have := []routes.Route{
		route("10.244.1.0/24", "10.0.0.2"), route("10.200.0.64/26", "10.0.0.3"), route("10.200.1.0/24", "10.0.0.3"), route("10.244.2.64/26", "10.0.0.3"),
	}
	c := ownership(have, both)
	if len(c.Ours) != 2 || len(c.Foreign) != 2 {
		t.Errorf("ownership %+v, want each prefix judged by its own range", c)
	}
}
