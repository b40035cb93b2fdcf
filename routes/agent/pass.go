package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/routes"
)

// pass reads everything, decides, and reconciles the differences. Routes are written even if a
// component fails; a component is not changed while one before it fails.
func (a *Agent) pass(ctx context.Context) error {
	began := time.Now()
	a.began.Store(&began)
	defer a.began.Store(nil)
	err := a.putRight(ctx, a.full.Swap(false))
	if err != nil {
		a.full.Store(true)
	}
	a.metrics.passes.WithLabelValues(outcomeOf(err)).Inc()
	return err
}

func (a *Agent) putRight(ctx context.Context, full bool) error {
	s, err := a.situation(ctx)
	if err != nil {
		a.report(err)
		return err
	}
	d, err := Decide(s)
	if err != nil { // without a decision no route is touched
		var failed failures
		a.writeProxies(ctx, a.interest.Load(), d.Changes, &failed)
		err = errors.Join(err, failed.err())
		a.report(err)
		return err
	}
	warnings := d.Warnings
	for _, line := range warnings {
		a.warn(ctx, line)
	}
	earlier, now := a.interest.Load(), newInterest(d, s.Settings)
	// A recreated interface has none of the earlier settings.
	full = full || earlier != nil && !maps.Equal(earlier.uplinks, now.uplinks)
	before := a.applyEdges(ctx, a.Before, d.View, full, &warnings)

	a.interest.Store(now)
	tunneled := a.writeTunnels(ctx, s, d)
	missing, failed := a.write(ctx, earlier, &d)
	if err := errors.Join(tunneled, a.pruneTunnels(ctx, s, d, missing == 0)); err != nil {
		failed.peers = append(failed.peers, err)
	}
	a.writeProxies(ctx, earlier, d.Changes, &failed)
	a.metrics.show(s, d, missing)

	waiting := d.Faults
	var after error
	switch {
	case len(d.View.PodCIDRs) == 0:
		waiting = append(waiting, "the Node has no podCIDR yet; the cloud controller manager or kube-controller-manager hands them out")
	case errors.Is(before, ErrDown):
		waiting = append(waiting, "no pod can start until then")
		none := d.View
		none.PodCIDRs = nil
		after = a.applyEdges(ctx, a.After, none, full, &warnings)
	case before != nil || len(d.Faults) > 0 || len(failed.own) > 0:
		waiting = append(waiting, "until then "+names(a.After)+" stays as it is")
	default:
		after = a.applyEdges(ctx, a.After, d.View, full, &warnings)
	}
	err = errors.Join(before, failed.err(), after)
	ready := err
	if len(waiting) > 0 {
		ready = errors.Join(err, errors.New(strings.Join(waiting, "; ")))
	}
	shown := ready
	if shown == nil && a.Nodes.Ready() != nil { // not in the Node's condition: all agents would write
		shown = errors.New("the Nodes are not current")
	}
	a.report(shown)
	a.status.tell(outcome{
		uid: d.Node.UID, ready: ready, hasPodCIDRs: len(d.View.PodCIDRs) > 0, peers: d.Peers(),
		warnings: warnings, wireGuard: a.wireGuard(s, d),
		unconnected: s.Tunnels.Phase == routes.RequireTunnels && d.Unconnected,
	})
	return err
}

// report passes the problem with this node's readiness, or nil, to probes and metrics.
func (a *Agent) report(problem error) {
	a.problem.Store(&problem)
	a.metrics.ready.Set(map[bool]float64{true: 1}[problem == nil])
}

// applyEdges reconciles components with the view in their order. It stops at the first
// failure, because later components rely on earlier ones. It appends their warnings.
func (a *Agent) applyEdges(
	ctx context.Context, edges []Edge, v View, full bool, warnings *[]string,
) error {
	for i, edge := range edges {
		report, err := edge.Apply(ctx, v, full)
		for _, line := range report.Changed {
			klog.FromContext(ctx).Info("Changed", "part", edge.Name(), "what", line)
		}
		for _, line := range report.Warnings {
			line = edge.Name() + ": " + line
			a.warn(ctx, line)
			*warnings = append(*warnings, line)
		}
		if report.Repaired {
			a.metrics.repairs.WithLabelValues(edge.Name()).Add(float64(len(report.Changed)))
		}
		switch later := edges[i+1:]; {
		case err != nil && len(later) > 0:
			return fmt.Errorf("%s: %w; until then %s stays as it is", edge.Name(), err, names(later))
		case err != nil:
			return fmt.Errorf("%s: %w", edge.Name(), err)
		}
	}
	return nil
}

