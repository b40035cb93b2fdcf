package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// ipv6Targets makes an IPv6 address of the dedicated server a target. If that is refused, its IPv4
// address tells whether the project's owner may have the server as a target at all.
func ipv6Targets(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	if b.Dedicated == nil {
		return nil, errNoDedicated()
	}
	six, ok := b.Dedicated.public(netip.Addr.Is6)
	if !ok {
		return nil, errors.New("no IPv6 address of the dedicated server is known: give it to --dedicated, " +
			"start the program there (--dedicated-key), or set ROBOT_USER and ROBOT_PASSWORD")
	}
	lb, err := b.LoadBalancer(ctx)
	if err != nil {
		return nil, err
	}
	b.say("making an IPv6 address of the dedicated server a target")
	refusal, err := b.ipTarget(ctx, lb, six)
	if err != nil {
		return nil, err
	}
	out := measure.Observation{Fact: measure.IPv6Targets}
	if refusal != nil {
		four, ok := b.Dedicated.public(netip.Addr.Is4)
		if !ok {
			return nil, fmt.Errorf("it is refused (%w), and no IPv4 address of the server is known that "+
				"would show whether it may be a target at all: give that to --dedicated", refusal)
		}
		also, err := b.ipTarget(ctx, lb, four)
		switch {
		case err != nil:
			return nil, err
		case also != nil:
			return nil, fmt.Errorf("the server's IPv4 address is refused too: %w; "+
				"use a cloud project of the account that has the server", also)
		}
		why, _ := code(refusal)
		out.Note = why + ", while its IPv4 address is taken"
	}
	out.Record = func(p *profile.Profile) { p.Cloud.RefuseIPv6Targets = new(refusal != nil) }
	return []measure.Observation{out}, nil
}

// ipTarget makes an address a target and takes it away again. A refusal is what the API says against
// the target.
func (b *Bench) ipTarget(ctx context.Context, lb *LoadBalancer, at netip.Addr) (refusal, err error) {
	ip := net.IP(at.AsSlice())
	_, err = b.Change(ctx, "adding a target", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return b.client().LoadBalancer.AddIPTarget(ctx, lb.ref(), hcloud.LoadBalancerAddIPTargetOpts{IP: ip})
	})
	if refuses(err) {
		return err, nil
	}
	// Also after an error: the reply may have got lost.
	b.Cleanup(ctx, "removing a target", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return b.client().LoadBalancer.RemoveIPTarget(ctx, lb.ref(), ip)
	})
	return nil, err
}

// refuses reports whether an error is the API's judgement of what was asked for, which asking again
// wouldn't change.
func refuses(err error) bool {
	var said hcloud.Error
	if !errors.As(err, &said) || said.Response() == nil || passes(err) {
		return false
	}
	status := said.Response().StatusCode
	return status == http.StatusBadRequest || status == http.StatusConflict ||
		status == http.StatusPreconditionFailed || status == http.StatusUnprocessableEntity
}
