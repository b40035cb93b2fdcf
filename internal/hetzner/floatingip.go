package hetzner

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/lb"
)

// FloatingIPOptions limits which floating IPs may be moved, and to which servers.
type FloatingIPOptions struct {
	// Cluster is the value of the label underlay.dev/cluster on the cluster's own floating IPs.
	Cluster string
	// Ranges are the pool addresses that are floating IPs. Listing a floating IP in a pool is
	// the operator's consent to move it between the cluster's nodes.
	Ranges []addresses.Range
	// Nodes returns the provider IDs of the cluster's Nodes on cloud servers by server ID: all
	// of them, or an error.
	Nodes func(context.Context) (map[int64]string, error)
}

// FloatingIPs assigns the project's floating IPs to servers. It implements the Router of
// addresses/controller.
//
// It never changes a floating IP that is in no pool, and never moves one with another cluster's
// label underlay.dev/cluster. It moves one from a server that is no Node of the cluster only if it
// has the cluster's label. The label is written when a floating IP is assigned to a Node, so that
// it can still be moved from the server after the Node was deleted.
//
// A list takes one request per 50 floating IPs. After a write with an unknown outcome, the list
// is read before the same floating IP is written again.
type FloatingIPs struct {
	client *Client
	o      FloatingIPOptions

	listing   writer // guards the next two fields, also while listing
	known     []floatingIP
	requested time.Time // when known was requested; zero: it is missing or outdated

	// unassignsFirst reports whether the API has refused to assign an assigned floating IP. Its
	// description states both that it refuses, and that floating IPs can be moved at any time.
	unassignsFirst atomic.Bool
}

type floatingIP struct {
	id      int64
	net     netip.Prefix // an IPv4 address, or an IPv6 /64
	server  int64        // 0: unassigned
	home    string       // its home location, such as fsn1 (eu-central)
	labels  map[string]string
	blocked bool
}

// listFresh is the maximum age of the list for a move; moves after a node failure share a list.
const listFresh = 5 * time.Second

// FloatingIPs returns the router of floating IPs. It sends no request.
func (c *Client) FloatingIPs(o FloatingIPOptions) *FloatingIPs {
	return &FloatingIPs{client: c, o: o, listing: newWriter()}
}

// Routed returns the provider ID of the machine to which each pool address is routed, or "",
// without addresses that are no floating IPs of the project. It always lists, and labels
// floating IPs that are assigned to Nodes.
func (f *FloatingIPs) Routed(ctx context.Context) (map[netip.Addr]string, error) {
	nodes, err := f.o.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing floating IPs: %w", err)
	}
	found, err := f.list(ctx, 0)
	if err != nil {
		return nil, err
	}
	routed := map[netip.Addr]string{}
	for _, ip := range found {
		within := addresses.Routed(ip.net, f.o.Ranges)
		for _, address := range within {
			routed[address] = ip.machine(nodes)
		}
		if len(within) > 0 && nodes[ip.server] != "" {
			f.claim(ctx, ip)
		}
	}
	return routed, nil
}

// machine returns the provider ID of the server that the floating IP is assigned to, or "".
func (ip floatingIP) machine(nodes map[int64]string) string {
	if id := nodes[ip.server]; id != "" || ip.server == 0 {
		return id
	}
	return cloud.Machine{ID: ip.server}.ProviderID()
}

// stays returns why a floating IP must not be moved, or nil.
func (f *FloatingIPs) stays(ip floatingIP, nodes map[int64]string) error {
	owner, owned := ip.labels[lb.LabelCluster]
	switch {
	case owned && owner != f.o.Cluster:
		return addresses.Refuse(addresses.AboutAddress, "its label %s gives it to cluster %q, not %q: take it out of one of the clusters' pools, and remove the label", lb.LabelCluster, owner, f.o.Cluster)
	case ip.blocked:
		return addresses.Refuse(addresses.AboutAddress,
			"the provider has blocked it: contact its support")
	case ip.server == 0, owned, nodes[ip.server] != "":
		return nil
	}
	return addresses.Refuse(addresses.AboutAddress, "it is assigned to server %d, which is no Node of cluster %q: unassign it, or give it the label %s=%s to agree that it moves", ip.server, f.o.Cluster, lb.LabelCluster, f.o.Cluster)
}

// Route routes an address to a machine, and returns when that is done. It may be called
// concurrently for several addresses. After an error, the caller retries.
//
// A planned move is urgent too: the node that loses the address may be deleted within seconds,
// and with policy Local, its pods.
func (f *FloatingIPs) Route(
	ctx context.Context, address netip.Addr, to addresses.Destination,
) error {
	if err := f.route(requests.WithPriority(ctx, requests.Urgent), address,
		to.ProviderID); err != nil {
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
	ip, err := f.look(ctx, address, listFresh)
	if err != nil || ip.server == server {
		return err
	}
	if err := f.stays(ip, nodes); err != nil {
		return err
	}
	err = f.move(ctx, ip, server)
	if err == nil {
		f.note(ctx, ip.id, func(ip *floatingIP) { ip.server = server })
		return nil
	}
	if hcloud.IsError(err, hcloud.ErrorCodeInvalidInput) {
		return fmt.Errorf("%w; it leads to servers in the network zone of its home location alone, %s",
			err, ip.home)
	}
	// The outcome is unknown until the next list.
	if now, lookErr := f.look(ctx, address, 0); lookErr == nil && now.server == server {
		return nil
	}
	return err
}

func (f *FloatingIPs) look(
	ctx context.Context, address netip.Addr, fresh time.Duration,
) (floatingIP, error) {
	if !slices.ContainsFunc(f.o.Ranges, func(r addresses.Range) bool { return r.Contains(address) }) {
		return floatingIP{},
			addresses.Refuse(addresses.AboutAddress,
				"it is in no pool with floating IPs, and naming it there is the consent to move it")
	}
	found, err := f.list(ctx, fresh)
	if err != nil {
		return floatingIP{}, err
	}
	i := slices.IndexFunc(found, func(ip floatingIP) bool { return ip.net.Contains(address) })
	if i < 0 {
		return floatingIP{},
			addresses.Refuse(addresses.AboutAddress,
				"the project has none with this address: create it, or take the address out of addresses.pools")
	}
	return found[i], nil
}

// list returns the project's floating IPs, at most fresh old.
func (f *FloatingIPs) list(
	ctx context.Context, fresh time.Duration,
) (known []floatingIP, err error) {
	err = f.listing.run(ctx, func(ctx context.Context) error {
		requested := time.Now()
		if requested.Sub(f.requested) < fresh {
			known = f.known
			return nil
		}
		f.requested = time.Time{}
		known, err = list(ctx, f.client, "floating IPs",
			func(ip *hcloud.FloatingIP) int64 { return ip.ID },
			func(ctx context.Context, page hcloud.ListOpts) ([]*hcloud.FloatingIP, *hcloud.Response, error) {
				opts := hcloud.FloatingIPListOpts{ListOpts: page, Sort: byID()}
				return f.client.api.FloatingIP.List(ctx, opts)
			}, convertFloatingIP)
		if err == nil {
			f.known, f.requested = known, requested
		}
		return err
	})
	return known, err
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

// note applies a change to the cached list, so that concurrent moves need no new list. A list that
// was requested before the change has landed by then.
func (f *FloatingIPs) note(ctx context.Context, id int64, change func(*floatingIP)) {
	_ = f.listing.run(ctx, func(context.Context) error {
		f.known = slices.Clone(f.known) // callers of list read it
		for i := range f.known {
			if f.known[i].id == id {
				change(&f.known[i])
			}
		}
		return nil
	})
}
