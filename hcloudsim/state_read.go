package hcloudsim

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// The functions below parse the API's representation into the state, the inverse of rendering.

// read fills a table, sorted by ID as the table requires.
func read[J any, R resource](p *project, t *table[R], bodies []J, one func(J) (R, error)) error {
	for _, body := range bodies {
		r, err := one(body)
		if err != nil {
			return err
		}
		t.add(r)
		p.lastID = max(p.lastID, r.common().id)
	}
	slices.SortFunc(t.rows, func(a, b R) int { return cmp.Compare(a.common().id, b.common().id) })
	for i, r := range t.rows {
		if id := r.common().id; id < 1 || (i > 0 && t.rows[i-1].common().id == id) {
			return fmt.Errorf("ID %d of %q: IDs are positive, and different within a kind", id, r.common().name)
		}
	}
	return nil
}

func sortedKeys[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}

// reader parses addresses and keeps the first error.
type reader struct{ err error }

func (r *reader) addr(text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	r.err = cmp.Or(r.err, err)
	return a
}

func (r *reader) addrs(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, r.addr(text))
	}
	return out
}

func (r *reader) prefix(text string) netip.Prefix {
	p, err := netip.ParsePrefix(text)
	r.err = cmp.Or(r.err, err)
	return p
}

func (r *reader) failure(kind string, id int64) error {
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("%s %d: %w", kind, id, r.err)
}

func readServer(b serverBody) (*server, error) {
	var r reader
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
		ip := r.addr(ipv4.IP)
		s.addresses.ipv4 = newIPv4(ip)
		s.addresses.ipv4.pointers.note(ip, ipv4.DNSPtr)
	}
	if ipv6 := b.PublicNet.IPv6; ipv6 != nil {
		s.addresses.ipv6 = newIPv6(r.prefix(ipv6.IP))
		for _, entry := range ipv6.DNSPtr {
			s.addresses.ipv6.pointers.note(r.addr(entry.IP), entry.DNSPtr)
		}
	}
	for _, net := range b.PrivateNet {
		s.private = append(s.private, &attachment{
			network: net.Network, ip: r.addr(net.IP), aliases: r.addrs(net.AliasIPs), mac: net.MACAddress,
		})
	}
	return s, r.failure(kindServer, s.id)
}

// note stores an entry that differs from the default.
func (p *pointers) note(ip netip.Addr, name string) {
	if !ip.IsValid() || p.of(ip) == name {
		return
	}
	if *p == nil {
		*p = pointers{}
	}
	(*p)[ip] = name
}

func readNetwork(b networkBody) (*network, error) {
	var r reader
	n := &network{
		base:    base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, b.Protection.Delete},
		ipRange: r.prefix(b.IPRange), exposeRoutes: b.ExposeRoutesToVSwitch,
	}
	if !n.ipRange.Addr().Is4() {
		r.err = cmp.Or(r.err, error(errInvalid("ip_range", "networks are IPv4 only")))
	}
	for _, sub := range b.Subnets {
		s := &subnet{kind: sub.Type, ipRange: r.prefix(sub.IPRange), zone: sub.NetworkZone}
		set(&s.vSwitch, sub.VSwitchID)
		n.subnets = append(n.subnets, s)
	}
	for _, entry := range b.Routes {
		n.routes = append(n.routes, &route{destination: r.prefix(entry.Destination), gateway: r.addr(entry.Gateway)})
	}
	return n, r.failure(kindNetwork, n.id)
}

