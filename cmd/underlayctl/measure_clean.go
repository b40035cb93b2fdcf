package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/underlay-ccm/underlay/internal/measure/project"
	measurerobot "github.com/underlay-ccm/underlay/internal/measure/robot"
)

const cleanLong = `Remove what runs of measure left that were killed: everything in the project that
bears their label. Nothing else is touched. A run that is still at work elsewhere has
the label too, so --yes alone leaves those alone that are not older than the longest run
can take, six hours and a bit: name the one to clean with --run.`

func (m *measuring) cleanCommand(w process, o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "clean", Short: "Remove what runs of measure left that were killed", Long: cleanLong, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.clean(cmd.Context(), w, o) },
	}
	m.cloudFlags(cmd.Flags())
	cmd.Flags().StringVar(&m.run, "run", "", "Clean after this run alone. Default: after every one.")
	_ = cmd.RegisterFlagCompletionFunc("run", m.completeFromCloud(w, o, runs))
	return cmd
}

// leftover is what a run has left.
type leftover struct {
	project.Leftover
	vSwitches int // at Robot
}

func (m *measuring) clean(ctx context.Context, w process, o *options) error {
	if err := errors.Join(o.check(), m.dedicated.check(false)); err != nil {
		return err
	}
	// What is asked for is removed, even where nobody reads that.
	w.goesOnUnread()
	cloud, err := m.access(ctx, w, o)
	if err != nil {
		return err
	}
	all, spared, err := m.leftovers(ctx, o, cloud)
	if err != nil {
		return err
	}
	// What costs is removed, whatever Robot says.
	all, web, unseen := m.leftoversAtRobot(ctx, w, o, all)
	left := m.ofRun(all)
	now, busy := time.Now(), []leftover(nil)
	if m.yes && m.run == "" {
		left, busy = agreed(left, now)
	}
	if len(left) > 0 {
		fmt.Fprint(w.stderr, w.errPainter().page(page{tables: []table{leftoverTable(left, now)}})+"\n")
		if err := m.consent(ctx, w, "Remove this?", "agree with --yes"); err != nil {
			return err
		}
	}
	tell := &teller{out: w.stderr, live: w.live, paint: w.errPainter()}
	defer tell.stop()
	failed := []error{unseen}
	for _, l := range left {
		failed = append(failed, l.sweep(ctx, cloud, web, tell, m.toClean(o, l.Run)))
	}
	nothing := nothingBut(tell, spared)
	tell.stop()
	toClean := func(run string) string { return m.toClean(o, run) }
	if err := errors.Join(append(failed, notCleaned(busy, now, toClean))...); err != nil {
		return err
	}
	what := "measure"
	if m.run != "" {
		what = "run " + m.run
	}
	_, err = fmt.Fprintln(w.stdout, nothing+" of "+what+" is left in the project."+others(len(all)-len(left)))
	return err
}

// others says that other runs have left something too.
func others(runs int) string {
	switch runs {
	case 0:
		return ""
	case 1:
		return " 1 other run has something there: see underlayctl measure clean."
	}
	return fmt.Sprintf(" %d other runs have something there: see underlayctl measure clean.", runs)
}

// nothingBut tells of what bears a run's label and wasn't removed, and begins the sentence that
// nothing is left beside it.
func nothingBut(tell *teller, spared []project.Left) string {
	for _, l := range spared {
		tell.say("Left alone: " + l.String() + ".")
	}
	if len(spared) > 0 {
		return "Nothing else"
	}
	return "Nothing"
}

// leftovers are those of every run in the project; spared is what bears the label of one and isn't
// among them.
func (m *measuring) leftovers(ctx context.Context, o *options, cloud access) (left []leftover, spared []project.Left, err error) {
	ctx, cancel := o.patience(ctx)
	defer cancel()
	name, err := newRun()
	if err != nil {
		return nil, nil, err
	}
	p, err := cloud.project(name, project.Plan{}, nil)
	if err != nil {
		return nil, nil, err
	}
	inCloud, err := p.Leftovers(ctx)
	if err != nil {
		return nil, nil, cloud.explain(err)
	}
	for _, l := range inCloud {
		left = append(left, leftover{Leftover: l})
	}
	return left, p.Spared(), nil
}

