package conformance_test

import (
	"net"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

func (d *driver) networks() *hcloud.Network {
	ctx := d.Context()
	n, _, err := d.c.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name: "cluster", IPRange: ipNet("10.0.0.0/9"), Labels: map[string]string{"a": "b"}, ExposeRoutesToVSwitch: true,
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipNet("10.0.0.0/16"), NetworkZone: hcloud.NetworkZoneEUCentral}},
		Routes:  []hcloud.NetworkRoute{{Destination: ipNet("10.100.0.0/24"), Gateway: net.IPv4(10, 0, 0, 2)}},
	})
	d.must(err)
	d.must(d.c.Network.List(ctx, hcloud.NetworkListOpts{Name: "cluster", ListOpts: filters("x"), Sort: []string{"name", "created:desc"}}))
	d.must(d.c.Network.GetByID(ctx, n.ID))
	d.must(d.c.Network.Update(ctx, n, hcloud.NetworkUpdateOpts{Name: "renamed", Labels: map[string]string{"c": ""}, ExposeRoutesToVSwitch: hcloud.Ptr(false)}))
	route := hcloud.NetworkRoute{Destination: ipNet("10.101.0.0/24"), Gateway: net.IPv4(10, 0, 0, 3)}
	d.must(d.c.Network.AddRoute(ctx, n, hcloud.NetworkAddRouteOpts{Route: route}))
	d.refused(hcloud.ErrorCodeInvalidInput)(d.c.Network.AddRoute(ctx, n, hcloud.NetworkAddRouteOpts{
		Route: route,
	}))
	d.must(d.c.Network.DeleteRoute(ctx, n, hcloud.NetworkDeleteRouteOpts{Route: route}))
	subnet := hcloud.NetworkSubnet{Type: hcloud.NetworkSubnetTypeVSwitch, IPRange: ipNet("10.1.0.0/24"), NetworkZone: hcloud.NetworkZoneEUCentral, VSwitchID: 7}
	d.must(d.c.Network.AddSubnet(ctx, n, hcloud.NetworkAddSubnetOpts{Subnet: subnet}))
	d.must(d.c.Network.GetByID(ctx, n.ID))
	d.must(d.c.Network.DeleteSubnet(ctx, n, hcloud.NetworkDeleteSubnetOpts{Subnet: subnet}))
	d.must(d.c.Network.ChangeIPRange(ctx, n, hcloud.NetworkChangeIPRangeOpts{IPRange: ipNet("10.0.0.0/8")}))
	d.must(d.c.Network.ChangeProtection(ctx, n, hcloud.NetworkChangeProtectionOpts{
		Delete: hcloud.Ptr(true),
	}))
	return n
}

