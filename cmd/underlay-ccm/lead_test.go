package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	controllermanager "k8s.io/controller-manager/app"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/leadership"
	"github.com/underlay-ccm/underlay/internal/wiring"
	"github.com/underlay-ccm/underlay/ipam"
)

// leading is a replica that has found the network "cluster" at its start, and that leads: begin is
// the function that upstream calls for one of its controllers.
type leading struct {
	*manager
	t   *testing.T
	sim *hcloudsim.Simulator
}

func inLead(t *testing.T, file string, test func(l *leading)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sim, m := startingWith(t, config.Flags{
			"--allocate-node-cidrs": "true", "--configure-cloud-routes": "true", "--cluster-cidr": "10.244.0.0/16",
		}, "network: cluster\n"+file)
		if err := m.reach(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(&leading{m, t, sim})
	})
}

// idle is a controller that does nothing.
type idle struct{}

func (idle) Run(context.Context) error { return nil }

// begin starts a controller, and returns how long that took.
func (l *leading) begin(ctx context.Context, name string) time.Duration {
	l.t.Helper()
	began := time.Now()
	constructor := l.constructor(name, func(*appconfig.CompletedConfig) (runner, error) {
		return idle{}, nil
	})
	init := constructor.Constructor(app.ControllerInitContext{}, alone(), nil)
	if _, started, err := init(ctx, controllermanager.ControllerContext{}); err != nil || !started {
		l.t.Errorf("%s: started %t, %v", name, started, err)
	}
	return time.Since(began)
}

// alone is a configuration without an election, with all controllers.
func alone() *appconfig.CompletedConfig {
	var c appconfig.Config
	c.ComponentConfig.Generic.Controllers = []string{"*"}
	return c.Complete()
}

// again recreates the network, with subnets.
func (l *leading) again(subnets ...string) int64 {
	l.t.Helper()
	if err := l.sim.DeleteNetwork(l.network.Last().ID); err != nil {
		l.t.Fatal(err)
	}
	seed := hcloudsim.NetworkSeed{Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8")}
	for _, text := range subnets {
		seed.Subnets = append(seed.Subnets, hcloudsim.SubnetSeed{IPRange: netip.MustParsePrefix(text)})
	}
	made, err := l.sim.CreateNetwork(seed)
	if err != nil {
		l.t.Fatal(err)
	}
	return made.ID
}

// keepsClear reports whether podCIDRs are kept out of a prefix.
func (l *leading) keepsClear(text string) bool {
	return slices.Contains(l.exclusions(l.layout), netip.MustParsePrefix(text))
}

// If the cloud is unreachable, the controllers of a new leader are delayed only for a moment,
// together, and work that waits for the cloud is done when it is reachable.
func TestALeaderBeginsWithoutTheCloud(t *testing.T) {
	inLead(t, "", func(l *leading) {
		ctx, stop := context.WithCancel(l.t.Context())
		defer stop()
		made := l.again("10.1.0.0/16")
		l.config.VSwitch.ExposeRoutes = true
		if err := l.sim.Inject(hcloudsim.Fault{Times: -1, Status: 503}); err != nil {
			l.t.Fatal(err)
		}
		took := l.begin(ctx, "first") + l.begin(ctx, "second")
		if took == 0 || took > 10*time.Second {
			l.t.Errorf("it took %s, want a moment for an answer and at most 10s", took)
		}
		l.sim.ClearFaults()
		time.Sleep(2 * time.Minute)
		if now, _ := l.sim.Network(made); !now.ExposeRoutesToVSwitch {
			l.t.Error("2 minutes after the cloud came back the network doesn't expose its routes")
		}
		stop()
	})
}

// A new leader keeps podCIDRs out of the network's current subnets.
func TestALeaderSeesTheNetworkAsItIs(t *testing.T) {
	inLead(t, "", func(l *leading) {
		l.again("10.1.0.0/16")
		if took := l.begin(l.t.Context(), "first"); took != 0 || !l.keepsClear("10.1.0.0/16") {
			l.t.Errorf("after %s podCIDRs keep clear of %s", took, l.exclusions(l.layout))
		}
	})
}

// A new leader doesn't exit because of an error that would end a start: its predecessor kept
// running, too.
func TestALeaderContinuesDespiteAnErrorThatEndsAStart(t *testing.T) {
	for name, change := range map[string]func(l *leading){
		"a subnet in a part of the pool": func(l *leading) { l.again("10.244.128.0/17") },
		"a subnet in place of the pool":  func(l *leading) { l.again("10.244.0.0/16") },
		"the network is decoupled": func(l *leading) {
			l.config.VSwitch.Subnet = netip.MustParsePrefix("10.1.0.0/16")
		},
		"the network is gone": func(l *leading) {
			if err := l.sim.DeleteNetwork(l.network.Last().ID); err != nil {
				l.t.Fatal(err)
			}
		},
		"the token is refused": func(l *leading) { l.sim.SetToken("another") },
	} {
		t.Run(name, func(t *testing.T) {
			inLead(t, "", func(l *leading) {
				ctx, stop := context.WithCancel(l.t.Context())
				defer stop()
				change(l)
				l.begin(ctx, "first")
				if _, err := ipam.NewLedger(wiring.Pools(l.config), l.exclusions(l.layout)); err != nil {
					l.t.Errorf("the controller of podCIDRs would end the process: %v", err)
				}
				stop()
				fresh := &manager{config: l.config, client: l.client}
				if err := fresh.reach(l.t.Context()); err == nil {
					l.t.Error("a start is not refused")
				}
			})
		})
	}
}

// A network that is deleted and recreated under its name is found again also without a controller
// of routes, at the cost of a few requests an hour.
func TestANetworkIsFoundAgainWithoutRoutes(t *testing.T) {
	inLead(t, "", func(l *leading) {
		ctx, stop := context.WithCancel(l.t.Context())
		defer stop()
		l.config.Routes.Enabled = false
		l.begin(ctx, "first")
		time.Sleep(30 * time.Minute)
		made := l.again()
		l.sim.ResetRequests()
		time.Sleep(5 * time.Minute)
		if l.network.Last().ID != made {
			l.t.Errorf("5 minutes later the network is %d, want %d", l.network.Last().ID, made)
		}
		time.Sleep(time.Hour)
		if n := len(l.sim.Requests()); n > 20 {
			l.t.Errorf("%d requests in 65 minutes", n)
		}
		stop()
	})
}

// transport is a function as the cloud's transport.
type transport func(*http.Request) *http.Response

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// A process without a lease to release, because there is no election or it was not observed, still
// waits for changes that must be completed.
func TestASwapIsEndedWithoutALease(t *testing.T) {
	for name, swap := range map[string]time.Duration{"a swap": 2 * time.Second, "nothing held": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var m manager
				if swap > 0 {
					ctx, release := leadership.Hold(t.Context())
					way := m.gate.Wrap(transport(func(*http.Request) *http.Response {
						return httptest.NewRecorder().Result()
					}))
					request := httptest.NewRequestWithContext(ctx, http.MethodDelete, "http://cloud.test/v1", nil)
					answer, err := way.RoundTrip(request)
					if err != nil {
						t.Fatal(err)
					}
					_ = answer.Body.Close()
					time.AfterFunc(swap, release)
				}
				began := time.Now()
				m.stepDown()
				if took := time.Since(began); took != swap {
					t.Errorf("the process ended after %s, want %s", took, swap)
				}
			})
		})
	}
}
