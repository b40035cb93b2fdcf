package hcloudsim_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// The default profile equals the zero options, so that a fact that was measured as assumed changes
// nothing.
func TestDefaultProfileIsTheZeroOptions(t *testing.T) {
	measured := profile.Default().Cloud
	for field, value := range reflect.ValueOf(measured).Fields() {
		if value.IsZero() && field.Name != "ActionSeconds" { // without them actions take no time
			t.Errorf("the default profile says nothing of %s", field.Name)
		}
	}
	got := hcloudsim.Options{}.With(measured)
	if limit := send(t, newSim(hcloudsim.Options{}), "GET", "/v1/locations", "").header.Get("RateLimit-Limit"); limit != fmt.Sprint(got.RateLimit) {
		t.Errorf("the default profile has a rate limit of %d, the simulator %s", got.RateLimit, limit)
	}
	got.RateLimit = 0
	if !reflect.DeepEqual(got, hcloudsim.Options{}) {
		t.Errorf("with the default profile options are %+v", got)
	}
	if got := (hcloudsim.Options{}).With(profile.Cloud{}); !reflect.DeepEqual(got,
		hcloudsim.Options{}) {
		t.Errorf("with an empty profile options are %+v", got)
	}
}

// otherwise has every option with its other value.
func otherwise() profile.Cloud {
	return profile.Cloud{
		Busy: new(profile.Locked), EffectsAtOnce: new(true), LatencySeconds: new(0.25),
		RateLimit:      new(100),
		ActionSeconds:  map[string][]float64{"add_route": {1, 2.5}},
		RefuseReassign: new(true), OneTargetPerServer: new(true),
		ProxyHeaderInChecks: new(true), ServeUnjudged: new(true), IPv6Source: new("2001:db8::1"),
	}
}

// Each measured field changes one option, and only one.
func TestEveryFieldOfAProfileIsAnOption(t *testing.T) {
	all := reflect.ValueOf(otherwise())
	changed := map[string]string{}
	for field, value := range all.Fields() {
		var one profile.Cloud
		reflect.ValueOf(&one).Elem().FieldByIndex(field.Index).Set(value)
		var options []string
		for option, set := range reflect.ValueOf(hcloudsim.Options{}.With(one)).Fields() {
			if !set.IsZero() {
				options = append(options, option.Name)
			}
		}
		if len(options) != 1 {
			t.Errorf("%s changes the options %v, want one", field.Name, options)
			continue
		}
		if by, twice := changed[options[0]]; twice {
			t.Errorf("%s and %s change the same option", field.Name, by)
		}
		changed[options[0]] = field.Name
	}
}

// Options of the caller override the profile.
func TestOptionsOutrankAProfile(t *testing.T) {
	set := hcloudsim.Options{
		Busy: hcloudsim.BusyLocked, ActionTime: time.Second, Latency: time.Minute,
		RateLimit:      hcloudsim.Unlimited,
		RefuseReassign: true, IPv6Source: netip.MustParseAddr("2001:db8::2"),
	}
	measured := otherwise()
	measured.Busy, measured.RefuseReassign = new(profile.Conflict), new(false)
	got := set.With(measured)
	if got.Busy != set.Busy || got.ActionTimes != nil || got.Latency != set.Latency ||
		got.RateLimit != set.RateLimit ||
		!got.RefuseReassign || got.IPv6Source != set.IPv6Source {
		t.Errorf("options are %+v, want %+v to stay", got, set)
	}
	if !got.EffectsAtOnce || !got.OneTargetPerServer {
		t.Errorf("options are %+v, without what nobody had set", got)
	}
}

// Actions take the measured times of their command: each of them is drawn, and the same seed draws
// the same.
func TestActionTimes(t *testing.T) {
	times := []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}
	run := func(seed uint64) (took []time.Duration) {
		inBubble(t, hcloudsim.Options{Seed: seed, ActionTimes: map[string][]time.Duration{"add_route": times}}, func(t *testing.T, w world) {
			for i := range 40 {
				path := fmt.Sprintf("/v1/networks/%d/actions/add_route", w.net.ID)
				begun := time.Now()
				got := send(t, w.sim, "POST", path, fmt.Sprintf(`{"destination": "10.244.%d.0/24", "gateway": "10.0.0.2"}`, i))
				got.want(t, 201, "")
				id := int64(got.object["action"].(map[string]any)["id"].(float64))
				noError(t, w.c.Action.WaitFor(t.Context(), &hcloud.Action{
					ID: id, Status: hcloud.ActionStatusRunning,
				}))
				action, _, err := w.c.Action.GetByID(t.Context(), id)
				noError(t, err)
				took = append(took, action.Finished.Sub(begun))
			}
			removed, _, err := w.c.Network.DeleteRoute(t.Context(), w.net, hcloud.NetworkDeleteRouteOpts{
				Route: hcloud.NetworkRoute{Destination: ipNet("10.244.0.0/24"), Gateway: []byte{10, 0, 0, 2}},
			})
			noError(t, err)
			time.Sleep(actionTime)
			removed, _, err = w.c.Action.GetByID(t.Context(), removed.ID)
			noError(t, err)
			if d := removed.Finished.Sub(removed.Started); d != actionTime {
				t.Errorf("an action whose times nobody has measured took %s, want ActionTime", d)
			}
		})
		return took
	}
	first := run(1)
	for _, d := range first {
		if !slices.Contains(times, d) {
			t.Errorf("an action took %s, want one of %v", d, times)
		}
	}
	if drawn := slices.Compact(slices.Sorted(slices.Values(first))); len(drawn) != len(times) {
		t.Errorf("40 actions took %v, want each of %v", drawn, times)
	}
	if again := run(1); !slices.Equal(again, first) {
		t.Error("the same seed drew other times")
	}
	if other := run(2); slices.Equal(other, first) {
		t.Error("another seed drew the same times")
	}
}

