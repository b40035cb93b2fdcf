package schedule

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/measured"
)

const (
	token       = "right"
	networkName = "cluster"
)

// project is the cloud's side: a network, servers, and an administrator's manual changes.
type project struct {
	sim     *hcloudsim.Simulator
	api     *hcloud.Client // an administrator's
	network int64
}

func newProject(seed uint64, changed func(hcloudsim.DataPlane)) (*project, error) {
	options, err := measured.Cloud(hcloudsim.Options{
		Token: token, OnChange: changed, Seed: seed, Latency: 20 * time.Millisecond,
		ActionTime: 200 * time.Millisecond, ActionJitter: 400 * time.Millisecond,
		AttachmentLimit: hcloudsim.Unlimited, RateLimit: 1_000_000, RequestLogSize: 1, ActionLogSize: 200,
	})
	if err != nil {
		return nil, err
	}
	p := &project{sim: hcloudsim.New(options)}
	p.api = hcloud.NewClient(hcloud.WithEndpoint("http://cloud.test/v1"), hcloud.WithToken(token),
		hcloud.WithHTTPClient(&http.Client{Transport: p.sim.Transport()}))
	made, err := p.sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: networkName, IPRange: netip.MustParsePrefix("10.0.0.0/8"),
		Subnets: []hcloudsim.SubnetSeed{{IPRange: netip.MustParsePrefix("10.0.0.0/16")}},
	})
	p.network = made.ID
	return p, err
}

// rent creates a server, at a given address or any.
func (p *project) rent(name string, at netip.Addr) (id int64, err error) {
	server, err := p.sim.CreateServer(hcloudsim.ServerSeed{
		Name: name, Network: p.network, PrivateIP: at,
	})
	return server.ID, err
}

// address returns a server's address in the network, or the zero Addr.
func (p *project) address(id int64) netip.Addr {
	server, _ := p.sim.Server(id)
	for _, private := range server.PrivateNet {
		if private.Network == p.network {
			a, _ := netip.ParseAddr(private.IP)
			return a
		}
	}
	return netip.Addr{}
}

// table is the network's routes.
func (p *project) table() map[netip.Prefix]netip.Addr {
	out := map[netip.Prefix]netip.Addr{}
	network, _ := p.sim.Network(p.network)
	for _, r := range network.Routes {
		out[netip.MustParsePrefix(r.Destination)] = netip.MustParseAddr(r.Gateway)
	}
	return out
}

// byHand retries an administrator's request until it succeeds: the network may be busy.
func byHand(do func(context.Context) error) {
	for range 10 {
		if do(context.Background()) == nil {
			time.Sleep(700 * time.Millisecond) // virtual: the action ends
			return
		}
		time.Sleep(700 * time.Millisecond) // virtual: another action ends
	}
}

func (p *project) ref() *hcloud.Network { return &hcloud.Network{ID: p.network} }

func route(dst netip.Prefix, via netip.Addr) hcloud.NetworkRoute {
	return hcloud.NetworkRoute{
		Destination: &net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), 32)},
		Gateway:     via.AsSlice(),
	}
}

func (p *project) addRoute(dst netip.Prefix, via netip.Addr) {
	byHand(func(ctx context.Context) error {
		_, _, err := p.api.Network.AddRoute(ctx, p.ref(), hcloud.NetworkAddRouteOpts{
			Route: route(dst, via),
		})
		return err
	})
}

func (p *project) deleteRoute(dst netip.Prefix, via netip.Addr) {
	byHand(func(ctx context.Context) error {
		_, _, err := p.api.Network.DeleteRoute(ctx, p.ref(), hcloud.NetworkDeleteRouteOpts{
			Route: route(dst, via),
		})
		if hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
			return nil
		}
		return err
	})
}

// move gives a server another address.
func (p *project) move(id int64, to netip.Addr, between time.Duration) {
	server := &hcloud.Server{ID: id}
	byHand(func(ctx context.Context) error {
		_, _, err := p.api.Server.DetachFromNetwork(ctx, server, hcloud.ServerDetachFromNetworkOpts{
			Network: p.ref(),
		})
		return err
	})
	time.Sleep(between) // virtual
	byHand(func(ctx context.Context) error {
		_, _, err := p.api.Server.AttachToNetwork(ctx, server, hcloud.ServerAttachToNetworkOpts{
			Network: p.ref(), IP: to.AsSlice(),
		})
		return err
	})
}

// kubelet returns the Node of a machine, with its provider ID if it is known already.
func kubelet(name string, server int64, address netip.Addr, known bool) *corev1.Node {
	node := &corev1.Node{}
	node.Name = name
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	}
	node.Status.Addresses = internalIP(address)
	if known {
		node.Spec.ProviderID = kube.FormatProviderID(server)
	}
	return node
}

func internalIP(a netip.Addr) []corev1.NodeAddress {
	if !a.IsValid() {
		return nil
	}
	return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: a.String()}}
}

// free returns node prefixes of the pool that nothing in the network overlaps.
func (p *project) free() []netip.Prefix {
	var out []netip.Prefix
	table := p.table()
	for i := range 8 {
		dst := netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i))
		if _, taken := table[dst]; !taken {
			out = append(out, dst)
		}
	}
	return slices.Clip(out)
}
