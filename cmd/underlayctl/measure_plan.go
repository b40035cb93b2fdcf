package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

// planView is what is said before anything is made.
type planView struct {
	Endpoint string            `json:"endpoint"`
	Location string            `json:"location"`
	Existing measure.Things    `json:"existing"`
	Facts    []measure.FactID  `json:"facts"`
	LeftOut  []measure.LeftOut `json:"leftOut,omitempty"`
	Makes    measure.Things    `json:"makes"`
	Bill     measure.Bill      `json:"bill"`
	Ceiling  measure.Money     `json:"maxCost"`
	Minutes  float64           `json:"timeLimitMinutes"`
	// Leftovers are the other runs that have something in the project.
	Leftovers []earlierRun `json:"leftovers,omitempty"`

	plan measure.Plan
	// named: the facts are those that --only names.
	named bool
	// simulated: packets will be sent, and the API is on this machine.
	simulated bool
}

// resultView is what is printed at the end.
type resultView struct {
	measure.Result
	Profile profile.Profile `json:"profile"`
}

// measure is the command.
func (m *measuring) measure(ctx context.Context, w process, o *options) error {
	if err := errors.Join(o.check(), m.check()); err != nil {
		return err
	}
	files, err := m.files(w)
	if err != nil {
		return err
	}
	defer files.close()
	known, err := m.before(w, files)
	if err != nil {
		return err
	}
	cloud, err := m.access(ctx, w, o)
	if err != nil {
		return err
	}
	view, err := m.look(ctx, w, o, cloud)
	if err != nil {
		return err
	}
	r, err := m.prepare(ctx, w, o, cloud, view)
	if err != nil {
		return err
	}
	if m.dryRun {
		return o.print(w, view, func() page { return planPage(view) })
	}
	if r.assumed, err = measure.Completed(known); err != nil {
		return err
	}
	fmt.Fprint(w.stderr, w.errPainter().page(planPage(view))+"\n")
	if err := m.consent(ctx, w, "Make this?", "agree with --yes, or look with --dry-run"); err != nil {
		return err
	}
	// What was found out is in the files before anything is removed, which can take long.
	r.keep = func(ran ran) { _, _, _ = m.write(ran, known, files.regular()) }
	ran, err := r.whole(ctx, w)
	if err != nil {
		return err
	}
	return m.finish(w, o, ran, known, files)
}

// look asks the project what is in it, and plans.
func (m *measuring) look(ctx context.Context, w process, o *options, cloud access) (planView, error) {
	view := planView{Endpoint: cloud.host(), Location: m.location, Ceiling: m.ceiling, Minutes: m.timeLimit.Minutes(), named: len(m.only) > 0}
	ctx, cancel := o.patience(ctx)
	defer cancel()
	name, err := newRun()
	if err != nil {
		return view, err
	}
	p, err := cloud.project(name, project.Plan{}, nil)
	if err != nil {
		return view, err
	}
	if err := p.CheckToken(ctx); err != nil {
		return view, cloud.explain(err)
	}
	if view.Existing, err = p.Existing(ctx); err != nil {
		return view, err
	}
	left, err := p.Leftovers(ctx)
	if err != nil {
		return view, err
	}
	for _, l := range left {
		view.Leftovers = append(view.Leftovers, leftover{Leftover: l}.earlier(time.Now()))
	}
	prices, err := p.Prices(ctx, m.location)
	if err != nil {
		return view, err
	}
	_, withRobot, err := m.dedicated.credentials(w)
	if err != nil {
		return view, err
	}
	plan, err := measure.NewPlan(measure.Facts(), prices, m.wanted(withRobot))
	if err != nil {
		return view, err
	}
	view.simulated = cloud.onLoopback() && slices.ContainsFunc(plan.Facts, inServers)
	view.plan, view.Facts, view.LeftOut, view.Makes, view.Bill = plan, plan.Facts, plan.LeftOut, plan.Things, plan.Bill
	return view, nil
}

// inServers reports whether a fact needs programs in throw-away servers.
func inServers(id measure.FactID) bool {
	f, _ := measure.Of(id)
	return f.Needs.Inside && f.Needs.Servers > 0
}

// finish prints and writes what was found out.
func (m *measuring) finish(w process, o *options, ran ran, known profile.Profile, files files) error {
	p, noProfile, noReport := m.write(ran, known, files)
	view := resultView{Result: ran.result, Profile: p}
	written := m.profile
	if noProfile != nil {
		written = ""
	}
	shown := resultPage(view, written, m.report, o.output == "wide")
	err := errors.Join(ran.err, noProfile, noReport)
	if err = errors.Join(o.print(w, view, func() page { return shown }), err); err != nil {
		return err
	}
	return missing(ran.result)
}

// write writes profile and report.
func (m *measuring) write(ran ran, known profile.Profile, files files) (p profile.Profile, noProfile, noReport error) {
	p = measure.Recorded(known, ran.seen)
	p.Measured, p.Location, p.With = ran.result.Started.UTC().Truncate(time.Second), m.location, ran.result.Version
	p.Endpoint = ran.result.Endpoint
	text, noProfile := profileText(p)
	if noProfile == nil {
		noProfile = files.profile.write(text)
	}
	return p, noProfile, files.report.write([]byte(ran.result.Markdown()))
}

// missing is an error if something was planned and not found out.
func missing(r measure.Result) error {
	var names []string
	for _, row := range r.Rows {
		if row.Seen == "" {
			names = append(names, string(row.Fact))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("not found out: %s: %s", strings.Join(names, ", "), cmp.Or(r.Ended, "the causes are above"))
}
