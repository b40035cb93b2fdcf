package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

const (
	// crossedBits is the length of the subnet for the vSwitch. Its upper half are the addresses for
	// which the dedicated server answers.
	crossedBits = 22
	// crossWithin is how long the coupling may take to lead packets once its action has ended.
	crossWithin = 3 * time.Minute
	// undoTime is how long it may take to take back what was done in the dedicated server.
	undoTime = 30 * time.Second
)

// Ports of UDP, beside those of packets.go.
const (
	crossPort     = 7020 // for packets that show that the way is open
	strangePort   = 7021 // for packets from the vSwitch, from two sources
	proxiedPort   = 7022 // for packets to an address that the server answers for
	neighborsPort = 7023 // for packets to many of them
)

// crossing is a cloud server and the dedicated server, with the vSwitch between them.
type crossing struct {
	bench *Bench
	// cloud and dedicated are the two ends; Private is their address.
	cloud, dedicated *Server
	device           string // of the dedicated server, in the vSwitch
	subnet           netip.Prefix
	gateway          netip.Addr // the subnet's
	// others is the upper half of the subnet: nobody has its addresses.
	others netip.Prefix
	// hosts are how many of them the gateway is tried with.
	hosts int
	undo  []func(context.Context) error
}

// acrossVSwitch couples the user's vSwitch with the throw-away network, sends packets across, and
// takes everything back.
func acrossVSwitch(ctx context.Context, b *Bench) (out []measure.Observation, err error) {
	d := b.Dedicated
	if d == nil || d.Program == nil || d.Interface == "" {
		return nil, errors.New("the program is not asked in a dedicated server: start it there, and name " +
			"--dedicated, --dedicated-key and --dedicated-interface")
	}
	n, err := b.coupling(ctx)
	if err != nil {
		return nil, err
	}
	c, err := b.newCrossing(ctx, n)
	if err != nil {
		return nil, err
	}
	uncouple, err := b.couple(ctx, n, c.subnet)
	defer uncouple()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.takeBack(ctx)) }()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	tries := []struct {
		fact measure.FactID
		try  func(context.Context) (measure.Observation, error)
	}{
		{measure.VSwitchMTU, c.mtu},
		{measure.VSwitchSource, c.source},
		{measure.ProxyARP, c.proxied},
		{measure.Neighbors, c.neighbors},
	}
	for _, t := range tries {
		if !b.Wants(t.fact) {
			continue
		}
		o, err := t.try(ctx)
		if err != nil && ctx.Err() != nil {
			return out, err
		}
		if err != nil {
			o = measure.Observation{Fact: t.fact, Why: err.Error()}
		}
		out = append(out, o)
	}
	return out, nil
}

// newCrossing chooses addresses. It changes nothing.
func (b *Bench) newCrossing(ctx context.Context, n *Network) (*crossing, error) {
	d := b.Dedicated
	cloud, err := b.inNetwork(ctx, 0)
	if err != nil {
		return nil, err
	}
	all, err := d.Program.Interfaces(ctx)
	if err != nil {
		return nil, err
	}
	var taken []netip.Prefix
	for _, is := range all {
		for _, p := range is.Addresses {
			taken = append(taken, p.Masked())
		}
	}
	subnet, err := n.free(crossedBits, taken...)
	if err != nil {
		return nil, fmt.Errorf("an interface of the dedicated server is in the way: %w", err)
	}
	gateway := subnet.Addr().Next()
	return &crossing{
		bench: b, cloud: cloud, device: d.Interface, subnet: subnet, gateway: gateway,
		dedicated: &Server{Name: "dedicated server", Private: gateway.Next(), Program: d.Program},
		others:    netip.PrefixFrom(last(subnet), crossedBits+1).Masked(),
		hosts:     min(cmp.Or(d.Hosts, usualHosts), mostHosts),
	}, nil
}

// open gives the dedicated server an address of the subnet and a way to the cloud server, and waits
// until packets come through, there and back.
func (c *crossing) open(ctx context.Context) error {
	c.bench.say("giving the dedicated server an address in the vSwitch, for as long as packets are sent")
	at := netip.PrefixFrom(c.dedicated.Private, crossedBits)
	way := netip.PrefixFrom(c.cloud.Private, 32)
	p := c.dedicated.Program
	err := c.do(ctx,
		func(ctx context.Context) error { return p.AddAddress(ctx, at, c.device) },
		func(ctx context.Context) error { return p.RemoveAddress(ctx, at, c.device) })
	if err == nil {
		err = c.do(ctx,
			func(ctx context.Context) error { return p.AddRoute(ctx, way, c.gateway, c.device) },
			func(ctx context.Context) error { return p.RemoveRoute(ctx, way, c.gateway, c.device) })
	}
	if err != nil {
		return err
	}
	c.bench.say("waiting until packets come across the vSwitch")
	there := path{c.cloud, c.dedicated, c.cloud.Private, c.dedicated.Private}
	back := path{c.dedicated, c.cloud, c.dedicated.Private, c.cloud.Private}
	for _, way := range []path{there, back} {
		if err := way.opens(ctx); err != nil {
			return err
		}
	}
	return nil
}

