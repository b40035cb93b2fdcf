package robot_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"

	"github.com/underlay-ccm/underlay/internal/measure/robot"
	webservice "github.com/underlay-ccm/underlay/internal/robot"
)

// busy is an account in which changes take their time.
var busy = robotsim.Options{VSwitchTime: 40 * time.Second}

// joined makes a vSwitch with the dedicated server in it.
func joined(t *testing.T, c *robot.Client) robot.VSwitch {
	t.Helper()
	v, err := c.CreateVSwitch(t.Context())
	if err == nil {
		err = c.AddServer(t.Context(), v.ID, ours)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// asBefore demands that the account has the user's vSwitch, and nothing else.
func asBefore(t *testing.T, sim *robotsim.Simulator) {
	t.Helper()
	sim.ClearFaults()
	c := client(t, sim, nil)
	all, err := c.VSwitches(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != theirs {
		t.Errorf("vSwitches are %+v, %v, want the user's alone", all, err)
	}
	v, err := c.VSwitch(t.Context(), theirs)
	if err != nil || len(v.Members) != 1 || v.Status(ours) != robot.Ready {
		t.Errorf("the user's vSwitch is %+v, %v", v, err)
	}
}

func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := account(t, busy)
		c := client(t, sim, nil)
		v := joined(t, c)
		if v.VLAN == 4091 || v.Run() != run {
			t.Errorf("vSwitch %+v: want a VLAN of its own, and the run's name", v)
		}
		left, err := c.Leftovers(t.Context())
		if err != nil || len(left) != 1 || left[0].Run() != run {
			t.Errorf("leftovers are %+v, %v", left, err)
		}
		// Somebody else's run, as "measure clean" sees it.
		other := client(t, sim, func(o *robot.Options) { o.Run = "other" })
		if removed, err := other.Sweep(t.Context()); removed > 0 || err != nil {
			t.Errorf("another run removed %d, %v", removed, err)
		}
		if removed, err := other.Sweep(t.Context(), run); removed != 1 || err != nil {
			t.Errorf("removed %d, %v, want 1", removed, err)
		}
		asBefore(t, sim)
	})
}

// Whatever request of a sweep gets lost or is refused, nothing remains.
func TestSweepThroughTrouble(t *testing.T) {
	troubles := map[string]robotsim.Fault{
		"lost request": {DropBeforeApply: true},
		"lost reply":   {DropAfterApply: true},
		"in process":   {Code: webservice.CodeInProcess},
		"bad gateway":  {Status: 502},
		"failed":       {FailChange: true},
	}
	for name, trouble := range troubles {
		for nth := range 8 {
			t.Run(fmt.Sprintf("%s %d", name, nth), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sim := account(t, busy)
					c := client(t, sim, nil)
					joined(t, c)
					// The requests before it meet a fault that does nothing.
					if nth > 0 {
						if err := sim.Inject(robotsim.Fault{Times: nth}); err != nil {
							t.Fatal(err)
						}
					}
					if err := sim.Inject(trouble); err != nil {
						t.Fatal(err)
					}
					if _, err := c.Sweep(t.Context()); err != nil {
						t.Error(err)
					}
					asBefore(t, sim)
				})
			})
		}
	}
}

// A run that is given up at any request leaves what a sweep finds.
func TestSweepAfterInterruption(t *testing.T) {
	for nth := range 5 {
		for _, lose := range []robotsim.Fault{{DropBeforeApply: true, Times: -1}, {DropAfterApply: true, Times: -1}} {
			synctest.Test(t, func(t *testing.T) {
				sim := account(t, busy)
				if nth > 0 {
					if err := sim.Inject(robotsim.Fault{Times: nth}); err != nil {
						t.Fatal(err)
					}
				}
				if err := sim.Inject(lose); err != nil {
					t.Fatal(err)
				}
				first := client(t, sim, nil)
				if v, err := first.CreateVSwitch(t.Context()); err == nil {
					_ = first.AddServer(t.Context(), v.ID, ours)
					_ = first.RemoveServer(t.Context(), v.ID, ours)
				}
				sim.ClearFaults()
				if _, err := client(t, sim, nil).Sweep(t.Context(), run); err != nil {
					t.Error(err)
				}
				asBefore(t, sim)
			})
		}
	}
}

