package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// look fills one part of a Snapshot.
type look struct {
	part Part
	at   func(context.Context) error
}

// Refresh looks again at what is wanted and takes all else from an earlier look, which
// stays as it was. Errors are those of Collect.
func Refresh(ctx context.Context, from Sources, earlier *Snapshot, want Want) (*Snapshot, error) {
	s := *earlier
	s.Taken = time.Now()
	s.forget(want.Parts)
	c := &collector{Sources: from, want: want, s: &s}
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	return &s, nil
}

// run looks at the parts that are wanted. Parts and Gaps are complete only without an
// error.
func (c *collector) run(ctx context.Context) error {
	order := map[Part]int{}
	for i, look := range c.looks() {
		order[look.part] = i
		if c.want.Parts&look.part == 0 {
			continue
		}
		err := look.at(ctx)
		switch {
		case err == nil:
			c.s.Parts |= look.part
		case ctx.Err() != nil:
			return fmt.Errorf("looking at %s: %w", look.part, context.Cause(ctx))
		case useless(err):
			return err
		default:
			c.s.Gaps = append(c.s.Gaps, gap(look.part, err))
		}
	}
	slices.SortStableFunc(c.s.Gaps, func(a, b Gap) int { return cmp.Compare(order[a.Part], order[b.Part]) })
	return nil
}

// forget empties parts, in a Snapshot that shares nothing of them with others
// afterwards.
func (s *Snapshot) forget(parts Parts) {
	s.Parts &^= parts
	s.Gaps = slices.DeleteFunc(slices.Clone(s.Gaps), func(g Gap) bool { return g.Part&parts != 0 })
	empty := Snapshot{LeaseName: usualLease()}
	for _, f := range []struct {
		part Part
		do   func()
	}{
		{PartConfig, func() {
			s.Config, s.ConfigFrom, s.ConfigWarnings, s.ConfigErrors = empty.Config, "", nil, nil
			s.LeaseName = empty.LeaseName
		}},
		{PartNodes, func() { s.Nodes = nil }},
		{PartLedger, func() { s.Ledger, s.Shards = nil, nil }},
		{PartRouteRecord, func() { s.RouteRecord = nil }},
		{PartAddresses, func() { s.AddressLedger = nil }},
		{PartServiceCIDRs, func() { s.ServiceCIDRs = nil }},
		{PartServices, func() { s.Services = nil }},
		{PartEndpointSlices, func() { s.EndpointSlices = nil }},
		{PartEvents, func() { s.Events = nil }},
		{PartWorkloads, func() { s.Deployments, s.DaemonSets, s.Pods = nil, nil, nil }},
		{PartSetup, func() { s.ConfigMaps, s.Lease, s.Policies, s.PolicyBindings = nil, nil, nil, nil }},
		{PartServers, func() { s.Servers = nil }},
		{PartNetwork, func() { s.Network = nil }},
		{PartLoadBalancers, func() { s.LoadBalancers, s.Certificates = nil, nil }},
		{PartActions, func() { s.Actions, s.OlderActions = nil, 0 }},
	} {
		if parts&f.part != 0 {
			f.do()
		}
	}
}
