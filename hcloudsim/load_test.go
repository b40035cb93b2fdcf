package hcloudsim_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

const (
	loadClients   = 64
	loadNetworks  = 8 // such that clients conflict, and still make progress
	loadRoutes    = 60
	loadInNetwork = 30
)

// TestLoad is the short form of BenchmarkLoad.
func TestLoad(t *testing.T) {
	underLoad(t, 2*time.Second)
}

// BenchmarkLoad runs 64 clients over the loopback for 20 seconds, and checks the final state. For
// the race detector: go test -race -run '^$' -bench Load -benchtime 1x.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		underLoad(b, 20*time.Second)
	}
}

func underLoad(t testing.TB, length time.Duration) {
	t.Helper()
	var requests, failures atomic.Int64
	sim := newSim(hcloudsim.Options{
		RateLimit: hcloudsim.Unlimited, RouteLimit: loadRoutes, AttachmentLimit: loadInNetwork,
		ActionTime: time.Millisecond, ActionJitter: 2 * time.Millisecond, RequestLogSize: 100,
		ActionLogSize: hcloudsim.Unlimited,
		OnRequest: func(r hcloudsim.Request) {
			requests.Add(1)
			if r.Status >= 500 {
				failures.Add(1)
			}
		},
		OnChange: func(p hcloudsim.DataPlane) { checkPlane(t, p) },
	})
	server := httptest.NewServer(sim)
	defer server.Close()
	var networks []*hcloud.Network
	for i := range loadNetworks {
		n, err := sim.CreateNetwork(hcloudsim.NetworkSeed{Name: fmt.Sprintf("net-%d", i), IPRange: prefix("10.0.0.0/8")})
		noError(t, err)
		networks = append(networks, &hcloud.Network{ID: n.ID})
	}
	stop := time.Now().Add(length)
	workers := make([]*worker, loadClients)
	var group sync.WaitGroup
	for i := range workers {
		w := &worker{
			t: t, number: i, net: networks[i%loadNetworks], routes: map[string]bool{},
			random: rand.New(rand.NewPCG(uint64(i), 1)),
			c: client(sim, hcloud.WithEndpoint(server.URL+"/v1"), hcloud.WithHTTPClient(&http.Client{Transport: &http.Transport{}}),
				hcloud.WithPollOpts(hcloud.PollOpts{
					BackoffFunc: hcloud.ConstantBackoff(2 * time.Millisecond),
				})),
		}
		workers[i] = w
		group.Go(func() {
			for time.Now().Before(stop) && !t.Failed() {
				if err := w.step(); err != nil && !expectedUnderLoad(err) {
					t.Errorf("client %d: %v", w.number, err)
				}
			}
		})
	}
	group.Wait()
	if failures.Load() > 0 {
		t.Errorf("%d requests failed with 5xx", failures.Load())
	}
	addUp(t, sim, workers)
	t.Logf("%d requests, %d actions, %d servers left", requests.Load(), len(sim.Actions()), len(sim.Servers()))
}

// expectedUnderLoad reports whether a client can continue after an error.
func expectedUnderLoad(err error) bool {
	return hcloud.IsError(err, "conflict", "resource_limit_exceeded", "not_found", "server_already_attached")
}

// addUp compares the clients' records with the final state.
func addUp(t testing.TB, sim *hcloudsim.Simulator, workers []*worker) {
	t.Helper()
	present := map[string]int{}
	for _, n := range sim.Networks() {
		for _, r := range n.Routes {
			present[fmt.Sprintf("%d %s", n.ID, r.Destination)]++
		}
	}
	ended := map[int64]bool{}
	for _, a := range sim.Actions() {
		ended[a.ID] = a.Status != "running"
	}
	work := 0
	for _, w := range workers {
		for destination, added := range w.routes {
			if key := fmt.Sprintf("%d %s", w.net.ID, destination); (present[key] == 1) != added {
				t.Errorf("client %d: route %s added=%v, there are %d", w.number, key, added, present[key])
			}
		}
		for _, id := range w.actions {
			if !ended[id] {
				t.Errorf("client %d: action %d was lost or never ends", w.number, id)
			}
		}
		work += len(w.actions)
	}
	if work < loadClients {
		t.Errorf("only %d actions: the clients did not get on", work)
	}
}