// servers makes two: the first is in the network.
func (d *driver) servers(n *hcloud.Network) (a, b *hcloud.Server) {
	ctx := d.Context()
	keys, err := d.c.SSHKey.All(ctx)
	d.must(err)
	made, _, err := d.c.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "a", ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
		Location: &hcloud.Location{Name: "fsn1"}, Networks: []*hcloud.Network{n}, SSHKeys: keys, UserData: "#cloud-config",
		Labels: map[string]string{"role": "worker"}, StartAfterCreate: hcloud.Ptr(true),
	})
	d.must(err)
	a = made.Server
	second, _, err := d.c.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "b", ServerType: &hcloud.ServerType{ID: 45}, Image: &hcloud.Image{Name: "debian-12"},
		PublicNet: &hcloud.ServerCreatePublicNet{EnableIPv6: true}, StartAfterCreate: hcloud.Ptr(false),
	})
	d.must(err)
	b = second.Server
	d.must(d.c.Server.List(ctx, hcloud.ServerListOpts{Name: "a", Status: []hcloud.ServerStatus{hcloud.ServerStatusRunning}, ListOpts: filters("x"), Sort: []string{"id:asc"}}))
	d.must(d.c.Server.Update(ctx, b, hcloud.ServerUpdateOpts{Name: "c", Labels: map[string]string{"role": "worker"}}))
	for _, change := range []func() (*hcloud.Action, *hcloud.Response, error){
		func() (*hcloud.Action, *hcloud.Response, error) { return d.c.Server.Poweron(ctx, b) },
		func() (*hcloud.Action, *hcloud.Response, error) { return d.c.Server.Reboot(ctx, b) },
		func() (*hcloud.Action, *hcloud.Response, error) { return d.c.Server.Reset(ctx, b) },
		func() (*hcloud.Action, *hcloud.Response, error) { return d.c.Server.Shutdown(ctx, b) },
		func() (*hcloud.Action, *hcloud.Response, error) { return d.c.Server.Poweroff(ctx, b) },
		func() (*hcloud.Action, *hcloud.Response, error) {
			return d.c.Server.ChangeDNSPtr(ctx, a, a.PublicNet.IPv4.IP.String(), hcloud.Ptr("a.example.com"))
		},
		func() (*hcloud.Action, *hcloud.Response, error) {
			return d.c.Server.ChangeDNSPtr(ctx, a, a.PublicNet.IPv6.Network.IP.String()+"1", hcloud.Ptr("a.example.com"))
		},
		func() (*hcloud.Action, *hcloud.Response, error) {
			return d.c.Server.ChangeDNSPtr(ctx, a, a.PublicNet.IPv4.IP.String(), nil)
		},
		func() (*hcloud.Action, *hcloud.Response, error) {
			return d.c.Server.ChangeProtection(ctx, a, hcloud.ServerChangeProtectionOpts{
				Delete: hcloud.Ptr(true), Rebuild: hcloud.Ptr(true),
			})
		},
		func() (*hcloud.Action, *hcloud.Response, error) {
			return d.c.Server.ChangeProtection(ctx, a, hcloud.ServerChangeProtectionOpts{
				Delete: hcloud.Ptr(false), Rebuild: hcloud.Ptr(false),
			})
		},
		func() (*hcloud.Action, *hcloud.Response, error) {
			return d.c.Server.AttachToNetwork(ctx, b, hcloud.ServerAttachToNetworkOpts{
				Network: n, IP: net.IPv4(10, 0, 0, 50), AliasIPs: []net.IP{net.IPv4(10, 0, 0, 51)},
			})
		},
		func() (*hcloud.Action, *hcloud.Response, error) {
			return d.c.Server.ChangeAliasIPs(ctx, b, hcloud.ServerChangeAliasIPsOpts{
				Network: n, AliasIPs: []net.IP{net.IPv4(10, 0, 0, 52)},
			})
		},
	} {
		d.must(change())
	}
	d.must(d.c.Server.GetByID(ctx, a.ID))
	d.must(d.c.Network.ListMembers(ctx, n, hcloud.NetworkMemberListOpts{
		Type:   []hcloud.NetworkMemberType{hcloud.NetworkMemberTypeServer},
		Status: []hcloud.NetworkMemberStatus{hcloud.NetworkMemberStatusOK},
	}))
	d.must(d.c.Network.GetByID(ctx, n.ID))
	d.must(d.c.Server.DetachFromNetwork(ctx, b, hcloud.ServerDetachFromNetworkOpts{Network: n}))
	return a, b
}

// primaryIPs leaves one of each type, and tries the first at a server without an IPv4 address.
func (d *driver) primaryIPs(b *hcloud.Server) (ipv4, ipv6 *hcloud.PrimaryIP) {
	ctx := d.Context()
	made, _, err := d.c.PrimaryIP.Create(ctx, hcloud.PrimaryIPCreateOpts{
		Name: "web", Type: hcloud.PrimaryIPTypeIPv4, Location: "fsn1", AutoDelete: hcloud.Ptr(true), Labels: map[string]string{"a": "b"},
	})
	d.must(err)
	ipv4 = made.PrimaryIP
	made, _, err = d.c.PrimaryIP.Create(ctx, hcloud.PrimaryIPCreateOpts{Name: "web-6", Type: hcloud.PrimaryIPTypeIPv6, Location: "fsn1"})
	d.must(err)
	ipv6 = made.PrimaryIP
	d.must(d.c.PrimaryIP.List(ctx, hcloud.PrimaryIPListOpts{Name: "web", IP: ipv4.IP.String(), ListOpts: filters("x"), Sort: []string{"created:desc", "id"}}))
	d.must(d.c.PrimaryIP.Update(ctx, ipv4, hcloud.PrimaryIPUpdateOpts{Name: "renamed", AutoDelete: hcloud.Ptr(false), Labels: &map[string]string{"c": ""}}))
	d.must(d.c.PrimaryIP.ChangeDNSPtr(ctx, hcloud.PrimaryIPChangeDNSPtrOpts{ID: ipv6.ID, IP: ipv6.IP.String() + "1", DNSPtr: "web.example.com"}))
	d.must(d.c.PrimaryIP.ChangeProtection(ctx, hcloud.PrimaryIPChangeProtectionOpts{
		ID: ipv4.ID, Delete: true,
	}))
	d.refused(hcloud.ErrorCodeProtected)(d.c.PrimaryIP.Delete(ctx, ipv4))
	d.must(d.c.PrimaryIP.Assign(ctx, hcloud.PrimaryIPAssignOpts{ID: ipv4.ID, AssigneeID: b.ID, AssigneeType: "server"}))
	d.must(d.c.PrimaryIP.GetByID(ctx, ipv4.ID))
	d.must(d.c.Server.GetByID(ctx, b.ID))
	d.must(d.c.PrimaryIP.Unassign(ctx, ipv4.ID))
	actions, _, err := d.c.PrimaryIP.Action.ListFor(ctx, ipv4, hcloud.ActionListOpts{})
	d.must(err)
	d.must(d.c.PrimaryIP.Action.List(ctx, hcloud.ActionListOpts{ID: []int64{actions[0].ID}}))
	d.must(d.c.PrimaryIP.Action.GetByID(ctx, actions[0].ID))
	return ipv4, ipv6
}

