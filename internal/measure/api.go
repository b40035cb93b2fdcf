package measure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/ipnet"
)

const (
	// reads is the number of requests for the median latency.
	reads = 20
	// attempts limits the retries of a step that must happen while an action runs.
	attempts = 10
	// timed is the minimum number of times that a route is added and removed to measure actions.
	timed = 5
)

func latency(ctx context.Context, r *run) (record, error) {
	var all []float64
	for range reads {
		began := time.Now()
		if _, err := r.once.Location.All(ctx); err != nil {
			return nil, err
		}
		all = append(all, milliseconds(time.Since(began)))
	}
	slices.Sort(all)
	return func(p *profile.Profile) { p.Cloud.LatencySeconds = new(all[len(all)/2]) }, nil
}

func rateLimit(ctx context.Context, r *run) (record, error) {
	_, reply, err := r.client.Location.List(ctx, hcloud.LocationListOpts{})
	if err != nil {
		return nil, err
	}
	limit := reply.Meta.Ratelimit.Limit
	if limit == 0 {
		return nil, errors.New("the reply has no header RateLimit-Limit")
	}
	return func(p *profile.Profile) { p.Cloud.RateLimit = new(limit) }, nil
}

// route returns a route for the n-th /24 of the network, to an unused gateway address.
func route(n byte) hcloud.NetworkRoute {
	return hcloud.NetworkRoute{
		Destination: ipnet.Of(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, n, 0}), 24)),
		Gateway:     netip.AddrFrom4([4]byte{10, 200, 0, 250}).AsSlice(),
	}
}

func (r *run) addRoute(ctx context.Context, n *hcloud.Network, route hcloud.NetworkRoute) error {
	return r.done(ctx)(r.client.Network.AddRoute(ctx, n, hcloud.NetworkAddRouteOpts{Route: route}))
}

func (r *run) deleteRoute(
	ctx context.Context, n *hcloud.Network, route hcloud.NetworkRoute,
) error {
	return r.done(ctx)(r.client.Network.DeleteRoute(ctx, n,
		hcloud.NetworkDeleteRouteOpts{Route: route}))
}

// busy adds a route while another route is being added.
func busy(ctx context.Context, r *run) (record, error) {
	n, err := r.network()
	if err != nil {
		return nil, err
	}
	one := hcloud.NetworkAddRouteOpts{Route: route(1)}
	other := hcloud.NetworkAddRouteOpts{Route: route(2)}
	for range attempts {
		first, _, err := r.client.Network.AddRoute(ctx, n, one)
		if err != nil {
			return nil, err
		}
		second, _, refused := r.once.Network.AddRoute(ctx, n, other)
		if err := r.wait(ctx, first, second); err != nil {
			return nil, err
		}
		if err := r.deleteRoute(ctx, n, one.Route); err != nil {
			return nil, err
		}
		for code, word := range map[hcloud.ErrorCode]string{
			hcloud.ErrorCodeConflict: profile.Conflict, hcloud.ErrorCodeLocked: profile.Locked,
		} {
			if hcloud.IsError(refused, code) {
				return func(p *profile.Profile) { p.Cloud.Busy = new(word) }, nil
			}
		}
		if refused != nil {
			return nil, refused
		}
		if err := r.deleteRoute(ctx, n, other.Route); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("a second change was accepted %d times: the first may have ended before it",
		attempts)
}

// effectShows gets the network while a route is being added.
func effectShows(ctx context.Context, r *run) (record, error) {
	n, err := r.network()
	if err != nil {
		return nil, err
	}
	added := route(3)
	shown := func() (bool, error) {
		now, _, err := r.client.Network.GetByID(ctx, n.ID)
		if err != nil || now == nil {
			return false, err
		}
		return slices.ContainsFunc(now.Routes, func(r hcloud.NetworkRoute) bool {
			return r.Destination.String() == added.Destination.String()
		}), nil
	}
	for range attempts {
		action, _, err := r.client.Network.AddRoute(ctx, n, hcloud.NetworkAddRouteOpts{Route: added})
		if err != nil {
			return nil, err
		}
		during, err := shown()
		if err != nil {
			return nil, err
		}
		still, _, err := r.client.Action.GetByID(ctx, action.ID)
		if err != nil {
			return nil, err
		}
		if err := r.wait(ctx, action); err != nil {
			return nil, err
		}
		after, err := shown()
		if err := errors.Join(err, r.deleteRoute(ctx, n, added)); err != nil {
			return nil, err
		}
		switch {
		case !after:
			return nil, errors.New("the network does not show a route when its action has ended")
		case still != nil && still.Status == hcloud.ActionStatusRunning:
			return func(p *profile.Profile) { p.Cloud.EffectsAtOnce = new(during) }, nil
		}
	}
	return nil, fmt.Errorf("%d actions ended before another request came", attempts)
}

// targetsPerServer adds a server to the load balancer at two addresses.
func targetsPerServer(ctx context.Context, r *run) (record, error) {
	lb, err := r.balancer()
	if err != nil {
		return nil, err
	}
	s, err := r.servers[0]()
	if err != nil {
		return nil, err
	}
	if !s.public6.IsValid() {
		return nil, errors.New("the server has no IPv6 address")
	}
	remove, err := r.target(ctx, lb, aim{server: s})
	defer remove()
	if err != nil {
		return nil, err
	}
	remove, err = r.target(ctx, lb, aim{server: s, at: s.public6})
	defer remove()
	refused := hcloud.IsError(err, hcloud.ErrorCodeTargetAlreadyDefined)
	if err != nil && !refused {
		return nil, err
	}
	return func(p *profile.Profile) { p.Cloud.OneTargetPerServer = new(refused) }, nil
}

// floatingReassign assigns a floating IP to two servers in turn. IPv6 is cheaper.
func floatingReassign(ctx context.Context, r *run) (record, error) {
	result, _, err := r.client.FloatingIP.Create(ctx, hcloud.FloatingIPCreateOpts{
		Type: hcloud.FloatingIPTypeIPv6, HomeLocation: r.location(),
		Name: new(name("floating-ip")), Labels: labels(),
	})
	if err != nil {
		return nil, err
	}
	for i, server := range r.servers {
		s, err := server()
		if err != nil {
			return nil, err
		}
		err = r.done(ctx)(r.client.FloatingIP.Assign(ctx, result.FloatingIP, s.Server))
		if i == 1 && hcloud.IsError(err, "floating_ip_assigned") {
			return func(p *profile.Profile) { p.Cloud.RefuseReassign = new(true) }, nil
		}
		if err != nil {
			return nil, err
		}
		now, _, err := r.client.FloatingIP.GetByID(ctx, result.FloatingIP.ID)
		if err != nil {
			return nil, err
		}
		if now == nil || now.Server == nil || now.Server.ID != s.ID {
			return nil, errors.New("the assignment had no effect")
		}
	}
	return func(p *profile.Profile) { p.Cloud.RefuseReassign = new(false) }, nil
}

// actionTimes returns the times of the run's actions, after adding enough route changes.
func actionTimes(ctx context.Context, r *run) (record, error) {
	n, err := r.network()
	if err != nil {
		return nil, err
	}
	for len(r.took["add_route"]) < timed || len(r.took["delete_route"]) < timed {
		if err := r.addRoute(ctx, n, route(4)); err != nil {
			return nil, err
		}
		if err := r.deleteRoute(ctx, n, route(4)); err != nil {
			return nil, err
		}
	}
	took := maps.Clone(r.took)
	return func(p *profile.Profile) { p.Cloud.ActionSeconds = took }, nil
}