// A released address is the next one that is given out.
func TestAddressReuse(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	n := seedNetwork(t, sim)
	address := func(name string) (string, int64) {
		s, err := sim.CreateServer(hcloudsim.ServerSeed{Name: name, Network: n.ID})
		noError(t, err)
		return s.PrivateNet[0].IP, s.ID
	}
	first, id := address("a")
	second, _ := address("b")
	noError(t, sim.DeleteServer(id))
	third, _ := address("c")
	if first == second || third != first {
		t.Errorf("addresses are %s, %s and, without the first server, %s", first, second, third)
	}
}

// Whether targets with unknown health get connections is an option; unhealthy ones never do.
func TestServeUnjudged(t *testing.T) {
	for _, unjudged := range []bool{false, true} {
		sim := newSim(hcloudsim.Options{ServeUnjudged: unjudged})
		n := seedNetwork(t, sim)
		a := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: n.ID})
		b := seedServer(t, sim, hcloudsim.ServerSeed{Name: "b", Network: n.ID})
		lb := createWhole(t, client(sim), n, a, b).LoadBalancer
		served := func() (servers []int64) {
			for _, target := range sim.HealthyTargets(lb.ID, 80) {
				servers = append(servers, target.Server)
			}
			return servers
		}
		for _, health := range []struct {
			of     *hcloud.Server
			health hcloudsim.Health
		}{{a, hcloudsim.HealthUnknown}, {b, hcloudsim.HealthUnhealthy}} {
			noError(t, sim.SetTargetHealth(lb.ID, hcloudsim.TargetID{Server: health.of.ID}, 80,
				health.health))
		}
		var want []int64
		if unjudged {
			want = []int64{a.ID}
		}
		if got := served(); !slices.Equal(got, want) {
			t.Errorf("unjudged targets served %v: connections go to %v, want %v", unjudged, got, want)
		}
	}
}

// User data is readable by the lab that boots the server, and not by the API, snapshots or the
// request log.
func TestUserData(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	const text = "#!/bin/sh\necho secret-of-the-server\n"
	made, _, err := client(sim).Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "a", ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "debian-12"}, UserData: text,
	})
	noError(t, err)
	if got, known := sim.UserData(made.Server.ID); got != text || !known {
		t.Errorf("user data is %q, %v", got, known)
	}
	for _, shown := range []string{
		send(t, sim, "GET", fmt.Sprintf("/v1/servers/%d", made.Server.ID), "").body, string(sim.Snapshot()), fmt.Sprint(sim.Requests()),
	} {
		if strings.Contains(shown, "secret-of-the-server") {
			t.Errorf("user data is shown in %s", shown)
		}
	}
	noError(t, sim.DeleteServer(made.Server.ID))
	if got, known := sim.UserData(made.Server.ID); got != "" || known {
		t.Errorf("of a server that is gone, user data is %q, %v", got, known)
	}
}

// The data plane contains servers from creation to deletion, with their power state, and which
// subnets of a network are vSwitches'.
func TestDataPlaneHasServersAndVSwitches(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		before := len(w.sim.DataPlane().Servers)
		made, _, err := w.c.Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: "new", ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "debian-12"},
			PublicNet: &hcloud.ServerCreatePublicNet{EnableIPv6: true},
		})
		noError(t, err)
		now := func() hcloudsim.PlaneServer {
			servers := w.sim.DataPlane().Servers
			if len(servers) != before+1 {
				t.Fatalf("%d servers, want one more than %d", len(servers), before)
			}
			return servers[before]
		}
		if s := now(); s.ID != made.Server.ID || s.Running || s.IPv4.IsValid() ||
			s.IPv6.String() != made.Server.PublicNet.IPv6.Network.String() {
			t.Errorf("while it is built the server is %+v", s)
		}
		noError(t, w.c.Action.WaitFor(t.Context(), append(made.NextActions, made.Action)...))
		if s := now(); !s.Running {
			t.Errorf("the server is %+v, want it running", s)
		}
		off, _, err := w.c.Server.Poweroff(t.Context(), made.Server)
		noError(t, err)
		noError(t, w.c.Action.WaitFor(t.Context(), off))
		if s := now(); s.Running {
			t.Errorf("without power the server is %+v", s)
		}
		path := fmt.Sprintf("/v1/networks/%d/actions/add_subnet", w.net.ID)
		send(t, w.sim, "POST", path, `{"type":"vswitch","network_zone":"eu-central","ip_range":"10.1.0.0/24","vswitch_id":5}`).want(t, 201, "")
		time.Sleep(actionTime)
		want := hcloudsim.PlaneVSwitch{ID: 5, Range: prefix("10.1.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.1")}
		if got := w.sim.DataPlane().Networks[0].VSwitches; !slices.Equal(got, []hcloudsim.PlaneVSwitch{
			want,
		}) {
			t.Errorf("vSwitches are %+v, want %+v", got, want)
		}
	})
}
