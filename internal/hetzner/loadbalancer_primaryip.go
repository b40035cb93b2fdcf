package hetzner

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/lb"
)

// PrimaryIPs implements lb.Backend. One name takes one request. Several take one for the first page
// of the list, and one for each name on a later page: there can be thousands, those of servers.
func (l *LoadBalancers) PrimaryIPs(ctx context.Context, named []string) ([]lb.PrimaryIP, error) {
	var found []lb.PrimaryIP
	missing := named
	if len(named) > 1 {
		page, err := l.listPrimaryIPs(ctx, hcloud.PrimaryIPListOpts{})
		if err != nil {
			return nil, fmt.Errorf("listing primary IPs: %w", err)
		}
		missing = nil
		for _, name := range named {
			ip, ok := page.find(name)
			switch {
			case ok:
				found = append(found, ip)
			case page.more:
				missing = append(missing, name)
			}
		}
	}
	for _, name := range missing {
		ip, ok, err := l.primaryIP(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("looking for primary IP %q: %w", name, err)
		}
		if ok {
			found = append(found, ip)
		}
	}
	return found, nil
}

func (l *LoadBalancers) primaryIP(ctx context.Context, named string) (lb.PrimaryIP, bool, error) {
	id, isID := lb.ReferenceID(named)
	if !isID {
		page, err := l.listPrimaryIPs(ctx, hcloud.PrimaryIPListOpts{Name: named})
		ip, ok := page.find(named)
		return ip, ok, err
	}
	found, err := get(ctx, func(ctx context.Context) (*hcloud.PrimaryIP, *hcloud.Response, error) {
		return l.client.api.PrimaryIP.GetByID(ctx, id)
	})
	if err != nil || found == nil {
		return lb.PrimaryIP{}, false, err
	}
	return primaryIP(found), true, nil
}

type primaryIPPage struct {
	found []lb.PrimaryIP
	more  bool
}

func (p primaryIPPage) find(named string) (lb.PrimaryIP, bool) {
	for _, ip := range p.found {
		if ip.Is(named) {
			return ip, true
		}
	}
	return lb.PrimaryIP{}, false
}

func (l *LoadBalancers) listPrimaryIPs(ctx context.Context, opts hcloud.PrimaryIPListOpts) (primaryIPPage, error) {
	opts.PerPage = 50
	return get(ctx, func(ctx context.Context) (primaryIPPage, *hcloud.Response, error) {
		found, resp, err := l.client.api.PrimaryIP.List(ctx, opts)
		if err != nil {
			return primaryIPPage{}, resp, err
		}
		page := primaryIPPage{more: resp.Meta.Pagination != nil && resp.Meta.Pagination.NextPage != 0}
		for _, ip := range found {
			page.found = append(page.found, primaryIP(ip))
		}
		return page, resp, nil
	})
}

func primaryIP(ip *hcloud.PrimaryIP) lb.PrimaryIP {
	out := lb.PrimaryIP{ID: ip.ID, Name: ip.Name, Labels: ip.Labels, AutoDelete: ip.AutoDelete}
	if ip.AssigneeID != 0 {
		out.Holder = fmt.Sprintf("%s %d", strings.ReplaceAll(ip.AssigneeType, "_", " "), ip.AssigneeID)
	}
	if ip.Location != nil {
		out.Location, out.NetworkZone = ip.Location.Name, string(ip.Location.NetworkZone)
	}
	if address := ipnet.Addr(ip.IP); address.IsValid() {
		bits := address.BitLen()
		if ip.Network != nil {
			bits, _ = ip.Network.Mask.Size()
		}
		out.Net = netip.PrefixFrom(address, bits)
	}
	return out
}

// publicNetOpts returns the primary IPs of a creation; for nil, the cloud creates both.
func publicNetOpts(spec lb.Spec) *hcloud.LoadBalancerCreateOptsPublicNet {
	ref := func(r lb.PrimaryIPRef) *hcloud.PrimaryIP {
		if r.ID == 0 {
			return nil
		}
		return &hcloud.PrimaryIP{ID: r.ID}
	}
	opts := &hcloud.LoadBalancerCreateOptsPublicNet{IPv4: ref(spec.PrimaryIPv4), IPv6: ref(spec.PrimaryIPv6)}
	if opts.IPv4 == nil && opts.IPv6 == nil {
		return nil
	}
	return opts
}

// unresolved rejects a creation with a primary IP that has not been looked up: the load balancer
// would permanently have other addresses.
func unresolved(spec lb.Spec) error {
	for _, r := range []lb.PrimaryIPRef{spec.PrimaryIPv4, spec.PrimaryIPv6} {
		if r.Named != "" && r.ID == 0 {
			return fmt.Errorf("load balancer %q is to have primary IP %q, whose ID is not known", spec.Name, r.Named)
		}
	}
	return nil
}
