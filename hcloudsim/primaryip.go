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

// primaryIP is a public address that can outlive who has it. A load balancer has one of each type:
// those it was created with, or new ones that go with it. Of servers only those are simulated that
// were created by themselves; a server's other addresses come and go with it.
type primaryIP struct {
	base
	kind       string
	net        netip.Prefix // an IPv4 address, or an IPv6 /64
	location   schema.Location
	holder     ref // zero: nobody has it
	autoDelete bool
	pointers   pointers
}

func (k *primaryIP) ref() ref { return ref{kindPrimaryIP, k.id} }

func (k *primaryIP) free() bool { return k.holder == ref{} }

// address is what a load balancer that has it answers at.
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

// addressPair is what a load balancer, or a server, has or shall have. Nil: none.
type addressPair struct{ ipv4, ipv6 *primaryIP }

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

// namedPrimaryIPs finds those that something is to be created with, by their IDs; 0 names none. The
// codes are those that the description has for servers.
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

// in refuses primary IPs of other locations.
func (a addressPair) in(location schema.Location) error {
	for _, k := range a.all() {
		if k.location.Name != location.Name {
			return errRefused("primary_ip_datacenter_mismatch", "primary IP %d is in %s, not in %s", k.id, k.location.Name, location.Name)
		}
	}
	return nil
}

// giveAddresses lets a new load balancer have the primary IPs that it was created with, and new
// ones where none was named. Those go with it.
func (p *project) giveAddresses(lb *loadBalancer) {
	for _, k := range lb.addresses.all() {
		k.holder = lb.ref()
	}
	if lb.addresses.ipv4 == nil || lb.addresses.ipv6 == nil {
		ipv4, ipv6 := p.public.next()
		if lb.addresses.ipv4 == nil {
			p.ownAddress(lb, typeIPv4, netip.PrefixFrom(ipv4, ipv4.BitLen()))
		}
		if lb.addresses.ipv6 == nil {
			p.ownAddress(lb, typeIPv6, ipv6)
		}
	}
	lb.ipv4, lb.ipv6 = lb.addresses.ipv4.address(), lb.addresses.ipv6.address()
}

// ownAddress makes a primary IP that comes and goes with a load balancer.
func (p *project) ownAddress(lb *loadBalancer, kind string, net netip.Prefix) *primaryIP {
	k := &primaryIP{base: p.newBase("", nil), kind: kind, net: net, location: lb.location, holder: lb.ref(), autoDelete: true}
	k.name = fmt.Sprintf("%s-%d", kindPrimaryIP, k.id)
	p.primaryIPs.add(k)
	lb.addresses.set(k)
	return k
}

// removeLoadBalancer leaves the primary IPs that are not to go with it.
func (p *project) removeLoadBalancer(lb *loadBalancer) {
	p.loadBalancers.remove(lb.id)
	p.release(lb.ref())
}

// release gives back the primary IPs of what is no more.
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

// assign gives a server a primary IP as its address of that family.
func (s *server) assign(k *primaryIP) {
	k.holder = s.ref()
	s.addresses.set(k)
	if k.kind == typeIPv4 {
		s.ipv4 = k.net.Addr()
	} else {
		s.ipv6 = k.net
	}
}

// unassign takes it away again.
func (s *server) unassign(k *primaryIP) {
	k.holder = ref{}
	if k.kind == typeIPv4 {
		s.ipv4, s.addresses.ipv4 = netip.Addr{}, nil
	} else {
		s.ipv6, s.addresses.ipv6 = netip.Prefix{}, nil
	}
}

// pointersOf are the reverse DNS entries of an address of the server's, which belong to its primary
// IP if it has one.
func (s *server) pointersOf(ip netip.Addr) *pointers {
	for _, k := range s.addresses.all() {
		if k.net.Contains(ip) {
			return &k.pointers
		}
	}
	return &s.pointers
}

// publicID is the ID of a primary IP as the server shows it. One that came with the server is no
// primary IP here, and has the server's.
func (s *server) publicID(k *primaryIP) int64 {
	if k == nil {
		return s.id
	}
	return k.id
}
