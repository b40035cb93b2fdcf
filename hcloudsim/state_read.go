package hcloudsim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// reader parses a snapshot into a project and keeps the first error.
type reader struct {
	*project
	err error
}

// read fills a table, sorted by ID as the table requires.
func read[J any, R resource](r *reader, t *table[R], bodies []J, parse func(J) R) {
	for _, body := range bodies {
		one := parse(body)
		t.add(one)
		r.lastID = max(r.lastID, one.common().id)
	}
	slices.SortFunc(t.rows, func(a, b R) int { return cmp.Compare(a.common().id, b.common().id) })
	for i, one := range t.rows {
		id := one.common().id
		if id < 1 || (i > 0 && t.rows[i-1].common().id == id) {
			r.fail(fmt.Errorf("ID %d of %q: IDs are positive, and different within a kind",
				id, one.common().name))
		}
	}
}

func (r *reader) fail(err error) { r.err = cmp.Or(r.err, err) }

func (r *reader) addr(text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	r.fail(err)
	return a
}

func (r *reader) prefix(text string) netip.Prefix {
	p, err := netip.ParsePrefix(text)
	r.fail(err)
	return p
}

// publicIP parses the address of a primary or floating IP, and its reverse DNS entries.
func (r *reader) publicIP(
	kind, text string, entries []dnsEntry,
) (out publicIP) {
	switch kind {
	case typeIPv4:
		out = newPublicIP(r.addr(text))
	case typeIPv6:
		out = newPublicIP(r.prefix(text).Addr())
	default:
		r.fail(errInvalid("type", "must be one of %s, %s", typeIPv4, typeIPv6))
	}
	for _, e := range entries {
		out.note(r.addr(e.IP), e.DNSPtr)
	}
	return out
}

func (r *reader) server(b serverBody) *server {
	s := &server{
		base:   base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, b.Protection.Delete},
		status: b.Status, serverType: b.ServerType, location: b.Location, image: b.Image,
		disk: cmp.Or(b.PrimaryDiskSize, b.ServerType.Disk),
		iso:  b.ISO, rescue: b.RescueEnabled, backups: b.BackupWindow != nil,
	}
	if b.PlacementGroup != nil {
		s.group = b.PlacementGroup.ID
	}
	if ipv4 := b.PublicNet.IPv4; ipv4 != nil {
		entry := []dnsEntry{{IP: ipv4.IP, DNSPtr: ipv4.DNSPtr}}
		s.addresses.ipv4 = &primaryIP{publicIP: r.publicIP(typeIPv4, ipv4.IP, entry)}
	}
	if ipv6 := b.PublicNet.IPv6; ipv6 != nil {
		s.addresses.ipv6 = &primaryIP{publicIP: r.publicIP(typeIPv6, ipv6.IP, ipv6.DNSPtr)}
	}
	for _, net := range b.PrivateNet {
		a := &attachment{network: net.Network, ip: r.addr(net.IP), mac: net.MACAddress}
		for _, alias := range net.AliasIPs {
			a.aliases = append(a.aliases, r.addr(alias))
		}
		s.private = append(s.private, a)
	}
	return s
}

func (r *reader) network(b networkBody) *network {
	n := &network{
		base:    base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, b.Protection.Delete},
		ipRange: r.prefix(b.IPRange), exposeRoutes: b.ExposeRoutesToVSwitch,
	}
	if !n.ipRange.Addr().Is4() {
		r.fail(errInvalid("ip_range", "networks are IPv4 only"))
	}
	for _, sub := range b.Subnets {
		s := &subnet{kind: sub.Type, ipRange: r.prefix(sub.IPRange), zone: sub.NetworkZone}
		set(&s.vSwitch, sub.VSwitchID)
		n.subnets = append(n.subnets, s)
	}
	for _, entry := range b.Routes {
		n.routes = append(n.routes, &route{r.prefix(entry.Destination), r.addr(entry.Gateway)})
	}
	return n
}

// loadBalancer requires the servers, to determine the targets with a non-default IP.
func (r *reader) loadBalancer(b loadBalancerBody) *loadBalancer {
	ipv4, ipv6 := r.addr(b.PublicNet.IPv4.IP), r.addr(b.PublicNet.IPv6.IP)
	lb := &loadBalancer{
		base: base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, b.Protection.Delete},
		size: b.LoadBalancerType, location: b.Location, algorithm: b.Algorithm.Type,
		public: b.PublicNet.Enabled, health: map[healthKey]Finding{},
		addresses: addressPair{
			&primaryIP{publicIP: newPublicIP(ipv4)}, &primaryIP{publicIP: newPublicIP(ipv6)},
		},
	}
	lb.addresses.ipv4.note(ipv4, b.PublicNet.IPv4.DNSPtr)
	lb.addresses.ipv6.note(ipv6, b.PublicNet.IPv6.DNSPtr)
	for _, net := range b.PrivateNet {
		lb.private = &attachment{network: net.Network, ip: r.addr(net.IP)}
	}
	for _, body := range b.Services {
		s := &service{LoadBalancerService: body.LoadBalancerService}
		s.HTTP, s.HealthCheck = body.HTTP, &body.HealthCheck.LoadBalancerServiceHealthCheck
		s.HealthCheck.HTTP = body.HealthCheck.HTTP
		lb.services = append(lb.services, s)
	}
	for _, body := range b.Targets {
		lb.targets = append(lb.targets, r.target(lb, body))
	}
	return lb
}

