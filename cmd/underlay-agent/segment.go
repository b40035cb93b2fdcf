//go:build linux

package main

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	addressagent "github.com/underlay-ccm/underlay/addresses/agent"
	"github.com/underlay-ccm/underlay/addresses/layer2"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
)

// podLinks is how the names of pods' interfaces begin, as the plugin ptp names them.
const podLinks = "veth"

// segment is the mover of addresses that this machine answers for: the responder, and the
// interfaces that it may use.
type segment struct {
	responder *layer2.Responder
	network   *kernel.Kernel
	// routed: the addresses are on no segment. A cloud routes them to this machine, and of IPv4 asks
	// for the hardware address on the interface of the default route. It asks that machine alone which
	// it leads an address to, and leads it elsewhere when it likes, or never. So each machine answers
	// for all of them, whoever holds them by the ledger: kube-proxy serves them on every node.
	routed bool

	mu     sync.Mutex
	want   addressagent.Want
	links  []layer2.Link
	uplink string // the interface of IPv4's default route, if routed
	kick   chan struct{}
}

func newSegment(r *layer2.Responder, network *kernel.Kernel, routed bool) *segment {
	return &segment{responder: r, network: network, routed: routed, kick: make(chan struct{}, 1)}
}

// lookWithin bounds the first look at the interfaces.
const lookWithin = time.Second

// Set tells the responder, together with the interfaces as they were last. What an earlier run held
// it is to hold at once, so the first time they are looked at.
func (s *segment) Set(w addressagent.Want) {
	s.mu.Lock()
	s.want = w
	known := s.links != nil
	if known {
		s.publish()
	}
	s.mu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookWithin)
	defer cancel()
	if err := s.look(ctx); err != nil {
		klog.Background().Error(err, "The interfaces can't be listed; no address is held before they can")
	}
}

func (s *segment) publish() {
	d := layer2.Desired{Cluster: s.want.Cluster, Links: s.links, Doubt: s.want.Doubt}
	for _, h := range s.want.Hold {
		if s.requested(h.Address) {
			d.Hold = append(d.Hold, layer2.Want{
				Address: h.Address, Epoch: h.Epoch, Held: h.Held, Resumed: h.Resumed, ReplyOn: s.uplink,
			})
		}
	}
	if !s.routed {
		d.Elsewhere = s.want.Elsewhere
	} else if s.uplink != "" && !dedicated(s.want.Node) {
		for _, address := range s.want.Elsewhere {
			if s.requested(address) {
				d.Hold = append(d.Hold, layer2.Want{Address: address, ReplyOn: s.uplink})
			}
		}
	}
	s.responder.Set(d)
}

// dedicated reports whether a Node is one of the provider's dedicated servers, which the addresses of
// its cloud are never led to.
func dedicated(n *corev1.Node) bool {
	if n == nil {
		return false
	}
	_, err := kube.ParseDedicatedID(n.Spec.ProviderID)
	return err == nil
}

// requested reports whether somebody asks for the hardware address of who has an address.
func (s *segment) requested(address netip.Addr) bool { return !s.routed || address.Is4() }

// State is the responder's, of what this machine is to hold.
func (s *segment) State() (now addressagent.State) {
	states := s.responder.State()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.routed {
		states = slices.DeleteFunc(states, func(one layer2.State) bool {
			return slices.Contains(s.want.Elsewhere, one.Address)
		})
	}
	now.Held, now.Refused = layer2.Report(states)
	for _, h := range s.want.Hold {
		if !s.requested(h.Address) {
			now.Held = append(now.Held, addresses.Hold{Address: h.Address, Epoch: h.Epoch})
		}
	}
	if s.links != nil && !s.routed {
		// Whoever looks for a node for the others need not try this one.
		now.Segments = []netip.Prefix{}
		for _, l := range s.links {
			now.Segments = append(now.Segments, l.Prefixes...)
		}
	}
	totals := s.responder.Totals()
	now.Announced, now.Conflicts = totals.Announcements, totals.Conflicts
	return now
}

// Run answers until the context ends, on the interfaces that there are.
func (s *segment) Run(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.look(ctx); err != nil {
		return err
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	workers.Go(func() { s.watch(ctx) })
	s.responder.Run(ctx, changed)
	return nil
}

// watch keeps the interfaces up to date.
func (s *segment) watch(ctx context.Context) {
	var events sync.WaitGroup
	defer events.Wait()
	events.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			err := s.network.Watch(ctx, func(e agent.Event) {
				if route := e.Kind == agent.RouteSet || e.Kind == agent.RouteGone; route && !s.cares(e.Route) {
					return
				}
				select {
				case s.kick <- struct{}{}:
				default:
				}
			})
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Events about interfaces are not coming; subscribing again")
			}
		}, time.Second)
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The interfaces can't be listed; addresses stay where they are")
		}
	}
}

