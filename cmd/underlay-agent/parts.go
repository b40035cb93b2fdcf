//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/underlay-ccm/underlay/internal/cni"
	"github.com/underlay-ccm/underlay/internal/netfilter"
	"github.com/underlay-ccm/underlay/internal/sysctl"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// edge is a part of the node's network beside its routes. It is given the whole
// desired state, and says what it changed in lines for people.
type edge[D any] interface {
	Plan(ctx context.Context, want D) (changes, warnings []string, err error)
	Apply(ctx context.Context, want D) (changed, warnings []string, err error)
	Cleanup(ctx context.Context) (changed []string, err error)
}

// watcher is an edge that notices when somebody else alters it.
type watcher interface {
	Watch(ctx context.Context, changed func()) error
}

// part is an edge as the agent's loop and the subcommands use it.
type part interface {
	agent.Edge
	Plan(ctx context.Context, v agent.View) (changes, warnings []string, err error)
	Cleanup(ctx context.Context) (changed []string, err error)
}

// follower makes an edge follow what the agent decides.
type follower[D any] struct {
	edge[D]
	name    string
	desired func(agent.View) D
	// prompt, if not nil, calls changed when what is desired is another though the view isn't.
	prompt func(ctx context.Context, changed func())
	// patient: left alone until the Node has podCIDRs.
	patient bool
	// down, if not nil, is the edge's own agent.ErrDown.
	down error

	last    *D          // what stands, as far as we know; nil: nothing is known
	warned  []string    // at the last look; it holds until the next
	altered atomic.Bool // by somebody else, perhaps
}

func (f *follower[D]) Name() string { return f.name }

// Apply asks the edge to look only when there is a reason to: most passes are
// about a route or two.
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
	f.warned = warnings
	switch {
	case err == nil:
		f.last = &want
	case f.down != nil && errors.Is(err, f.down):
		err = fmt.Errorf("%w: %w", agent.ErrDown, err)
	}
	return agent.Report{Changed: changed, Warnings: warnings, Repaired: same && len(changed) > 0}, err
}

func (f *follower[D]) Plan(ctx context.Context, v agent.View) (changes, warnings []string, err error) {
	return f.edge.Plan(ctx, f.desired(v))
}

// Watch watches where the edge can.
func (f *follower[D]) Watch(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancel(ctx)
	var prompting sync.WaitGroup
	defer prompting.Wait()
	defer cancel()
	if f.prompt != nil {
		prompting.Go(func() { f.prompt(ctx, changed) })
	}
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

// parts are put right in this order, and each waits while one before it fails: the
// packet filter, the kernel settings, the routes, and last the CNI configuration,
// which lets pods start. The filter comes before forwarding, which opens the way to
// pods, and it knows a Node before there is a route to it: else the first packets
// there would leave under this node's address, and every later one of their
// connections too.
type parts struct {
	before, after []part
	held          *held
}

func (o *options) parts() (parts, error) {
	filter, err := netfilter.New(netfilter.Options{})
	if err != nil {
		return parts{}, fmt.Errorf("preparing the packet filter: %w", err)
	}
	holding := &held{}
	return parts{
		held: holding,
		before: []part{
			&follower[netfilter.Desired]{
				name: "netfilter", desired: func(v agent.View) netfilter.Desired { return holding.filtered(o.filterFor(v)) },
				prompt: holding.Watch, edge: filter, patient: true, down: netfilter.ErrDown,
			},
			&follower[sysctl.Desired]{
				name: "sysctl", desired: sysctlsFor,
				edge: sysctl.New(sysctl.Options{Root: o.sysctls, StateDir: o.stateDir}),
			},
		},
		after: []part{
			&follower[cni.Desired]{
				name: "cni", desired: cniFor,
				edge: cni.New(cni.Options{ConfDir: o.cniConfDir, BinDirs: o.cniBinDirs, StateDir: o.stateDir}),
			},
			&follower[netfilter.Forwarding]{name: "other filters", desired: forwardingFor, edge: netfilter.Foreign{}},
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

// all are the parts in the order in which they are put right, without the
// routes between them.
func (p parts) all() []part { return append(append([]part(nil), p.before...), p.after...) }

func sysctlsFor(v agent.View) sysctl.Desired {
	forwarded := forwardingFor(v)
	d := sysctl.Desired{RouterAdvertised: v.RouterAdvertised, ProxyARP: v.ProxyARP, IPv4: forwarded.IPv4, IPv6: forwarded.IPv6}
	// Over several uplinks a reply may come by another than the one that the
	// kernel would answer through. IPv6 has no such filter.
	if len(v.IPv4Uplinks) > 1 {
		d.Asymmetric = v.IPv4Uplinks
	}
	return d
}

func (o *options) filterFor(v agent.View) netfilter.Desired {
	return netfilter.Desired{
		PodCIDRs: v.PodCIDRs, ClusterPods: v.ClusterPods,
		InternalIPs: v.InternalIPs, ExternalIPs: v.ExternalIPs, ServerPrefixes: v.ServerPrefixes,
		FilterInbound: o.filterInbound, AllowedInbound: o.allowInbound,
		Openings: openingsOf(v),
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

func cniFor(v agent.View) cni.Desired { return cni.Desired{PodCIDRs: v.PodCIDRs, MTU: v.MTU} }

// cleanupAll goes through the parts the other way round, with the routes in
// their place, and does what can be done though something fails.
func (p parts) cleanupAll(ctx context.Context, routes func(context.Context) ([]string, error), say func(string)) error {
	var failed []error
	step := func(name string, cleanup func(context.Context) ([]string, error)) {
		changed, err := cleanup(ctx)
		for _, line := range changed {
			say(name + ": " + line)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	for i := len(p.after) - 1; i >= 0; i-- {
		step(p.after[i].Name(), p.after[i].Cleanup)
	}
	step("routes", routes)
	for i := len(p.before) - 1; i >= 0; i-- {
		step(p.before[i].Name(), p.before[i].Cleanup)
	}
	return errors.Join(failed...)
}
