package experiment

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

const proxyListen = 7102

// checksSeen is how many health checks are looked at.
const checksSeen = 3

// proxyProtocol looks at the first bytes of what a load balancer sends for a service with the PROXY
// protocol: for a client, and in the health checks, which are of HTTP, at a port of their own.
func proxyProtocol(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	server, err := b.inNetwork(ctx, 0)
	if err != nil {
		return nil, err
	}
	lb, err := b.emptyBalancer(ctx)
	if err != nil {
		return nil, err
	}
	b.say("looking at the PROXY protocol of connections and health checks")
	for _, port := range []uint16{servedPort, checkedPort} {
		if err := server.Program.Listen(ctx, inside.Listener{Port: port, Does: inside.Answers, Status: 200}); err != nil {
			return nil, err
		}
	}
	remove, err := b.serve(ctx, lb, service{listen: proxyListen, proxy: true, check: check{http: true, port: checkedPort}})
	if err != nil {
		return nil, err
	}
	defer remove()
	remove, err = b.target(ctx, lb, aim{server: server, private: true})
	if err != nil {
		return nil, err
	}
	defer remove()
	var out []measure.Observation
	if b.Wants(measure.ProxyInChecks) {
		if out, err = proxiedChecks(ctx, server); err != nil {
			return nil, err
		}
	}
	if !b.Wants(measure.ProxyProtocol) {
		return out, nil
	}
	if err := b.becomes(ctx, lb, hcloud.LoadBalancerTargetHealthStatusStatusHealthy, proxyListen); err != nil {
		return out, err
	}
	if err := lb.answers(ctx, server, proxyListen); err != nil {
		return out, err
	}
	came, _, err := clients(ctx, server, servedPort)
	if err != nil {
		return out, err
	}
	if len(came) == 0 {
		return out, errors.New("connections are answered, but none came to the server")
	}
	version := came[len(came)-1].Proxy
	o := measure.Observation{Fact: measure.ProxyProtocol, Seen: measure.Version(version)}
	if version != 0 { // a cloud without the header is not one that the simulator knows
		o.Record = func(p *profile.Profile) { p.Network.ProxyProtocol = &version }
	}
	return append(out, o), nil
}

// proxiedChecks looks whether health checks begin with a header.
func proxiedChecks(ctx context.Context, server *Server) ([]measure.Observation, error) {
	var all []inside.Connection
	err := lookFor(ctx, judged, healthLook, func() (enough bool, err error) {
		all, _, err = clients(ctx, server, checkedPort) // those that have asked: their header is in
		return len(all) >= checksSeen, err
	})
	if errors.Is(err, errLate) {
		return nil, fmt.Errorf("only %d health checks came within %s", len(all), judged)
	}
	if err != nil {
		return nil, err
	}
	with := 0
	for _, c := range all {
		if c.Proxy != 0 {
			with++
		}
	}
	header := with > 0
	return sees(measure.Observation{
		Fact: measure.ProxyInChecks, Note: fmt.Sprintf("%d of %d checks have the header", with, len(all)),
		Record: func(p *profile.Profile) { p.Cloud.ProxyHeaderInChecks = &header },
	})
}
