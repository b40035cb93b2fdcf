package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

// vSwitchDevice is the dedicated server's interface in the vSwitch.
const vSwitchDevice = "enp0s31f6.4000"

// fakeDedicated is the program in the user's dedicated server, with the vSwitch's gateway. What a
// device has is guarded by the program's mutex.
type fakeDedicated struct {
	*fakeProgram
	gateway profile.Network // what the gateway does; nil fields: as in the default profile
	// silent: nothing passes the vSwitch.
	silent bool
	// slow is the time from one host that the gateway gets to know to the next.
	slow    time.Duration
	learned time.Time
	// forgets: once it knows as many hosts as it can, it forgets any for the next, whose packet it
	// loses meanwhile.
	forgets *rand.Rand

	devices map[string][]netip.Prefix // what was added, as text would show it
	routes  map[netip.Prefix]netip.Addr
	arp     []netip.Prefix
	known   map[netip.Addr]bool // by the gateway

	// tap is told of each call, and may lose it.
	tap func(what string) (lost loss)
	// calls are those so far.
	calls []string
}

// loss is what becomes of a call.
type loss int

const (
	none   loss = iota
	before      // it is not carried out, and its caller gets an error
	after       // it is carried out, and its caller gets an error
)

// rent puts a dedicated server into the world.
func (w *world) rent(gateway profile.Network) *fakeDedicated {
	d := &fakeDedicated{
		fakeProgram: newFakeProgram(w, "dedicated", dedicated4), gateway: gateway,
		devices: map[string][]netip.Prefix{}, routes: map[netip.Prefix]netip.Addr{}, known: map[netip.Addr]bool{},
	}
	d.mtu["enp7s0"] = 1400 // of vSwitchDevice: where it sends to private addresses
	w.dedicated = d
	return d
}

// is the value of a switch, or of the default.
func is[T any](field, usual *T) T {
	if field != nil {
		return *field
	}
	return *usual
}

// coupled is the subnet of the vSwitch, and the network that it is in.
func (d *fakeDedicated) coupled() (n hcloudsim.PlaneNetwork, v hcloudsim.PlaneVSwitch, ok bool) {
	for _, n := range d.world.plane().Networks {
		for _, v := range n.VSwitches {
			if v.ID == usersVSwitch {
				return n, v, true
			}
		}
	}
	return n, v, false
}

// across is where a packet goes that crosses the vSwitch; ok: it would cross it, arrived or not.
func (d *fakeDedicated) across(from *fakeProgram, source, target netip.Addr, size int) (to *fakeProgram, ok bool) {
	_, v, coupled := d.coupled()
	usual := profile.Default().Network
	away := from == d.fakeProgram
	if !away && !(coupled && v.Range.Contains(target)) {
		return nil, false
	}
	if !coupled || d.silent || size > is(d.gateway.VSwitchMTU, usual.VSwitchMTU) || size > *d.world.network.PrivateMTU && !away {
		return nil, true
	}
	if away {
		d.mu.Lock()
		via := d.routes[netip.PrefixFrom(target, 32)]
		d.mu.Unlock()
		if via == v.Gateway && (v.Range.Contains(source) || is(d.gateway.VSwitchAnySource, usual.VSwitchAnySource)) {
			return d.world.at(target), true
		}
		return nil, true
	}
	if source == from.private() && d.answers(target) {
		return d.fakeProgram, true
	}
	return nil, true
}

// answers reports whether the gateway knows the server behind an address, and the server takes it.
func (d *fakeDedicated) answers(a netip.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	usual := profile.Default().Network
	own := slices.ContainsFunc(d.devices[vSwitchDevice], func(p netip.Prefix) bool { return p.Addr() == a })
	proxied := slices.ContainsFunc(d.arp, func(p netip.Prefix) bool { return p.Contains(a) })
	if !own && (!proxied || is(d.gateway.RefuseProxied, usual.RefuseProxied)) {
		return false
	}
	if most := is(d.gateway.Neighbors, usual.Neighbors); most > 0 && len(d.known) >= most && !d.known[a] {
		if d.forgets != nil {
			all := slices.SortedFunc(maps.Keys(d.known), netip.Addr.Compare)
			delete(d.known, all[d.forgets.IntN(len(all))])
			d.known[a] = true
		}
		return false
	}
	if !d.known[a] {
		if time.Since(d.learned) < d.slow {
			return false
		}
		d.known[a], d.learned = true, time.Now()
	}
	return own || slices.ContainsFunc(d.devices["lo"], func(p netip.Prefix) bool { return p.Contains(a) })
}