// checkPlane checks the invariants, at every change.
func checkPlane(t testing.TB, p hcloudsim.DataPlane) {
	for _, n := range p.Networks {
		if len(n.Routes) > loadRoutes || len(n.Members) > loadInNetwork {
			t.Errorf("network %d has %d routes and %d members", n.ID, len(n.Routes), len(n.Members))
		}
		sorted := slices.Clone(n.Routes)
		slices.SortFunc(sorted, func(a, b hcloudsim.RouteSeed) int {
			return a.Destination.Addr().Compare(b.Destination.Addr())
		})
		for i := range len(sorted) - 1 {
			if sorted[i].Destination.Overlaps(sorted[i+1].Destination) {
				t.Errorf("network %d: routes %v and %v overlap", n.ID, sorted[i], sorted[i+1])
			}
		}
		taken := map[netip.Addr]bool{}
		for _, m := range n.Members {
			if taken[m.IP] {
				t.Errorf("network %d: %v is given away twice", n.ID, m.IP)
			}
			taken[m.IP] = true
		}
	}
}

// worker is one client, with a record of its successful changes.
type worker struct {
	t       testing.TB
	number  int
	c       *hcloud.Client
	net     *hcloud.Network
	random  *rand.Rand
	routes  map[string]bool // its own, and whether they should exist
	actions []int64
	servers []*hcloud.Server
}

// step is one operation of a client, to its end.
func (w *worker) step() error {
	ctx := w.t.Context()
	switch w.random.IntN(8) {
	case 0:
		name := fmt.Sprintf("s-%d-%d", w.number, w.random.Uint64())
		made, _, err := w.c.Server.Create(ctx, hcloud.ServerCreateOpts{
			Name: name, ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "debian-12"}, Networks: []*hcloud.Network{w.net},
		})
		if err != nil {
			return err
		}
		w.servers = append(w.servers, made.Server)
		return w.wait(append(made.NextActions, made.Action)...)
	case 1:
		if len(w.servers) == 0 {
			return nil
		}
		s := w.servers[len(w.servers)-1]
		gone, _, err := w.c.Server.DeleteWithResult(ctx, s)
		if err != nil {
			return err
		}
		w.servers = w.servers[:len(w.servers)-1]
		return w.wait(gone.Action)
	case 2:
		_, _, err := w.c.Server.List(ctx, hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{PerPage: 5}})
		return err
	}
	return w.changeRoute()
}

// changeRoute adds or deletes one of the routes that only this client has.
func (w *worker) changeRoute() error {
	destination := fmt.Sprintf("10.%d.%d.0/24", 100+w.number, w.random.IntN(10))
	r := hcloud.NetworkRoute{Destination: ipNet(destination), Gateway: []byte{10, 0, 0, 2}}
	add := !w.routes[destination]
	var a *hcloud.Action
	var err error
	if add {
		a, _, err = w.c.Network.AddRoute(w.t.Context(), w.net, hcloud.NetworkAddRouteOpts{Route: r})
	} else {
		a, _, err = w.c.Network.DeleteRoute(w.t.Context(), w.net, hcloud.NetworkDeleteRouteOpts{Route: r})
	}
	if err != nil {
		return err
	}
	w.routes[destination] = add
	return w.wait(a)
}

func (w *worker) wait(actions ...*hcloud.Action) error {
	for _, a := range actions {
		w.actions = append(w.actions, a.ID)
	}
	return w.c.Action.WaitFor(w.t.Context(), actions...)
}
