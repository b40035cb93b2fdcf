//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/underlay-ccm/underlay/internal/cni"
	"github.com/underlay-ccm/underlay/internal/netfilter"
	"github.com/underlay-ccm/underlay/internal/sysctl"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
)

// edge is a component of the node's network other than its routes. It takes whole desired states.
type edge[D any] interface {
	Plan(ctx context.Context, want D) (changes, warnings []string, err error)
	Apply(ctx context.Context, want D) (changed, warnings []string, err error)
	Cleanup(ctx context.Context) (changed []string, err error)
}

// watcher is an edge that detects changes by other programs.
type watcher interface {
	Watch(ctx context.Context, changed func()) error
}

// part is an edge with the interfaces of the agent's loop and of the subcommands.
type part interface {
	agent.Edge
	Plan(ctx context.Context, v agent.View) (changes, warnings []string, err error)
	Cleanup(ctx context.Context) (changed []string, err error)
}

// follower applies the agent's decisions to an edge.
type follower[D any] struct {
	edge[D]
	name    string
	desired func(agent.View) D
	// prompt, if not nil, gets a value if the desired state changes and the view doesn't.
	prompt <-chan struct{}
	// patient skips the edge until the Node has podCIDRs.
	patient bool

	last    *D          // last applied state; nil if unknown
	warned  []string    // warnings of the last Apply
	altered atomic.Bool // possibly changed by another program
}

func (f *follower[D]) Name() string { return f.name }

// Apply calls the edge if a change is possible or look is set: most passes change few routes.
func (f *follower[D]) Apply(ctx context.Context, v agent.View, look bool) (agent.Report, error) {
	if f.patient && len(v.PodCIDRs) == 0 {
		return agent.Report{}, nil
	}
	want := f.desired(v)
	altered := f.altered.Swap(false)
	same := f.last != nil && reflect.DeepEqual(*f.last, want)
	if same && !look && !altered {
		return agent.Report{Warnings: f.warned}, nil
	}
	f.last = nil
	changed, warnings, err := f.edge.Apply(ctx, want)
	if f.warned = warnings; err == nil {
		f.last = &want
	}
	return agent.Report{
		Changed: changed, Warnings: warnings, Repaired: same && len(changed) > 0,
	}, down(err)
}

// down marks an error of netfilter after which no pod may start.
func down(err error) error {
	if errors.Is(err, netfilter.ErrDown) {
		return fmt.Errorf("%w: %w", agent.ErrDown, err)
	}
	return err
}

func (f *follower[D]) Plan(
	ctx context.Context, v agent.View,
) (changes, warnings []string, err error) {
	return f.edge.Plan(ctx, f.desired(v))
}

// Watch runs prompt, and the edge's Watch if it has one.
func (f *follower[D]) Watch(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancel(ctx)
	var prompting sync.WaitGroup
	defer prompting.Wait()
	defer cancel()
	prompting.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.prompt:
				changed()
			}
		}
	})
	w, ok := f.edge.(watcher)
	if !ok {
		<-ctx.Done()
		return nil
	}
	return w.Watch(ctx, func() {
		f.altered.Store(true)
		changed()
	})
}

// parts are the machine's network. They are applied in this order, and a failure stops the later
// ones: the packet filter, the sysctls, NetworkPolicies, the routes, and last the CNI
// configuration, which lets pods start. The filter precedes forwarding, which makes pods reachable,
// and contains a Node before a route to it exists: otherwise connections to that Node would be
// masqueraded for their lifetime.
type parts struct {
	network       *kernel.Kernel // has to be closed
	before, after []part
	held          *held
	policies      *policies
}

// open opens the machine's network; it changes nothing.
func (o *options) open() (parts, error) {
	m, err := o.parts()
	if err == nil {
		m.network, err = kernel.Open()
	}
	return m, err
}