// state prints what somebody has changed.
func (d *fakeDedicated) state() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for device, all := range d.devices {
		for _, p := range all {
			out = append(out, fmt.Sprintf("address %s on %s", p, device))
		}
	}
	for dst := range maps.Keys(d.routes) {
		out = append(out, fmt.Sprintf("route %s", dst))
	}
	for _, p := range d.arp {
		out = append(out, fmt.Sprintf("ARP for %s", p))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

var errLost = errors.New("server dedicated doesn't answer")

// call carries something out, unless it gets lost.
func (d *fakeDedicated) call(ctx context.Context, what string, do func()) error {
	d.calls = append(d.calls, what)
	lost := none
	if d.tap != nil {
		lost = d.tap(what)
	}
	if lost != before && ctx.Err() == nil {
		d.mu.Lock()
		do()
		d.mu.Unlock()
	}
	if lost != none {
		return errLost
	}
	return d.up(ctx)
}

// AddAddress is that of Program, like what follows.
func (d *fakeDedicated) AddAddress(ctx context.Context, a netip.Prefix, device string) error {
	return d.call(ctx, "AddAddress", func() { d.devices[device] = append(d.devices[device], a) })
}

func (d *fakeDedicated) RemoveAddress(ctx context.Context, a netip.Prefix, device string) error {
	return d.call(ctx, "RemoveAddress", func() {
		d.devices[device] = slices.DeleteFunc(d.devices[device], func(is netip.Prefix) bool { return is == a })
	})
}

func (d *fakeDedicated) AddRoute(ctx context.Context, dst netip.Prefix, via netip.Addr, _ string) error {
	return d.call(ctx, "AddRoute", func() { d.routes[dst] = via })
}

func (d *fakeDedicated) RemoveRoute(ctx context.Context, dst netip.Prefix, _ netip.Addr, _ string) error {
	return d.call(ctx, "RemoveRoute", func() { delete(d.routes, dst) })
}

func (d *fakeDedicated) AnswerARP(ctx context.Context, _ string, addresses netip.Prefix) error {
	return d.call(ctx, "AnswerARP", func() { d.arp = append(d.arp, addresses) })
}

func (d *fakeDedicated) StopARP(ctx context.Context, _ string, addresses netip.Prefix) error {
	return d.call(ctx, "StopARP", func() {
		d.arp = slices.DeleteFunc(d.arp, func(is netip.Prefix) bool { return is == addresses })
	})
}

func (d *fakeDedicated) SetMTU(ctx context.Context, _ string, _ int) error {
	return d.call(ctx, "SetMTU", func() { panic("the user's interface gets another MTU") })
}

func (d *fakeDedicated) Interfaces(ctx context.Context) (all []inside.Interface, err error) {
	err = d.call(ctx, "Interfaces", func() {
		public := []netip.Prefix{netip.PrefixFrom(dedicated4, 32), netip.PrefixFrom(dedicated6.Addr().Next().Next(), 64)}
		all = []inside.Interface{
			{Name: "lo", MTU: 65536, Addresses: slices.Clone(d.devices["lo"])},
			{Name: "eth0", MTU: 1500, Addresses: public},
			{Name: vSwitchDevice, MTU: d.mtu["enp7s0"], Addresses: slices.Clone(d.devices[vSwitchDevice])},
		}
	})
	return all, err
}

func (d *fakeDedicated) Receive(ctx context.Context, port uint16) error {
	return d.call(ctx, "Receive", func() { d.received[port] = []inside.Packet{} })
}

func (d *fakeDedicated) Packets(ctx context.Context, port uint16) (all []inside.Packet, err error) {
	err = d.call(ctx, "Packets", func() { all = slices.Clone(d.received[port]) })
	return all, err
}

func (d *fakeDedicated) Send(ctx context.Context, s inside.Stream) error {
	if err := d.call(ctx, "Send", func() {}); err != nil {
		return err
	}
	return d.send(ctx, s)
}

// Stop takes everything back.
func (d *fakeDedicated) Stop(ctx context.Context) error {
	d.mu.Lock()
	clear(d.devices)
	clear(d.routes)
	d.arp = nil
	d.mu.Unlock()
	return d.fakeProgram.Stop(ctx)
}