func (r *reader) target(lb *loadBalancer, body targetBody) *target {
	var shown netip.Addr // the address of a server
	if body.Server != nil {
		shown, _ = netip.ParseAddr(body.Server.IP)
		body.Server = &targetServerBody{ID: body.Server.ID}
	}
	if body.Type == targetIP {
		body.UsePrivateIP = nil
	}
	t, err := r.parseTarget(body)
	if err != nil {
		r.fail(err)
		return &target{}
	}
	if shown.IsValid() && shown != r.addressOf(lb, t, TargetID{Server: t.server}) {
		t.ip = shown
	}
	return t
}

func (r *reader) primaryIP(b schema.PrimaryIP) *primaryIP {
	k := &primaryIP{
		base:     base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, b.Protection.Delete},
		location: b.Location, autoDelete: b.AutoDelete,
		publicIP: r.publicIP(b.Type, b.IP, rendered(b.DNSPtr,
			func(e schema.PrimaryIPDNSPTR) dnsEntry {
				return dnsEntry{IP: e.IP, DNSPtr: e.DNSPtr}
			})),
	}
	if b.AssigneeID != nil {
		k.holder = ref{b.AssigneeType, *b.AssigneeID}
	}
	return k
}

func (r *reader) floatingIP(b schema.FloatingIP) *floatingIP {
	f := &floatingIP{
		base: base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, b.Protection.Delete},
		home: b.HomeLocation,
		publicIP: r.publicIP(b.Type, b.IP, rendered(b.DNSPtr,
			func(e schema.FloatingIPDNSPtr) dnsEntry {
				return dnsEntry(e)
			})),
	}
	set(&f.description, b.Description)
	set(&f.server, b.Server)
	return f
}

// assignPrimaryIPs assigns primary IPs to their servers and load balancers, and releases those of
// which the holder is missing in an edited snapshot. In a snapshot without primary IPs, servers
// and load balancers get new primary IPs with the addresses that the snapshot shows.
func (r *reader) assignPrimaryIPs() {
	for _, k := range slices.Clone(r.primaryIPs.rows) {
		if s, there := r.servers.get(k.holder.id); there && k.holder == s.ref() {
			s.addresses.set(k)
		} else if lb, there := r.loadBalancers.get(k.holder.id); there && k.holder == lb.ref() {
			lb.addresses.set(k)
		} else if !k.free() {
			r.release(k.holder)
		}
	}
	for _, s := range r.servers.rows {
		r.hold(s.addresses, s.ref(), s.location)
	}
	for _, lb := range r.loadBalancers.rows {
		r.hold(lb.addresses, lb.ref(), lb.location)
		lb.setAddresses(lb.addresses.ipv4, lb.addresses.ipv6)
	}
}

func readCertificate(b certificateBody) *certificate {
	return &certificate{base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, false}, b, ""}
}

func readSSHKey(b schema.SSHKey) *sshKey {
	id := base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, false}
	return &sshKey{id, b.PublicKey, b.Fingerprint}
}

func readPlacementGroup(b schema.PlacementGroup) *placementGroup {
	return &placementGroup{base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, false}}
}

func readVolume(b schema.Volume) *volume {
	return &volume{base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, b.Protection.Delete}, b}
}

func readImage(b schema.Image) *image {
	i := &image{base{id: b.ID, labels: cloneLabels(b.Labels), protected: b.Protection.Delete}, b}
	set(&i.name, b.Name)
	set(&i.created, b.Created)
	return i
}

func readFirewall(b schema.Firewall) *firewall {
	rules := append([]schema.FirewallRule{}, b.Rules...)
	id := base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, false}
	f := &firewall{base: id, rules: rules}
	for _, r := range b.AppliedTo {
		switch {
		case r.LabelSelector != nil:
			f.applied = append(f.applied, &firewallTarget{selector: r.LabelSelector.Selector})
		case r.Server != nil:
			f.applied = append(f.applied, &firewallTarget{server: r.Server.ID})
		}
	}
	return f
}

func readAction(b schema.Action) *action {
	a := &action{
		change: change{command: b.Command}, id: b.ID, started: b.Started, ends: b.Started,
		done: true, failure: b.Error,
	}
	set(&a.ends, b.Finished)
	for _, r := range b.Resources {
		a.about = append(a.about, ref{r.Type, r.ID})
	}
	return a
}