// A server that somebody else has put into a run's vSwitch stays in it, and the run's sweep says so
// at once.
func TestSweepLeavesOthersServers(t *testing.T) {
	const another = 654
	tests := map[string]struct {
		crashed bool // another process removes what the run left
		alone   bool // the run's own server is not in it any more
	}{
		"beside the run's":          {},
		"in place of the run's":     {alone: true},
		"beside that of a dead run": {crashed: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := account(t, busy)
				_, err := sim.CreateServer(robotsim.ServerSeed{Number: another, IPv4: netip.MustParseAddr("192.0.2.8")})
				c := client(t, sim, nil)
				v := joined(t, c)
				time.Sleep(time.Minute)
				err = errors.Join(err, sim.SetMember(v.ID, another, robot.Ready))
				if tt.alone {
					err = errors.Join(err, sim.SetMember(v.ID, ours, ""))
				}
				if err != nil {
					t.Fatal(err)
				}
				if tt.crashed {
					c = client(t, sim, nil)
				}
				before, began := len(sim.Requests()), time.Now()
				_, err = c.Sweep(t.Context())
				if !errors.As(err, new(*robot.StrangersError)) || !strings.Contains(err.Error(), "654") {
					t.Errorf("error is %v", err)
				}
				if n := len(sim.Requests()) - before; n != 2 || time.Since(began) > time.Second {
					t.Errorf("it took %d requests and %s to refuse", n, time.Since(began))
				}
				if v, err = c.VSwitch(t.Context(), v.ID); err != nil || v.Status(another) != robot.Ready {
					t.Errorf("the vSwitch is %+v, %v", v, err)
				}
				// The user takes it out, and then the rest can be removed.
				if err := sim.SetMember(v.ID, another, ""); err != nil {
					t.Fatal(err)
				}
				if _, err := client(t, sim, nil).Sweep(t.Context()); err != nil {
					t.Error(err)
				}
				asBefore(t, sim)
			})
		})
	}
}

func TestOneServerIsPutIn(t *testing.T) {
	sim := account(t, robotsim.Options{})
	c := client(t, sim, nil)
	v := joined(t, c)
	before := len(sim.Requests())
	changes := map[string]func(context.Context, int64, int64) error{"added": c.AddServer, "taken out": c.RemoveServer}
	for what, change := range changes {
		if err := change(t.Context(), v.ID, 654); err == nil {
			t.Errorf("another server is %s", what)
		}
	}
	if n := len(sim.Requests()) - before; n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// hook is called before each request is sent.
type hook struct {
	next http.RoundTripper
	do   func()
}

func (h hook) RoundTrip(r *http.Request) (*http.Response, error) {
	h.do()
	return h.next.RoundTrip(r)
}

// A change that is under way is not given up with its context, because nobody would know its fate;
// and nothing is sent once the context has ended.
func TestChangesOutliveTheirContext(t *testing.T) {
	sim := account(t, robotsim.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	requests := 0
	c := client(t, sim, func(o *robot.Options) {
		o.Transport = hook{sim.Transport(), func() {
			if requests++; requests == 2 { // which makes the vSwitch
				cancel()
			}
		}}
	})
	v, err := c.CreateVSwitch(ctx)
	if err != nil || v.ID == 0 {
		t.Errorf("a change that was under way: %+v, %v", v, err)
	}
	if err := c.AddServer(ctx, v.ID, ours); !errors.Is(err, context.Canceled) {
		t.Errorf("a change after the end: %v", err)
	}
	if n := len(sim.Requests()); n != 2 {
		t.Errorf("%d requests were sent, want 2", n)
	}
}
