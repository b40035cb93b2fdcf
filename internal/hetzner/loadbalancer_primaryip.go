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

// PrimaryIPs implements lb.Backend, in one request per name.
func (l *LoadBalancers) PrimaryIPs(ctx context.Context, named []string) ([]lb.PrimaryIP, error) {
	var all []lb.PrimaryIP
	api := &l.client.api.PrimaryIP
	for _, name := range named {
		var found *hcloud.PrimaryIP
		var err error
		if id, isID := lb.ReferenceID(name); isID {
			found, err = get(ctx, api.GetByID, id)
		} else {
			found, err = get(ctx, api.GetByName, name)
		}
		if err != nil {
			return nil, fmt.Errorf("looking for primary IP %q: %w", name, err)
		}
		if found != nil {
			all = append(all, primaryIP(found))
		}
	}
	return all, nil
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

// unresolved rejects a creation with a primary IP that has not been looked up: the load balancer
// would permanently have other addresses.
func unresolved(spec lb.Spec) error {
	for _, r := range []lb.PrimaryIPRef{spec.PrimaryIPv4, spec.PrimaryIPv6} {
		if r.Named != "" && r.ID == 0 {
			return fmt.Errorf("load balancer %q is to have primary IP %q, whose ID is not known", spec.Name,
				r.Named)
		}
	}
	return nil
}
