package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/experiment"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
)

// running is a run that may make things.
type running struct {
	view    planView
	project *project.Project
	bench   *experiment.Bench
	tell    *teller
	limit   time.Duration
	token   secret.Text
	clean   string // the command that removes what is left
	// keep keeps what was found out, before anything is removed.
	keep func(ran)
	// assumed is what hcloud-sim does with the profile that is there already.
	assumed profile.Profile
}

// prepare makes everything ready, and finds out what would stop the run: a selector that takes in
// its servers, an image that isn't there, a dedicated server that doesn't answer, a token that may
// not write. What is looked at only, with --dry-run, is asked for by reading alone.
func (m *measuring) prepare(ctx context.Context, w process, o *options, cloud access, view planView) (*running, error) {
	ctx, cancel := o.patience(ctx)
	defer cancel()
	name, err := newRun()
	if err != nil {
		return nil, err
	}
	r := &running{
		view: view, limit: m.timeLimit, token: cloud.token, clean: m.toClean(o, name),
		tell: &teller{out: w.stderr, live: w.live, paint: w.errPainter()},
	}
	plan := view.plan
	r.bench = &experiment.Bench{
		Location: m.location, ServerType: plan.ServerType, Image: m.image, LoadBalancerType: plan.LoadBalancerType,
		Progress: r.tell.progress, Found: r.found(len(plan.Facts)),
	}
	if !m.apiOnly {
		r.bench.Programs = experiment.InsidePrograms{Lifetime: m.timeLimit + cleaning}
	}
	if asksRobot(plan.Facts) || m.dedicated.address != "" {
		if r.bench.Robot, err = m.dedicated.robot(w, name); err != nil {
			return nil, err
		}
	}
	if r.bench.Dedicated, err = m.dedicated.server(ctx, w, r.bench.Robot); err != nil {
		return nil, err
	}
	may := project.Plan{
		Things: plan.Things, ServerType: plan.ServerType, LoadBalancerType: plan.LoadBalancerType,
		Location: m.location, VSwitch: m.dedicated.vSwitch,
	}
	if r.bench.Dedicated != nil {
		for _, a := range r.bench.Dedicated.Addresses {
			may.Dedicated = append(may.Dedicated, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	if r.project, err = cloud.project(name, may, r.tell.progress); err != nil {
		return nil, err
	}
	r.bench.Project, r.tell.prefix = r.project, r.project.Name("")
	// Whether the token may write is tried by a change that can't be: not where none was asked for.
	if !m.dryRun {
		if err := r.project.CheckToken(ctx); err != nil {
			return nil, err
		}
	}
	return r, errors.Join(r.project.CheckSelectors(ctx), r.project.CheckImage(ctx, m.image))
}

// found says what was seen, as it comes.
func (r *running) found(all int) func(measure.Observation) {
	n := 0
	return func(o measure.Observation) {
		n++
		f, _ := measure.Of(o.Fact)
		row := measure.Rows([]measure.Fact{f}, []measure.FactID{o.Fact}, []measure.Observation{o}, r.assumed, r.redaction())[0]
		r.tell.say(r.tell.paint.found(n, all, row))
	}
}

func (r *running) redaction() measure.Redaction {
	roles := map[netip.Addr]string{}
	if r.bench.Dedicated != nil {
		for _, a := range r.bench.Dedicated.Addresses {
			roles[a.Unmap()] = "dedicated server"
		}
	}
	for address, role := range r.bench.Addresses() {
		roles[address.Unmap()] = role
	}
	return measure.Redaction{Roles: roles, Secrets: []string{r.token.Reveal()}}
}

// ran is what came of a run.
type ran struct {
	result measure.Result
	seen   []measure.Observation
	err    error
}

// whole does the experiments and removes everything. Told to end twice, it returns at once.
func (r *running) whole(ctx context.Context, w process) (ran, error) {
	defer r.tell.stop()
	// Where nobody reads any more what is said, as behind head, it goes on to the end.
	w.goesOnUnread()
	stop := context.AfterFunc(ctx, func() {
		r.tell.say("Interrupted: what was made is being removed. Ctrl-C again ends at once; then " +
			r.clean + " removes the rest.")
	})
	defer stop()
	done := make(chan ran, 1)
	go func() { done <- r.run(ctx) }()
	select {
	case out := <-done:
		return out, nil
	case <-w.again:
		return ran{}, errors.New(r.endedAtOnce())
	}
}

// endedAtOnce says what must be done where nothing was removed any more.
func (r *running) endedAtOnce() string {
	said := "ended before everything was removed: run " + r.clean
	if slices.Contains(r.view.Facts, measure.RobotMembers) {
		said += asRobotsUser
	}
	if d := r.bench.Dedicated; d != nil && d.Program != nil {
		said += "; on the dedicated server an address, a route and answers to ARP can be left until the program there ends: end it by Ctrl-C, or it ends by itself after its --lifetime"
	}
	return said
}

// run does the experiments and removes everything, also when an experiment panics.
func (r *running) run(ctx context.Context) (out ran) {
	started := time.Now()
	limited, cancel := withLimit(ctx, r.limit, time.Now)
	defer cancel()
	defer func() { out.err = r.sweep(ctx, &out.result) }()
	out.seen = experiment.Run(limited, r.bench, r.view.Facts)
	switch {
	case ctx.Err() != nil:
		out.result.Ended = "it was interrupted"
	case limited.Err() != nil:
		out.result.Ended = context.Cause(limited).Error()
	}
	plan := r.view.plan
	out.result.Version, out.result.Started = release(), started
	out.result.Seconds = time.Since(started).Seconds()
	out.result.Endpoint, out.result.Location = r.redaction().Clean(r.view.Endpoint), r.view.Location
	if plan.Things.Servers > 0 {
		out.result.ServerType, out.result.Image = plan.ServerType, r.bench.Image
	}
	if plan.Things.LoadBalancers > 0 {
		out.result.LoadBalancerType = plan.LoadBalancerType
	}
	out.result.Bill, out.result.LeftOut = plan.Bill, plan.LeftOut
	out.result.Rows = measure.Rows(measure.Facts(), plan.Facts, out.seen, r.assumed, r.redaction())
	r.keep(out)
	return out
}

// sweep removes what the run has made, for as long as the bill allows.
func (r *running) sweep(ctx context.Context, result *measure.Result) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer cancel()
	r.tell.progress("removing everything")
	removed, err := r.project.Sweep(ctx)
	if d := r.bench.Dedicated; d != nil && d.Program != nil {
		if stopped := d.Stop(ctx); stopped != nil {
			r.tell.say(r.redaction().Clean(stopped.Error()))
		} else {
			r.tell.say("The program on the dedicated server has ended, and what it changed there is changed back.")
		}
	}
	vSwitches := 0
	var atRobot error
	if r.bench.Robot != nil && slices.Contains(r.view.Facts, measure.RobotMembers) {
		vSwitches, atRobot = r.bench.Robot.Sweep(ctx)
	}
	if err != nil || atRobot != nil {
		return r.left(result, err, atRobot)
	}
	nothing := nothingBut(r.tell, r.project.Spared())
	r.tell.say("Removed: " + made(removed.Things, removed.SSHKeys, vSwitches) + ". " + nothing + " of this run is left in the project.")
	if r.tell.live {
		r.tell.say("")
	}
	return nil
}

// left is the error of what remains. Flags are for this machine alone, so the report has none.
func (r *running) left(result *measure.Result, inCloud, atRobot error) error {
	result.Left = r.redaction().Clean(errors.Join(inCloud, atRobot).Error())
	return errors.Join(leftInCloud(inCloud, r.tell, r.clean), leftAtRobot(atRobot, r.clean))
}
