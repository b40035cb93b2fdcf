package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

const unjudgedListen = 7103

// unknownFor is how long nobody must be served while the health of the only target is unknown,
// until that is how it is. The check takes a minute to fail.
const unknownFor = 20 * time.Second

// unjudgedTargets connects through a load balancer whose only target's check neither succeeds nor
// fails for a minute. A load balancer that nobody is served by because it is new, or the target is,
// would look the same: so this one has served the target before, under the same check, and the
// check must have come before silence counts.
func unjudgedTargets(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	server, err := b.inNetwork(ctx, 0)
	if err != nil {
		return nil, err
	}
	lb, err := b.emptyBalancer(ctx)
	if err != nil {
		return nil, err
	}
	b.say("looking whether targets get connections whose health is unknown")
	remove, err := b.serve(ctx, lb, service{listen: unjudgedListen, check: check{
		http: true, port: checkedPort, every: time.Minute, timeout: time.Minute, retries: 1,
	}})
	if err != nil {
		return nil, err
	}
	defer remove()
	target := aim{server: server, private: true}
	if err := b.servedBefore(ctx, lb, target); err != nil {
		return nil, err
	}
	err = server.Program.Listen(ctx, inside.Listener{Port: checkedPort, Does: inside.Hangs})
	if err != nil {
		return nil, err
	}
	remove, err = b.target(ctx, lb, target)
	if err != nil {
		return nil, err
	}
	defer remove()
	if err := checkCame(ctx, server); err != nil {
		return nil, err
	}
	outcome, err := dialUnknown(ctx, b, lb, server)
	if err != nil {
		return nil, err
	}
	served := outcome == inside.Answered
	if !served {
		// That means something only if it is the health that was in the way.
		if err := b.judge(ctx, lb, server); err != nil {
			return nil, err
		}
	}
	out := measure.Observation{
		Fact: measure.UnjudgedTargets, Note: "connections are " + string(outcome),
		Record: func(p *profile.Profile) { p.Cloud.ServeUnjudged = &served },
	}
	return sees(out)
}

// servedBefore makes a server a target whose check succeeds, waits until it is served, and takes it
// away again: the service is in force then, and nobody is served any more.
func (b *Bench) servedBefore(ctx context.Context, lb *LoadBalancer, a aim) error {
	for _, port := range []uint16{servedPort, checkedPort} {
		err := a.server.Program.Listen(ctx, inside.Listener{Port: port, Does: inside.Answers, Status: 200})
		if err != nil {
			return err
		}
	}
	remove, err := b.target(ctx, lb, a)
	if err != nil {
		return err
	}
	err = b.becomes(ctx, lb, hcloud.LoadBalancerTargetHealthStatusStatusHealthy, unjudgedListen)
	if err == nil {
		err = lb.answers(ctx, a.server, unjudgedListen)
	}
	if err != nil {
		remove()
		return err
	}
	if err := b.withoutTargets(ctx, lb); err != nil {
		return err
	}
	err = lookFor(ctx, judged, healthLook, func() (bool, error) {
		outcome, err := lb.dial(ctx, a.server, unjudgedListen)
		return outcome != inside.Answered, err
	})
	if errors.Is(err, errLate) {
		return fmt.Errorf("a target is still served %s after it was taken away", judged)
	}
	return err
}

// checkCame waits until a health check has come to the port where checks hang: the load balancer
// knows the target.
func checkCame(ctx context.Context, server *Server) error {
	err := lookFor(ctx, judged, healthLook, func() (bool, error) {
		all, err := server.Program.Connections(ctx, checkedPort)
		return len(all) > 0, err
	})
	if errors.Is(err, errLate) {
		return fmt.Errorf("no health check has come to the target within %s", judged)
	}
	return err
}

// dialUnknown connects while the target's health is unknown, before and after: until somebody is
// served, or nobody was for long enough.
func dialUnknown(ctx context.Context, b *Bench, lb *LoadBalancer, from *Server) (outcome inside.Outcome, err error) {
	for end := time.Now().Add(unknownFor); ; {
		last := outcome
		if outcome, err = lb.dial(ctx, from, unjudgedListen); err != nil {
			return outcome, err
		}
		now, err := b.health(ctx, lb)
		if err != nil {
			return outcome, err
		}
		// A status never returns to unknown, so it was before, too.
		switch is := now[unjudgedListen].Status; {
		case is != hcloud.LoadBalancerTargetHealthStatusStatusUnknown && last == "":
			return outcome, fmt.Errorf("the target is %s at once, and never unknown", is)
		case is != hcloud.LoadBalancerTargetHealthStatusStatusUnknown:
			return outcome, fmt.Errorf("the target is %s before the first check can have ended", is)
		case outcome == inside.Answered || !time.Now().Before(end):
			return outcome, nil
		}
		if err := wait(ctx, healthLook); err != nil {
			return outcome, err
		}
	}
}

// judge makes the target healthy, by a quick check of a port that answers, and waits until it is
// served.
func (b *Bench) judge(ctx context.Context, lb *LoadBalancer, from *Server) error {
	quick := 3 * time.Second
	_, err := b.Change(ctx, "changing a health check", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return b.client().LoadBalancer.UpdateService(ctx, lb.ref(), unjudgedListen, hcloud.LoadBalancerUpdateServiceOpts{
			HealthCheck: &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
				Protocol: hcloud.LoadBalancerServiceProtocolTCP, Port: new(servedPort),
				Interval: &quick, Timeout: &quick, Retries: new(1),
			},
		})
	})
	if err != nil {
		return err
	}
	if err := b.becomes(ctx, lb, hcloud.LoadBalancerTargetHealthStatusStatusHealthy, unjudgedListen); err != nil {
		return err
	}
	return lb.answers(ctx, from, unjudgedListen)
}
