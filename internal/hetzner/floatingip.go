package hetzner

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/lb"
)

// FloatingIPOptions say which floating IPs may be moved, and where to.
type FloatingIPOptions struct {
	// Cluster is the cluster's name, which the label underlay.dev/cluster has for what is its own.
	Cluster string
	// Ranges are the addresses of pools that are floating IPs. That one is in a pool is the
	// operator's consent to move it between the cluster's nodes.
	Ranges []addresses.Range
	// Nodes are the provider IDs of the cluster's Nodes on servers of the cloud, by the servers'
	// IDs. All of them, or an error.
	Nodes func(context.Context) (map[int64]string, error)
}

// FloatingIPs leads the project's floating IPs to servers. It is the mover of addresses for
// addresses/controller.
//
// A floating IP that is in no pool is never touched. One that leads to a server that is no Node of
// the cluster stays there, unless its label underlay.dev/cluster names the cluster; one whose label
// names another cluster stays in any case. The label is written once a floating IP leads to a Node,
// so that it can still be moved from a server whose Node was deleted.
//
// The list of floating IPs is one request (for 50 of them). Between a write whose fate is unknown
// and the next write of the same floating IP there is a list.
type FloatingIPs struct {
	client *Client
	o      FloatingIPOptions

	listing chan struct{} // held while listing
	mu      sync.Mutex    // guards what follows
	known   []floatingIP
	asked   time.Time // of the list; zero: there is none, or it is outdated
	changes int       // that were made
	turns   map[int64]writer

	// unassignsFirst: the API has refused to assign a floating IP that a server has. Its description
	// says both that it does and that one moves at any time.
	unassignsFirst atomic.Bool
}

// floatingIP is one as it was listed.
type floatingIP struct {
	id      int64
	net     netip.Prefix // an IPv4 address, or an IPv6 /64
	server  int64        // 0: none
	home    string       // its home location, such as fsn1 (eu-central)
	labels  map[string]string
	blocked bool
}

// listFresh is how old the list may be when a floating IP is to be moved: the moves that follow
// from the failure of one node share one.
const listFresh = 5 * time.Second

// FloatingIPs returns what moves floating IPs. It asks nothing.
func (c *Client) FloatingIPs(o FloatingIPOptions) *FloatingIPs {
	return &FloatingIPs{client: c, o: o, listing: make(chan struct{}, 1), turns: map[int64]writer{}}
}

// Routed returns which machine each address of the pools leads to, by its provider ID; empty:
// none. An address that is missing is no floating IP of the project. It lists anew, and labels what
// leads to Nodes and has no label yet.
func (f *FloatingIPs) Routed(ctx context.Context) (map[netip.Addr]string, error) {
	nodes, err := f.o.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing floating IPs: %w", err)
	}
	f.outdate()
	found, err := f.list(ctx)
	if err != nil {
		return nil, err
	}
	routed := map[netip.Addr]string{}
	for _, ip := range found {
		within := ip.pooled(f.o.Ranges)
		for _, address := range within {
			routed[address] = ip.machine(nodes)
		}
		if len(within) > 0 && nodes[ip.server] != "" {
			f.claim(ctx, ip)
		}
	}
	return routed, nil
}

// mostInNet is how many addresses of one floating IPv6 net are told of.
const mostInNet = 64

// pooled are the addresses of the pools that a floating IP is.
func (ip floatingIP) pooled(ranges []addresses.Range) (within []netip.Addr) {
	for _, r := range ranges {
		first := r.First
		if first.Less(ip.net.Addr()) {
			first = ip.net.Addr()
		}
		for a := first; r.Contains(a) && ip.net.Contains(a) && len(within) < mostInNet; a = a.Next() {
			within = append(within, a)
		}
	}
	return within
}

// machine is the provider ID of the server that it leads to, be it a Node's or not.
func (ip floatingIP) machine(nodes map[int64]string) string {
	if id := nodes[ip.server]; id != "" || ip.server == 0 {
		return id
	}
	return cloud.Machine{ID: ip.server}.ProviderID()
}

// stays is why a floating IP must not be moved, an error about the address; nil: it may.
func (f *FloatingIPs) stays(ip floatingIP, nodes map[int64]string) error {
	owner, owned := ip.labels[lb.LabelCluster]
	switch {
	case owned && owner != f.o.Cluster:
		return aboutAddress("its label %s says that it is cluster %q's, not %q's: take it out of one of the clusters' pools, and remove the label", lb.LabelCluster, owner, f.o.Cluster)
	case ip.blocked:
		return aboutAddress("the provider has blocked it: ask its support")
	case ip.server == 0, owned, nodes[ip.server] != "":
		return nil
	}
	return aboutAddress("it is assigned to server %d, which is no Node of cluster %q: unassign it, or give it the label %s=%s to agree that it moves", ip.server, f.o.Cluster, lb.LabelCluster, f.o.Cluster)
}

// Route leads an address to a machine, and returns when that is done. It may be called for several
// addresses at once. After an error, the caller tries again.
//
// A planned move is urgent too: the node that the address leaves may be gone within seconds, or with
// policy Local its pods.
func (f *FloatingIPs) Route(ctx context.Context, address netip.Addr, to addresses.Destination) error {
	if err := f.route(requests.WithPriority(ctx, requests.Urgent), address, to.ProviderID); err != nil {
		return fmt.Errorf("floating IP %s: %w", address, err)
	}
	return nil
}

