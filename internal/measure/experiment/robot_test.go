package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	credentials "github.com/underlay-ccm/underlay/internal/robot"

	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/robot"
)

const (
	robotUser, robotPassword = "robot", "secret"
	dedicatedNumber1         = 321
	usersVSwitch             = 4321
)

var (
	dedicated4 = netip.MustParseAddr("192.0.2.200")
	dedicated6 = netip.MustParsePrefix("2001:db8:d::/64")
)

// robotAccount has the dedicated server, in a vSwitch of the user's.
func robotAccount(t *testing.T, o robotsim.Options) *robotsim.Simulator {
	t.Helper()
	o.User, o.Password = robotUser, robotPassword
	sim := robotsim.New(o)
	_, err := sim.CreateServer(robotsim.ServerSeed{Number: dedicatedNumber1, IPv4: dedicated4, IPv6: dedicated6})
	if err == nil {
		_, err = sim.CreateVSwitch(robotsim.VSwitchSeed{
			ID: usersVSwitch, Name: "theirs", VLAN: 4000, Servers: []robotsim.MemberSeed{{Number: dedicatedNumber1}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

func robotClient(t *testing.T, sim *robotsim.Simulator) *robot.Client {
	t.Helper()
	right, err := credentials.NewCredentials(robotUser, robotPassword)
	if err != nil {
		t.Fatal(err)
	}
	c, err := robot.New(robot.Options{Endpoint: "https://robot.test", Credentials: right, Run: "k3v9", Transport: sim.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// unchanged demands that the account has what it had at the beginning.
func unchanged(t *testing.T, sim *robotsim.Simulator) {
	t.Helper()
	sim.ClearFaults()
	c := robotClient(t, sim)
	all, err := c.VSwitches(t.Context())
	if err != nil || len(all) != 1 {
		t.Errorf("vSwitches are %+v, %v, want the user's alone", all, err)
	}
	if v, err := c.VSwitch(t.Context(), usersVSwitch); err != nil || v.Status(dedicatedNumber1) != robot.Ready {
		t.Errorf("the user's vSwitch is %+v, %v", v, err)
	}
	if len(sim.Blocked()) > 0 {
		t.Error("the address is blocked")
	}
}

var robotFacts = []measure.FactID{measure.RobotLatency, measure.RobotLogin, measure.RobotMembers}

func TestRobot(t *testing.T) {
	latency := 230 * time.Millisecond
	positions := []struct {
		name string
		is   robotsim.Options
		seen []string
	}{
		{
			"as documented",
			robotsim.Options{VSwitchTime: 37 * time.Second, Latency: latency},
			[]string{"230 ms", "401", "in process"},
		},
		{
			"as clients have seen it",
			robotsim.Options{VSwitchTime: 12 * time.Second, Latency: latency, ForbiddenLogin: true, Processing: true, MaxRequests: true},
			[]string{"230 ms", "403", "processing"},
		},
	}
	for _, position := range positions {
		t.Run(position.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := robotAccount(t, position.is)
				b := &Bench{Robot: robotClient(t, sim), Dedicated: &Dedicated{Address: dedicated4}}
				all := Run(t.Context(), b, robotFacts)
				for i, o := range all {
					if o.Seen != position.seen[i] {
						t.Errorf("%s: seen %q (%s), want %q", o.Fact, o.Seen, o.Why, position.seen[i])
					}
				}
				p := recorded(found(t, all)).Robot
				switch {
				case p.ForbiddenLogin == nil || *p.ForbiddenLogin != position.is.ForbiddenLogin:
					t.Errorf("recorded %v of ForbiddenLogin", p.ForbiddenLogin)
				case p.Processing == nil || *p.Processing != position.is.Processing:
					t.Errorf("recorded %v of Processing", p.Processing)
				case p.LatencySeconds == nil || *p.LatencySeconds != latency.Seconds():
					t.Errorf("recorded %v of LatencySeconds", p.LatencySeconds)
				case len(p.VSwitchSeconds) != 2:
					t.Errorf("recorded %v of VSwitchSeconds", p.VSwitchSeconds)
				}
				for _, s := range p.VSwitchSeconds {
					if d := s - position.is.VSwitchTime.Seconds(); d < -2 || d > 7 {
						t.Errorf("a change took %.1f s, want about %s", s, position.is.VSwitchTime)
					}
				}
				unchanged(t, sim)
			})
		})
	}
}

// What can't be found out says why, and leaves nothing.
func TestRobotWithoutAnAnswer(t *testing.T) {
	tests := []struct {
		name  string
		is    robotsim.Options
		fault robotsim.Fault
		at    netip.Addr
		why   string
	}{
		{name: "at once", at: dedicated4, why: "over before the first look"},
		{name: "unknown server", at: netip.MustParseAddr("192.0.2.9"), why: "has the address of --dedicated"},
		{
			name: "the change fails", at: dedicated4, is: robotsim.Options{VSwitchTime: 20 * time.Second},
			fault: robotsim.Fault{Match: "POST /vswitch/{id}/server", FailChange: true},
		},
		{
			name: "too many vSwitches", at: dedicated4, is: robotsim.Options{ServerVSwitchLimit: 1},
			why: "VSWITCH_PER_SERVER_LIMIT_REACHED",
		},
		{name: "too slow", at: dedicated4, is: robotsim.Options{VSwitchTime: 4 * time.Minute}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := robotAccount(t, test.is)
				if err := sim.Inject(test.fault); err != nil {
					t.Fatal(err)
				}
				b := &Bench{Robot: robotClient(t, sim), Dedicated: &Dedicated{Address: test.at}}
				o := Run(t.Context(), b, []measure.FactID{measure.RobotMembers})[0]
				if !strings.Contains(o.Why, test.why) || (test.why != "") != (o.Seen == "") {
					t.Errorf("seen %q, why %q, want %q", o.Seen, o.Why, test.why)
				}
				if (o.Seen == "") != (o.Record == nil) {
					t.Error("what wasn't seen is recorded, or the other way round")
				}
				unchanged(t, sim)
			})
		})
	}
}

// A run that has reached its limit waits for no vSwitch while its servers cost, whether the limit
// comes while the server is looked at or while the vSwitch is removed. The run's sweep removes it.
func TestRobotKeepsTheTimeLimit(t *testing.T) {
	for _, limit := range []time.Duration{10 * time.Second, 100 * time.Second, 130 * time.Second} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := robotAccount(t, robotsim.Options{VSwitchTime: 4 * time.Minute})
				b := &Bench{Robot: robotClient(t, sim), Dedicated: &Dedicated{Address: dedicated4}}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				began := time.Now()
				Run(ctx, b, []measure.FactID{measure.RobotMembers})
				if took := time.Since(began); took != limit {
					t.Errorf("it took %s, want %s", took, limit)
				}
				if removed, err := b.Robot.Sweep(t.Context()); removed != 1 || err != nil {
					t.Errorf("afterwards %d vSwitches are removed, %v, want 1", removed, err)
				}
				unchanged(t, sim)
			})
		})
	}
}

