package hetzner

import (
	"context"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Location is a location in which resources can be created.
type Location struct{ Name, NetworkZone string }

// Locations returns the locations of the cloud, sorted by ID. It is one request.
func (c *Client) Locations(ctx context.Context) ([]Location, error) {
	found, err := list(ctx, c, "locations", func(l *hcloud.Location) int64 { return l.ID },
		func(ctx context.Context, page hcloud.ListOpts) ([]*hcloud.Location, *hcloud.Response, error) {
			return c.api.Location.List(ctx, hcloud.LocationListOpts{ListOpts: page, Sort: byID()})
		})
	if err != nil {
		return nil, err
	}
	all := make([]Location, len(found))
	for i, l := range found {
		all[i] = Location{Name: l.Name, NetworkZone: string(l.NetworkZone)}
	}
	return all, nil
}

// LoadBalancerTypes returns the names of the types, sorted by ID. It is one request.
func (c *Client) LoadBalancerTypes(ctx context.Context) ([]string, error) {
	found, err := list(ctx, c, "load balancer types", func(t *hcloud.LoadBalancerType) int64 { return t.ID },
		func(ctx context.Context, page hcloud.ListOpts) ([]*hcloud.LoadBalancerType, *hcloud.Response, error) {
			return c.api.LoadBalancerType.List(ctx, hcloud.LoadBalancerTypeListOpts{ListOpts: page})
		})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(found))
	for i, t := range found {
		names[i] = t.Name
	}
	return names, nil
}
