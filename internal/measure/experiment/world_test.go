package experiment

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
	"github.com/underlay-ccm/underlay/test/testenv/balancer"
)

// world is a simulated cloud in memory, packets included: servers with programs that answer as the
// real one does, a gateway that follows the simulator, and load balancers. Its clock is the
// bubble's.
type world struct {
	sim     *hcloudsim.Simulator
	cloud   *hcloud.Client // the world's own, for addresses
	network profile.Network

	// way is how the bench reaches the API.
	way http.RoundTripper
	// loss: of so many packets one is lost; 0: none. cut: every one in the network is.
	loss int
	cut  bool
	// deaf: servers take no connections at all.
	deaf bool
	// loses says which packets are lost beside these; nil: none.
	loses func(inside.Packet) bool
	// learns is how long load balancers neither check nor serve a target that is new.
	learns time.Duration
	// configured is how long a server has no interface in the network, from when it is first asked.
	configured time.Duration

	// dedicated is the user's dedicated server; nil: none.
	dedicated *fakeDedicated

	ctx  context.Context // ends with the world
	work sync.WaitGroup

	mu        sync.Mutex
	programs  map[netip.Addr]*fakeProgram // by their servers' public IPv4 addresses
	now       hcloudsim.DataPlane         // as the simulator said last
	planes    []planeSince                // what the gateway goes by, the oldest first
	listeners map[netip.AddrPort]*fakeListener
	targets   map[targetOf]time.Time // since when
}

// planeSince is a state of the cloud that the gateway follows from a time on.
type planeSince struct {
	since time.Time
	plane hcloudsim.DataPlane
}

// position is how the cloud's switches stand.
type position struct {
	cloud   profile.Cloud
	network profile.Network
	options hcloudsim.Options
}

// newWorld makes a world in which nothing is. It ends with the test.
func newWorld(t *testing.T, is position) *world {
	t.Helper()
	w := &world{
		network: merged(is.network), programs: map[netip.Addr]*fakeProgram{},
		listeners: map[netip.AddrPort]*fakeListener{},
	}
	bell := balancer.NewBell()
	options := is.options.With(is.cloud)
	options.HealthyAfter = 24 * time.Hour // checks alone make anything healthy
	options.OnChange = func(plane hcloudsim.DataPlane) {
		w.follow(plane)
		bell.Ring()
	}
	w.sim = hcloudsim.New(options)
	w.way = w.sim.Transport()
	w.cloud = hcloud.NewClient(hcloud.WithToken("any"), hcloud.WithEndpoint("http://sim.test/v1"),
		hcloud.WithHTTPClient(&http.Client{Transport: w.sim.Transport()}))
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithCancel(context.WithoutCancel(t.Context()))
	w.work.Go(func() {
		balancer.Run(w.ctx, balancer.Options{
			Cloud: learning{w.sim, w}, Network: w, Changed: bell,
			Header: balancer.Version(*w.network.ProxyProtocol),
		})
	})
	t.Cleanup(func() {
		cancel()
		w.work.Wait()
	})
	return w
}

// merged is the network of a profile, with the defaults in place of what it leaves out.
func merged(n profile.Network) profile.Network {
	d := profile.Default().Network
	for field, is := range map[**int]*int{
		&n.PrivateMTU: d.PrivateMTU, &n.PublicMTU: d.PublicMTU, &n.ProxyProtocol: d.ProxyProtocol,
	} {
		if *field == nil {
			*field = is
		}
	}
	if n.AnySource == nil {
		n.AnySource = d.AnySource
	}
	return n
}

// follow lets the gateway go by a state of the cloud, at once or after a while.
func (w *world) follow(plane hcloudsim.DataPlane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var delay time.Duration
	if len(w.network.RouteSeconds) > 0 {
		delay = profile.Duration(w.network.RouteSeconds[0])
	}
	w.targets = since(w.targets, plane)
	w.now, w.planes = plane, append(w.planes, planeSince{time.Now().Add(delay), plane})
}

// told is the state of the cloud.
func (w *world) told() hcloudsim.DataPlane {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// plane is what the gateway goes by now.
func (w *world) plane() hcloudsim.DataPlane {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, p := range slices.Backward(w.planes) {
		if !p.since.After(time.Now()) {
			w.planes = w.planes[i:]
			return p.plane
		}
	}
	return hcloudsim.DataPlane{}
}

// Prepare is that of Programs.
func (w *world) Prepare(server string) (userData string, at func(netip.Addr) Program, err error) {
	return "#!/bin/true " + server, func(a netip.Addr) Program {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.programs[a] == nil {
			w.programs[a] = newFakeProgram(w, server, a)
		}
		return w.programs[a]
	}, nil
}

// forward is where a packet goes: the program that gets it, or nil.
func (w *world) forward(from *fakeProgram, source, target netip.Addr, size int) *fakeProgram {
	if !target.Is4() || !target.IsPrivate() {
		if size > *w.network.PublicMTU || !from.has(source) {
			return nil
		}
		return w.at(target)
	}
	if w.dedicated != nil {
		if to, across := w.dedicated.across(from, source, target, size); across {
			return to
		}
	}
	own := from.private()
	if size > *w.network.PrivateMTU || !own.IsValid() || w.cut {
		return nil
	}
	for _, n := range w.plane().Networks {
		var hop netip.Addr
		allowed := source == own || *w.network.AnySource
		for _, m := range n.Members {
			if m.IP == target {
				hop = m.IP
			}
		}
		for _, r := range n.Routes {
			if r.Destination.Contains(target) {
				hop = r.Gateway
			}
			allowed = allowed || r.Gateway == own && r.Destination.Contains(source)
		}
		if to := w.at(hop); allowed && to != nil && to.has(target) {
			return to
		}
	}
	return nil
}

// at is the program of the server that has an address of the cloud; nil if there is none.
func (w *world) at(a netip.Addr) *fakeProgram {
	if !a.IsValid() {
		return nil
	}
	w.mu.Lock()
	all := make([]*fakeProgram, 0, len(w.programs))
	for _, p := range w.programs {
		all = append(all, p)
	}
	w.mu.Unlock()
	i := slices.IndexFunc(all, func(p *fakeProgram) bool { return slices.Contains(p.given(), a) })
	if i < 0 {
		return nil
	}
	return all[i]
}

// server is what the API says of the one with a public address.
func (w *world) server(public netip.Addr) (*hcloud.Server, error) {
	all, err := w.cloud.Server.All(w.ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if ipnet.Addr(s.PublicNet.IPv4.IP) == public {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server has the address %s", public)
}
