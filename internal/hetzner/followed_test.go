package hetzner_test

import (
	"errors"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// After a network was deleted, its name is looked up; another network of that name replaces it, for
// routes and for servers.
func TestANetworkIsFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, first := project(t, hcloudsim.Options{})
		seed(t, sim, first, 1)
		f, err := c.Network(t.Context(), "cluster")
		if err != nil {
			t.Fatal(err)
		}
		route := entry("10.244.1.0/24", "10.0.0.2")
		if err := f.Add(t.Context(), route); err != nil {
			t.Fatal(err)
		}
		expect(t, f, route)
		attached := func() (names []string) {
			servers, err := f.Servers().List(t.Context(), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range servers {
				if s.PrivateIP.IsValid() {
					names = append(names, s.Name)
				}
			}
			return names
		}
		if got := attached(); len(got) != 1 || f.Last().ID != first {
			t.Errorf("network %d with %q, want one server in network %d", f.Last().ID, got, first)
		}

		// A failed request is no deletion.
		fault := hcloudsim.Fault{Times: 1, Status: http.StatusForbidden, Code: "forbidden", Match: "GET /networks/{id}"}
		if err := sim.Inject(fault); err != nil {
			t.Fatal(err)
		}
		sim.ResetRequests()
		_, err = f.List(t.Context())
		if err == nil || errors.Is(err, hetzner.ErrNoNetwork) || len(sim.Requests()) != 1 {
			t.Errorf("%v after the requests %v, want the failure and no look", err, sim.Requests())
		}

		if err := sim.DeleteNetwork(first); err != nil {
			t.Fatal(err)
		}
		if _, err := f.List(t.Context()); !errors.Is(err, hetzner.ErrNoNetwork) || f.Last().ID != first {
			t.Errorf("without any network: %v, and network %d", err, f.Last().ID)
		}
		second, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
			Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8"),
			Subnets: []hcloudsim.SubnetSeed{{IPRange: netip.MustParsePrefix("10.0.0.0/16")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		seed(t, sim, second.ID, 2)
		expect(t, f)
		if got := attached(); len(got) != 2 || f.Last().ID != second.ID {
			t.Errorf("network %d with %q, want two servers in network %d", f.Last().ID, got, second.ID)
		}
		if err := f.Add(t.Context(), route); err != nil {
			t.Errorf("adding a route to the network that was found: %v", err)
		}
		sim.ResetRequests()
		expect(t, f, route)
		if n := len(sim.Requests()); n != 1 {
			t.Errorf("%d requests, want one: it was looked for again", n)
		}
	})
}
