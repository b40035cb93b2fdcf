package hcloudsim_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// TestManyClients lets clients change one network concurrently, and checks the invariants while
// they do.
func TestManyClients(t *testing.T) {
	const clients, rounds = 16, 60
	sim := newSim(hcloudsim.Options{
		RateLimit: hcloudsim.Unlimited, ActionTime: 200 * time.Microsecond,
		ActionJitter: 300 * time.Microsecond,
		RouteLimit:   20, AttachmentLimit: 12,
	})
	n := seedNetwork(t, sim)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			c := client(sim)
			for range rounds {
				if err := step(t, sim, c, n, i, random); err != nil && !expected(err) {
					t.Errorf("client %d: %v", i, err)
					return
				}
				checkInvariants(t, sim, n.ID)
			}
		})
	}
	group.Wait()

	refused, changed := 0, 0
	for _, r := range sim.Requests() {
		switch {
		case r.Status >= 500:
			t.Errorf("request failed: %+v", r)
		case r.Code == "conflict":
			refused++
		case r.Method != "GET":
			changed++
		}
	}
	if refused == 0 || changed < clients {
		t.Errorf("%d changes were refused as conflicts, %d went through: the clients did not meet", refused, changed)
	}
	if len(sim.Requests()) < clients*rounds {
		t.Errorf("log has %d requests, want at least %d", len(sim.Requests()), clients*rounds)
	}
}

// step is one request of a client.
func step(
	t *testing.T, sim *hcloudsim.Simulator, c *hcloud.Client, n *hcloud.Network, i int,
	random *rand.Rand,
) error {
	destination := fmt.Sprintf("10.244.%d.0/%d", random.IntN(40), 23+random.IntN(2))
	r := hcloud.NetworkRoute{Destination: ipNet(destination), Gateway: []byte{10, 0, 0, byte(2 + i)}}
	switch random.IntN(5) {
	case 0:
		_, _, err := c.Network.DeleteRoute(t.Context(), n, hcloud.NetworkDeleteRouteOpts{Route: r})
		return err
	case 1:
		s, err := sim.CreateServer(hcloudsim.ServerSeed{Name: fmt.Sprintf("node-%d-%d", i, random.Uint32())})
		if err != nil {
			return err
		}
		_, _, err = c.Server.AttachToNetwork(t.Context(), &hcloud.Server{ID: s.ID},
			hcloud.ServerAttachToNetworkOpts{Network: n})
		return err
	case 2:
		servers := sim.Servers()
		if len(servers) == 0 {
			return nil
		}
		_, _, err := c.Server.DeleteWithResult(t.Context(), &hcloud.Server{
			ID: servers[random.IntN(len(servers))].ID,
		})
		return err
	}
	a, _, err := c.Network.AddRoute(t.Context(), n, hcloud.NetworkAddRouteOpts{Route: r})
	if err != nil {
		return err
	}
	for a.Status == hcloud.ActionStatusRunning {
		if a, _, err = c.Action.GetByID(t.Context(), a.ID); err != nil {
			return err
		}
	}
	return a.Error()
}

func expected(err error) bool {
	return hcloud.IsError(err, "conflict", "invalid_input", "not_found", "resource_limit_exceeded")
}

func checkInvariants(t *testing.T, sim *hcloudsim.Simulator, id int64) {
	t.Helper()
	n, _ := sim.Network(id)
	if len(n.Routes) > 20 || len(n.Servers) > 12 {
		t.Errorf("%d routes of 20, %d attachments of 12", len(n.Routes), len(n.Servers))
	}
	for i, a := range n.Routes {
		for _, b := range n.Routes[:i] {
			if netip.MustParsePrefix(a.Destination).Overlaps(netip.MustParsePrefix(b.Destination)) {
				t.Errorf("routes %s and %s overlap", a.Destination, b.Destination)
			}
		}
	}
	addresses := map[string]schema.Server{}
	for _, s := range sim.Servers() {
		for _, p := range s.PrivateNet {
			if other, taken := addresses[p.IP]; taken {
				t.Errorf("servers %d and %d both have %s", s.ID, other.ID, p.IP)
			}
			addresses[p.IP] = s
		}
	}
}