// leftoversAtRobot adds those at Robot, if there are credentials.
func (m *measuring) leftoversAtRobot(ctx context.Context, w process, o *options, left []leftover) ([]leftover, *measurerobot.Client, error) {
	ctx, cancel := o.patience(ctx)
	defer cancel()
	name, err := newRun()
	if err != nil {
		return left, nil, err
	}
	web, err := m.dedicated.robot(w, name)
	if err != nil || web == nil {
		return left, nil, err
	}
	all, err := web.Leftovers(ctx)
	if err != nil {
		return left, nil, fmt.Errorf("what runs left at Robot is not known: %w", err)
	}
	for _, v := range all {
		left = addVSwitch(left, v.Run())
	}
	return left, web, nil
}

// ofRun are those of the run that is named.
func (m *measuring) ofRun(all []leftover) (left []leftover) {
	for _, l := range all {
		if m.run == "" || l.Run == m.run {
			left = append(left, l)
		}
	}
	return left
}

// addVSwitch counts a vSwitch among what its run has left.
func addVSwitch(left []leftover, run string) []leftover {
	i := slices.IndexFunc(left, func(l leftover) bool { return l.Run == run })
	if i < 0 {
		i, left = len(left), append(left, leftover{Leftover: project.Leftover{Run: run}})
	}
	left[i].vSwitches++
	return left
}

// sweep removes it. An error names the command with which to try again.
func (l leftover) sweep(
	ctx context.Context, cloud access, web *measurerobot.Client, tell *teller, command string,
) error {
	ctx, cancel := context.WithTimeout(ctx, cleaning)
	defer cancel()
	tell.progress("removing what run " + l.Run + " left")
	p, err := cloud.project(l.Run, project.Plan{}, tell.progress)
	if err != nil {
		return err
	}
	tell.prefix = p.Name("")
	removed, err := p.Sweep(ctx)
	if err != nil {
		return fmt.Errorf("run %s: %w", l.Run, leftInCloud(err, tell, command))
	}
	vSwitches := 0
	if l.vSwitches > 0 {
		if vSwitches, err = web.Sweep(ctx, l.Run); err != nil {
			return fmt.Errorf("run %s: %w", l.Run, leftAtRobot(err, command))
		}
	}
	tell.say("Removed of run " + l.Run + ": " + made(removed.Things, removed.SSHKeys, vSwitches) + ".")
	return nil
}

// asRobotsUser follows a command that needs the credentials of the web service.
const asRobotsUser = ", with the same ROBOT_USER and ROBOT_PASSWORD"

// leftInCloud names the command with which what is left can be removed, and says what that is, a
// line for each.
func leftInCloud(err error, tell *teller, command string) error {
	var left *project.LeftBehind
	if errors.As(err, &left) {
		for _, line := range left.Lines() {
			tell.say("Left: " + line)
		}
		left.Clean, left.Told = command, true
	}
	return err
}

// leftAtRobot does so for a vSwitch.
func leftAtRobot(err error, command string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("a vSwitch can be left at Robot: %w: run %q%s", err, command, asRobotsUser)
}

// toClean is the command that cleans after a run, with those of the given flags without which it
// wouldn't find the project.
func (m *measuring) toClean(o *options, run string) string {
	command := "underlayctl measure clean --run " + run
	flags := [][2]string{
		{"endpoint", m.endpoint},
		{"robot-endpoint", m.dedicated.robotEndpoint},
		{"token-file", o.tokenFile},
		{"token-secret", o.tokenSecret},
	}
	if o.tokenSecret != "" {
		flags = append(flags, [2]string{"kubeconfig", o.kubeconfig}, [2]string{"context", o.context})
	}
	for _, f := range flags {
		if f[1] != "" {
			command += " --" + f[0] + "=" + quoted(f[1])
		}
	}
	return command
}

// plainWord is what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)

// quoted is a word for a shell.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
