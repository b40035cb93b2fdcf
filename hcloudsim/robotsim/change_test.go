package robotsim_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

// members returns the vSwitch's servers with their status.
func members(t *testing.T, sim *robotsim.Simulator, id int64) []string {
	t.Helper()
	var found []string
	list, _ := send(t, sim, "GET", fmt.Sprintf("/vswitch/%d", id), "").at("server").([]any)
	for _, entry := range list {
		m := entry.(map[string]any)
		found = append(found, fmt.Sprint(m["server_number"], " ", m["status"]))
	}
	return found
}

// Members are in process for a while, and the vSwitch can't be changed then.
func TestVSwitchTakesItsTime(t *testing.T) {
	for _, c := range []struct {
		name    string
		options robotsim.Options
		busy    string
		fails   bool
	}{
		{"ready", robotsim.Options{VSwitchTime: time.Minute}, "in process", false},
		{"as clients saw it", robotsim.Options{VSwitchTime: time.Minute, Processing: true}, "processing", false},
		{"failed", robotsim.Options{VSwitchTime: time.Minute}, "in process", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := seeded(t, c.options)
				expect := func(want ...string) {
					t.Helper()
					if got := members(t, sim, 4321); !slices.Equal(got, want) {
						t.Errorf("members are %q, want %q", got, want)
					}
				}
				expect("321 ready")
				if c.fails {
					noError(t, sim.Inject(robotsim.Fault{Match: "POST /vswitch/{id}/server", FailAction: "failed"}))
				}
				do("POST /vswitch/4321/server server[]=421")(t, sim)
				expect("321 ready", "421 "+c.busy)
				send(t, sim, "DELETE", "/vswitch/4321/server", "server=421").want(t, 409, "VSWITCH_IN_PROCESS")
				time.Sleep(59 * time.Second)
				expect("321 ready", "421 "+c.busy)
				time.Sleep(time.Second)
				if c.fails {
					expect("321 ready", "421 failed")
				} else {
					expect("321 ready", "421 ready")
				}
				do("DELETE /vswitch/4321/server server=321")(t, sim)
				if got := members(t, sim, 4321); got[0] != "321 "+c.busy {
					t.Errorf("members are %q, want that 321 is leaving", got)
				}
				time.Sleep(time.Minute)
				if got := members(t, sim, 4321); len(got) != 1 {
					t.Errorf("members are %q, want that 321 has left", got)
				}
				do("POST /vswitch/4321 name=cluster&vlan=4009")(t, sim) // every member gets the VLAN
				if got := members(t, sim, 4321); got[0] != "421 "+c.busy {
					t.Errorf("members are %q", got)
				}
			})
		})
	}
}

// SetMember sets the state of a server in a vSwitch at once and permanently.
func TestMembersAreSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := seeded(t, robotsim.Options{VSwitchTime: time.Minute})
		for _, c := range []struct {
			number int64
			status string
			want   []string
		}{
			{321, "failed", []string{"321 failed"}},
			{421, "in process", []string{"321 failed", "421 in process"}},
			{321, "ready", []string{"321 ready", "421 in process"}},
			{421, "", []string{"321 ready"}},
			{421, "", []string{"321 ready"}},
		} {
			noError(t, sim.SetMember(4321, c.number, c.status))
			time.Sleep(time.Hour)
			if got := members(t, sim, 4321); !slices.Equal(got, c.want) {
				t.Errorf("%d %q: members are %q, want %q", c.number, c.status, got, c.want)
			}
		}
		do("POST /vswitch/4321/server server[]=421")(t, sim)
		noError(t, sim.SetMember(4321, 421, "failed"))
		time.Sleep(time.Minute) // the change in progress ends
		if got, want := members(t, sim, 4321), []string{"321 ready", "421 failed"}; !slices.Equal(got, want) {
			t.Errorf("members are %q, want %q", got, want)
		}
	})
}

// A request for a failover address returns when the change is done; until then the old state is
// shown, and no other request can move it.
func TestFailoverTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := seeded(t, robotsim.Options{FailoverTime: 50 * time.Second})
		began := time.Now()
		var moving sync.WaitGroup
		moving.Go(func() {
			got := send(t, sim, "POST", "/failover/203.0.113.100", "active_server_ip=203.0.113.2")
			got.want(t, 200, "")
			if took := time.Since(began); took != 50*time.Second || got.at("failover.active_server_ip") != "203.0.113.2" {
				t.Errorf("after %s: %s", took, got.body)
			}
		})
		synctest.Wait()
		send(t, sim, "POST", "/failover/203.0.113.100", "active_server_ip=203.0.113.1").want(t, 409, "FAILOVER_LOCKED")
		send(t, sim, "DELETE", "/failover/203.0.113.100", "").want(t, 409, "FAILOVER_LOCKED")
		if got := send(t, sim, "GET", "/failover/203.0.113.100", ""); got.at("failover.active_server_ip") != "203.0.113.1" {
			t.Errorf("on its way it is %s", got.body)
		}
		moving.Wait()

		// A canceled request doesn't stop the change.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := sim.Transport().RoundTrip(request(t, "DELETE", "/failover/203.0.113.100", "").WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.Sleep(49 * time.Second)
		if got := send(t, sim, "GET", "/failover/203.0.113.100", ""); got.at("failover.active_server_ip") != nil {
			t.Errorf("it is still routed: %s", got.body)
		}
	})
}

// A vSwitch shows the subnets of cloud networks that name it.
func TestCoupledWithACloud(t *testing.T) {
	cloud := hcloudsim.New(hcloudsim.Options{})
	sim := newSim(robotsim.Options{CloudSubnets: robotsim.Coupled(cloud)})
	_, err := sim.CreateVSwitch(robotsim.VSwitchSeed{ID: 7, Subnets: []netip.Prefix{netip.MustParsePrefix("203.0.113.48/29")}})
	noError(t, err)
	network, err := cloud.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "net", IPRange: netip.MustParsePrefix("10.0.0.0/8"),
		Subnets: []hcloudsim.SubnetSeed{
			{IPRange: netip.MustParsePrefix("10.0.0.0/16")},
			{IPRange: netip.MustParsePrefix("10.1.0.0/24"), Type: "vswitch", VSwitch: 7},
			{IPRange: netip.MustParsePrefix("10.2.0.0/24"), Type: "vswitch", VSwitch: 8},
		},
	})
	noError(t, err)
	want := fmt.Sprintf(`{"id":7,"name":"","vlan":4000,"cancelled":false,"server":[],"subnet":[{"ip":"203.0.113.48","mask":29,"gateway":"203.0.113.49"}],`+
		`"cloud_network":[{"id":%d,"ip":"10.1.0.0","mask":24,"gateway":"10.1.0.1"}]}`, network.ID)
	if got := send(t, sim, "GET", "/vswitch/7", ""); got.body != want {
		t.Errorf("vSwitch is\n%s, want\n%s", got.body, want)
	}
}

func TestOwns(t *testing.T) {
	sim := seeded(t, robotsim.Options{})
	for text, want := range map[string]bool{
		"203.0.113.1": true, "203.0.113.100": true, "2001:db8:2::5": true, "2001:db8:f::1": true,
		"203.0.113.9": false, "2001:db8:3::1": false,
	} {
		if got := sim.Owns(netip.MustParseAddr(text)); got != want {
			t.Errorf("Owns(%s) = %v", text, got)
		}
	}
	noError(t, sim.RemoveServer(321))
	if sim.Owns(netip.MustParseAddr("203.0.113.1")) || sim.RemoveServer(321) == nil {
		t.Error("a server that was removed is still there")
	}
}
