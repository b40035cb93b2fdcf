package hetzner

import (
	"context"
	"fmt"
)

// Location is where something can be made.
type Location struct{ Name, NetworkZone string }

// Locations are those of the cloud, in its order. It is one request.
func (c *Client) Locations(ctx context.Context) ([]Location, error) {
	found, err := all(ctx, c.api.Location.All)
	if err != nil {
		return nil, fmt.Errorf("listing locations: %w", err)
	}
	all := make([]Location, len(found))
	for i, l := range found {
		all[i] = Location{Name: l.Name, NetworkZone: string(l.NetworkZone)}
	}
	return all, nil
}

// LoadBalancerTypes are the names of the types that a load balancer can have, in
// the cloud's order. It is one request.
func (c *Client) LoadBalancerTypes(ctx context.Context) ([]string, error) {
	found, err := all(ctx, c.api.LoadBalancerType.All)
	if err != nil {
		return nil, fmt.Errorf("listing load balancer types: %w", err)
	}
	names := make([]string, len(found))
	for i, t := range found {
		names[i] = t.Name
	}
	return names, nil
}