// opens waits until packets arrive.
func (p path) opens(ctx context.Context) error {
	if err := p.to.Program.Receive(ctx, crossPort); err != nil {
		return err
	}
	err := lookFor(ctx, crossWithin, look, func() (bool, error) { return p.send(ctx, crossPort) })
	if errors.Is(err, errLate) {
		return fmt.Errorf("no packet came from the %s to the %s across the vSwitch in %s: is the "+
			"interface of --dedicated-interface in the vSwitch of --vswitch, and does a firewall there let UDP pass?",
			p.from.Name, p.to.Name, crossWithin)
	}
	return err
}

// send sends some packets to a port, and reports whether any arrived.
func (p path) send(ctx context.Context, port uint16) (bool, error) {
	err := p.from.Program.Send(ctx, inside.Stream{
		From: netip.AddrPortFrom(p.source, sentFrom), To: netip.AddrPortFrom(p.target, port),
		Every: 20 * time.Millisecond, Count: 5,
	})
	if err != nil {
		return false, err
	}
	err = lookFor(ctx, arrives, look, func() (bool, error) {
		all, err := came(ctx, p.to, port, p.source, p.target)
		return len(all) > 0, err
	})
	if errors.Is(err, errLate) {
		return false, nil
	}
	return err == nil, err
}

// do changes something in the dedicated server, and notes how it is taken back; also after an error,
// because the answer may have got lost.
func (c *crossing) do(ctx context.Context, change, back func(context.Context) error) error {
	c.undo = append(c.undo, back)
	return change(ctx)
}

// takeBack takes everything back that was done in the dedicated server, also when ctx has ended.
func (c *crossing) takeBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	var failed []error
	for i := len(c.undo) - 1; i >= 0; i-- {
		failed = append(failed, c.undo[i](ctx))
	}
	c.undo = nil
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("taking back what was changed in the dedicated server: %w; "+
			"stop the program there, which takes it back too", err)
	}
	return nil
}

// mtu looks for the largest packet from the cloud server to the dedicated one, whose own interface
// stays as it is: it takes what comes. The other way no more is tried than it allows.
func (c *crossing) mtu(ctx context.Context) (measure.Observation, error) {
	b := c.bench
	b.say("looking for the largest packet across the vSwitch")
	is, err := interfaceOf(ctx, c.cloud, c.cloud.Private)
	if err != nil {
		return measure.Observation{}, err
	}
	limit := is.MTU
	if limit < raisedMTU && c.cloud.Program.SetMTU(ctx, is.Name, raisedMTU) == nil {
		defer restoreMTU(ctx, b, c.cloud, is)
		limit = raisedMTU
	}
	size, err := path{c.cloud, c.dedicated, c.cloud.Private, c.dedicated.Private}.upTo(ctx, limit)
	if err != nil {
		return measure.Observation{}, err
	}
	var notes []string
	if size == limit {
		notes = append(notes, "no larger one was tried")
	}
	own, err := interfaceOf(ctx, c.dedicated, c.dedicated.Private)
	if err != nil {
		return measure.Observation{}, err
	}
	back, err := path{c.dedicated, c.cloud, c.dedicated.Private, c.cloud.Private}.upTo(ctx, own.MTU)
	if err != nil {
		return measure.Observation{}, fmt.Errorf("from the dedicated server: %w", err)
	}
	note := fmt.Sprintf("from the vSwitch: %d bytes", back)
	if back == own.MTU {
		note += ", its interface's own MTU"
	}
	return measure.Observation{
		Fact: measure.VSwitchMTU, Seen: measure.Bytes(size), Note: strings.Join(append(notes, note), "; "),
		Record: func(p *profile.Profile) { p.Network.VSwitchMTU = &size },
	}, nil
}

// source sends packets from the vSwitch from an address that is in no subnet, and then from the
// dedicated server's own, so that silence means something.
func (c *crossing) source(ctx context.Context) (measure.Observation, error) {
	n, err := c.bench.Network(ctx)
	if err != nil {
		return measure.Observation{}, err
	}
	foreign, err := n.outside(0)
	if err != nil {
		return measure.Observation{}, err
	}
	c.bench.say("sending packets from the vSwitch from an address that is not in its subnet")
	if err := c.cloud.Program.Receive(ctx, strangePort); err != nil {
		return measure.Observation{}, err
	}
	alien, err := path{c.dedicated, c.cloud, foreign, c.cloud.Private}.send(ctx, strangePort)
	if err != nil {
		return measure.Observation{}, err
	}
	own, err := path{c.dedicated, c.cloud, c.dedicated.Private, c.cloud.Private}.send(ctx, strangePort)
	if err != nil {
		return measure.Observation{}, err
	}
	if !own && !alien {
		return unsure(measure.VSwitchSource,
			"packets from the dedicated server's own address don't arrive any more either"), nil
	}
	return measure.Observation{
		Fact: measure.VSwitchSource, Record: func(p *profile.Profile) { p.Network.VSwitchAnySource = &alien },
	}, nil
}
