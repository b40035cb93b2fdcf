package hetzner_test

import (
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// inProject runs a test in a project of 120 servers with a cached list.
func inProject(
	t *testing.T,
	test func(t *testing.T, sim *hcloudsim.Simulator, servers *hetzner.Servers, network int64),
) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, network := project(t, hcloudsim.Options{AttachmentLimit: hcloudsim.Unlimited})
		seed(t, sim, network, 120)
		servers := c.Servers(network)
		if _, err := servers.List(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // on the bubble's clock
		sim.ResetRequests()
		test(t, sim, servers, network)
	})
}

func rent(t *testing.T, sim *hcloudsim.Simulator, name string, network int64) int64 {
	t.Helper()
	s, err := sim.CreateServer(hcloudsim.ServerSeed{Name: name, Network: network})
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

func look(t *testing.T, servers *hetzner.Servers, questions ...cloud.Question) []cloud.Machine {
	t.Helper()
	list, err := servers.Look(t.Context(), questions)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(list, func(a, b cloud.Machine) int { return int(a.ID - b.ID) }) {
		t.Error("the list is not in the order of IDs")
	}
	return list
}

func expectRequests(t *testing.T, sim *hcloudsim.Simulator, want int) {
	t.Helper()
	if n := requested(sim, "GET /v1/servers"); n != want {
		t.Errorf("%d requests, want %d", n, want)
	}
}

// A new server is found by one request, by its ID or its name, and is in the cached list
// afterwards.
func TestOneServerIsLookedUpAlone(t *testing.T) {
	for _, by := range []string{"ID", "name"} {
		t.Run(by, func(t *testing.T) {
			inProject(t,
				func(t *testing.T, sim *hcloudsim.Simulator, servers *hetzner.Servers, network int64) {
					id := rent(t, sim, "new", network)
					q := cloud.Question{ID: id, Since: time.Now()}
					if by == "name" {
						q = cloud.Question{Name: "new", Since: time.Now()}
					}
					for range 3 {
						if list := look(t, servers, q); len(list) != 121 || list[120].Name != "new" || !list[120].PrivateIP.IsValid() {
							t.Errorf("%d servers, want the new one among 121", len(list))
						}
					}
					list, err := servers.List(t.Context(), time.Time{})
					if err != nil || len(list) != 121 {
						t.Errorf("%d servers in the list, %v; want 121", len(list), err)
					}
					expectRequests(t, sim, 1)
				})
		})
	}
}

// A missing server is a result, too, and doesn't invalidate the cached list.
func TestAServerThatIsNotThereIsLookedUpOnce(t *testing.T) {
	inProject(t, func(t *testing.T, sim *hcloudsim.Simulator, servers *hetzner.Servers, _ int64) {
		q := cloud.Question{ID: 4711, Since: time.Now()}
		for range 3 {
			if list := look(t, servers, q); len(list) != 120 {
				t.Errorf("%d servers, want 120", len(list))
			}
		}
		expectRequests(t, sim, 1)
	})
}

// Many servers are looked up by reading the list, at once or one after the other.
func TestManyServersAreLookedUpByTheList(t *testing.T) {
	inProject(t, func(
		t *testing.T, sim *hcloudsim.Simulator, servers *hetzner.Servers, network int64,
	) {
		var questions []cloud.Question
		for _, name := range []string{"x", "y", "z", "u", "v"} {
			questions = append(questions, cloud.Question{ID: rent(t, sim, name, network), Since: time.Now()})
		}
		if list := look(t, servers, questions...); len(list) != 125 {
			t.Errorf("%d servers, want 125", len(list))
		}
		expectRequests(t, sim, 3)
		time.Sleep(time.Minute) // on the bubble's clock
		sim.ResetRequests()
		since := time.Now()
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			rent(t, sim, name, network)
		}
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			time.Sleep(time.Millisecond) // on the bubble's clock
			look(t, servers, cloud.Question{Name: name, Since: since})
		}
		expectRequests(t, sim, 2+3)
	})
}

// A response that contradicts the cached list about other servers causes a new list: two servers
// never have one name or one address.
func TestAnAnswerThatContradictsTheList(t *testing.T) {
	inProject(t, func(
		t *testing.T, sim *hcloudsim.Simulator, servers *hetzner.Servers, network int64,
	) {
		old := sim.Servers()[7]
		if err := sim.DeleteServer(old.ID); err != nil {
			t.Fatal(err)
		}
		id := rent(t, sim, old.Name, network)
		list := look(t, servers, cloud.Question{Name: old.Name, Since: time.Now()})
		if ids := idsOf(list); len(list) != 120 || ids[old.ID] || !ids[id] {
			t.Errorf("%d servers; want the successor and not the one that is gone", len(list))
		}
		expectRequests(t, sim, 1+3)

		time.Sleep(time.Second) // on the bubble's clock
		gone := sim.Servers()[8].ID
		if err := sim.DeleteServer(gone); err != nil {
			t.Fatal(err)
		}
		if ids := idsOf(look(t, servers, cloud.Question{ID: gone, Since: time.Now()})); ids[gone] {
			t.Error("the list has a server of which it was said that it isn't there")
		}
	})
}

// A response about one server has no information about the others: if a new list is required it is
// read, and includes the earlier response.
func TestAnAnswerIsNoList(t *testing.T) {
	inProject(t, func(
		t *testing.T, sim *hcloudsim.Simulator, servers *hetzner.Servers, network int64,
	) {
		id := rent(t, sim, "new", network)
		look(t, servers, cloud.Question{ID: id, Since: time.Now()})
		gone := sim.Servers()[3].ID
		if err := sim.DeleteServer(gone); err != nil {
			t.Fatal(err)
		}
		list, err := servers.List(t.Context(), time.Now())
		if ids := idsOf(list); err != nil || ids[gone] || !ids[id] {
			t.Errorf("%d servers, %v; want a new list", len(list), err)
		}
	})
}

// A server with another address is found there by one request.
func TestAServersNewAddressIsLookedUpAlone(t *testing.T) {
	inProject(t, func(
		t *testing.T, sim *hcloudsim.Simulator, servers *hetzner.Servers, network int64,
	) {
		moved := sim.Servers()[5]
		api := hcloud.NewClient(hcloud.WithEndpoint("http://cloud.test/v1"), hcloud.WithToken("right"),
			hcloud.WithHTTPClient(&http.Client{Transport: sim.Transport()}))
		ref := &hcloud.Server{ID: moved.ID}
		if _, _, err := api.Server.DetachFromNetwork(t.Context(), ref, hcloud.ServerDetachFromNetworkOpts{
			Network: &hcloud.Network{ID: network},
		}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := api.Server.AttachToNetwork(t.Context(), ref, hcloud.ServerAttachToNetworkOpts{
			Network: &hcloud.Network{ID: network}, IP: netip.MustParseAddr("10.0.200.1").AsSlice(),
		}); err != nil {
			t.Fatal(err)
		}
		sim.ResetRequests()
		list := look(t, servers, cloud.Question{ID: moved.ID, Since: time.Now()})
		if got := list[slices.IndexFunc(list, func(s cloud.Machine) bool { return s.ID == moved.ID })]; got.PrivateIP != netip.MustParseAddr("10.0.200.1") || len(list) != 120 {
			t.Errorf("%+v among %d, want it at its new address", got, len(list))
		}
		expectRequests(t, sim, 1)
	})
}
