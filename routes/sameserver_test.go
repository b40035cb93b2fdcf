package routes_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/routes"
)

// Of two Nodes with one provider ID the Ready one is routed, or the older one if both are Ready.
// The route of a Node that is not Ready is deleted, to make room in a full table; if neither is
// Ready, nothing changes.
func TestTwoNodesOfOneServer(t *testing.T) {
	tests := map[string]struct {
		old, young bool // are Ready
		plan       string
		reachable  string
	}{
		"the former name":    {young: true, plan: "delete 10.244.1.0/24", reachable: "old other"},
		"a cloned machine":   {old: true, young: true, reachable: "old other"},
		"an old Node alone":  {old: true, reachable: "old other"},
		"none of them ready": {reachable: "old other"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			have := []routes.Route{route("10.244.1.0/24", "10.0.0.2"), route("10.244.9.0/24", "10.0.0.9")}
			o := recorded(have, pods())
			older, younger := node("old", "10.244.1.0/24", "", 1), node("young", "10.244.2.0/24", "", 2)
			older.Ready, younger.Ready = test.old, test.young
			o.Nodes = []routes.Node{older, younger, node("other", "10.244.9.0/24", "", 1)}
			o.Kept = []netip.Prefix{pfx("10.244.1.0/24"), pfx("10.244.2.0/24"), pfx("10.244.9.0/24")}
			o.Gateways.Of = map[string]netip.Addr{"old": ip("10.0.0.2"), "young": ip("10.0.0.2"), "other": ip("10.0.0.9")}
			o.Gateways.IDs = map[string]string{"old": "hcloud://1", "young": "hcloud://1", "other": "hcloud://9"}
			o.Gateways.Servers = map[netip.Addr]string{ip("10.0.0.2"): "hcloud://1", ip("10.0.0.9"): "hcloud://9"}
			o.Budget = routes.Budget{Limit: 2, MaxDeletions: 100}
			d := routes.Decide(o)
			if got := strings.Join(show(d.Plan), ", "); !strings.Contains(got, test.plan) || test.plan == "" && strings.Contains(got, "delete") {
				t.Errorf("plan %s, want %q", got, test.plan)
			}
			var reachable []string
			for _, name := range []string{"old", "young", "other"} {
				s := d.NodeStatuses()[name]
				if s.Reachable {
					reachable = append(reachable, name)
				}
				coming := name == "young" && test.plan != "" // its route is to be added
				if told := s.Event == routes.EventProviderIDShared; told != (name != "other" && !coming) {
					t.Errorf("Node %s is told %t: %s", name, told, s.Message)
				}
			}
			if got := strings.Join(reachable, " "); got != test.reachable {
				t.Errorf("reachable %q, want %q", got, test.reachable)
			}
		})
	}
}
