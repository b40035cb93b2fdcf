package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/experiment"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	measurerobot "github.com/underlay-ccm/underlay/internal/measure/robot"
)

// measure is the command.
func (m *measuring) measure(ctx context.Context) error {
	if err := m.check(); err != nil {
		return err
	}
	known, err := readProfile(m.profile)
	if err == nil && known.Location != "" && known.Location != m.location {
		err = fmt.Errorf("--profile %s was measured in location %s, and this is %s: name another file, "+
			"or --location %s", m.profile, known.Location, m.location, known.Location)
	}
	if err = errors.Join(err, writable(m.profile)); err != nil {
		return err
	}
	p, err := m.open()
	if err != nil {
		return err
	}
	b, plan, err := m.prepare(ctx, p)
	if err != nil {
		return err
	}
	shown := m.planned(plan)
	if m.dryRun {
		_, err := fmt.Fprint(m.out, shown)
		return err
	}
	m.say("%s", shown)
	if err := m.consent(ctx, "Make this?", "agree with --yes, or look with --dry-run"); err != nil {
		return err
	}
	assumed, err := measure.Completed(known)
	if err != nil {
		return err
	}
	return m.run(ctx, b, plan, known, assumed)
}

// prepare looks whether the project is empty, and at everything that would stop the run, and plans.
func (m *measuring) prepare(
	ctx context.Context, p *project.Project,
) (b *experiment.Bench, plan measure.Plan, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	web, err := m.dedicated.robot(m.terminal)
	if err != nil {
		return nil, plan, err
	}
	if plan, err = measure.NewPlan(measure.Facts(), m.wanted(web != nil)); err != nil {
		return nil, plan, err
	}
	if err := p.CheckToken(ctx); err != nil {
		return nil, plan, err
	}
	existing, err := p.Existing(ctx)
	if err != nil {
		return nil, plan, err
	}
	if len(existing) > 0 {
		return nil, plan, notEmpty(existing)
	}
	b = &experiment.Bench{
		Project: p, Location: m.location, ServerType: m.serverType, Image: m.image,
		LoadBalancerType: m.loadBalancerType, Robot: web, Progress: m.progress,
	}
	if !m.apiOnly {
		b.Programs = experiment.InsidePrograms{Lifetime: m.timeLimit + cleaning}
	}
	b.Dedicated, err = m.dedicated.server(ctx, web)
	return b, plan, err
}

// notEmpty is why a project isn't measured.
func notEmpty(existing []project.Thing) error {
	var names []string
	for _, t := range existing {
		names = append(names, t.String())
	}
	return fmt.Errorf("the project isn't empty, and only an empty one is measured: make one for it, "+
		"or remove what an earlier run has left by hcloud-sim measure clean; it has %s",
		strings.Join(names, ", "))
}

// wanted is what the plan is made for.
func (m *measuring) wanted(withRobot bool) measure.Wanted {
	w := measure.Wanted{Only: factIDs(m.only), Skip: factIDs(m.skip), Inside: !m.apiOnly}
	m.dedicated.wanted(&w, withRobot)
	return w
}

// factIDs are the facts that a flag names, without the spaces of a list.
func factIDs(names []string) (ids []measure.FactID) {
	for _, name := range names {
		ids = append(ids, measure.FactID(strings.TrimSpace(name)))
	}
	return ids
}

// run does the experiments, writes what was seen, and removes everything, also when an experiment
// panics.
func (m *measuring) run(
	ctx context.Context, b *experiment.Bench, plan measure.Plan, known, assumed profile.Profile,
) (err error) {
	ctx, stop := untilHangUp(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		m.say("Interrupted: what was made is being removed, which can take ten minutes.")
	})()
	defer func() { err = errors.Join(err, m.sweep(ctx, b)) }()
	n := 0
	b.Found = func(o measure.Observation) {
		n++
		f, _ := measure.Of(o.Fact)
		row := measure.Rows([]measure.Fact{f}, []measure.FactID{o.Fact}, []measure.Observation{o}, assumed)[0]
		seen := cmp.Or(oneLine(row.Seen), string(row.Verdict))
		m.say("%d/%d  %-18s %s", n, len(plan.Facts), row.Fact, seen)
	}
	started := time.Now()
	limited, cancel := context.WithTimeout(ctx, m.timeLimit)
	defer cancel()
	if _, err := b.Project.Key(limited); err != nil {
		return err
	}
	seen := experiment.Run(limited, b, plan.Facts)
	rows := measure.Rows(measure.Facts(), plan.Facts, seen, assumed)
	why := "the causes are above"
	switch {
	case ctx.Err() != nil:
		why = "it was interrupted"
	case limited.Err() != nil:
		why = fmt.Sprintf("the time limit of %s was over", m.timeLimit)
	}
	return errors.Join(m.write(known, seen, started), m.report(plan, rows, started), missing(rows, why))
}