// Interrupted at any request, by the end of the context or by the web service's silence, nothing
// remains and nothing is blocked.
func TestRobotInterrupted(t *testing.T) {
	const requests = 200 // more than there are
	for nth := range requests {
		for _, way := range []string{"cancelled", "lost request", "lost reply"} {
			over := false
			t.Run(fmt.Sprintf("%s %d", way, nth), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					over = interruptRobot(t, way, nth)
				})
			})
			if over {
				return
			}
		}
	}
	t.Fatal("the run has more requests than were interrupted")
}

// interruptRobot reports whether the run was over before.
func interruptRobot(t *testing.T, way string, nth int) bool {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	count := 0
	sim := robotAccount(t, robotsim.Options{VSwitchTime: 15 * time.Second, OnRequest: func(robotsim.Request) {
		if count++; count > nth && way == "cancelled" {
			cancel()
		}
	}})
	if nth > 0 && way != "cancelled" {
		if err := sim.Inject(robotsim.Fault{Times: nth}); err != nil {
			t.Fatal(err)
		}
	}
	if way != "cancelled" {
		// For as long as somebody needs to lose patience.
		if err := sim.Inject(robotsim.Fault{Times: 4, DropBeforeApply: way == "lost request", DropAfterApply: way == "lost reply"}); err != nil {
			t.Fatal(err)
		}
	}
	b := &Bench{Robot: robotClient(t, sim), Dedicated: &Dedicated{Address: dedicated4}}
	all := Run(ctx, b, robotFacts)
	over := count <= nth
	if over && slices.ContainsFunc(all, func(o measure.Observation) bool { return o.Seen == "" }) {
		t.Errorf("an uninterrupted run saw %+v", all)
	}
	sim.ClearFaults()
	if _, err := robotClient(t, sim).Sweep(t.Context(), "k3v9"); err != nil {
		t.Error(err)
	}
	unchanged(t, sim)
	return over
}
