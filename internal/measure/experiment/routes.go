package experiment

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// Destinations of the routes that are tried by the API, in the network's upper half. Experiments
// by packets take theirs from below 10.200.128.0.
const (
	first, second = 250, 251
	timed         = 252
)

// spare is a /24 of the network that nothing has a part of.
func (n *Network) spare(number byte) netip.Prefix {
	at := n.Range.Addr().As4()
	at[2] = number
	return netip.PrefixFrom(netip.AddrFrom4(at), 24)
}

// via is a gateway that routes can have, though nobody is there.
func (n *Network) via() netip.Addr {
	at := n.Subnet.Addr().As4()
	at[3] = 250
	return netip.AddrFrom4(at)
}

// adding is the request for a route, for Change.
func (b *Bench) adding(n *Network, dst netip.Prefix) change {
	return func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return b.client().Network.AddRoute(ctx, n.ref(), hcloud.NetworkAddRouteOpts{
			Route: hcloud.NetworkRoute{Destination: ipnet.Of(dst), Gateway: n.via().AsSlice()},
		})
	}
}

// removing is the request to remove it.
func (b *Bench) removing(n *Network, dst netip.Prefix) change {
	return func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return b.client().Network.DeleteRoute(ctx, n.ref(), hcloud.NetworkDeleteRouteOpts{
			Route: hcloud.NetworkRoute{Destination: ipnet.Of(dst), Gateway: n.via().AsSlice()},
		})
	}
}

// beginRoute adds a route when nothing else changes, and doesn't wait for its end.
func (b *Bench) beginRoute(ctx context.Context, n *Network, dst netip.Prefix) (*hcloud.Action, error) {
	var action *hcloud.Action
	err := b.again(ctx, func() (err error) {
		action, _, err = b.adding(n, dst)(ctx)
		return err
	})
	return action, err
}

func (b *Bench) deleteRoute(ctx context.Context, n *Network, dst netip.Prefix) error {
	_, err := b.Change(ctx, "removing a route", b.removing(n, dst))
	return err
}

// dropRoute is deleteRoute for what an experiment leaves.
func (b *Bench) dropRoute(ctx context.Context, n *Network, dst netip.Prefix) {
	b.Cleanup(ctx, "removing a route", b.removing(n, dst))
}

// attempts is how often something is tried that must happen while an action runs.
const attempts = 10

// tooShort says why nothing happened while an action ran.
const tooShort = "actions ended before another request came: %d times of %d"

// busy makes a second change of a network while the first runs.
func busy(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	n, err := b.Network(ctx)
	if err != nil {
		return nil, err
	}
	b.say("changing a network that is being changed")
	defer b.dropRoute(ctx, n, n.spare(first))
	defer b.dropRoute(ctx, n, n.spare(second))
	for range attempts {
		said, sure, err := b.changeTwice(ctx, n)
		if err != nil {
			return nil, err
		}
		if !sure {
			continue
		}
		seen := measure.Observation{Fact: measure.Busy, Seen: said}
		if said == profile.Conflict || said == profile.Locked {
			seen.Record = func(p *profile.Profile) { p.Cloud.Busy = new(said) }
		}
		return []measure.Observation{seen}, nil
	}
	return sees(unsure(measure.Busy, tooShort, attempts, attempts))
}

// changeTwice adds two routes, the second while the first is being added, and removes them again.
// It returns the code of the second's refusal, and whether the first still ran.
func (b *Bench) changeTwice(ctx context.Context, n *Network) (said string, sure bool, err error) {
	running, err := b.beginRoute(ctx, n, n.spare(first))
	if err != nil {
		return "", false, err
	}
	other, _, err := b.adding(n, n.spare(second))(ctx)
	switch said, err = refusal(err); {
	case hcloud.IsError(err, hcloud.ErrorCodeRateLimitExceeded):
	case hcloud.IsError(err, hcloud.ErrorCodeConflict, hcloud.ErrorCodeLocked):
		said, _ = code(err)
		sure = true
	case err != nil:
		return "", false, err
	case said == measure.Taken:
		if sure, err = b.runs(ctx, running); err != nil {
			return "", false, err
		}
	default:
		sure = true
	}
	if err := b.await(ctx, running, other); err != nil {
		return "", false, err
	}
	if err := b.deleteRoute(ctx, n, n.spare(first)); err != nil || other == nil {
		return said, sure, err
	}
	return said, sure, b.deleteRoute(ctx, n, n.spare(second))
}