// floatingIPs leaves one that leads to a server.
func (d *driver) floatingIPs(a, b *hcloud.Server) {
	ctx := d.Context()
	made, _, err := d.c.FloatingIP.Create(ctx, hcloud.FloatingIPCreateOpts{
		Type: hcloud.FloatingIPTypeIPv6, HomeLocation: &hcloud.Location{Name: "fsn1"}, Name: hcloud.Ptr("web-6"), Labels: map[string]string{"a": "b"},
	})
	d.must(err)
	net := made.FloatingIP
	made, _, err = d.c.FloatingIP.Create(ctx, hcloud.FloatingIPCreateOpts{
		Type: hcloud.FloatingIPTypeIPv4, Server: a, Name: hcloud.Ptr("web-4"), Description: hcloud.Ptr("the shop"),
	})
	d.must(err)
	address := made.FloatingIP
	d.must(d.c.FloatingIP.List(ctx, hcloud.FloatingIPListOpts{Name: "web-6", ListOpts: filters("x"), Sort: []string{"created:desc", "id"}}))
	d.must(d.c.FloatingIP.Update(ctx, net, hcloud.FloatingIPUpdateOpts{Name: "renamed", Description: "two", Labels: map[string]string{"c": ""}}))
	d.must(d.c.FloatingIP.ChangeDNSPtr(ctx, net, net.IP.String()+"1", hcloud.Ptr("web.example.com")))
	d.must(d.c.FloatingIP.ChangeProtection(ctx, net, hcloud.FloatingIPChangeProtectionOpts{
		Delete: hcloud.Ptr(true),
	}))
	d.refused(hcloud.ErrorCodeProtected)(d.c.FloatingIP.Delete(ctx, net))
	d.must(d.c.FloatingIP.ChangeProtection(ctx, net, hcloud.FloatingIPChangeProtectionOpts{
		Delete: hcloud.Ptr(false),
	}))
	d.must(d.c.FloatingIP.Assign(ctx, address, b))
	d.must(d.c.FloatingIP.GetByID(ctx, address.ID))
	d.must(d.c.Server.GetByID(ctx, b.ID))
	d.must(d.c.FloatingIP.Unassign(ctx, address))
	d.must(d.c.FloatingIP.Assign(ctx, address, a))
	actions, _, err := d.c.FloatingIP.Action.ListFor(ctx, address, hcloud.ActionListOpts{})
	d.must(err)
	d.must(d.c.FloatingIP.Action.List(ctx, hcloud.ActionListOpts{ID: []int64{actions[0].ID}}))
	d.must(d.c.FloatingIP.Action.GetByID(ctx, actions[0].ID))
	d.must(d.c.FloatingIP.Delete(ctx, net))
}

