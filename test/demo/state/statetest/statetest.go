// Package statetest provides tests with a small complete cluster: two machines that joined, a
// Service with its load balancer, and a foreign route.
package statetest

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/test/demo/state"
)

// Epoch is the start time.
func Epoch() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// Layout is that of the cluster.
func Layout() state.Layout {
	return state.Layout{
		Pods:       []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")},
		RouteLimit: 100,
	}
}

// Node is number i with everything that it needs.
func Node(i int) state.Node {
	return state.Node{
		Name: fmt.Sprintf("node-%d", i), ProviderID: fmt.Sprintf("hcloud://%d", i), Created: Epoch(),
		PodCIDRs:   []netip.Prefix{Route(i).Dst, netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%d::/64", i))},
		InternalIP: fmt.Sprintf("10.0.0.%d", i), ExternalIP: fmt.Sprintf("192.0.2.%d", i),
		InstanceType: "cx22", Region: "fsn1",
		Unavailable: state.Condition{Status: "False", Reason: "RouteCreated"},
		Ready:       state.Condition{Status: "True"},
	}
}

// Server is the server of Node i.
func Server(i int) state.Server {
	return state.Server{
		ID: int64(i), Name: fmt.Sprintf("node-%d", i), Type: "cx22", Location: "fsn1",
		PrivateIP: netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i)),
	}
}

// Route is the route to the pods of Node i.
func Route(i int) state.Route {
	return state.Route{Dst: netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i)), Via: netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i))}
}

// Foreign is a foreign route.
func Foreign() state.Route {
	return state.Route{Dst: netip.MustParsePrefix("192.168.178.0/24"), Via: netip.MustParseAddr("10.0.0.250")}
}

// Service is the Service of the cluster.
func Service() state.Service {
	return state.Service{
		Name: "web", UID: "u-1", Policy: "Local", Port: 80, NodePort: 30080, HealthCheckNodePort: 30999,
		Addresses: []string{"192.0.2.80", "2001:db8::80"},
	}
}

// State is the state of two machines, and a timeline in which they joined within two seconds.
func State() (*state.State, *state.Timeline) {
	w, t := state.New(Layout()), state.NewTimeline()
	for i := range 2 {
		n := state.Node{Name: Node(i + 1).Name, Taints: []string{"x/uninitialized"}}
		n.Unavailable.Status = "True"
		w.SetNode(n)
	}
	t.Observe(Epoch(), w.Facts())
	w.SetNode(Node(1))
	w.SetNode(Node(2))
	w.SetService(Service())
	w.SetCloud(state.Cloud{
		Servers: []state.Server{Server(1), Server(2)},
		Routes:  []state.Route{Foreign(), Route(1), Route(2)},
		Balancers: []state.Balancer{{
			Type: "lb11", Location: "fsn1", Labels: map[string]string{"underlay.dev/svc-u-1": ""},
			Listeners: []state.Listener{{Port: 80, NodePort: 30080, Check: state.Check{Protocol: "http", Port: 30999, Path: "/healthz"}}},
			Targets:   []state.Target{{Server: 1, Private: true, Health: "healthy"}, {Server: 2, Private: true, Health: "healthy"}},
		}},
	})
	t.Observe(Epoch().Add(2*time.Second), w.Facts())
	w.Requests = []state.RequestCount{
		{Method: "POST", Path: "/networks/{id}/actions/add_route", Count: 2},
		{Method: "GET", Path: "/servers", Count: 5, NotFound: 1},
	}
	w.Writes = []state.WriteCount{{Node: "node-1", IPAM: 1, Routes: 2}, {Node: "node-2", IPAM: 1, Routes: 2}}
	return w, t
}
