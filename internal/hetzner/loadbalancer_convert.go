package hetzner

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/lb"
)

// balancerState converts a load balancer; addresses are those of its targets, see readAddresses.
func balancerState(b *hcloud.LoadBalancer, addresses []string) lb.State {
	s := lb.State{
		ID: b.ID, Name: b.Name, Labels: b.Labels, Created: b.Created, Algorithm: lb.Algorithm(b.Algorithm.Type),
		Public: b.PublicNet.Enabled, IPv4: ipnet.Addr(b.PublicNet.IPv4.IP), IPv6: ipnet.Addr(b.PublicNet.IPv6.IP),
		ReverseDNS:  lb.ReverseDNS{IPv4Name: b.PublicNet.IPv4.DNSPtr, IPv6Name: b.PublicNet.IPv6.DNSPtr},
		PrimaryIPv4: b.PublicNet.IPv4.ID, PrimaryIPv6: b.PublicNet.IPv6.ID,
	}
	if b.LoadBalancerType != nil {
		s.Type = b.LoadBalancerType.Name
	}
	if b.Location != nil {
		s.Location, s.NetworkZone = b.Location.Name, string(b.Location.NetworkZone)
	}
	// A load balancer is attached to at most one network.
	if len(b.PrivateNet) > 0 && b.PrivateNet[0].Network != nil {
		s.Network, s.PrivateIP = b.PrivateNet[0].Network.ID, ipnet.Addr(b.PrivateNet[0].IP)
	}
	for _, service := range b.Services {
		s.Listeners = append(s.Listeners, lb.Listener{
			Port: service.ListenPort, DestinationPort: service.DestinationPort, Protocol: string(service.Protocol),
			ProxyProtocol: service.Proxyprotocol, HTTP: listenerHTTP(service), Check: healthCheck(service.HealthCheck),
		})
	}
	slices.SortFunc(s.Listeners, func(a, b lb.Listener) int { return cmp.Compare(a.Port, b.Port) })
	for i, found := range b.Targets {
		target, ok := targetOf(found)
		if pod, named := podTarget(target.Server, addresses[i]); named && found.Type == hcloud.LoadBalancerTargetTypeServer && !found.UsePrivateIP {
			target = pod
		}
		if !ok {
			// A label selector counts once for each server that it matches.
			s.OtherTargets += max(1, len(found.Targets))
			continue
		}
		s.Targets = append(s.Targets, target)
		addResults(&s, target, found.HealthStatus)
	}
	slices.SortFunc(s.Targets, lb.Target.Compare)
	return s
}

// targetOf returns false for targets without a model in lb, such as label selectors.
func targetOf(t hcloud.LoadBalancerTarget) (lb.Target, bool) {
	switch {
	case t.Type == hcloud.LoadBalancerTargetTypeServer && t.Server != nil && t.Server.Server != nil:
		return lb.Target{Server: t.Server.Server.ID, Private: t.UsePrivateIP}, true
	case t.Type == hcloud.LoadBalancerTargetTypeIP && t.IP != nil:
		ip, err := netip.ParseAddr(t.IP.IP)
		return lb.AddressTarget(ip.Unmap()), err == nil
	}
	return lb.Target{}, false
}

func addResults(s *lb.State, target lb.Target, status []hcloud.LoadBalancerTargetHealthStatus) {
	for _, result := range status {
		verdict := lb.Unknown
		switch result.Status {
		case hcloud.LoadBalancerTargetHealthStatusStatusHealthy:
			verdict = lb.Healthy
		case hcloud.LoadBalancerTargetHealthStatusStatusUnhealthy:
			verdict = lb.Unhealthy
		}
		put(&s.Verdicts, result.ListenPort, target, verdict)
		if verdict == lb.Unhealthy && result.Detail != nil {
			cause := lb.Cause{Detail: lb.Detail(*result.Detail)}
			if result.HTTPStatusCode != nil {
				cause.HTTPStatus = *result.HTTPStatusCode
			}
			put(&s.Why, result.ListenPort, target, cause)
		}
	}
}