// runs reports whether an action still runs, by asking now.
func (b *Bench) runs(ctx context.Context, action *hcloud.Action) (bool, error) {
	if action.Status != hcloud.ActionStatusRunning {
		return false, nil
	}
	now, _, err := b.client().Action.GetByID(ctx, action.ID)
	return err == nil && now != nil && now.Status == hcloud.ActionStatusRunning, err
}

// effectShows looks at a network while a route is being added.
func effectShows(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	n, err := b.Network(ctx)
	if err != nil {
		return nil, err
	}
	b.say("looking at a network that is being changed")
	dst := n.spare(first)
	defer b.dropRoute(ctx, n, dst)
	for range attempts {
		during, sure, err := b.shownWhileAdded(ctx, n, dst)
		if err != nil {
			return nil, err
		}
		after, err := b.shows(ctx, n, dst)
		if err != nil {
			return nil, err
		}
		if err := b.deleteRoute(ctx, n, dst); err != nil {
			return nil, err
		}
		switch {
		case !sure:
			continue
		case !after:
			return sees(measure.Observation{Fact: measure.EffectShows, Seen: "later than at its end"})
		}
		return sees(measure.Observation{
			Fact:   measure.EffectShows,
			Record: func(p *profile.Profile) { p.Cloud.EffectsAtOnce = new(during) },
		})
	}
	return sees(unsure(measure.EffectShows, tooShort, attempts, attempts))
}

// shownWhileAdded adds a route, and returns whether the network has shown it while its action ran;
// it isn't sure if the action was over then.
func (b *Bench) shownWhileAdded(ctx context.Context, n *Network, dst netip.Prefix,
) (shown, sure bool, err error) {
	action, err := b.beginRoute(ctx, n, dst)
	if err != nil {
		return false, false, err
	}
	if shown, err = b.shows(ctx, n, dst); err != nil {
		return false, false, err
	}
	if sure, err = b.runs(ctx, action); err != nil {
		return false, false, err
	}
	return shown, sure, b.await(ctx, action)
}

// shows reports whether the network has a route, by the API.
func (b *Bench) shows(ctx context.Context, n *Network, dst netip.Prefix) (bool, error) {
	now, _, err := b.client().Network.GetByID(ctx, n.ID)
	if err != nil {
		return false, err
	}
	if now == nil {
		return false, errGone
	}
	for _, r := range now.Routes {
		if ipnet.Prefix(r.Destination) == dst {
			return true, nil
		}
	}
	return false, nil
}

// refusal is the code of what the API refused; what it took is [measure.Taken]. An action that was
// begun and has failed is told apart. Errors that say nothing about what was asked for stay errors,
// and so does that something is busy: it is for another time to tell.
func refusal(err error) (string, error) {
	if err == nil {
		return measure.Taken, nil
	}
	if failed := (hcloud.ActionError{}); errors.As(err, &failed) && !empty(failed.Code) {
		return "taken, and its action fails: " + failed.Code, nil
	}
	if said, answered := code(err); answered && !empty(said) {
		return said, nil
	}
	return "", err
}

// empty reports whether a code says nothing about what was asked for.
func empty(code string) bool {
	return slices.Contains([]string{
		"conflict", "locked", "rate_limit_exceeded", "server_error", "timeout", "maintenance",
		"unauthorized", "forbidden", "resource_limit_exceeded", "bad_gateway", "unavailable",
		"unknown_error", "<unknown>", "action_failed",
	}, code)
}
