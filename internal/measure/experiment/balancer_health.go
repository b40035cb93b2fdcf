package experiment

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

const (
	unhealthyListen = 7110 // the first of those of unhealthyTargets
	unhealthyCheck  = 9010 // likewise, the ports that are checked
)

// failing are the ways in which a check fails, in the order of [measure.Details].
var failing = []struct {
	listener inside.Listener
	expects  string
}{
	{listener: inside.Listener{Does: inside.Closed}},
	{listener: inside.Listener{Does: inside.Drops}},
	{listener: inside.Listener{Does: inside.Hangs}},
	{listener: inside.Listener{Does: inside.Answers, Status: 503}},
	{listener: inside.Listener{Does: inside.Answers, Status: 200}, expects: "nobody answers this"},
}

// unhealthyTargets lets checks fail in every way, reads what the API says of the target, and
// connects to it while no service has a healthy one.
func unhealthyTargets(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	server, err := b.inNetwork(ctx, 0)
	if err != nil {
		return nil, err
	}
	lb, err := b.emptyBalancer(ctx)
	if err != nil {
		return nil, err
	}
	ways := failing
	if !b.Wants(measure.HealthDetails) {
		ways = failing[:1]
	}
	b.say("letting health checks fail in %d ways", len(ways))
	err = server.Program.Listen(ctx, inside.Listener{Port: servedPort, Does: inside.Answers, Status: 200})
	if err != nil {
		return nil, err
	}
	var ports []uint16
	for n, way := range ways {
		way.listener.Port = unhealthyCheck + uint16(n)
		if err := server.Program.Listen(ctx, way.listener); err != nil {
			return nil, err
		}
		ports = append(ports, unhealthyListen+uint16(n))
		remove, err := b.serve(ctx, lb, service{listen: ports[n], check: check{
			http: true, port: way.listener.Port, response: way.expects,
		}})
		if err != nil {
			return nil, err
		}
		defer remove()
	}
	remove, err := b.target(ctx, lb, aim{server: server, private: true})
	if err != nil {
		return nil, err
	}
	defer remove()
	if err := b.becomes(ctx, lb, hcloud.LoadBalancerTargetHealthStatusStatusUnhealthy, ports...); err != nil {
		return nil, err
	}
	out, err := noHealthyTarget(ctx, b, lb, server, ports[0])
	if err != nil || !b.Wants(measure.HealthDetails) {
		return out, err
	}
	details, err := healthDetails(ctx, b, lb, ports)
	return append(out, details...), err
}

// noHealthyTarget connects a few times.
func noHealthyTarget(ctx context.Context, b *Bench, lb *LoadBalancer, from *Server, listen uint16) ([]measure.Observation, error) {
	if !b.Wants(measure.NoHealthyTarget) {
		return nil, nil
	}
	// What it does at first may be because it doesn't know of the service yet.
	if err := wait(ctx, 2*time.Second); err != nil {
		return nil, err
	}
	var words []string
	for range 3 {
		outcome, err := lb.dial(ctx, from, listen)
		if err != nil {
			return nil, err
		}
		words = append(words, word(outcome))
	}
	out := seen(measure.NoHealthyTarget, words[len(words)-1])
	if words[0] != words[1] || words[1] != words[2] {
		out.Note = "one after the other: " + strings.Join(words, ", ")
	}
	return []measure.Observation{out}, nil
}

// healthDetails reads why checks fail.
func healthDetails(ctx context.Context, b *Bench, lb *LoadBalancer, ports []uint16) ([]measure.Observation, error) {
	now, err := b.health(ctx, lb)
	if err != nil {
		return nil, err
	}
	details := make([]string, len(ports))
	var note string
	for n, port := range ports {
		details[n] = "nothing"
		if d := now[port].Detail; d != nil {
			details[n] = string(*d)
		}
		if code := now[port].HTTPStatusCode; code != nil {
			note = fmt.Sprintf("the status %d is named", *code)
		}
	}
	out := seen(measure.HealthDetails, measure.Details(details[0], details[1], details[2], details[3], details[4]))
	out.Note = note
	return []measure.Observation{out}, nil
}
