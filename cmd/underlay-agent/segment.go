//go:build linux

package main

import (
	"context"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/layer2"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
)

// podLinks is how the names of pods' interfaces begin, as the plugin ptp names them.
const podLinks = "veth"

// segment is the mover of addresses that this machine answers for: a responder and its interfaces.
type segment struct {
	responder *layer2.Responder
	network   *kernel.Kernel
	// routed: a cloud routes the addresses, which are on no segment, to this machine, and resolves
	// IPv4 addresses on the interface of the default route. It requests the hardware address only
	// from the machine that it routes an address to, whatever the ledger contains. So each machine
	// answers for all of them: kube-proxy serves them on every node.
	routed bool

	mu     sync.Mutex
	want   addresses.Assignment
	links  []layer2.Link // nil: not listed yet
	uplink string        // the interface of IPv4's default route, if routed
	kick   chan struct{}
}

func newSegment(r *layer2.Responder, network *kernel.Kernel, routed bool) *segment {
	return &segment{responder: r, network: network, routed: routed, kick: make(chan struct{}, 1)}
}

// listTimeout limits the first list of interfaces.
const listTimeout = time.Second

// Set passes the desired state to the responder. The first call lists the interfaces: addresses
// that an earlier run held are resumed at once.
func (s *segment) Set(w addresses.Assignment) {
	s.mu.Lock()
	s.want = w
	listed := s.links != nil
	if listed {
		s.publish()
	}
	s.mu.Unlock()
	if listed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	if err := s.refresh(ctx); err != nil {
		klog.Background().Error(err, "The interfaces can't be listed; no address is held before they can")
	}
}

func (s *segment) publish() {
	d := layer2.Desired{Assignment: s.want, Links: s.links, ReplyOn: s.uplink}
	if s.routed {
		d.Hold, d.Elsewhere = slices.Clone(d.Hold), nil
		if s.uplink != "" && !dedicated(s.want.Node) {
			for _, address := range s.want.Elsewhere {
				d.Hold = append(d.Hold, addresses.Assigned{Address: address})
			}
		}
		d.Hold = slices.DeleteFunc(d.Hold, func(h addresses.Assigned) bool {
			return !s.resolved(h.Address)
		})
	}
	s.responder.Set(d)
}

// dedicated reports whether a Node is one of the provider's dedicated servers, to which its cloud
// routes no addresses.
func dedicated(n *addresses.Node) bool {
	if n == nil {
		return false
	}
	_, err := kube.ParseDedicatedID(n.ProviderID)
	return err == nil
}

// resolved reports whether hosts request the hardware address of an address.
func (s *segment) resolved(address netip.Addr) bool { return !s.routed || address.Is4() }

// Status returns the responder's state of the addresses to hold.
func (s *segment) Status() (now addresses.Status) {
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
		if !s.resolved(h.Address) {
			now.Held = append(now.Held, addresses.Hold{Address: h.Address, Epoch: h.Epoch})
		}
	}
	if s.links != nil && !s.routed {
		now.Segments = []netip.Prefix{}
		for _, l := range s.links {
			now.Segments = append(now.Segments, l.Prefixes...)
		}
	}
	return now
}

// Run answers on the current interfaces until ctx is done.
func (s *segment) Run(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	if err := s.refresh(ctx); err != nil {
		return err
	}
	workers.Go(func() { wait.UntilWithContext(ctx, s.watch, time.Second) })
	workers.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.kick:
			}
			if err := s.refresh(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err,
					"The interfaces can't be listed; addresses stay where they are")
			}
		}
	})
	s.responder.Run(ctx, changed)
	return nil
}

// watch triggers a refresh for each relevant event of the kernel: of routes, only default routes
// determine where addresses are answered for.
func (s *segment) watch(ctx context.Context) {
	err := s.network.Watch(ctx, func(e agent.Event) {
		route := e.Kind == agent.RouteSet || e.Kind == agent.RouteGone
		if route && (!s.routed || e.Route.Dst.Bits() > 0) {
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
}

// refresh lists the interfaces, and passes them to the responder if they changed.
func (s *segment) refresh(ctx context.Context) error {
	found, err := s.network.Links(ctx)
	if err != nil {
		return err
	}
	links, uplink := segmentLinks(found), ""
	if s.routed {
		table, err := s.network.List(ctx)
		if err != nil {
			return err
		}
		links = working(found)
		uplink = uplinkOf(table, links)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links == nil || uplink != s.uplink || !reflect.DeepEqual(links, s.links) {
		s.links, s.uplink = links, uplink
		s.publish()
	}
	return nil
}

// uplinkOf returns the interface of IPv4's best default route, or "".
func uplinkOf(table []agent.Entry, links []layer2.Link) (name string) {
	var best uint32
	for _, e := range table {
		if e.Dst.Bits() > 0 || !e.Dst.Addr().Is4() || e.Kind != agent.Unicast ||
			name != "" && e.Metric >= best {
			continue
		}
		if i := slices.IndexFunc(links, func(l layer2.Link) bool { return l.Index == e.Link }); i >= 0 {
			name, best = links[i].Name, e.Metric
		}
	}
	return name
}

// segmentLinks returns the interfaces that share a prefix with neighbors.
func segmentLinks(found []agent.Link) []layer2.Link {
	return slices.DeleteFunc(working(found), func(l layer2.Link) bool { return len(l.Prefixes) == 0 })
}

// working returns the interfaces that can send frames, except those of pods: up, and with an
// Ethernet address. The result is not nil.
func working(found []agent.Link) []layer2.Link {
	links := []layer2.Link{}
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

// neighbors is the kernel's table on the segments.
type neighbors struct{ *kernel.Kernel }

// Hardware returns the hardware addresses that the kernel has resolved.
func (n neighbors) Hardware(ctx context.Context) (map[netip.Addr]net.HardwareAddr, error) {
	found, err := n.Links(ctx)
	if err != nil {
		return nil, err
	}
	resolved := map[netip.Addr]net.HardwareAddr{}
	for _, link := range segmentLinks(found) {
		all, err := n.Neighbors(ctx, link.Index)
		if err != nil {
			return nil, err
		}
		for _, one := range all {
			if len(one.Hardware) > 0 && !one.Silent {
				resolved[one.Addr] = one.Hardware
			}
		}
	}
	return resolved, nil
}

// Solicit makes the kernel resolve the addresses that are on a segment.
func (n neighbors) Solicit(ctx context.Context, addrs []netip.Addr) error {
	found, err := n.Links(ctx)
	if err != nil {
		return err
	}
	for _, link := range segmentLinks(found) {
		for _, addr := range addrs {
			if !slices.ContainsFunc(link.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) }) {
				continue
			}
			if err := n.Probe(ctx, link.Index, addr); err != nil {
				return err
			}
		}
	}
	return nil
}