// readLoadBalancer requires the servers, to determine the targets with a non-default IP.
func readLoadBalancer(p *project) func(loadBalancerBody) (*loadBalancer, error) {
	return func(b loadBalancerBody) (*loadBalancer, error) {
		var r reader
		lb := &loadBalancer{
			base: base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, b.Protection.Delete},
			size: b.LoadBalancerType, location: b.Location, algorithm: b.Algorithm.Type,
			public: b.PublicNet.Enabled, ipv4: r.addr(b.PublicNet.IPv4.IP), ipv6: r.addr(b.PublicNet.IPv6.IP),
			health: map[healthKey]Finding{},
		}
		lb.addresses = addressPair{newIPv4(lb.ipv4), newIPv6(netip.PrefixFrom(lb.ipv6, 64).Masked())}
		lb.addresses.ipv4.pointers.note(lb.ipv4, b.PublicNet.IPv4.DNSPtr)
		lb.addresses.ipv6.pointers.note(lb.ipv6, b.PublicNet.IPv6.DNSPtr)
		for _, net := range b.PrivateNet {
			lb.private = &attachment{network: net.Network, ip: r.addr(net.IP)}
		}
		for _, s := range b.Services {
			lb.services = append(lb.services, s.service())
		}
		for _, body := range b.Targets {
			t, err := body.target()
			if err != nil {
				return nil, fmt.Errorf("%s %d: %w", kindLoadBalancer, lb.id, err)
			}
			if t.kind == targetServer && body.Server.IP != "" {
				id := TargetID{Server: t.server}
				if ip := r.addr(body.Server.IP); ip != p.addressOf(lb, t, id) {
					t.ip = ip
				}
			}
			lb.targets = append(lb.targets, t)
		}
		return lb, r.failure(kindLoadBalancer, lb.id)
	}
}

func readPrimaryIP(b schema.PrimaryIP) (*primaryIP, error) {
	var r reader
	k := &primaryIP{
		base: base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, b.Protection.Delete},
		kind: b.Type, location: b.Location, autoDelete: b.AutoDelete,
	}
	switch b.Type {
	case typeIPv4:
		ip := r.addr(b.IP)
		k.net = netip.PrefixFrom(ip, ip.BitLen())
	case typeIPv6:
		k.net = r.prefix(b.IP)
	default:
		r.err = errInvalid("type", "must be one of %s, %s", typeIPv4, typeIPv6)
	}
	if b.AssigneeID != nil {
		k.holder = ref{b.AssigneeType, *b.AssigneeID}
	}
	for _, entry := range b.DNSPtr {
		k.pointers.note(r.addr(entry.IP), entry.DNSPtr)
	}
	return k, r.failure(kindPrimaryIP, k.id)
}

// readFloatingIP requires the servers: an edited snapshot may lack the assigned server.
func readFloatingIP(p *project) func(schema.FloatingIP) (*floatingIP, error) {
	return func(b schema.FloatingIP) (*floatingIP, error) {
		var r reader
		f := &floatingIP{
			base: base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, b.Protection.Delete},
			kind: b.Type, home: b.HomeLocation,
		}
		set(&f.description, b.Description)
		switch b.Type {
		case typeIPv4:
			ip := r.addr(b.IP)
			f.net = netip.PrefixFrom(ip, ip.BitLen())
		case typeIPv6:
			f.net = r.prefix(b.IP)
		default:
			r.err = errInvalid("type", "must be one of %s, %s", typeIPv4, typeIPv6)
		}
		if b.Server != nil {
			if _, there := p.servers.get(*b.Server); there {
				f.server = *b.Server
			}
		}
		for _, entry := range b.DNSPtr {
			f.pointers.note(r.addr(entry.IP), entry.DNSPtr)
		}
		return f, r.failure(kindFloatingIP, f.id)
	}
}

// readHolders assigns primary IPs to their servers and load balancers, and releases those whose
// holder is missing in an edited snapshot. In a snapshot without primary IPs, servers and load
// balancers get new primary IPs with the addresses that the snapshot shows.
func (p *project) readHolders() {
	for _, k := range slices.Clone(p.primaryIPs.rows) {
		if s, there := p.servers.get(k.holder.id); there && k.holder == s.ref() {
			s.addresses.set(k)
		} else if lb, there := p.loadBalancers.get(k.holder.id); there && k.holder == lb.ref() {
			lb.addresses.set(k)
		} else if !k.free() {
			p.release(k.holder)
		}
	}
	for _, s := range p.servers.rows {
		p.hold(s.addresses, s.ref(), s.location)
	}
	for _, lb := range p.loadBalancers.rows {
		p.hold(lb.addresses, lb.ref(), lb.location)
		lb.ipv4, lb.ipv6 = lb.addresses.ipv4.address(), lb.addresses.ipv6.address()
	}
}