func names(edges []Edge) string {
	all := make([]string, len(edges))
	for i, e := range edges {
		all[i] = e.Name()
	}
	return strings.Join(all, ", ")
}

// write applies a plan, deletions last, so that at no time fewer peers can be reached than
// before. Peers whose routes the kernel rejects are added to the decision.
func (a *Agent) write(
	ctx context.Context, before *interest, d *Decision,
) (missing int, failed failures) {
	detailed := klog.FromContext(ctx).V(2)
	wrote := func(verb string, wanted WantedEntry, err error) {
		a.metrics.wrote(verb, err)
		switch {
		case err != nil:
			failed.add(d, wanted, err)
			return
		case before.wants(wanted.Entry):
			a.metrics.repairs.WithLabelValues("routes").Inc()
		}
		if detailed.Enabled() { // thousands at a start
			detailed.Info("Route written", "verb", verb, "route", wanted.Entry, "node", wanted.Node)
		}
	}
	unmade := map[netip.Prefix]bool{}
	entries := make([]Entry, len(d.Plan.Add))
	for i, wanted := range d.Plan.Add {
		entries[i] = wanted.Entry
	}
	for i, err := range a.Kernel.Add(ctx, entries) {
		wrote("add", d.Plan.Add[i], err)
		if err != nil {
			unmade[entries[i].Dst] = true
		}
	}
	for _, c := range d.Plan.Replace {
		wrote("replace", c.WantedEntry, a.Kernel.Replace(ctx, c.Entry))
	}
	missing = len(failed.own) + len(failed.peers)
	for _, e := range d.Plan.Delete {
		if unmade[e.Dst] {
			continue // better than no route; the next pass decides again
		}
		err := a.Kernel.Delete(ctx, e)
		a.metrics.wrote("delete", err)
		if err != nil {
			failed.peers = append(failed.peers, fmt.Errorf("deleting route %s: %w", e, err))
			continue
		}
		detailed.Info("Route deleted", "route", e)
	}
	return missing, failed
}

// failures are mostly of one kind: an interface with a thousand routes went down.
type failures struct {
	// own has failures of routes that the node itself needs, without regard to peers; peers
	// has the rest. A failing peer must not keep pods of this node from starting.
	own, peers []error
}

func (f *failures) add(d *Decision, wanted WantedEntry, err error) {
	err = fmt.Errorf("writing route %s: %w", wanted.Entry, err)
	if wanted.Node == "" {
		f.own = append(f.own, err)
		return
	}
	f.peers = append(f.peers, err)
	d.lost(wanted.Node, err.Error())
}

func (f *failures) err() error {
	const shown = 3
	all := slices.Concat(f.own, f.peers)
	if len(all) <= shown {
		return errors.Join(all...)
	}
	return fmt.Errorf("%d routes could not be written, among them: %w", len(all),
		errors.Join(all[:shown]...))
}

// probeNeighbors checks which peers reply, and triggers a pass if the result has changed.
func (a *Agent) probeNeighbors(ctx context.Context) error {
	want := a.interest.Load()
	if want == nil || !a.Modes.Any(routes.ByNodes) && len(want.peers) == 0 {
		return nil
	}
	known := map[netip.Addr]bool{}
	for link := range want.uplinks {
		found, err := a.Kernel.Neighbors(ctx, link)
		if err != nil {
			return err
		}
		for _, n := range found {
			known[n.Addr] = n.Silent
		}
	}
	now := time.Now()
	probe, soon := a.answers.update(now, want.peers, known)
	for _, p := range probe {
		if err := a.Kernel.Probe(ctx, p.link, p.addr); err != nil {
			a.warn(ctx, err.Error())
		}
	}
	if soon {
		a.queue.AddAfter(neighbors, answerTime)
	}
	if unresolved := a.answers.unresolved(now); !maps.Equal(unresolved, a.unresolved) {
		a.unresolved = unresolved
		a.queue.Add(pass)
	}
	return nil
}
