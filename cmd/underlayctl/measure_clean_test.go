package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/experiment"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

// The command that is named for what is left finds the same project again, from the same shell.
func TestTheCommandThatCleansHasTheFlagsThatWereGiven(t *testing.T) {
	for want, given := range map[string]struct {
		m measuring
		o options
	}{
		"":                                     {o: options{kubeconfig: "config", timeout: 1}},
		" --endpoint=http://127.0.0.1:8470/v1": {m: measuring{endpoint: "http://127.0.0.1:8470/v1"}},
		" --token-file='my token'":             {o: options{tokenFile: "my token"}},
		` --token-file='it'\''s'`:              {o: options{tokenFile: "it's"}},
		" --robot-endpoint=https://robot.test": {m: measuring{dedicated: dedicatedFlags{robotEndpoint: "https://robot.test"}}},
		" --token-secret=kube-system/hcloud/token --kubeconfig=config --context=a": {
			o: options{tokenSecret: usualSecret, kubeconfig: "config", context: "a"},
		},
	} {
		if got := given.m.toClean(&given.o, "R"); got != "underlayctl measure clean --run R"+want {
			t.Errorf("%s, want the flags%s", got, want)
		}
	}
}

// Ctrl-C twice leaves more than what bears the label.
func TestWhatIsLeftByCtrlCTwiceIsTold(t *testing.T) {
	r := &running{clean: "CLEAN", bench: &experiment.Bench{}}
	if got := r.endedAtOnce(); got != "ended before everything was removed: run CLEAN" {
		t.Error(got)
	}
	r.view.Facts = []measure.FactID{measure.RobotMembers}
	r.bench.Dedicated = &experiment.Dedicated{Program: experiment.Program(nil)}
	if got := r.endedAtOnce(); strings.Contains(got, "dedicated server") || !strings.HasSuffix(got, "run CLEAN, with the same ROBOT_USER and ROBOT_PASSWORD") {
		t.Errorf("without a program there: %s", got)
	}
	r.bench.Dedicated.Program = struct{ experiment.Program }{}
	if got := r.endedAtOnce(); !strings.Contains(got, "on the dedicated server") {
		t.Error(got)
	}
}

// The error has the command with its flags; the report, which others read, hasn't.
func TestErrorsOfWhatIsLeftNameTheCommand(t *testing.T) {
	var told strings.Builder
	r := &running{clean: "CLEAN --endpoint=E", bench: &experiment.Bench{}, tell: &teller{out: &told}}
	refused := errors.New("refused")
	var result measure.Result
	err := r.left(&result, &project.LeftBehind{Run: "R", Things: []project.Left{{Kind: "server"}}}, refused)
	for _, want := range []string{`run "CLEAN --endpoint=E"`, `refused: run "CLEAN --endpoint=E", with the same ROBOT_USER`} {
		if !errors.Is(err, refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if got := result.Left; !strings.Contains(got, `run "underlayctl measure clean --run R"`) || !strings.Contains(got, "refused") || strings.Contains(got, "endpoint") {
		t.Errorf("the report says %s", got)
	}
	why := errors.Join(errors.New("listing servers"), errors.New("listing networks"))
	err = r.left(&result, &project.LeftBehind{Run: "R", Things: []project.Left{{Kind: "server", Name: "a"}, {Kind: "network", Name: "b"}}, Err: why}, nil)
	if got := err.Error(); !strings.Contains(got, ": 2 things are left; it can't be told") || strings.Contains(got, "listing") {
		t.Error(got)
	}
	if lines := strings.Split(strings.TrimSpace(told.String()), "\n"); len(lines) != 5 || !strings.HasPrefix(lines[1], "Left: server a") || lines[4] != "Left: listing networks" {
		t.Errorf("said was %q", lines)
	}
	if err := r.left(&result, refused, nil); err.Error() != "refused" {
		t.Error(err)
	}
}

// Where nobody reads any more what clean says, it removes everything all the same.
func TestCleanGoesOnUnread(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	const run = "20261124-0930-aaaaaa"
	for _, name := range []string{"server-0", "server-1"} {
		_, err := c.sim.CreateServer(hcloudsim.ServerSeed{
			Name: "underlay-measure-" + run + "-" + name, Labels: map[string]string{project.Label: run},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p := c.start("clean", "--yes", "--run", run)
	if err := p.said.Close(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	if !p.ProcessState.Exited() {
		t.Errorf("it ended by %s", p.ProcessState)
	}
	c.expectUntouched()
}

// What bears a run's label and no name of a run may be somebody's: it stays, and is told of.
func TestWhatIsLeftAloneIsTold(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	const run = "20261124-0930-aaaaaa"
	for _, name := range []string{"underlay-measure-" + run + "-server-0", "renamed"} {
		_, err := c.sim.CreateServer(hcloudsim.ServerSeed{Name: name, Labels: map[string]string{project.Label: run}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // also where nothing else is left
		out, code := c.call(t.Context(), "clean", "--yes", "--run", run)
		if code != 0 || out != "Nothing else of run "+run+" is left in the project.\n" {
			t.Errorf("exit code %d: %s", code, out)
		}
		if told := strings.Count(c.errs.String(), "Left alone: server renamed (ID "); told != 1 {
			t.Errorf("it is told %d times: %s", told, c.errs.String())
		}
		c.errs.b.Reset()
	}
	if n := len(c.sim.Servers()); n != 2 {
		t.Errorf("%d servers, want theirs and the renamed one", n)
	}
}

// Nothing but its age tells that a run has ended. Of a run that made nothing in the cloud its name
// tells the age.
func TestRunsThatMayBeAtWorkAreLeftAlone(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	of := func(run string, age time.Duration) leftover {
		return leftover{Leftover: project.Leftover{Run: run, Since: now.Add(-age)}}
	}
	robots := func(run string) leftover { return leftover{Leftover: project.Leftover{Run: run}, vSwitches: 1} }
	removed, busy := agreed([]leftover{
		of("young", time.Minute), of("late", 6*time.Hour+9*time.Minute), of("old", 6*time.Hour+11*time.Minute),
		robots("20261125-1100-aaaaaa"), robots("20261125-0500-bbbbbb"), robots("named"),
	}, now)
	names := func(all []leftover) (out string) {
		for _, l := range all {
			out += l.Run + " "
		}
		return out
	}
	if got := names(removed); got != "old 20261125-0500-bbbbbb " {
		t.Errorf("removed are %s", got)
	}
	if got := names(busy); got != "young late 20261125-1100-aaaaaa named " {
		t.Errorf("left alone are %s", got)
	}
	err := notCleaned(busy[:1], now, func(run string) string { return "CLEAN " + run })
	if err == nil || err.Error() != "run young (60s old) may be at work, so that it was left alone: if it isn't, CLEAN young" {
		t.Error(err)
	}
}
