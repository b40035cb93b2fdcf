package experiment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// dedicatedIDs are the facts with a dedicated server and without Robot.
var dedicatedIDs = []measure.FactID{
	measure.VSwitchSubnets, measure.IPv6Targets, measure.VSwitchMTU, measure.VSwitchSource, measure.ProxyARP, measure.Neighbors,
}

// owner is a cloud whose project's owner has the dedicated server.
func owner(is profile.Cloud) position {
	return position{cloud: is, options: like(func(o *hcloudsim.Options) {
		o.RateLimit = 1_000_000
		o.Owned = func(a netip.Addr) bool { return a == dedicated4 || dedicated6.Contains(a) }
	})}
}

// dedicatedBench is a bench in a world with a dedicated server.
func dedicatedBench(t *testing.T, w *world, gateway profile.Network) (*Bench, *fakeDedicated) {
	t.Helper()
	fake := w.rent(gateway)
	b := benchOf(projectOver(t, w.sim.Transport()))
	b.Programs = w
	b.Dedicated = &Dedicated{Address: dedicated4, Program: fake, Interface: vSwitchDevice, VSwitch: usersVSwitch}
	if err := b.Dedicated.Look(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return b, fake
}

func TestDedicated(t *testing.T) {
	positions := map[string]struct {
		cloud   profile.Cloud
		gateway profile.Network
		slow    time.Duration
		seen    []string
	}{
		"default": {seen: []string{"taken", "taken", "1400 bytes", "dropped", "taken", "as many as were tried"}},
		"everything the other way": {
			profile.Cloud{OneVSwitchSubnet: new(true), RefuseIPv6Targets: new(true)},
			profile.Network{VSwitchMTU: new(1342), VSwitchAnySource: new(true), Neighbors: new(77)},
			0,
			[]string{"refused", "refused", "1342 bytes", "forwarded", "taken", "77 hosts"},
		},
		"larger than the dedicated server's own MTU": {
			gateway: profile.Network{VSwitchMTU: new(1450)},
			seen:    []string{"taken", "taken", "1450 bytes", "dropped", "taken", "as many as were tried"},
		},
		"a gateway that asks slowly": {
			slow: 50 * time.Millisecond,
			seen: []string{"taken", "taken", "1400 bytes", "dropped", "taken", "as many as were tried"},
		},
		"no answers for others": {
			gateway: profile.Network{RefuseProxied: new(true)},
			seen:    []string{"taken", "taken", "1400 bytes", "dropped", "refused", ""},
		},
	}
	for name, position := range positions {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, owner(position.cloud))
				before := kept(t, w.sim)
				b, fake := dedicatedBench(t, w, position.gateway)
				fake.slow = position.slow
				all := Run(t.Context(), b, dedicatedIDs)
				for i, o := range all {
					if o.Seen != position.seen[i] || (o.Seen == "") != (o.Why != "") {
						t.Errorf("want %q: %s", position.seen[i], describe(o))
					}
				}
				want := measure.Recorded(profile.Default(), all)
				for field, same := range map[string]bool{
					"one_vswitch_subnet":  *want.Cloud.OneVSwitchSubnet == is(position.cloud.OneVSwitchSubnet, new(false)),
					"refuse_ipv6_targets": *want.Cloud.RefuseIPv6Targets == is(position.cloud.RefuseIPv6Targets, new(false)),
					"vswitch_mtu":         *want.Network.VSwitchMTU == is(position.gateway.VSwitchMTU, new(1400)),
					"vswitch_any_source":  *want.Network.VSwitchAnySource == is(position.gateway.VSwitchAnySource, new(false)),
					"refuse_proxied":      *want.Network.RefuseProxied == is(position.gateway.RefuseProxied, new(false)),
					"neighbors":           *want.Network.Neighbors == is(position.gateway.Neighbors, new(0)),
				} {
					if !same {
						t.Errorf("%s is recorded wrong", field)
					}
				}
				if left := fake.state(); left != "" {
					t.Errorf("the dedicated server still has\n%s", left)
				}
				uncoupled(t, w)
				sweptTo(t, w, b, before)
			})
		})
	}
}

