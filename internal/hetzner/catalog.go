package hetzner

import (
	"context"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Location is a location in which resources can be created.
type Location struct{ Name, NetworkZone string }

// Locations returns the locations of the cloud, sorted by ID. It is one request.
func (c *Client) Locations(ctx context.Context) ([]Location, error) {
	return list(ctx, c, "locations", func(l *hcloud.Location) int64 { return l.ID },
		func(ctx context.Context, page hcloud.ListOpts) ([]*hcloud.Location, *hcloud.Response, error) {
			return c.api.Location.List(ctx, hcloud.LocationListOpts{ListOpts: page, Sort: byID()})
		},
		func(l *hcloud.Location) Location { return Location{l.Name, string(l.NetworkZone)} })
}

// LoadBalancerTypes returns the names of the types, sorted by ID. It is one request.
func (c *Client) LoadBalancerTypes(ctx context.Context) ([]string, error) {
	type balancerType = hcloud.LoadBalancerType
	return list(ctx, c, "load balancer types", func(t *balancerType) int64 { return t.ID },
		func(ctx context.Context, page hcloud.ListOpts) ([]*balancerType, *hcloud.Response, error) {
			return c.api.LoadBalancerType.List(ctx, hcloud.LoadBalancerTypeListOpts{ListOpts: page})
		},
		func(t *balancerType) string { return t.Name })
}
