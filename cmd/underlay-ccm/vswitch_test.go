package main

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

const (
	coupled       = "network: coupled\n"
	dedicatedPool = `pools:
- {name: cloud, cidr: 10.244.0.0/16}
- {name: dedicated, source: vswitch, cidr: 10.1.128.0/17, nodeSelector: dedicated=true}
`
)

// The configuration of the vSwitch is compared with the network; only a leading replica changes the
// network, and only if it is allowed to.
func TestTheVSwitchIsChecked(t *testing.T) {
	for _, c := range []struct {
		name, file string
		exposed    bool
		also       []string // further subnets, coupled with other vSwitches
		want       []string // in the error; none: it is valid
		leads      bool     // exposes the routes when it leads
	}{
		{name: "right", file: "vswitch: {subnet: 10.1.0.0/16}\n" + dedicatedPool, exposed: true},
		{name: "right, and to be exposed", file: "vswitch: {subnet: 10.1.0.0/16, exposeRoutes: true}\n" + dedicatedPool, exposed: true},
		{name: "to be exposed", file: "vswitch: {subnet: 10.1.0.0/16, exposeRoutes: true}\n" + dedicatedPool, leads: true},
		{name: "to be exposed for others", file: "vswitch: {subnet: 10.1.0.0/16, exposeRoutes: true}\n", leads: true},
		{name: "not exposed", file: "vswitch: {subnet: 10.1.0.0/16}\n" + dedicatedPool, want: []string{"vswitch.exposeRoutes", `"false"`, "hcloud network expose-routes-to-vswitch"}},
		{name: "not exposed, and no pools", file: "vswitch: {subnet: 10.1.0.0/16}\n"},
		{name: "another subnet", file: "vswitch: {subnet: 10.0.0.0/16}\n", exposed: true, want: []string{"vswitch.subnet", `"10.0.0.0/16"`, "use one of 10.1.0.0/16"}},
		{name: "a part of it", file: "vswitch: {subnet: 10.1.0.0/17}\n", exposed: true, want: []string{`"10.1.0.0/17"`, "use one of 10.1.0.0/16"}},
		{name: "one of several", file: "vswitch: {subnet: 10.1.0.0/16}\n" + dedicatedPool, also: []string{"10.2.0.0/16", "10.3.0.0/16"}, exposed: true},
		{name: "none of several", file: "vswitch: {subnet: 10.4.0.0/16}\n", also: []string{"10.2.0.0/16"}, exposed: true, want: []string{"vswitch.subnet", `"10.4.0.0/16"`, "use one of 10.1.0.0/16, 10.2.0.0/16"}},
		{name: "more than one of them", file: "vswitch: {subnet: 10.0.0.0/14}\n", also: []string{"10.2.0.0/16"}, exposed: true, want: []string{`"10.0.0.0/14"`, "use one of 10.1.0.0/16, 10.2.0.0/16"}},
		{name: "none", file: "vswitch: {subnet: 10.1.0.0/16}\n", want: []string{`vswitch.subnet "10.1.0.0/16"`, "no subnet of type vswitch", "hcloud network add-subnet"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := coupled
				if c.name == "none" {
					network = "network: cluster\n"
				}
				sim, m := starting(t, network+c.file)
				subnets := []hcloudsim.SubnetSeed{
					{IPRange: netip.MustParsePrefix("10.0.0.0/16")},
					{IPRange: netip.MustParsePrefix("10.1.0.0/16"), Type: "vswitch", VSwitch: 4321},
				}
				for i, text := range c.also {
					subnets = append(subnets, hcloudsim.SubnetSeed{IPRange: netip.MustParsePrefix(text), Type: "vswitch", VSwitch: int64(4322 + i)})
				}
				made, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
					Name: "coupled", IPRange: netip.MustParsePrefix("10.0.0.0/8"), ExposeRoutes: c.exposed, Subnets: subnets,
				})
				if err != nil {
					t.Fatal(err)
				}
				changes := func() (all []string) {
					for _, r := range sim.Requests() {
						if r.Method != http.MethodGet {
							all = append(all, r.Method)
						}
					}
					return all
				}
				err = m.reach(t.Context())
				if (err == nil) != (len(c.want) == 0) {
					t.Fatalf("got %v, want %q", err, c.want)
				}
				for _, text := range c.want {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("got\n%v\nwant %s", err, text)
					}
				}
				if got := changes(); len(got) > 0 {
					t.Errorf("a replica that doesn't lead changed the cloud: %q", got)
				}
				if err != nil {
					return
				}
				m.lookAsLeader(t.Context())
				synctest.Wait()
				var want []string
				if c.leads {
					want = []string{http.MethodPut}
				}
				if got := changes(); !slices.Equal(got, want) {
					t.Errorf("changes %q, want %q", got, want)
				}
				if now, _ := sim.Network(made.ID); now.ExposeRoutesToVSwitch != (c.exposed || c.leads) {
					t.Errorf("exposed: %v", now.ExposeRoutesToVSwitch)
				}
			})
		})
	}
}

// A leader that can't change the network keeps trying.
func TestALeaderGoesOnToExposeRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sim, m := starting(t, coupled+"vswitch: {subnet: 10.1.0.0/16, exposeRoutes: true}\n"+dedicatedPool)
		made, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
			Name: "coupled", IPRange: netip.MustParsePrefix("10.0.0.0/8"),
			Subnets: []hcloudsim.SubnetSeed{{IPRange: netip.MustParsePrefix("10.1.0.0/16"), Type: "vswitch", VSwitch: 4321}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.reach(ctx); err != nil {
			t.Fatal(err)
		}
		if err := sim.Inject(hcloudsim.Fault{Match: "PUT /networks/{id}", Times: 3, Code: "forbidden"}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if m.lookAsLeader(ctx); time.Since(began) > 0 {
			t.Fatalf("after %s", time.Since(began))
		}
		time.Sleep(time.Minute)
		if now, _ := sim.Network(made.ID); !now.ExposeRoutesToVSwitch {
			t.Error("the routes are not exposed a minute after that was allowed again")
		}
	})
}

// podCIDRs may be in the subnet of the vSwitch, except for its gateway.
func TestPodCIDRsInsideTheVSwitch(t *testing.T) {
	_, m := starting(t, "network: cluster\nvswitch: {subnet: 10.1.0.0/16}\n"+dedicatedPool)
	pools := pools(m.config)
	if len(pools) != 2 || pools[0].Exclusive || !pools[1].Exclusive || pools[1].Selector == nil {
		t.Errorf("pools %+v, want the second one for its Nodes alone", pools)
	}
}