func (o *options) parts() (parts, error) {
	filter, err := netfilter.New()
	if err != nil {
		return parts{}, err
	}
	enforced, err := netfilter.NewPolicyTable()
	if err != nil {
		return parts{}, err
	}
	holding := &held{}
	return parts{
		held: holding, policies: &policies{table: enforced},
		before: []part{
			&follower[netfilter.Desired]{
				name:    "netfilter",
				desired: func(v agent.View) netfilter.Desired { return holding.filtered(o.filterFor(v)) },
				prompt:  holding.Changed(), edge: filter, patient: true,
			},
			&follower[sysctl.Desired]{
				name: "sysctl", desired: sysctlsFor,
				edge: sysctl.New(sysctl.Options{Root: o.sysctls, StateDir: o.stateDir}),
			},
		},
		after: []part{
			&follower[cni.Desired]{
				name: "cni",
				desired: func(v agent.View) cni.Desired {
					return cni.Desired{PodCIDRs: v.PodCIDRs, MTU: v.MTU}
				},
				edge: cni.New(cni.Options{ConfDir: o.cniConfDir, BinDirs: o.cniBinDirs, StateDir: o.stateDir}),
			},
			&follower[netfilter.Forwarding]{
				name: "other filters", desired: forwardingFor, edge: netfilter.Foreign{},
			},
		},
	}, nil
}

func edges(all []part) []agent.Edge {
	out := make([]agent.Edge, len(all))
	for i, p := range all {
		out[i] = p
	}
	return out
}

// all returns the parts in the order of application, without the routes.
func (p parts) all() []part { return slices.Concat(p.before, p.after) }

func sysctlsFor(v agent.View) sysctl.Desired {
	forwarded := forwardingFor(v)
	d := sysctl.Desired{
		RouterAdvertised: v.RouterAdvertised, ProxyARP: v.ProxyARP, IPv4: forwarded.IPv4,
		IPv6: forwarded.IPv6,
	}
	// With several uplinks, the route to a reply's source may use a different uplink than the
	// reply arrived on. IPv6 has no reverse path filter.
	if len(v.IPv4Uplinks) > 1 {
		d.Asymmetric = v.IPv4Uplinks
	}
	switch {
	case v.TunnelMixed:
		d.Asymmetric = slices.Concat(v.IPv4Uplinks, v.Tunnels)
	case len(v.Tunnels) > 1: // the other node may still use the earlier device
		d.Asymmetric = slices.Concat(d.Asymmetric, v.Tunnels)
	}
	return d
}

func (o *options) filterFor(v agent.View) netfilter.Desired {
	clamped := ""
	if len(v.Tunnels) > 0 || v.TunnelOnly {
		clamped = agent.TunnelLinks
	}
	return netfilter.Desired{
		PodCIDRs: v.PodCIDRs, ClusterPods: v.ClusterPods,
		InternalIPs: v.InternalIPs, ExternalIPs: v.ExternalIPs, ServerPrefixes: v.ServerPrefixes,
		FilterInbound: o.filterInbound, AllowedInbound: o.allowInbound,
		Openings: openingsOf(v), Clamped: clamped, ClampedMTU: v.TunnelMTU, ClampedOnly: v.TunnelOnly,
	}
}

func openingsOf(v agent.View) (all []netfilter.Opening) {
	for _, i := range v.Ingress {
		for _, from := range i.Sources {
			for _, to := range i.Endpoints {
				all = append(all, netfilter.Opening{From: from, To: to})
			}
		}
	}
	return all
}

func forwardingFor(v agent.View) (f netfilter.Forwarding) {
	for _, p := range v.PodCIDRs {
		f.IPv4 = f.IPv4 || p.Addr().Is4()
		f.IPv6 = f.IPv6 || p.Addr().Is6()
	}
	return f
}

// cleanupAll cleans up in reverse order, including the routes, and continues after errors.
func (p parts) cleanupAll(
	ctx context.Context, routes func(context.Context) ([]string, error), print func(string),
) error {
	var failed []error
	step := func(name string, cleanup func(context.Context) ([]string, error)) {
		changed, err := cleanup(ctx)
		for _, line := range changed {
			print(name + ": " + line)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	for _, part := range slices.Backward(p.after) {
		step(part.Name(), part.Cleanup)
	}
	if p.policies != nil {
		step(p.policies.Name(), p.policies.Cleanup)
	}
	step("routes", routes)
	for _, part := range slices.Backward(p.before) {
		step(part.Name(), part.Cleanup)
	}
	return errors.Join(failed...)
}