// untilHangUp ends a context when the terminal is closed, and goes on where nobody reads any more
// what is said.
func untilHangUp(ctx context.Context) (context.Context, func()) {
	signal.Ignore(syscall.SIGPIPE)
	if signal.Ignored(syscall.SIGHUP) { // as under nohup
		return ctx, func() {}
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// host is the endpoint's, for people.
func (m *measuring) host() string {
	base, err := url.Parse(m.endpoint)
	if err != nil {
		return ""
	}
	return base.Host
}

// write writes the profile.
func (m *measuring) write(known profile.Profile, seen []measure.Observation, started time.Time) error {
	if m.profile == "" {
		return nil
	}
	p := measure.Recorded(known, seen)
	p.Measured, p.Location = started.UTC().Truncate(time.Second), m.location
	p.Endpoint, p.With = m.host(), release()
	var text bytes.Buffer
	if err := profile.Write(&text, p); err != nil {
		return err
	}
	return os.WriteFile(m.profile, text.Bytes(), 0o644)
}

// missing is an error if something was planned and not found out.
func missing(rows []measure.Row, why string) error {
	var names []string
	for _, row := range rows {
		if row.Seen == "" {
			names = append(names, string(row.Fact))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("not found out: %s: %s", strings.Join(names, ", "), why)
}

// sweep removes what the run has made, and looks whether the project is empty again.
func (m *measuring) sweep(ctx context.Context, b *experiment.Bench) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer cancel()
	m.progress("removing everything")
	p := b.Project
	removed, err := p.Sweep(ctx)
	if err == nil {
		err = p.Emptied(ctx)
	}
	if err != nil {
		err = fmt.Errorf("%w: hcloud-sim measure clean, with the same --endpoint and token, removes "+
			"what bears the label %s", err, project.Label)
	}
	if b.Dedicated != nil {
		err = errors.Join(err, b.Dedicated.Stop(ctx))
	}
	if b.Robot != nil {
		if _, atRobot := b.Robot.Sweep(ctx); atRobot != nil {
			err = errors.Join(err, fmt.Errorf("a vSwitch can be left at Robot: %w", atRobot))
		}
	}
	if err == nil {
		m.say("Removed: %s. Nothing is left in the project.", measure.Plural(removed, "thing"))
	}
	return err
}

func (m *measuring) cleanCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "clean", Short: "Remove what runs of measure left that were killed", Args: cobra.NoArgs,
		Long: `Remove what runs of measure left that were killed: everything in the project, and every
vSwitch at Robot, that bears their label and name. Nothing else is touched. A run that
is still at work elsewhere is robbed of what it has made.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.clean(cmd.Context()) },
	}
	m.cloudFlags(cmd.Flags())
	return cmd
}

func (m *measuring) clean(ctx context.Context) error {
	signal.Ignore(syscall.SIGPIPE)
	p, err := m.open()
	if err != nil {
		return err
	}
	left, err := p.Leftovers(ctx)
	if err != nil {
		return err
	}
	// What costs is removed, whatever Robot says.
	web, vSwitches, unseen := m.leftAtRobot(ctx)
	if len(left)+len(vSwitches) > 0 {
		for _, t := range left {
			m.say("%s", t)
		}
		for _, v := range vSwitches {
			m.say("vSwitch %s (ID %d)", v.Name, v.ID)
		}
		if err := m.consent(ctx, "Remove this?", "agree with --yes"); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cleaning)
	defer cancel()
	_, err = p.Sweep(ctx)
	if len(vSwitches) > 0 {
		var runs []string
		for _, v := range vSwitches {
			runs = append(runs, v.Run())
		}
		_, atRobot := web.Sweep(ctx, runs...)
		err = errors.Join(err, atRobot)
	}
	if err = errors.Join(err, unseen); err != nil {
		return err
	}
	_, err = fmt.Fprintln(m.out, "Nothing of measure is left.")
	return err
}

// leftAtRobot are the vSwitches of runs, if there are credentials.
func (m *measuring) leftAtRobot(ctx context.Context) (*measurerobot.Client, []measurerobot.VSwitch, error) {
	web, err := m.dedicated.robot(m.terminal)
	if err != nil || web == nil {
		return nil, nil, err
	}
	all, err := web.Leftovers(ctx)
	if err != nil {
		err = fmt.Errorf("what runs left at Robot is not known: %w", err)
	}
	return web, all, err
}

// readProfile reads a file that a person named; without a name, or where there is none yet, nothing
// is known.
func readProfile(name string) (profile.Profile, error) {
	if name == "" {
		return profile.Profile{}, nil
	}
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return profile.Profile{}, nil
	}
	if err != nil {
		return profile.Profile{}, fmt.Errorf("--profile: %w", err)
	}
	p, err := profile.Read(bytes.NewReader(content))
	if err != nil {
		return p, fmt.Errorf("--profile %s: %w", name, err)
	}
	return p, nil
}

// writable finds out whether the profile can be written, before anything is made.
func writable(name string) error {
	if name == "" {
		return nil
	}
	_, missing := os.Stat(name)
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err == nil {
		err = file.Close()
		if errors.Is(missing, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(name))
		}
	}
	if err != nil {
		return fmt.Errorf("--profile: %w: name another file", err)
	}
	return nil
}