func (d *driver) certificates() *hcloud.Certificate {
	ctx := d.Context()
	chain, key := newCertificate(d.T, "example.com")
	uploaded, _, err := d.c.Certificate.Create(ctx, hcloud.CertificateCreateOpts{Name: "uploaded", Certificate: chain, PrivateKey: key, Labels: map[string]string{"a": "b"}})
	d.must(err)
	d.must(d.c.Certificate.Update(ctx, uploaded, hcloud.CertificateUpdateOpts{Name: "renamed"}))
	d.must(d.i.sim.Inject(hcloudsim.Fault{Match: "POST /certificates", FailAction: "ca_dns_validation_failed"}))
	made, _, err := d.c.Certificate.CreateCertificate(ctx, hcloud.CertificateCreateOpts{Name: "managed", Type: hcloud.CertificateTypeManaged, DomainNames: []string{"*.example.com"}})
	d.must(err)
	d.must(d.c.Certificate.GetByID(ctx, made.Certificate.ID)) // failed
	d.must(d.c.Certificate.RetryIssuance(ctx, made.Certificate))
	d.must(d.c.Certificate.GetByID(ctx, made.Certificate.ID)) // completed
	d.must(d.c.Certificate.List(ctx, hcloud.CertificateListOpts{Name: "managed", ListOpts: filters("x"), Sort: []string{"created"}}))
	d.must(d.c.Certificate.Delete(ctx, uploaded))
	return made.Certificate
}