// cares reports whether a route decides where addresses are answered for.
func (s *segment) cares(route agent.Entry) bool { return s.routed && route.Dst.Bits() == 0 }

// look tells the responder of the interfaces, if they have changed.
func (s *segment) look(ctx context.Context) error {
	found, err := s.network.Links(ctx)
	if err != nil {
		return err
	}
	links, uplink := append([]layer2.Link{}, segmentLinks(found)...), "" // not nil: they are known
	if s.routed {
		table, err := s.network.List(ctx)
		if err != nil {
			return err
		}
		links = append([]layer2.Link{}, working(found)...)
		uplink = uplinkOf(table, links)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links == nil || uplink != s.uplink || !slices.EqualFunc(links, s.links, equalLinks) {
		s.links, s.uplink = links, uplink
		s.publish()
	}
	return nil
}

// uplinkOf is the interface of the best default route of IPv4; empty: there is none.
func uplinkOf(table []agent.Entry, links []layer2.Link) (name string) {
	var best uint32
	for _, e := range table {
		if e.Dst.Bits() > 0 || !e.Dst.Addr().Is4() || e.Kind != agent.Unicast || name != "" && e.Metric >= best {
			continue
		}
		if i := slices.IndexFunc(links, func(l layer2.Link) bool { return l.Index == e.Link }); i >= 0 {
			name, best = links[i].Name, e.Metric
		}
	}
	return name
}

// segmentLinks are the interfaces that share a prefix with neighbors.
func segmentLinks(found []agent.Link) []layer2.Link {
	return slices.DeleteFunc(working(found), func(l layer2.Link) bool { return len(l.Prefixes) == 0 })
}

// working are the interfaces that frames can go over, but for pods': up, and with an Ethernet
// address.
func working(found []agent.Link) (links []layer2.Link) {
	for _, l := range found {
		if !l.Up || !l.Carrier || len(l.Hardware) != 6 || strings.HasPrefix(l.Name, podLinks) {
			continue
		}
		link := layer2.Link{Name: l.Name, Index: l.Index, MAC: l.Hardware}
		for _, p := range l.Addrs {
			if !p.IsSingleIP() && !p.Addr().IsLinkLocalUnicast() {
				link.Prefixes = append(link.Prefixes, p.Masked())
			}
		}
		slices.SortFunc(link.Prefixes, netip.Prefix.Compare)
		link.Prefixes = slices.Compact(link.Prefixes)
		links = append(links, link)
	}
	slices.SortFunc(links, func(a, b layer2.Link) int { return a.Index - b.Index })
	return links
}

// hasNeighbor reports whether an address is on the link's segment.
func hasNeighbor(l layer2.Link, a netip.Addr) bool {
	return slices.ContainsFunc(l.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

func equalLinks(a, b layer2.Link) bool {
	return a.Name == b.Name && a.Index == b.Index && slices.Equal(a.MAC, b.MAC) &&
		slices.Equal(a.Prefixes, b.Prefixes)
}

// neighbors is the kernel's table on the segments.
type neighbors struct{ network *kernel.Kernel }

// Hardware are the hardware addresses that the kernel knows.
func (n neighbors) Hardware(ctx context.Context) (map[netip.Addr]net.HardwareAddr, error) {
	found, err := n.network.Links(ctx)
	if err != nil {
		return nil, err
	}
	known := map[netip.Addr]net.HardwareAddr{}
	for _, link := range segmentLinks(found) {
		all, err := n.network.Neighbors(ctx, link.Index)
		if err != nil {
			return nil, err
		}
		for _, one := range all {
			if len(one.Hardware) > 0 && !one.Silent {
				known[one.Addr] = one.Hardware
			}
		}
	}
	return known, nil
}

// Solicit makes the kernel ask for those that are on a segment.
func (n neighbors) Solicit(ctx context.Context, addrs []netip.Addr) error {
	found, err := n.network.Links(ctx)
	if err != nil {
		return err
	}
	links := segmentLinks(found)
	for _, addr := range addrs {
		for _, link := range links {
			if !hasNeighbor(link, addr) {
				continue
			}
			if err := n.network.Probe(ctx, link.Index, addr); err != nil {
				return err
			}
		}
	}
	return nil
}
