package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// pass looks at everything, decides, and puts right what differs. What can be
// done is done though something else fails.
func (a *Agent) pass(ctx context.Context) error {
	a.health.began(time.Now())
	look, events := a.look.Swap(false), a.pending.take()
	err := a.putRight(ctx, look, events)
	if err != nil {
		a.look.Store(true)
	}
	a.metrics.passed(err)
	a.health.ended()
	return err
}

func (a *Agent) putRight(ctx context.Context, look bool, events []time.Time) error {
	s, err := a.situation(ctx)
	if err != nil {
		a.report(err)
		return err
	}
	d, err := Decide(s)
	if err != nil { // and so nothing is touched, least of all deleted
		a.report(err)
		return err
	}
	var failed []error
	failed = append(failed, a.applyEdges(ctx, a.Before, d.View, look)...)

	before := a.interest.Load()
	a.interest.Store(newInterest(d, s))
	missing, err := a.write(ctx, before, &d)
	if err != nil {
		failed = append(failed, err)
	}
	a.metrics.reached(events, time.Now())
	a.metrics.show(d, missing)

	waiting := d.Faults
	if len(d.View.PodCIDRs) > 0 {
		failed = append(failed, a.applyEdges(ctx, a.After, d.View, look)...)
	} else {
		waiting = append(waiting, "the Node has no podCIDR yet; the cloud controller manager or kube-controller-manager hands them out")
	}
	err = errors.Join(failed...)
	ready := err
	if len(waiting) > 0 {
		ready = errors.Join(err, errors.New(strings.Join(waiting, "; ")))
	}
	a.report(ready)
	a.status.tell(verdict{ready: ready, hasPodCIDRs: len(d.View.PodCIDRs) > 0, peers: d.Peers})
	return err
}

// report tells probes and metrics what keeps this node from being ready, if anything does.
func (a *Agent) report(problem error) {
	a.health.report(problem)
	a.metrics.ready.Set(map[bool]float64{true: 1}[problem == nil])
}

func (a *Agent) applyEdges(ctx context.Context, edges []Edge, v View, look bool) []error {
	var failed []error
	for _, edge := range edges {
		report, err := edge.Apply(ctx, v, look)
		for _, line := range report.Changed {
			klog.FromContext(ctx).Info("Changed", "part", edge.Name(), "what", line)
		}
		for _, line := range report.Warnings {
			a.warn(ctx, edge.Name()+": "+line)
		}
		if report.Repaired {
			a.metrics.repairs.WithLabelValues(edge.Name()).Add(float64(len(report.Changed)))
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", edge.Name(), err))
		}
	}
	return failed
}

// write carries a plan out: what brings packets somewhere first, deletions last,
// so that at no time fewer peers can be reached than before. A peer whose route
// the kernel refuses is named in the decision.
func (a *Agent) write(ctx context.Context, before *interest, d *Decision) (missing int, err error) {
	logger := klog.FromContext(ctx)
	var failed failures
	for _, claim := range d.Plan.Add {
		err := a.Kernel.Add(ctx, claim.Entry)
		a.metrics.wrote("add", err)
		if err != nil {
			failed.add(d, claim, err)
			continue
		}
		if before.wants(claim.Entry) {
			a.metrics.repairs.WithLabelValues("routes").Inc()
		}
		logger.V(2).Info("Route added", "route", claim.Route, "node", claim.Node)
	}
	for _, change := range d.Plan.Replace {
		err := a.Kernel.Replace(ctx, change.Old, change.New.Entry)
		a.metrics.wrote("replace", err)
		if err != nil {
			failed.add(d, change.New, err)
			continue
		}
		if before.wants(change.New.Entry) {
			a.metrics.repairs.WithLabelValues("routes").Inc()
		}
		logger.V(2).Info("Route changed", "route", change.New.Route, "was", change.Old.Route, "node", change.New.Node)
	}
	missing = len(failed.all)
	for _, e := range d.Plan.Delete {
		err := a.Kernel.Delete(ctx, e)
		a.metrics.wrote("delete", err)
		if err != nil {
			failed.all = append(failed.all, fmt.Errorf("deleting route %s: %w", e.Route, err))
			continue
		}
		logger.V(2).Info("Route deleted", "route", e.Route)
	}
	return missing, failed.err()
}

// failures are of one kind mostly: an interface went down under a thousand
// routes.
type failures struct{ all []error }

func (f *failures) add(d *Decision, claim Claim, err error) {
	err = fmt.Errorf("writing route %s: %w", claim.Route, err)
	f.all = append(f.all, err)
	if claim.Node != "" {
		d.nameUnreachable(claim.Node, err.Error())
	}
}

func (f *failures) err() error {
	const shown = 3
	if len(f.all) <= shown {
		return errors.Join(f.all...)
	}
	return fmt.Errorf("%d routes could not be written, among them: %w", len(f.all), errors.Join(f.all[:shown]...))
}

// askNeighbors finds out which peers answer, and has the decision made anew if
// that differs from what it rested on.
func (a *Agent) askNeighbors(ctx context.Context) error {
	want := a.interest.Load()
	if want == nil || !a.Modes.Any(ByNodes) {
		return nil
	}
	known := map[netip.Addr]Neighbor{}
	for link := range want.uplinks {
		found, err := a.Kernel.Neighbors(ctx, link)
		if err != nil {
			return err
		}
		for _, n := range found {
			known[n.Addr] = n
		}
	}
	now := time.Now()
	probe, soon := a.doubts.look(now, want.peers, known)
	for _, addr := range probe {
		if err := a.Kernel.Probe(ctx, want.via[addr], addr); err != nil {
			a.warn(ctx, err.Error())
		}
	}
	if soon {
		a.queue.AddAfter(neighbors, answerTime)
	}
	unresolved := a.doubts.unresolved(now)
	same := len(unresolved) == len(a.unresolved)
	for addr := range unresolved {
		same = same && a.unresolved[addr]
	}
	if !same {
		a.unresolved = unresolved
		a.queue.Add(pass)
	}
	return nil
}
