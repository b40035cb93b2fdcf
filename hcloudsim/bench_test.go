package hcloudsim_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// BenchmarkListServers requests pages of 50 of 2,000 servers, in a network and behind a load
// balancer.
func BenchmarkListServers(b *testing.B) {
	sim := newSim(hcloudsim.Options{
		RateLimit: hcloudsim.Unlimited, AttachmentLimit: hcloudsim.Unlimited, RequestLogSize: 10,
	})
	n := seedNetwork(b, sim)
	for i := range 2000 {
		seedServer(b, sim, hcloudsim.ServerSeed{Name: fmt.Sprintf("node-%d", i), Network: n.ID})
	}
	c := client(sim)
	var took []time.Duration
	for page := 0; b.Loop(); page++ {
		start := time.Now()
		servers, _, err := c.Server.List(b.Context(), hcloud.ServerListOpts{
			ListOpts: hcloud.ListOpts{Page: 1 + page%40, PerPage: 50},
		})
		if err != nil || len(servers) != 50 {
			b.Fatalf("%d servers, %v", len(servers), err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median-page")
}

func BenchmarkAddRoute(b *testing.B) {
	sim := newSim(hcloudsim.Options{RateLimit: hcloudsim.Unlimited, RequestLogSize: 10})
	c, n := client(sim), seedNetwork(b, sim)
	for b.Loop() {
		addAndDelete(b, c, n)
	}
}

func addAndDelete(t testing.TB, c *hcloud.Client, n *hcloud.Network) {
	r := hcloud.NetworkRoute{Destination: ipNet("10.244.0.0/24"), Gateway: []byte{10, 0, 0, 2}}
	_, _, err := c.Network.AddRoute(t.Context(), n, hcloud.NetworkAddRouteOpts{Route: r})
	noError(t, err)
	_, _, err = c.Network.DeleteRoute(t.Context(), n, hcloud.NetworkDeleteRouteOpts{Route: r})
	noError(t, err)
}

// BenchmarkFlatMemory is TestFlatMemory with 100,000 requests.
func BenchmarkFlatMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(flatMemory(b, 100_000), "MB/grown")
	}
}

func TestFlatMemory(t *testing.T) {
	flatMemory(t, 10_000)
}

// flatMemory sends requests, changes among them, and returns by how many megabytes the heap has
// grown after the first tenth.
func flatMemory(t testing.TB, requests int) float64 {
	t.Helper()
	const kept = 200
	sim := newSim(hcloudsim.Options{
		RateLimit: hcloudsim.Unlimited, RequestLogSize: kept, ActionLogSize: kept,
	})
	c, n := client(sim), seedNetwork(t, sim)
	lb := createWholeIn(t, sim, n)
	var before uint64
	for i := 0; i < requests; i += 5 {
		addAndDelete(t, c, n)
		_, _, err := c.LoadBalancer.GetByID(t.Context(), lb)
		noError(t, err)
		for _, path := range []string{"/servers?page=1", "/networks/actions?status=success"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sim.test/v1"+path, nil)
			noError(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			if got, err := sim.Transport().RoundTrip(r); err != nil || got.StatusCode != http.StatusOK {
				t.Fatalf("%s: %v, %v", path, got, err)
			}
		}
		if i == requests/10 {
			before = heap()
		}
	}
	grown := (float64(heap()) - float64(before)) / (1 << 20)
	if most := 2.0; grown > most {
		t.Errorf("the heap has grown by %.1f MB, more than %.0f", grown, most)
	}
	if log, actions := len(sim.Requests()), len(sim.Actions()); log > kept || actions > kept+kept/4 {
		t.Errorf("%d requests and %d actions are remembered, more than %d", log, actions, kept)
	}
	return grown
}

// heap is the memory in use after a garbage collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// createWholeIn creates a load balancer with a target in a network.
func createWholeIn(t testing.TB, sim *hcloudsim.Simulator, n *hcloud.Network) int64 {
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "target", Network: n.ID})
	made, _, err := client(sim).LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, NetworkZone: "eu-central", Network: n,
		Services: []hcloud.LoadBalancerCreateOptsService{
			{Protocol: hcloud.LoadBalancerServiceProtocolHTTP},
		},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{
			Type:   hcloud.LoadBalancerTargetTypeServer,
			Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: s}, UsePrivateIP: hcloud.Ptr(true),
		}},
	})
	noError(t, err)
	return made.LoadBalancer.ID
}
