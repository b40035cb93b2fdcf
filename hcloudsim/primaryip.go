package hcloudsim

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindPrimaryIP = "primary_ip"

const (
	typeIPv4 = "ipv4"
	typeIPv6 = "ipv6"
)

// primaryIP is a public address that can outlive its holder. A load balancer has one of each
// type, a server at most one. They are named at its creation, or created and deleted with it.
type primaryIP struct {
	base
	kind       string
	net        netip.Prefix // an IPv4 address, or an IPv6 /64
	location   schema.Location
	holder     ref // zero: unassigned
	autoDelete bool
	pointers   pointers
}

func (k *primaryIP) ref() ref { return ref{kindPrimaryIP, k.id} }

func (k *primaryIP) free() bool { return k.holder == ref{} }

// address returns the address that a load balancer holding k listens on.
func (k *primaryIP) address() netip.Addr {
	if k.kind == typeIPv4 {
		return k.net.Addr()
	}
	return k.net.Addr().Next()
}

func (p *project) renderPrimaryIP(k *primaryIP) schema.PrimaryIP {
	out := schema.PrimaryIP{
		ID: k.id, Name: k.name, Type: k.kind, IP: k.net.String(), Labels: cloneLabels(k.labels), Created: k.created,
		Location: k.location, AutoDelete: k.autoDelete, Protection: schema.PrimaryIPProtection{Delete: k.protected},
		AssigneeType: "unassigned", DNSPtr: []schema.PrimaryIPDNSPTR{},
	}
	if !k.free() {
		holder := k.holder.id
		out.AssigneeType, out.AssigneeID = k.holder.kind, &holder
	}
	if k.kind == typeIPv4 {
		out.IP = k.net.Addr().String()
		out.DNSPtr = append(out.DNSPtr, schema.PrimaryIPDNSPTR{IP: out.IP, DNSPtr: k.pointers.of(k.net.Addr())})
		return out
	}
	for _, entry := range k.pointers.inside(k.net) {
		out.DNSPtr = append(out.DNSPtr, schema.PrimaryIPDNSPTR{IP: entry.IP, DNSPtr: entry.DNSPtr})
	}
	return out
}

// addressPair holds the primary IPs of a load balancer or server. Either may be nil.
type addressPair struct{ ipv4, ipv6 *primaryIP }

func newIPv4(ip netip.Addr) *primaryIP {
	return &primaryIP{kind: typeIPv4, net: netip.PrefixFrom(ip, ip.BitLen())}
}

func newIPv6(net netip.Prefix) *primaryIP { return &primaryIP{kind: typeIPv6, net: net} }

// newAddresses returns primary IPs without an ID, which hold adds to the project.
func (p *project) newAddresses() addressPair {
	ipv4, ipv6 := p.public.next()
	return addressPair{newIPv4(ipv4), newIPv6(ipv6)}
}

func (a addressPair) all() []*primaryIP {
	return slices.DeleteFunc([]*primaryIP{a.ipv4, a.ipv6}, func(k *primaryIP) bool { return k == nil })
}

func (a addressPair) refs() []ref {
	var all []ref
	for _, k := range a.all() {
		all = append(all, k.ref())
	}
	return all
}

func (a *addressPair) set(k *primaryIP) {
	if k.kind == typeIPv4 {
		a.ipv4 = k
	} else {
		a.ipv6 = k
	}
}

// namedPrimaryIPs returns the primary IPs named by ID in a creation request; 0 means absent. The
// error codes are those that the description lists for servers.
func (p *project) namedPrimaryIPs(ipv4, ipv6 int64) (pair addressPair, err error) {
	if pair.ipv4, err = p.namedPrimaryIP(ipv4, typeIPv4); err != nil {
		return addressPair{}, err
	}
	pair.ipv6, err = p.namedPrimaryIP(ipv6, typeIPv6)
	return pair, err
}

func (p *project) namedPrimaryIP(id int64, kind string) (*primaryIP, error) {
	if id == 0 {
		return nil, nil
	}
	k, err := must(&p.primaryIPs, kindPrimaryIP, id)
	switch {
	case err != nil:
		return nil, err
	case k.kind != kind:
		return nil, &Error{
			Status: http.StatusPreconditionFailed, Code: "primary_ip_version_mismatch",
			Message: fmt.Sprintf("primary IP %d is of type %s, not %s", id, k.kind, kind),
		}
	case !k.free():
		return nil, errRefused("primary_ip_assigned", "primary IP %d is already assigned to %s %d", id, k.holder.kind, k.holder.id)
	}
	return k, p.idle(k.ref())
}

// in returns an error if a primary IP is in another location.
func (a addressPair) in(location schema.Location) error {
	for _, k := range a.all() {
		if k.location.Name != location.Name {
			return errRefused("primary_ip_datacenter_mismatch", "primary IP %d is in %s, not in %s", k.id, k.location.Name, location.Name)
		}
	}
	return nil
}

// hold assigns primary IPs to a server or load balancer. Primary IPs without an ID are new: hold
// adds them to the project, and they are deleted with their holder.
func (p *project) hold(pair addressPair, holder ref, at schema.Location) {
	for _, k := range pair.all() {
		k.holder = holder
		if k.id == 0 {
			k.base, k.location, k.autoDelete = p.newBase("", nil), at, true
			k.name = fmt.Sprintf("%s-%d", kindPrimaryIP, k.id)
			p.primaryIPs.add(k)
		}
	}
}

// removeLoadBalancer removes a load balancer and keeps its primary IPs that have no auto-delete.
func (p *project) removeLoadBalancer(lb *loadBalancer) {
	p.loadBalancers.remove(lb.id)
	p.release(lb.ref())
}

// release unassigns the primary IPs of a deleted holder, and deletes those with auto-delete.
func (p *project) release(holder ref) {
	for _, k := range slices.Clone(p.primaryIPs.rows) {
		switch {
		case k.holder != holder:
		case k.autoDelete:
			p.primaryIPs.remove(k.id)
		default:
			k.holder = ref{}
		}
	}
}

func (s *server) assign(k *primaryIP) {
	k.holder = s.ref()
	s.addresses.set(k)
}

func (s *server) unassign(k *primaryIP) {
	k.holder = ref{}
	if k.kind == typeIPv4 {
		s.addresses.ipv4 = nil
	} else {
		s.addresses.ipv6 = nil
	}
}
