package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

const sourcesListen = 7101

// balancerSources connects through the load balancer to a server that is its target at one address
// after the other, and asks the server where the connections came from.
func balancerSources(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	server, err := b.inNetwork(ctx, 0)
	if err != nil {
		return nil, err
	}
	lb, err := b.emptyBalancer(ctx)
	if err != nil {
		return nil, err
	}
	// A check of protocol tcp says nothing, so clients are told from it.
	remove, err := b.serve(ctx, lb, service{listen: sourcesListen, check: check{port: servedPort}})
	if err != nil {
		return nil, err
	}
	defer remove()
	var out []measure.Observation
	for _, way := range []struct {
		fact measure.FactID
		aim  aim
	}{
		{measure.SourcePrivate, aim{server: server, private: true}},
		{measure.SourcePublic, aim{server: server}},
		{measure.SourceIPv6, aim{server: server, at: server.Public6}},
	} {
		if !b.Wants(way.fact) {
			continue
		}
		// Without an address to aim at, the target would be the server's primary IPv4.
		if way.fact == measure.SourceIPv6 && !server.Public6.IsValid() {
			out = append(out, unsure(way.fact, "the server has no public IPv6 address"))
			continue
		}
		b.say("looking where the load balancer connects from: %s", way.fact)
		seen, err := sourceOf(ctx, b, lb, way.fact, way.aim)
		if ctx.Err() != nil {
			return out, err
		}
		if err != nil {
			seen = unsure(way.fact, "%v", err)
		}
		out = append(out, seen)
	}
	return out, nil
}

// sourceOf looks where connections to one target come from.
func sourceOf(ctx context.Context, b *Bench, lb *LoadBalancer, fact measure.FactID, a aim) (measure.Observation, error) {
	err := a.server.Program.Listen(ctx, inside.Listener{Port: servedPort, Does: inside.Answers, Status: 200})
	if err != nil {
		return measure.Observation{}, err
	}
	if err := b.withoutTargets(ctx, lb); err != nil {
		return measure.Observation{}, err
	}
	remove, err := b.target(ctx, lb, a)
	if err != nil {
		return measure.Observation{}, err
	}
	defer remove()
	if err := b.becomes(ctx, lb, hcloud.LoadBalancerTargetHealthStatusStatusHealthy, sourcesListen); err != nil {
		return measure.Observation{}, err
	}
	for range 3 {
		if err := lb.answers(ctx, a.server, sourcesListen); err != nil {
			return measure.Observation{}, err
		}
	}
	came, checked, err := clients(ctx, a.server, servedPort)
	if err != nil {
		return measure.Observation{}, err
	}
	sources, checkers := sourcesOf(came), sourcesOf(checked)
	if len(sources) == 0 {
		return measure.Observation{}, fmt.Errorf("connections are answered, but none came to the server")
	}
	out := seen(fact, lb.role(sources[0]))
	var notes []string
	if len(sources) > 1 {
		notes = append(notes, fmt.Sprintf("connections came from %d addresses", len(sources)))
	}
	if !slices.Equal(sources, checkers) && len(checkers) > 0 {
		notes = append(notes, "health checks from "+lb.role(checkers[0]))
	}
	if fact == measure.SourceIPv6 {
		is := sources[0].String()
		if lb.role(sources[0]) == measure.OwnPublic {
			is = profile.Own
		} else if netip.PrefixFrom(lb.Public6, 64).Masked().Contains(sources[0]) {
			notes = append(notes, "which is in the /64 of its public one")
		}
		out.Record = func(p *profile.Profile) { p.Cloud.IPv6Source = &is }
	}
	out.Note = strings.Join(notes, "; ")
	return out, nil
}

// sourcesOf are where connections came from, each address once, sorted.
func sourcesOf(all []inside.Connection) []netip.Addr {
	var out []netip.Addr
	for _, c := range all {
		out = append(out, c.From.Addr().Unmap())
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
