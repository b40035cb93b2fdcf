package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// floatingReassign assigns a floating IP to a server, and then to another.
func floatingReassign(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	one, err := b.Server(ctx, 0)
	if err != nil {
		return nil, err
	}
	other, err := b.Server(ctx, 1)
	if err != nil {
		return nil, err
	}
	b.say("making a floating IP, and assigning it twice")
	f, err := b.newFloatingIP(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.assign(ctx, f, one); err != nil {
		return nil, err
	}
	said, err := refusal(b.assign(ctx, f, other))
	if err != nil {
		return nil, err
	}
	switch said {
	case measure.Taken:
		now, _, err := b.client().FloatingIP.GetByID(ctx, f.ID)
		if err != nil {
			return nil, err
		}
		if now == nil || now.Server == nil || now.Server.ID != other.ID {
			words := "taken, and without effect"
			return sees(measure.Observation{Fact: measure.FloatingReassign, Seen: words})
		}
	case "floating_ip_assigned":
	default:
		return []measure.Observation{{Fact: measure.FloatingReassign, Seen: said}}, nil
	}
	return sees(measure.Observation{
		Fact:   measure.FloatingReassign,
		Record: func(p *profile.Profile) { p.Cloud.RefuseReassign = new(said != measure.Taken) },
	})
}

// newFloatingIP makes one of IPv6, which is the cheaper type.
func (b *Bench) newFloatingIP(ctx context.Context) (*hcloud.FloatingIP, error) {
	name := b.Project.Name("floating-ip")
	floating, err := created(ctx, b, func() (*hcloud.FloatingIP, error) {
		result, _, err := b.client().FloatingIP.Create(ctx, hcloud.FloatingIPCreateOpts{
			Type: hcloud.FloatingIPTypeIPv6, HomeLocation: &hcloud.Location{Name: b.Location},
			Name: &name, Labels: b.Project.Labels(),
		})
		return result.FloatingIP, err
	})
	if err != nil {
		return nil, fmt.Errorf("making a floating IP in %s: %w", b.Location, err)
	}
	return floating, nil
}

func (b *Bench) assign(ctx context.Context, f *hcloud.FloatingIP, s *Server) error {
	change := func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return b.client().FloatingIP.Assign(ctx, f, s.ref())
	}
	_, err := b.Change(ctx, "assigning a floating IP", change)
	return err
}

// zonePrimaryIPs makes load balancers in a zone with primary IPs of one location after the other,
// until one of them isn't there: one alone may be where it is by chance.
func zonePrimaryIPs(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	zone, err := b.zone(ctx)
	if err != nil {
		return nil, err
	}
	all, err := b.client().Location.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the locations: %w", err)
	}
	in := slices.DeleteFunc(all, func(l *hcloud.Location) bool { return l.NetworkZone != zone })
	if len(in) < 2 {
		return sees(unsure(measure.ZonePrimaryIPs,
			"zone %s has one location; in one with several (--location nbg1) it can be seen", zone))
	}
	slices.Reverse(in) // the last is the least likely one that is taken without a reason
	for _, at := range in[:2] {
		there, note, err := b.placedAt(ctx, zone, at.Name)
		if err != nil {
			return nil, err
		}
		if !there {
			return sees(measure.Observation{
				Fact: measure.ZonePrimaryIPs, Note: note,
				Record: func(p *profile.Profile) { p.Cloud.ZoneIgnoresPrimaryIPs = new(true) },
			})
		}
	}
	return sees(measure.Observation{
		Fact:   measure.ZonePrimaryIPs,
		Record: func(p *profile.Profile) { p.Cloud.ZoneIgnoresPrimaryIPs = new(false) },
	})
}

// placedAt makes a load balancer in a zone with a primary IP of a location, and returns whether it
// is there. It isn't if it is elsewhere, or if the zone is what it is refused for: it is refused
// twice, and then taken in the location. Any other refusal is an error.
func (b *Bench) placedAt(ctx context.Context, zone hcloud.NetworkZone, location string,
) (there bool, note string, err error) {
	b.say("making a load balancer in zone %s with a primary IP of %s", zone, location)
	address, err := b.newPrimaryIP(ctx, location)
	if err != nil {
		return false, "", err
	}
	opts := hcloud.LoadBalancerCreateOpts{
		NetworkZone: zone, PublicNet: &hcloud.LoadBalancerCreateOptsPublicNet{IPv6: address},
	}
	where, refused := b.placed(ctx, "zone-"+location, opts)
	if againstAddress(refused) {
		where, refused = b.placed(ctx, "zone-"+location, opts)
	}
	if refused == nil {
		note = fmt.Sprintf("with a primary IP of %s it was placed in %s", location, where)
		return where == location, note, nil
	}
	refused = fmt.Errorf("making a load balancer in zone %s with a primary IP of %s: %w",
		zone, location, refused)
	if !againstAddress(refused) {
		return false, "", refused
	}
	opts.NetworkZone, opts.Location = "", &hcloud.Location{Name: location}
	where, err = b.placed(ctx, "location-"+location, opts)
	switch {
	case err != nil:
		return false, "", fmt.Errorf("%w; in location %s in place of the zone: %w",
			refused, location, err)
	case where != location:
		return false, "", fmt.Errorf("%w; made in location %s it is in %s", refused, location, where)
	}
	said, _ := code(refused)
	note = fmt.Sprintf("refused with a primary IP of %s: %s; taken in that location", location, said)
	return false, note, nil
}

// againstAddress reports whether an error may be a refusal for where a primary IP is.
func againstAddress(err error) bool {
	said, _ := code(err)
	return strings.HasPrefix(said, "primary_ip_") || said == string(hcloud.ErrorCodeInvalidInput)
}

// placed makes a load balancer, removes it again, and returns in which location it was.
func (b *Bench) placed(ctx context.Context, name string, opts hcloud.LoadBalancerCreateOpts,
) (location string, err error) {
	balancer, err := b.createLoadBalancer(ctx, name, opts)
	if err != nil {
		return "", err
	}
	change := func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		result, answer, err := b.client().LoadBalancer.DeleteWithResult(ctx, balancer)
		return result.Action, answer, err
	}
	b.Cleanup(ctx, "removing a load balancer", change)
	if balancer.Location == nil || balancer.Location.Name == "" {
		return "", errors.New("the API doesn't say in which location the load balancer is")
	}
	return balancer.Location.Name, nil
}

func (b *Bench) newPrimaryIP(ctx context.Context, location string) (*hcloud.PrimaryIP, error) {
	opts := hcloud.PrimaryIPCreateOpts{
		Type: hcloud.PrimaryIPTypeIPv6, Location: location, AutoDelete: new(false),
		Name: b.Project.Name("primary-ip-" + location), Labels: b.Project.Labels(),
	}
	address, err := created(ctx, b, func() (*hcloud.PrimaryIP, error) {
		result, _, err := b.client().PrimaryIP.Create(ctx, opts)
		if err != nil {
			return nil, err
		}
		return result.PrimaryIP, nil
	})
	if err != nil {
		return nil, fmt.Errorf("making a primary IP in %s: %w", location, err)
	}
	return address, nil
}
