package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// vSwitchZone is the one network zone in which a vSwitch can be coupled with a network.
const vSwitchZone = hcloud.NetworkZoneEUCentral

// codeVSwitchUsed is refused because of the vSwitch, and not because of another subnet.
const codeVSwitchUsed = "vswitch_id_already_used"

// vSwitchSubnets gives the network two subnets of type vswitch.
func vSwitchSubnets(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	n, err := b.coupling(ctx)
	if err != nil {
		return nil, err
	}
	first, second, err := twoSubnets(n)
	if err != nil {
		return nil, err
	}
	b.say("giving the network two subnets of type vswitch")
	uncouple, err := b.couple(ctx, n, first)
	if err != nil {
		return nil, err
	}
	defer uncouple()
	again, err := b.couple(ctx, n, second)
	if err != nil && !refuses(err) {
		return nil, err
	}
	defer again()
	out := measure.Observation{Fact: measure.VSwitchSubnets}
	switch why, _ := code(err); {
	case err == nil:
	case why == codeVSwitchUsed:
		return sees(unsure(measure.VSwitchSubnets, "a second subnet for the same vSwitch is "+
			"refused (%s), which says nothing of one for another vSwitch", why))
	default:
		out.Note = why
	}
	out.Record = func(p *profile.Profile) { p.Cloud.OneVSwitchSubnet = new(err != nil) }
	return []measure.Observation{out}, nil
}

func twoSubnets(n *Network) (first, second netip.Prefix, err error) {
	if first, err = n.free(24); err != nil {
		return first, second, err
	}
	second, err = n.free(24, first)
	return first, second, err
}

// free is the last prefix of a length in a network that overlaps neither its subnet nor any of those
// that are taken. What the network's range ends with is left to routes.
func (n *Network) free(bits int, taken ...netip.Prefix) (netip.Prefix, error) {
	overlaps := func(p netip.Prefix) bool {
		return p.Overlaps(n.Subnet) || slices.ContainsFunc(taken, p.Overlaps)
	}
	end := last(n.Range)
	for at := end; n.Range.Contains(at); at = netip.PrefixFrom(at, bits).Masked().Addr().Prev() {
		if p := netip.PrefixFrom(at, bits).Masked(); !p.Contains(end) && !overlaps(p) {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("network %s has no free /%d", n.Range, bits)
}

// coupling returns the shared network, if the user's vSwitch can be coupled with it.
func (b *Bench) coupling(ctx context.Context) (*Network, error) {
	if b.Dedicated == nil || b.Dedicated.VSwitch == 0 {
		return nil, errors.New("no vSwitch is named that may be coupled with a throw-away network: " +
			"name one by --vswitch")
	}
	zone, err := b.zone(ctx)
	if err != nil {
		return nil, err
	}
	if zone != vSwitchZone {
		return nil, fmt.Errorf("a vSwitch can't be coupled in network zone %s: choose a --location in %s",
			zone, vSwitchZone)
	}
	all, err := b.client().Network.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing networks: %w", err)
	}
	for _, n := range all {
		coupled := func(s hcloud.NetworkSubnet) bool { return s.VSwitchID == b.Dedicated.VSwitch }
		if slices.ContainsFunc(n.Subnets, coupled) {
			return nil, fmt.Errorf("--vswitch %d: it is coupled with a network of the project; "+
				"name one that is coupled with none", b.Dedicated.VSwitch)
		}
	}
	return b.Network(ctx)
}

// couple gives the network a subnet for the user's vSwitch. The function that it returns takes it
// away, and can be called after an error too.
func (b *Bench) couple(ctx context.Context, n *Network, subnet netip.Prefix) (uncouple func(), err error) {
	at := hcloud.NetworkSubnet{
		Type: hcloud.NetworkSubnetTypeVSwitch, IPRange: ipnet.Of(subnet),
		NetworkZone: vSwitchZone, VSwitchID: b.Dedicated.VSwitch,
	}
	add := func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return b.client().Network.AddSubnet(ctx, n.ref(), hcloud.NetworkAddSubnetOpts{Subnet: at})
	}
	_, err = b.Change(ctx, "coupling the vSwitch with the network", add)
	if refuses(err) {
		return func() {}, err
	}
	return func() {
		b.Cleanup(ctx, "uncoupling the vSwitch", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
			return b.client().Network.DeleteSubnet(ctx, n.ref(), hcloud.NetworkDeleteSubnetOpts{Subnet: at})
		})
	}, err
}
