package hetzner_test

import (
	"crypto/rand"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/routes"
)

// Whether a network is coupled with a vSwitch is read, and one request enables its exposure of
// routes; its other fields are kept.
func TestANetworkIsCoupledWithAVSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(hcloudsim.Options{Token: "right"})
		_, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
			Name: "coupled", IPRange: netip.MustParsePrefix("10.0.0.0/8"), Labels: map[string]string{"team": "a"},
			Subnets: []hcloudsim.SubnetSeed{
				{IPRange: netip.MustParsePrefix("10.0.0.0/16")},
				{IPRange: netip.MustParsePrefix("10.1.0.0/16"), Type: "vswitch", VSwitch: 4321},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		c := client(t, sim, func() (string, error) { return "right", nil })
		n, err := c.Network(t.Context(), "coupled")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(n.Last().Coupling.Subnets, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}) || n.Last().Coupling.Exposed {
			t.Errorf("coupling %+v", n.Last().Coupling)
		}
		prefixes := func(texts ...string) (all []netip.Prefix) {
			for _, text := range texts {
				all = append(all, netip.MustParsePrefix(text))
			}
			return all
		}
		vSwitch := netip.MustParsePrefix("10.1.0.0/16")
		if got, want := n.Last().Reserved(vSwitch), prefixes("10.0.0.0/16", "10.1.0.1/32", "10.0.0.1/32", "172.31.1.1/32"); !slices.Equal(got, want) {
			t.Errorf("reserved are %v, want %v", got, want)
		}
		if got, want := n.Last().Reserved(netip.Prefix{}), prefixes("10.0.0.0/16", "10.1.0.0/16", "10.0.0.1/32", "172.31.1.1/32"); !slices.Equal(got, want) {
			t.Errorf("reserved are %v, want %v", got, want)
		}

		// Another running change of the network is waited for.
		if err := sim.Inject(hcloudsim.Fault{Times: 1, Status: 423, Code: "locked", Match: "PUT /networks/{id}"}); err != nil {
			t.Fatal(err)
		}
		sim.ResetRequests()
		if err := n.ExposeRoutes(t.Context()); err != nil {
			t.Error(err)
		}
		if r := sim.Requests(); len(r) != 2 || r[0].Status != http.StatusLocked ||
			r[1].Status != http.StatusOK {
			t.Errorf("requests %+v, want one, and it again", r)
		}
		if now, _ := sim.Network(n.Last().ID); !now.ExposeRoutesToVSwitch || now.Name != "coupled" || now.Labels["team"] != "a" {
			t.Errorf("network %+v", now)
		}
		inspected, err := c.InspectNetwork(t.Context(), "coupled")
		if err != nil || !inspected.Coupling.Exposed || len(inspected.Coupling.Subnets) != 1 {
			t.Errorf("%v, %+v", err, inspected.Coupling)
		}
	})
}

// The same cause has the same text, although each response has a correlation ID of its own.
func TestTheTextOfAFailedRouteIsSteady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(hcloudsim.Options{Token: "right"})
		if _, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
			Name: "n", IPRange: netip.MustParsePrefix("10.0.0.0/8"),
		}); err != nil {
			t.Fatal(err)
		}
		c, err := hetzner.New(hetzner.Options{
			Endpoint: "http://cloud.test/v1", Token: func() (string, error) { return "right", nil },
			Version: "test", Registry: metrics.NewKubeRegistry(), Transport: correlated{sim.Transport()},
		})
		if err != nil {
			t.Fatal(err)
		}
		n, err := c.Network(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		if err := sim.Inject(hcloudsim.Fault{
			Times: 2, Status: 403, Code: "forbidden", Match: "POST /networks/{id}/actions/add_route",
		}); err != nil {
			t.Fatal(err)
		}
		route := routes.Route{
			Dst: netip.MustParsePrefix("10.244.0.0/24"), Via: netip.MustParseAddr("10.0.0.2"),
		}
		first, second := n.Add(t.Context(), route), n.Add(t.Context(), route)
		if first == nil || second == nil || first.Error() != second.Error() {
			t.Errorf("errors %q and %q, want the same text", first, second)
		}
		if !hcloud.IsError(first, hcloud.ErrorCodeForbidden) {
			t.Errorf("%q is no refusal any more", first)
		}
	})
}

// correlated adds a correlation ID to each response.
type correlated struct{ http.RoundTripper }

func (c correlated) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Header.Set("X-Correlation-Id", rand.Text())
	}
	return response, err
}
