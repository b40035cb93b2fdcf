package experiment

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// targetsPerServer adds two addresses of one server to a load balancer. An API that looks at the
// server alone, and not at the address, refuses the second, too: so the answer counts only if the
// API shows the address.
func targetsPerServer(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	l, err := b.LoadBalancer(ctx)
	if err != nil {
		return nil, err
	}
	s, err := b.Server(ctx, 0)
	if err != nil {
		return nil, err
	}
	if !s.Public6.IsValid() {
		return sees(unsure(measure.TargetsPerServer, "the server has no IPv6 address"))
	}
	b.say("adding two addresses of a server to a load balancer")
	primary, other := aim{server: s}, aim{server: s, at: s.Public6}
	refused, at, err := b.targets(ctx, l, primary, other)
	if err != nil {
		return nil, err
	}
	if refused {
		// The other way round, the first is the one whose address must be shown.
		also, shown, err := b.targets(ctx, l, other, primary)
		switch {
		case err != nil:
			return nil, err
		case !also:
			return sees(unsure(measure.TargetsPerServer,
				"the IPv6 address is refused beside IPv4, and not the other way round"))
		}
		at = shown
	} else if len(at) != 2 {
		words := fmt.Sprintf("taken, but there are %d targets", len(at))
		return sees(measure.Observation{Fact: measure.TargetsPerServer, Seen: words})
	}
	if !slices.Contains(at, s.Public6) {
		return sees(unsure(measure.TargetsPerServer,
			"the API doesn't show at which address a server is a target: it may look at the server alone"))
	}
	out := measure.Observation{Fact: measure.TargetsPerServer}
	if refused {
		out.Note = string(hcloud.ErrorCodeTargetAlreadyDefined) + ", whichever address was first"
	}
	out.Record = func(p *profile.Profile) { p.Cloud.OneTargetPerServer = new(refused) }
	return sees(out)
}

// targets makes a server a target twice, and takes both away again. It returns whether the second
// was refused as one that is a target already, and at which addresses the server was one then.
func (b *Bench) targets(ctx context.Context, l *LoadBalancer, one, other aim,
) (refused bool, at []netip.Addr, err error) {
	remove, err := b.target(ctx, l, one)
	if err != nil {
		return false, nil, err
	}
	defer remove()
	remove, err = b.target(ctx, l, other)
	defer remove()
	refused = hcloud.IsError(err, hcloud.ErrorCodeTargetAlreadyDefined)
	if err != nil && !refused {
		return false, nil, err
	}
	at, err = b.targetsOf(ctx, l, one.server)
	return refused, at, err
}

// targetsOf are the addresses at which a server is a load balancer's target, one for each target;
// not valid is one that the API doesn't show. hcloud-go v2.52.0 can't read them.
func (b *Bench) targetsOf(ctx context.Context, l *LoadBalancer, s *Server) ([]netip.Addr, error) {
	path := fmt.Sprintf("/load_balancers/%d", l.ID)
	request, err := b.client().NewRequest(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	var now struct {
		LoadBalancer struct {
			Targets []struct {
				Server struct {
					ID int64  `json:"id"`
					IP string `json:"ip"`
				} `json:"server"`
			} `json:"targets"`
		} `json:"load_balancer"`
	}
	if _, err := b.client().Do(request, &now); err != nil {
		return nil, fmt.Errorf("looking at a load balancer's targets: %w", err)
	}
	var all []netip.Addr
	for _, t := range now.LoadBalancer.Targets {
		if t.Server.ID == s.ID {
			at, _ := netip.ParseAddr(t.Server.IP) // empty, or of a form that says as little
			all = append(all, at)
		}
	}
	return all, nil
}
