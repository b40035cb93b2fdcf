package hetzner_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

func TestCatalogOfTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, _ := project(t, hcloudsim.Options{})
		if err := sim.Inject(hcloudsim.Fault{Status: 503}); err != nil { // a read is repeated
			t.Fatal(err)
		}
		locations, err := c.Locations(t.Context())
		if err != nil || !slices.Contains(locations, hetzner.Location{Name: "ash", NetworkZone: "us-east"}) {
			t.Errorf("locations %v, %v", locations, err)
		}
		types, err := c.LoadBalancerTypes(t.Context())
		if err != nil || !slices.Contains(types, "lb31") {
			t.Errorf("load balancer types %v, %v", types, err)
		}
		if n := requested(sim, "GET /v1/locations"); n != 2 {
			t.Errorf("%d requests for the locations, want one that failed and one that didn't", n)
		}
		if n := requested(sim, "GET /v1/load_balancer_types"); n != 1 {
			t.Errorf("%d requests for the types, want 1", n)
		}
	})
}