func (d *driver) loadBalancers(
	n *hcloud.Network, a, b *hcloud.Server, certificate *hcloud.Certificate,
) {
	ctx := d.Context()
	ipv4, ipv6 := d.primaryIPs(b)
	made, _, err := d.c.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
		Algorithm: &hcloud.LoadBalancerAlgorithm{Type: hcloud.LoadBalancerAlgorithmTypeLeastConnections},
		Labels:    map[string]string{"a": "b"}, Network: n, PublicInterface: hcloud.Ptr(true),
		PublicNet: &hcloud.LoadBalancerCreateOptsPublicNet{IPv4: ipv4, IPv6: ipv6},
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(8080),
			DestinationPort: hcloud.Ptr(30080), Proxyprotocol: hcloud.Ptr(true),
			HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{
				Protocol: hcloud.LoadBalancerServiceProtocolHTTP, Port: hcloud.Ptr(10256),
				Interval: hcloud.Ptr(3 * time.Second),
				Timeout:  hcloud.Ptr(2 * time.Second), Retries: hcloud.Ptr(2),
				HTTP: &hcloud.LoadBalancerCreateOptsServiceHealthCheckHTTP{Domain: hcloud.Ptr("example.com"), Path: hcloud.Ptr("/healthz"), StatusCodes: []string{"2??"}},
			},
		}},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{
			Type:   hcloud.LoadBalancerTargetTypeServer,
			Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: a}, UsePrivateIP: hcloud.Ptr(true),
		}},
	})
	d.must(err)
	lb := made.LoadBalancer
	d.must(d.c.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Name: "renamed", Labels: map[string]string{"c": "d"}}))
	d.must(d.c.LoadBalancer.AddService(ctx, lb, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolHTTPS, ListenPort: hcloud.Ptr(443),
		DestinationPort: hcloud.Ptr(30443),
		HTTP: &hcloud.LoadBalancerAddServiceOptsHTTP{
			CookieName: hcloud.Ptr("STICKY"), CookieLifetime: hcloud.Ptr(time.Hour), StickySessions: hcloud.Ptr(true),
			Certificates: []*hcloud.Certificate{certificate}, RedirectHTTP: hcloud.Ptr(true),
			TimeoutIdle: hcloud.Ptr(time.Minute),
		},
	}))
	d.refused(hcloud.ErrorCodeSourcePortAlreadyUsed)(d.c.LoadBalancer.AddService(ctx, lb,
		hcloud.LoadBalancerAddServiceOpts{Protocol: hcloud.LoadBalancerServiceProtocolHTTP}))
	d.must(d.c.LoadBalancer.UpdateService(ctx, lb, 443, hcloud.LoadBalancerUpdateServiceOpts{
		HTTP: &hcloud.LoadBalancerUpdateServiceOptsHTTP{StickySessions: hcloud.Ptr(false)},
		HealthCheck: &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
			Protocol: hcloud.LoadBalancerServiceProtocolHTTP, Interval: hcloud.Ptr(20 * time.Second),
			HTTP: &hcloud.LoadBalancerUpdateServiceOptsHealthCheckHTTP{Domain: hcloud.Ptr("example.com"), Path: hcloud.Ptr("/"), TLS: hcloud.Ptr(true)},
		},
	}))
	d.must(d.c.Server.Poweron(ctx, b))
	d.must(d.c.LoadBalancer.AddLabelSelectorTarget(ctx, lb, hcloud.LoadBalancerAddLabelSelectorTargetOpts{Selector: "role=worker"}))
	d.must(d.c.LoadBalancer.AddIPTarget(ctx, lb, hcloud.LoadBalancerAddIPTargetOpts{
		IP: net.IPv4(192, 0, 2, 7),
	}))
	d.must(d.c.LoadBalancer.GetByID(ctx, lb.ID))
	d.must(d.c.LoadBalancer.List(ctx, hcloud.LoadBalancerListOpts{Name: "renamed", ListOpts: filters("x"), Sort: []string{"id:desc"}}))
	d.must(d.c.Certificate.GetByID(ctx, certificate.ID)) // in use
	d.must(d.c.Server.GetByID(ctx, a.ID))                // a target
	d.refused(hcloud.ErrorCodeResourceInUse)(d.c.Certificate.Delete(ctx, certificate))
	d.must(d.c.LoadBalancer.RemoveIPTarget(ctx, lb, net.IPv4(192, 0, 2, 7)))
	d.must(d.c.LoadBalancer.RemoveLabelSelectorTarget(ctx, lb, "role=worker"))
	d.must(d.c.LoadBalancer.RemoveServerTarget(ctx, lb, a))
	d.must(d.c.LoadBalancer.AddServerTarget(ctx, lb, hcloud.LoadBalancerAddServerTargetOpts{
		Server: a, UsePrivateIP: hcloud.Ptr(true),
	}))
	d.must(d.c.LoadBalancer.DisablePublicInterface(ctx, lb))
	d.must(d.c.LoadBalancer.EnablePublicInterface(ctx, lb))
	d.must(d.c.LoadBalancer.DetachFromNetwork(ctx, lb, hcloud.LoadBalancerDetachFromNetworkOpts{
		Network: n,
	}))
	d.must(d.c.LoadBalancer.AttachToNetwork(ctx, lb, hcloud.LoadBalancerAttachToNetworkOpts{
		Network: n, IP: net.IPv4(10, 0, 0, 99),
	}))
	d.must(d.c.LoadBalancer.ChangeAlgorithm(ctx, lb, hcloud.LoadBalancerChangeAlgorithmOpts{
		Type: hcloud.LoadBalancerAlgorithmTypeRoundRobin,
	}))
	d.must(d.c.LoadBalancer.ChangeType(ctx, lb, hcloud.LoadBalancerChangeTypeOpts{
		LoadBalancerType: &hcloud.LoadBalancerType{ID: 2},
	}))
	d.must(d.c.LoadBalancer.ChangeDNSPtr(ctx, lb, lb.PublicNet.IPv4.IP.String(), hcloud.Ptr("lb.example.com")))
	d.must(d.c.LoadBalancer.ChangeProtection(ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{
		Delete: hcloud.Ptr(false),
	}))
	d.must(d.c.LoadBalancer.DeleteService(ctx, lb, 8080))
	d.must(d.c.LoadBalancer.GetMetrics(ctx, lb, hcloud.LoadBalancerGetMetricsOpts{
		Types: []hcloud.LoadBalancerMetricType{
			hcloud.LoadBalancerMetricOpenConnections, hcloud.LoadBalancerMetricBandwidth,
		},
		Start: time.Now().Add(-time.Hour), End: time.Now().Add(time.Hour),
	}))
	actions, _, err := d.c.LoadBalancer.Action.ListFor(ctx, lb, hcloud.ActionListOpts{})
	d.must(err)
	d.must(d.c.LoadBalancer.Action.List(ctx, hcloud.ActionListOpts{ID: []int64{actions[0].ID}}))
	d.must(d.c.LoadBalancer.Action.GetByID(ctx, actions[0].ID))
	d.must(d.c.PrimaryIP.GetByID(ctx, ipv4.ID)) // the load balancer's
	d.must(d.c.LoadBalancer.DeleteWithResult(ctx, lb))
	d.must(d.c.PrimaryIP.Delete(ctx, ipv6))
}