func put[V any](all *map[int]map[lb.Target]V, port int, target lb.Target, value V) {
	if *all == nil {
		*all = make(map[int]map[lb.Target]V)
	}
	if (*all)[port] == nil {
		(*all)[port] = make(map[lb.Target]V)
	}
	(*all)[port][target] = value
}

func listenerHTTP(s hcloud.LoadBalancerService) lb.HTTP {
	if s.Protocol == hcloud.LoadBalancerServiceProtocolTCP {
		return lb.HTTP{}
	}
	http := lb.HTTP{
		Sticky: s.HTTP.StickySessions, CookieName: s.HTTP.CookieName, CookieLifetime: s.HTTP.CookieLifetime,
		IdleTimeout: s.HTTP.TimeoutIdle, Redirect: s.HTTP.RedirectHTTP,
	}
	var ids []int64
	for _, c := range s.HTTP.Certificates {
		ids = append(ids, c.ID)
	}
	http.Certificates = lb.JoinCertificates(ids)
	return http
}

func healthCheck(c hcloud.LoadBalancerServiceHealthCheck) lb.HealthCheck {
	check := lb.HealthCheck{
		Protocol: string(c.Protocol), Port: c.Port, Interval: c.Interval, Timeout: c.Timeout, Retries: c.Retries,
	}
	// The HTTP settings of a TCP check have no effect.
	if c.Protocol != hcloud.LoadBalancerServiceProtocolTCP && c.HTTP != nil {
		check.Path, check.StatusCodes = c.HTTP.Path, strings.Join(c.HTTP.StatusCodes, ",")
		check.Domain, check.Response, check.TLS = c.HTTP.Domain, c.HTTP.Response, c.HTTP.TLS
	}
	return check
}

func createOpts(spec lb.Spec) hcloud.LoadBalancerCreateOpts {
	opts := hcloud.LoadBalancerCreateOpts{
		Name: spec.Name, Labels: spec.Labels(),
		LoadBalancerType: &hcloud.LoadBalancerType{Name: spec.Type},
		Algorithm:        &hcloud.LoadBalancerAlgorithm{Type: hcloud.LoadBalancerAlgorithmType(spec.Algorithm)},
		NetworkZone:      hcloud.NetworkZone(spec.NetworkZone),
		PublicInterface:  hcloud.Ptr(spec.Public),
		PublicNet:        publicNetOpts(spec),
	}
	if spec.Location != "" {
		opts.Location = &hcloud.Location{Name: spec.Location}
	}
	if spec.Network != 0 {
		opts.Network = &hcloud.Network{ID: spec.Network}
	}
	for _, l := range spec.Listeners {
		add := addServiceOpts(l)
		service := hcloud.LoadBalancerCreateOptsService{
			Protocol: add.Protocol, ListenPort: add.ListenPort, DestinationPort: add.DestinationPort, Proxyprotocol: add.Proxyprotocol,
			HTTP: (*hcloud.LoadBalancerCreateOptsServiceHTTP)(add.HTTP),
			HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{
				Protocol: add.HealthCheck.Protocol, Port: add.HealthCheck.Port,
				Interval: add.HealthCheck.Interval, Timeout: add.HealthCheck.Timeout, Retries: add.HealthCheck.Retries,
				HTTP: (*hcloud.LoadBalancerCreateOptsServiceHealthCheckHTTP)(add.HealthCheck.HTTP),
			},
		}
		opts.Services = append(opts.Services, service)
	}
	for _, t := range spec.Targets {
		if !t.Pod() { // hcloud-go can't send its address
			opts.Targets = append(opts.Targets, createTarget(t))
		}
	}
	return opts
}

// createTarget omits UsePrivateIP for addresses, since the API accepts it for servers only.
func createTarget(t lb.Target) hcloud.LoadBalancerCreateOptsTarget {
	if t.Address.IsValid() {
		return hcloud.LoadBalancerCreateOptsTarget{
			Type: hcloud.LoadBalancerTargetTypeIP, IP: hcloud.LoadBalancerCreateOptsTargetIP{IP: t.Address.String()},
		}
	}
	return hcloud.LoadBalancerCreateOptsTarget{
		Type:         hcloud.LoadBalancerTargetTypeServer,
		Server:       hcloud.LoadBalancerCreateOptsTargetServer{Server: &hcloud.Server{ID: t.Server}},
		UsePrivateIP: hcloud.Ptr(t.Private),
	}
}

