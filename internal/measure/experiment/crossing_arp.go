package experiment

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

const (
	// usualHosts are those that the gateway is tried with, beside the dedicated server, and
	// mostHosts as many as there is room for.
	usualHosts, mostHosts = 500, 510
	// hostRounds is how often each of them gets a packet, because one may be lost.
	hostRounds = 3
	// hostTries is how often that is done at most: until two times tell the same, because a gateway
	// may ask for hosts more slowly than packets come, or forget some for others.
	hostTries = 6
	// betweenHosts is the time between two packets: the gateway asks for each host first.
	betweenHosts = 5 * time.Millisecond
)

// hold has the dedicated server take packets for addresses, and answer ARP for them.
func (c *crossing) hold(ctx context.Context, addresses netip.Prefix) error {
	p := c.dedicated.Program
	err := c.do(ctx,
		func(ctx context.Context) error { return p.AddAddress(ctx, addresses, "lo") },
		func(ctx context.Context) error { return p.RemoveAddress(ctx, addresses, "lo") })
	if err != nil {
		return err
	}
	return c.do(ctx,
		func(ctx context.Context) error { return p.AnswerARP(ctx, c.device, addresses) },
		func(ctx context.Context) error { return p.StopARP(ctx, c.device, addresses) })
}

// release takes the last hold back.
func (c *crossing) release(ctx context.Context) error {
	for range 2 {
		end := len(c.undo) - 1
		if err := c.undo[end](ctx); err != nil {
			return err // it stays noted
		}
		c.undo = c.undo[:end]
	}
	return nil
}

// proxied has the dedicated server answer ARP for one more address, as a node does for its pods.
func (c *crossing) proxied(ctx context.Context) (measure.Observation, error) {
	c.bench.say("answering ARP for an address that is not the dedicated server's own")
	pod := c.others.Addr().Next()
	if err := c.hold(ctx, netip.PrefixFrom(pod, pod.BitLen())); err != nil {
		return measure.Observation{}, err
	}
	if err := c.dedicated.Program.Receive(ctx, proxiedPort); err != nil {
		return measure.Observation{}, err
	}
	taken := false
	for range hostRounds {
		var err error
		if taken, err = (path{c.cloud, c.dedicated, c.cloud.Private, pod}).send(ctx, proxiedPort); err != nil {
			return measure.Observation{}, err
		}
		if taken {
			break
		}
	}
	own, err := path{c.cloud, c.dedicated, c.cloud.Private, c.dedicated.Private}.send(ctx, proxiedPort)
	if err != nil {
		return measure.Observation{}, err
	}
	if err := c.release(ctx); err != nil {
		return measure.Observation{}, err
	}
	if !taken && !own {
		return unsure(measure.ProxyARP,
			"packets to the dedicated server's own address don't arrive any more either"), nil
	}
	return measure.Observation{
		Fact: measure.ProxyARP, Record: func(p *profile.Profile) { p.Network.RefuseProxied = new(!taken) },
	}, nil
}

// neighbors has the dedicated server answer for many addresses, and sends packets to all of them.
func (c *crossing) neighbors(ctx context.Context) (measure.Observation, error) {
	c.bench.say("answering ARP for %d addresses", c.hosts)
	if err := c.hold(ctx, c.others); err != nil {
		return measure.Observation{}, err
	}
	all, same := map[netip.Addr]bool{}, false
	for try := 0; try < hostTries && !same; try++ {
		reached, steady, err := c.reach(ctx)
		if err != nil {
			return measure.Observation{}, err
		}
		maps.Copy(all, reached)
		same = try > 0 && steady == len(all)
	}
	if err := c.release(ctx); err != nil {
		return measure.Observation{}, err
	}
	if !same {
		return unsure(measure.Neighbors, "%d of %d addresses were reached, but not each time: the gateway forgets "+
			"hosts for others, or asks for them slowly; try again", len(all), c.hosts), nil
	}
	return neighborsSeen(len(all), c.hosts), nil
}

// reach sends packets to all of the addresses. It returns those that got any, and how many got all of
// theirs but one at most, which a gateway that forgets hosts for others doesn't give them.
func (c *crossing) reach(ctx context.Context) (reached map[netip.Addr]bool, steady int, err error) {
	if err := c.dedicated.Program.Receive(ctx, neighborsPort); err != nil {
		return nil, 0, err
	}
	err = c.cloud.Program.Send(ctx, inside.Stream{
		From:  netip.AddrPortFrom(c.cloud.Private, sentFrom),
		To:    netip.AddrPortFrom(c.others.Addr().Next(), neighborsPort),
		Every: betweenHosts, Count: hostRounds * c.hosts, Spread: c.hosts,
	})
	if err == nil {
		err = wait(ctx, arrives)
	}
	if err != nil {
		return nil, 0, err
	}
	all, err := c.dedicated.Program.Packets(ctx, neighborsPort)
	if err != nil {
		return nil, 0, err
	}
	reached, came := map[netip.Addr]bool{}, map[netip.Addr]int{}
	for _, p := range all {
		at := p.To.Addr().Unmap()
		if !c.others.Contains(at) {
			continue
		}
		reached[at] = true
		if came[at]++; came[at] == hostRounds-1 {
			steady++
		}
	}
	return reached, steady, nil
}

// neighborsSeen says how many hosts the gateway knows when so many were reached of those that were
// tried, and the dedicated server itself.
func neighborsSeen(reached, tried int) measure.Observation {
	switch reached {
	case 0:
		return unsure(measure.Neighbors,
			"none of %d addresses is reached that the dedicated server answers ARP for", tried)
	case tried:
		return measure.Observation{
			Fact: measure.Neighbors, Seen: measure.AsManyAsTried, Note: measure.Hosts(tried+1) + " were tried",
			Record: func(p *profile.Profile) { p.Network.Neighbors = new(0) },
		}
	}
	known := reached + 1
	return measure.Observation{
		Fact: measure.Neighbors, Seen: measure.Hosts(known),
		Note: fmt.Sprintf("of %s that were tried; other servers in the vSwitch are not counted",
			measure.Hosts(tried+1)),
		Record: func(p *profile.Profile) { p.Network.Neighbors = &known },
	}
}