func (f *FloatingIPs) route(ctx context.Context, address netip.Addr, machine string) error {
	nodes, err := f.o.Nodes(ctx)
	if err != nil {
		return err
	}
	var server int64
	for id, name := range nodes {
		if machine != "" && name == machine {
			server = id
		}
	}
	if server == 0 && machine != "" {
		return fmt.Errorf("no Node on a server of the cloud has the provider ID %q", machine)
	}
	ip, err := f.look(ctx, address)
	if err != nil || ip.server == server {
		return err
	}
	if err := f.stays(ip, nodes); err != nil {
		return err
	}
	err = f.move(ctx, ip, server)
	if err == nil {
		f.note(ip.id, func(ip *floatingIP) { ip.server = server })
		return nil
	}
	if hcloud.IsError(err, hcloud.ErrorCodeInvalidInput) {
		return fmt.Errorf("%w; it leads to servers in the network zone of its home location alone, %s", err, ip.home)
	}
	// Nobody knows where it is before somebody has looked.
	f.outdate()
	if now, lookErr := f.look(ctx, address); lookErr == nil && now.server == server {
		return nil
	}
	return err
}

// aboutAddress is a refusal that no other node changes.
func aboutAddress(format string, args ...any) error {
	return &addresses.Unrouted{About: addresses.AboutAddress, Err: fmt.Errorf(format, args...)}
}

// Missing returns addresses of the pools that no floating IP of the project has, the first of each
// range: a Service that gets one of them is not reached.
func (f *FloatingIPs) Missing(ctx context.Context) (missing []netip.Addr, err error) {
	found, err := f.list(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range f.o.Ranges {
		for a := r.First; r.Contains(a); a = a.Next() {
			i := slices.IndexFunc(found, func(ip floatingIP) bool { return ip.net.Contains(a) })
			if i < 0 {
				missing = append(missing, a)
				break
			}
			if found[i].net.Contains(r.Last) {
				break // all of it is one net
			}
		}
	}
	return missing, nil
}

// look finds the floating IP that an address is of.
func (f *FloatingIPs) look(ctx context.Context, address netip.Addr) (floatingIP, error) {
	if !slices.ContainsFunc(f.o.Ranges, func(r addresses.Range) bool { return r.Contains(address) }) {
		return floatingIP{}, aboutAddress("it is in no pool with floating IPs, and naming it there is the consent to move it")
	}
	found, err := f.list(ctx)
	if err != nil {
		return floatingIP{}, err
	}
	i := slices.IndexFunc(found, func(ip floatingIP) bool { return ip.net.Contains(address) })
	if i < 0 {
		return floatingIP{}, aboutAddress("the project has none with this address: create it, or take the address out of addresses.pools")
	}
	return found[i], nil
}

// list returns the project's floating IPs as they were within listFresh, or as they are now.
func (f *FloatingIPs) list(ctx context.Context) ([]floatingIP, error) {
	select {
	case f.listing <- struct{}{}:
		defer func() { <-f.listing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("listing floating IPs: %w", ctx.Err())
	}
	f.mu.Lock()
	known, asked, changes := f.known, f.asked, f.changes
	f.mu.Unlock()
	if !asked.IsZero() && time.Since(asked) < listFresh {
		return known, nil
	}
	asked = time.Now()
	found, err := list(ctx, f.client, "floating IPs", func(ip *hcloud.FloatingIP) int64 { return ip.ID },
		func(ctx context.Context, page hcloud.ListOpts) ([]*hcloud.FloatingIP, *hcloud.Response, error) {
			return f.client.api.FloatingIP.List(ctx, hcloud.FloatingIPListOpts{ListOpts: page, Sort: byID()})
		})
	if err != nil {
		return nil, err
	}
	known = make([]floatingIP, len(found))
	for i, ip := range found {
		known[i] = convertFloatingIP(ip)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known, f.asked = known, asked
	if f.changes != changes {
		f.asked = time.Time{} // it may not show what was changed meanwhile
	}
	return known, nil
}

func convertFloatingIP(ip *hcloud.FloatingIP) floatingIP {
	out := floatingIP{id: ip.ID, net: ipnet.Prefix(ip.Network), labels: ip.Labels, blocked: ip.Blocked}
	if !out.net.IsValid() {
		address := ipnet.Addr(ip.IP)
		out.net = netip.PrefixFrom(address, address.BitLen())
	}
	if ip.Server != nil {
		out.server = ip.Server.ID
	}
	if ip.HomeLocation != nil {
		out.home = fmt.Sprintf("%s (%s)", ip.HomeLocation.Name, ip.HomeLocation.NetworkZone)
	}
	return out
}

// outdate lets the next look be a new one.
func (f *FloatingIPs) outdate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = time.Time{}
}

// note takes in a change that was made, so that others in the same moment need no list.
func (f *FloatingIPs) note(id int64, change func(*floatingIP)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes++
	f.known = slices.Clone(f.known) // others read it
	for i := range f.known {
		if f.known[i].id == id {
			change(&f.known[i])
		}
	}
}