// addServiceOpts omits options that no Spec sets, and an empty domain, the API's default.
func addServiceOpts(l lb.Listener) hcloud.LoadBalancerAddServiceOpts {
	opts := hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocol(l.Protocol), Proxyprotocol: hcloud.Ptr(l.ProxyProtocol),
		ListenPort: hcloud.Ptr(l.Port), DestinationPort: hcloud.Ptr(l.DestinationPort),
		HealthCheck: &hcloud.LoadBalancerAddServiceOptsHealthCheck{
			Protocol: hcloud.LoadBalancerServiceProtocol(l.Check.Protocol), Port: hcloud.Ptr(l.Check.Port),
			Interval: hcloud.Ptr(l.Check.Interval), Timeout: hcloud.Ptr(l.Check.Timeout), Retries: hcloud.Ptr(l.Check.Retries),
		},
	}
	if l.Check.Protocol == lb.ProtocolHTTP {
		opts.HealthCheck.HTTP = &hcloud.LoadBalancerAddServiceOptsHealthCheckHTTP{
			Path: hcloud.Ptr(l.Check.Path), StatusCodes: statusCodes(l.Check.StatusCodes), TLS: hcloud.Ptr(l.Check.TLS),
		}
		if l.Check.Domain != "" {
			opts.HealthCheck.HTTP.Domain = hcloud.Ptr(l.Check.Domain)
		}
	}
	if http := l.HTTP; l.Protocol != lb.ProtocolTCP {
		opts.HTTP = &hcloud.LoadBalancerAddServiceOptsHTTP{
			CookieName: hcloud.Ptr(http.CookieName), CookieLifetime: hcloud.Ptr(http.CookieLifetime), Certificates: certificateRefs(http.Certificates),
			RedirectHTTP: hcloud.Ptr(http.Redirect), StickySessions: hcloud.Ptr(http.Sticky), TimeoutIdle: hcloud.Ptr(http.IdleTimeout),
		}
	}
	return opts
}

// certificateRefs returns an empty, non-nil slice without certificates: an update ignores nil.
func certificateRefs(ids string) []*hcloud.Certificate {
	refs := []*hcloud.Certificate{}
	for text := range strings.SplitSeq(ids, ",") {
		if id, err := strconv.ParseInt(text, 10, 64); err == nil {
			refs = append(refs, &hcloud.Certificate{ID: id})
		}
	}
	return refs
}

func attachOpts(op lb.AttachNetwork) hcloud.LoadBalancerAttachToNetworkOpts {
	opts := hcloud.LoadBalancerAttachToNetworkOpts{Network: &hcloud.Network{ID: op.Network}}
	if op.IP.IsValid() {
		opts.IP = op.IP.AsSlice()
	}
	if op.Range.IsValid() {
		opts.IPRange = ipnet.Of(op.Range)
	}
	return opts
}

// pointerName returns nil, the cloud's default, for an empty name.
func pointerName(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}

// updateServiceOpts sets every option, since an update keeps omitted ones.
func updateServiceOpts(l lb.Listener) hcloud.LoadBalancerUpdateServiceOpts {
	add := addServiceOpts(l)
	check := (*hcloud.LoadBalancerUpdateServiceOptsHealthCheckHTTP)(add.HealthCheck.HTTP)
	if check != nil {
		check.Domain, check.Response = hcloud.Ptr(l.Check.Domain), hcloud.Ptr(l.Check.Response)
	}
	return hcloud.LoadBalancerUpdateServiceOpts{
		Protocol: add.Protocol, Proxyprotocol: add.Proxyprotocol, DestinationPort: add.DestinationPort,
		HTTP: (*hcloud.LoadBalancerUpdateServiceOptsHTTP)(add.HTTP),
		HealthCheck: &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
			Protocol: add.HealthCheck.Protocol, Port: add.HealthCheck.Port, HTTP: check,
			Interval: add.HealthCheck.Interval, Timeout: add.HealthCheck.Timeout, Retries: add.HealthCheck.Retries,
		},
	}
}

func statusCodes(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
