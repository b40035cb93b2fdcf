//go:build linux

package measure

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/experiment"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
	measurerobot "github.com/underlay-ccm/underlay/internal/measure/robot"
	"github.com/underlay-ccm/underlay/internal/robot"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// The account's user and password.
const robotUser, robotPassword = "robot", "a-password"

// What a dedicated server and the Robot web service tell is found in a cloud as the simulator has
// it, and in one that has it the other way round in everything. The server is afterwards as it was.
func TestDedicatedServerTells(t *testing.T) {
	tests := map[string]struct {
		cloud   profile.Cloud
		network profile.Network
		robot   profile.Robot
	}{
		"as the simulator has it": {
			network: profile.Network{VSwitchMTU: new(1400), Neighbors: new(0)},
			robot:   profile.Robot{VSwitchSeconds: []float64{4}},
		},
		"the other way round": {
			cloud:   profile.Cloud{RefuseIPv6Targets: new(true), OneVSwitchSubnet: new(true)},
			network: profile.Network{VSwitchMTU: new(1333), VSwitchAnySource: new(true), RefuseProxied: new(true)},
			robot:   profile.Robot{VSwitchSeconds: []float64{4}, ForbiddenLogin: new(true), Processing: new(true)},
		},
		"with a full table": {
			network: profile.Network{Neighbors: new(20), VSwitchMTU: new(1420)},
			robot:   profile.Robot{VSwitchSeconds: []float64{4}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := start(t, netlab.CloudLabOptions{
				Cloud:   hcloudsim.Options{ActionTime: 300 * time.Millisecond}.With(tt.cloud),
				Robot:   robotsim.Options{User: robotUser, Password: robotPassword}.With(tt.robot),
				Network: tt.network,
			})
			d := l.rentDedicated()
			before := d.state()
			facts := []measure.FactID{
				measure.VSwitchSubnets, measure.IPv6Targets, measure.VSwitchMTU, measure.VSwitchSource, measure.ProxyARP,
				measure.Neighbors, measure.RobotLatency, measure.RobotLogin, measure.RobotMembers,
			}
			like := with(profile.Profile{Cloud: tt.cloud, Network: tt.network, Robot: tt.robot})
			words := map[measure.FactID]string{}
			if tt.network.RefuseProxied != nil { // then nothing tells how many it knows
				words[measure.Neighbors] = ""
			}
			l.expect(facts, like, words)
			if after := d.state(); after != before {
				t.Errorf("the dedicated server had\n%s\nand has\n%s", before, after)
			}
			if err := l.bench.Dedicated.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if all, err := l.bench.Robot.VSwitches(t.Context()); err != nil || len(all) != 1 {
				t.Errorf("the account has the vSwitches %+v, %v", all, err)
			}
		})
	}
}

// dedicated is a dedicated server on which its owner has started the program.
type dedicated struct {
	*netlab.DedicatedServer
	t *testing.T
}

// rentDedicated makes one, and lets the run know of it as the command line does.
func (l *lab) rentDedicated() dedicated {
	l.t.Helper()
	made, err := l.RentDedicated(l.t.Context(), "owned")
	l.noError(err)
	l.t.Cleanup(func() { l.quiet(made) })
	keys, err := inside.NewCredentials("dedicated")
	l.noError(err)
	_, err = made.RunScript(inside.UserData(keys, inside.Lifetime))
	l.noError(err)
	credentials, err := robot.NewCredentials(robotUser, robotPassword)
	l.noError(err)
	l.bench.Robot, err = measurerobot.New(measurerobot.Options{
		Endpoint: l.RobotEndpoint(), Credentials: credentials, Run: "run",
		Transport: &http.Transport{DialContext: l.DialContext, DisableKeepAlives: true},
	})
	l.noError(err)
	l.bench.Dedicated = &experiment.Dedicated{
		Address: made.Public.IPv4, Interface: netlab.VSwitchInterface, VSwitch: cluster.VSwitchID,
		Hosts:   100, // the kernel's table of neighbors is one for all namespaces of the machine
		Program: inside.New(keys, netip.AddrPortFrom(made.Public.IPv4, inside.Port), l.DialContext),
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), 30*time.Second)
	defer cancel()
	l.noError(l.bench.Dedicated.Look(ctx, l.bench.Robot))
	return dedicated{made, l.t}
}

// quiet waits until nothing answers at the program's port any more.
func (l *lab) quiet(d *netlab.DedicatedServer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), 5*time.Second)
	defer cancel()
	at := netip.AddrPortFrom(d.Public.IPv4, inside.Port).String()
	for {
		c, err := l.DialContext(ctx, "tcp", at)
		switch {
		case err == nil:
			_ = c.Close()
		case errors.Is(err, syscall.ECONNREFUSED):
			return
		case ctx.Err() != nil:
			l.t.Errorf("the program on the dedicated server may still run: %v", err)
			return
		}
	}
}

// state is what of the server an experiment could change: addresses, routes, MTUs. It waits until
// the interfaces are up: the one in the vSwitch comes when the simulated Robot has put it there.
func (d dedicated) state() string {
	d.t.Helper()
	var all []string
	err := wait.PollUntilContextTimeout(d.t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		all = nil
		for _, args := range [][]string{{"-oneline", "address"}, {"-oneline", "link"}, {"route", "show", "table", "all"}, {"-6", "route", "show", "table", "all"}} {
			out, err := d.Namespace.Run(ctx, "ip", args...)
			if err != nil {
				return false, err
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			slices.Sort(lines)
			all = append(all, lines...)
		}
		coming := func(line string) bool {
			return strings.Contains(line, "NO-CARRIER") || strings.Contains(line, "tentative")
		}
		return !slices.ContainsFunc(all, coming), nil
	})
	if err != nil {
		d.t.Fatalf("%v; the server has\n%s", err, strings.Join(all, "\n"))
	}
	return strings.Join(all, "\n")
}

func (l *lab) noError(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}