// A gateway that forgets hosts for others reaches each now and then, and one that asks slowly
// reaches more each time: neither tells how many hosts it knows.
func TestNeighborsThatComeAndGo(t *testing.T) {
	tests := map[string]func(*fakeDedicated){
		"it forgets some": func(d *fakeDedicated) {
			d.gateway.Neighbors, d.forgets = new(470), rand.New(rand.NewPCG(1, 1))
		},
		"it forgets many": func(d *fakeDedicated) {
			d.gateway.Neighbors, d.forgets = new(100), rand.New(rand.NewPCG(1, 1))
		},
		"it asks slowly":      func(d *fakeDedicated) { d.slow = 90 * time.Millisecond },
		"it asks very slowly": func(d *fakeDedicated) { d.slow = 900 * time.Millisecond },
	}
	for name, set := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, fake := dedicatedBench(t, newWorld(t, owner(profile.Cloud{})), profile.Network{})
				set(fake)
				o := Run(t.Context(), b, []measure.FactID{measure.Neighbors})[0]
				if o.Seen != "" || o.Record != nil || !strings.Contains(o.Why, "not each time") {
					t.Errorf("want nothing: %s", describe(o))
				}
				if left := fake.state(); left != "" {
					t.Errorf("the dedicated server still has\n%s", left)
				}
			})
		})
	}
}

// A packet that gets lost now and then is no host that the gateway forgets.
func TestNeighborsDespiteLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, owner(profile.Cloud{}))
		b, _ := dedicatedBench(t, w, profile.Network{Neighbors: new(77)})
		w.loss = 97
		if o := Run(t.Context(), b, []measure.FactID{measure.Neighbors})[0]; o.Seen != "77 hosts" {
			t.Error(describe(o))
		}
	})
}

// uncoupled demands that no network is coupled with the user's vSwitch.
func uncoupled(t *testing.T, w *world) {
	t.Helper()
	for _, n := range w.sim.Networks() {
		for _, s := range n.Subnets {
			if s.VSwitchID != 0 {
				t.Errorf("network %s is still coupled with vSwitch %d", n.Name, s.VSwitchID)
			}
		}
	}
}

// sweptTo sweeps the run, and demands that the project is as it was before.
func sweptTo(t *testing.T, w *world, b *Bench, before string) {
	t.Helper()
	_, err := projectOver(t, w.sim.Transport()).Sweep(t.Context())
	if after := kept(t, w.sim); err != nil || after != before {
		t.Errorf("after sweeping: %v\n%s\nwant\n%s", err, after, before)
	}
}

// What can't be found out says why, with the remedy, and leaves nothing.
func TestDedicatedWithoutAnAnswer(t *testing.T) {
	tests := map[string]struct {
		is     position
		change func(*Bench, *fakeDedicated)
		fact   measure.FactID
		why    string
	}{
		"nothing passes":   {change: func(_ *Bench, d *fakeDedicated) { d.silent = true }, fact: measure.VSwitchMTU, why: "firewall"},
		"no vSwitch":       {change: func(b *Bench, _ *fakeDedicated) { b.Dedicated.VSwitch = 0 }, fact: measure.VSwitchSubnets, why: "--vswitch"},
		"no program":       {change: func(b *Bench, _ *fakeDedicated) { b.Dedicated.Program = nil }, fact: measure.ProxyARP, why: "--dedicated-key"},
		"another zone":     {change: func(b *Bench, _ *fakeDedicated) { b.Location = "ash" }, fact: measure.VSwitchSubnets, why: "--location"},
		"no IPv6":          {change: func(b *Bench, _ *fakeDedicated) { b.Dedicated.Addresses = nil }, fact: measure.IPv6Targets, why: "give it to --dedicated"},
		"somebody else's":  {is: position{options: like(nil)}, fact: measure.IPv6Targets, why: "IPv4 address is refused too"},
		"no server at all": {change: func(b *Bench, _ *fakeDedicated) { b.Dedicated = nil }, fact: measure.IPv6Targets, why: "--dedicated"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tt.is.options.ActionTime == 0 {
					tt.is = owner(profile.Cloud{})
				}
				w := newWorld(t, tt.is)
				before := kept(t, w.sim)
				b, fake := dedicatedBench(t, w, profile.Network{})
				if tt.change != nil {
					tt.change(b, fake)
				}
				o := Run(t.Context(), b, []measure.FactID{tt.fact})[0]
				if o.Seen != "" || o.Record != nil || !strings.Contains(o.Why, tt.why) {
					t.Errorf("want %q: %s", tt.why, describe(o))
				}
				if left := fake.state(); left != "" {
					t.Errorf("the dedicated server still has\n%s", left)
				}
				sweptTo(t, w, b, before)
			})
		})
	}
}

