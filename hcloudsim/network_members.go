package hcloudsim

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// The member states of hcloud-go, except error, which can't occur here.
const (
	memberOK        = "ok"
	memberAttaching = "attaching"
	memberDetaching = "detaching"
	memberUpdating  = "updating"
)

func (p *project) memberStatus(m member) string {
	if m.attachment.pending {
		return memberAttaching
	}
	for _, a := range p.actions.running {
		if !a.isAbout(m.ref) || !a.isAbout(ref{kindNetwork, m.attachment.network}) {
			continue
		}
		switch a.command {
		case "detach_from_network":
			return memberDetaching
		case "change_alias_ips":
			return memberUpdating
		}
	}
	return memberOK
}

func (p *project) renderMember(n *network, m member) schema.NetworkMember {
	out := schema.NetworkMember{
		Type: m.kind, ID: m.id, IP: m.attachment.ip.String(), Status: p.memberStatus(m), AliasIPs: []string{},
	}
	for _, alias := range m.attachment.aliases {
		out.AliasIPs = append(out.AliasIPs, alias.String())
	}
	if s := n.subnetOf(m.attachment.ip); s != nil {
		out.Subnet = s.ipRange.String()
	}
	return out
}

// listMembers implements GET /networks/{id}/members, which hcloud-go has and the description
// lacks. Unlike the network itself it includes members that are being attached.
func (c *call) listMembers(n *network) (reply, error) {
	query := c.request.URL.Query()
	for _, subnet := range query["subnet"] {
		if _, err := netip.ParsePrefix(subnet); err != nil {
			return reply{}, errInvalid("subnet", "'%s' is not in CIDR notation", subnet)
		}
	}
	for _, kind := range query["type"] {
		if kind != kindServer && kind != kindLoadBalancer {
			return reply{}, errInvalid("type", "must be one of server, load_balancer")
		}
	}
	chosen := []schema.NetworkMember{}
	for m := range c.members(n.id) {
		out := c.renderMember(n, m)
		if asked(query["type"], out.Type) && asked(query["status"], out.Status) && asked(query["subnet"], out.Subnet) {
			chosen = append(chosen, out)
		}
	}
	slices.SortStableFunc(chosen, func(a, b schema.NetworkMember) int { return cmp.Compare(a.ID, b.ID) })
	return list(c, "members", chosen, order[schema.NetworkMember]{
		"id":   func(a, b schema.NetworkMember) int { return cmp.Compare(a.ID, b.ID) },
		"type": func(a, b schema.NetworkMember) int { return cmp.Compare(a.Type, b.Type) },
		"ip": func(a, b schema.NetworkMember) int {
			return netip.MustParseAddr(a.IP).Compare(netip.MustParseAddr(b.IP))
		},
	}, func(m schema.NetworkMember) schema.NetworkMember { return m })
}