// service returns the service of a body, always with a health check.
func (b serviceBody) service() *service {
	out := &service{LoadBalancerService: b.LoadBalancerService}
	check := b.HealthCheck.LoadBalancerServiceHealthCheck
	check.HTTP = b.HealthCheck.HTTP
	out.HTTP, out.HealthCheck = b.HTTP, &check
	return out.clone()
}

func (b targetBody) target() (*target, error) {
	req := targetRequest{Type: b.Type, LabelSelector: b.LabelSelector, IP: b.IP}
	if b.Type != targetIP {
		req.UsePrivateIP = b.UsePrivateIP
	}
	if b.Server != nil {
		req.Server = &targetServerRequest{ID: b.Server.ID}
	}
	return req.parse()
}

func readCertificate(b certificateBody) (*certificate, error) {
	k := &certificate{
		base: base{id: b.ID, name: b.Name, labels: cloneLabels(b.Labels), created: b.Created},
		kind: b.Type, domains: b.DomainNames,
	}
	if b.PEM != nil {
		k.content = &content{chain: *b.PEM}
		set(&k.content.fingerprint, b.Fingerprint)
		set(&k.content.notBefore, b.NotValidBefore)
		set(&k.content.notAfter, b.NotValidAfter)
	}
	if b.Status != nil {
		k.issuance, k.failure = b.Status.Issuance, b.Status.Error
	}
	return k, nil
}

func readSSHKey(b schema.SSHKey) (*sshKey, error) {
	return &sshKey{
		base:      base{id: b.ID, name: b.Name, labels: cloneLabels(b.Labels), created: b.Created},
		publicKey: b.PublicKey, fingerprint: b.Fingerprint,
	}, nil
}

func readPlacementGroup(b schema.PlacementGroup) (*placementGroup, error) {
	labels := cloneLabels(b.Labels)
	return &placementGroup{base{id: b.ID, name: b.Name, labels: labels, created: b.Created}}, nil
}

// readVolume requires the servers: an edited snapshot may lack the one that it is attached to.
func readVolume(p *project) func(schema.Volume) (*volume, error) {
	return func(b schema.Volume) (*volume, error) {
		v := &volume{
			base:   base{b.ID, b.Name, cloneLabels(b.Labels), b.Created, b.Protection.Delete},
			status: b.Status, size: b.Size, location: b.Location, format: b.Format,
		}
		if b.Server != nil {
			if _, there := p.servers.get(*b.Server); there {
				v.server = *b.Server
			}
		}
		return v, nil
	}
}

// readFirewall requires the servers, as readVolume does.
func readFirewall(p *project) func(schema.Firewall) (*firewall, error) {
	return func(b schema.Firewall) (*firewall, error) {
		f := &firewall{
			base:  base{id: b.ID, name: b.Name, labels: cloneLabels(b.Labels), created: b.Created},
			rules: append([]schema.FirewallRule{}, b.Rules...),
		}
		for _, r := range b.AppliedTo {
			switch {
			case r.LabelSelector != nil:
				t := firewallTarget{selector: r.LabelSelector.Selector}
				f.applied = append(f.applied, &application{firewallTarget: t})
			case r.Server != nil:
				if _, there := p.servers.get(r.Server.ID); there {
					t := firewallTarget{server: r.Server.ID}
					f.applied = append(f.applied, &application{firewallTarget: t})
				}
			}
		}
		return f, nil
	}
}

func readAction(b schema.Action) *action {
	a := &action{change: change{command: b.Command}, id: b.ID, started: b.Started, ends: b.Started, done: true, failure: b.Error}
	set(&a.ends, b.Finished)
	for _, r := range b.Resources {
		a.about = append(a.about, ref{r.Type, r.ID})
	}
	return a
}