// A vSwitch that something of the project is coupled with is left alone.
func TestCoupledVSwitchIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, owner(profile.Cloud{}))
		_, err := w.sim.CreateNetwork(hcloudsim.NetworkSeed{
			Name: "theirs", IPRange: netip.MustParsePrefix("10.0.0.0/8"),
			Subnets: []hcloudsim.SubnetSeed{{IPRange: netip.MustParsePrefix("10.1.0.0/24"), Type: "vswitch", VSwitch: usersVSwitch}},
		})
		if err != nil {
			t.Fatal(err)
		}
		before := kept(t, w.sim)
		b, fake := dedicatedBench(t, w, profile.Network{})
		for _, o := range Run(t.Context(), b, []measure.FactID{measure.VSwitchSubnets, measure.VSwitchMTU}) {
			if !strings.Contains(o.Why, "coupled with none") {
				t.Errorf("it was tried: %s", describe(o))
			}
		}
		if slices.Contains(fake.calls, "AddAddress") {
			t.Error("the dedicated server was changed")
		}
		if after := kept(t, w.sim); after != before {
			t.Errorf("the project has\n%s\nand had\n%s", after, before)
		}
	})
}

// Wherever a run ends, or an answer of the dedicated server gets lost, the server is afterwards as it
// was, and so is the project.
func TestNothingIsLeftInTheDedicatedServer(t *testing.T) {
	calls := lostRun(t, 0, none, false)
	if len(calls) < 20 {
		t.Fatalf("a whole run has %d calls", len(calls))
	}
	for at := 1; at <= len(calls); at++ {
		if calls[at-1] == "Packets" && at%(5*slowdown) != 0 {
			continue
		}
		for name, how := range map[string]loss{"interrupted": none, "lost": before, "lost reply": after} {
			t.Run(fmt.Sprintf("%s %d %s", name, at, calls[at-1]), func(t *testing.T) {
				lostRun(t, at, how, how == none)
			})
		}
	}
}

// lostRun lets the calls from one on get lost for a while, or interrupts the run there.
func lostRun(t *testing.T, at int, how loss, interrupt bool) (calls []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, owner(profile.Cloud{}))
		was := kept(t, w.sim)
		b, fake := dedicatedBench(t, w, profile.Network{})
		fake.calls = nil
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		undone := true // the undoing was not lost
		fake.tap = func(what string) loss {
			if len(fake.calls) != at {
				return none
			}
			if interrupt {
				cancel()
				return none
			}
			undone = !strings.HasPrefix(what, "Remove") && what != "StopARP"
			return how
		}
		Run(ctx, b, []measure.FactID{measure.VSwitchMTU, measure.VSwitchSource, measure.ProxyARP, measure.Neighbors})
		if left := fake.state(); left != "" && undone {
			t.Errorf("the dedicated server still has\n%s", left)
		}
		calls = slices.Clone(fake.calls)
		if err := b.Dedicated.Stop(t.Context()); err != nil || fake.state() != "" {
			t.Errorf("after the program's end: %v\n%s", err, fake.state())
		}
		sweptTo(t, w, b, was)
	})
	return calls
}

// Look finds mistakes before anything is made.
func TestLook(t *testing.T) {
	elsewhere := netip.MustParseAddr("192.0.2.9")
	tests := map[string]struct {
		change func(*Dedicated, *robotsim.Simulator)
		says   string
	}{
		"all is well":            {},
		"another interface":      {func(d *Dedicated, _ *robotsim.Simulator) { d.Interface = "eth9" }, "lo, eth0, " + vSwitchDevice},
		"another server":         {func(d *Dedicated, _ *robotsim.Simulator) { d.Address = elsewhere }, "--dedicated"},
		"another vSwitch":        {func(d *Dedicated, _ *robotsim.Simulator) { d.VSwitch = 99 }, "--vswitch 99"},
		"not in the vSwitch":     {func(_ *Dedicated, s *robotsim.Simulator) { _ = s.SetMember(usersVSwitch, dedicatedNumber1, "") }, "not in it"},
		"not ready there":        {func(_ *Dedicated, s *robotsim.Simulator) { _ = s.SetMember(usersVSwitch, dedicatedNumber1, "failed") }, "not ready"},
		"the program has ended":  {func(d *Dedicated, _ *robotsim.Simulator) { _ = d.Program.Stop(context.Background()) }, "start it there"},
		"the program isn't used": {func(d *Dedicated, _ *robotsim.Simulator) { d.Program, d.Interface = nil, "" }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, owner(profile.Cloud{}))
				account := robotAccount(t, robotsim.Options{})
				d := &Dedicated{Address: dedicated4, Program: w.rent(profile.Network{}), Interface: vSwitchDevice, VSwitch: usersVSwitch}
				if tt.change != nil {
					tt.change(d, account)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := d.Look(ctx, robotClient(t, account))
				if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
					t.Errorf("error is %v, want %q", err, tt.says)
				}
				if _, six := d.public(netip.Addr.Is6); tt.says == "" && !six {
					t.Errorf("addresses are %v, want one of IPv6", d.Addresses)
				}
			})
		})
	}
}
