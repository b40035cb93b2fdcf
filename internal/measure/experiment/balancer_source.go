package experiment

import (
	"context"
	"errors"
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

// sourceIPv6 connects through the load balancer to a server that is its target at its IPv6 address,
// and asks the server where the connections came from.
func sourceIPv6(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	server, err := b.inNetwork(ctx, 0)
	if err != nil {
		return nil, err
	}
	// Without an address to aim at, the target would be the server's primary IPv4.
	if !server.Public6.IsValid() {
		return sees(unsure(measure.SourceIPv6, "the server has no public IPv6 address"))
	}
	lb, err := b.emptyBalancer(ctx)
	if err != nil {
		return nil, err
	}
	b.say("looking where the load balancer connects to IPv6 addresses from")
	// A check of protocol tcp says nothing, so clients are told from it.
	remove, err := b.serve(ctx, lb, service{listen: sourcesListen, check: check{port: servedPort}})
	if err != nil {
		return nil, err
	}
	defer remove()
	answering := inside.Listener{Port: servedPort, Does: inside.Answers, Status: 200}
	if err := server.Program.Listen(ctx, answering); err != nil {
		return nil, err
	}
	remove, err = b.target(ctx, lb, aim{server: server, at: server.Public6})
	if err != nil {
		return nil, err
	}
	defer remove()
	if err := b.becomes(ctx, lb, hcloud.LoadBalancerTargetHealthStatusStatusHealthy, sourcesListen); err != nil {
		return nil, err
	}
	for range 3 {
		if err := lb.answers(ctx, server, sourcesListen); err != nil {
			return nil, err
		}
	}
	came, checked, err := clients(ctx, server, servedPort)
	if err != nil {
		return nil, err
	}
	sources, checkers := sourcesOf(came), sourcesOf(checked)
	if len(sources) == 0 {
		return nil, errors.New("connections are answered, but none came to the server")
	}
	is := sources[0].String()
	var notes []string
	if sources[0] == lb.Public6 {
		is = profile.Own
	} else if netip.PrefixFrom(lb.Public6, 64).Masked().Contains(sources[0]) {
		notes = append(notes, "it is in the /64 of the public one")
	}
	if len(sources) > 1 {
		notes = append(notes, fmt.Sprintf("connections came from %d addresses", len(sources)))
	}
	if !slices.Equal(sources, checkers) && len(checkers) > 0 {
		notes = append(notes, "health checks come from elsewhere")
	}
	return sees(measure.Observation{
		Fact: measure.SourceIPv6, Note: strings.Join(notes, "; "),
		Record: func(p *profile.Profile) { p.Cloud.IPv6Source = &is },
	})
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
