package hetzner

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/lb"
)

// The types of this file are the JSON of the API. hcloud-go has other types for the services of
// a load balancer, its creation, a new service and an update, although their JSON is the same,
// and v2.52.0 has no address of a server as a target (`server.ip`).

type balancer struct {
	schema.LoadBalancer
	Services []service `json:"services"`
	Targets  []target  `json:"targets"`
}

type service struct {
	Protocol        string                          `json:"protocol"`
	ListenPort      int                             `json:"listen_port"`
	DestinationPort int                             `json:"destination_port"`
	ProxyProtocol   bool                            `json:"proxyprotocol"`
	HTTP            *schema.LoadBalancerServiceHTTP `json:"http,omitempty"`
	HealthCheck     serviceCheck                    `json:"health_check"`
}

type serviceCheck struct {
	Protocol string     `json:"protocol"`
	Port     int        `json:"port"`
	Interval int        `json:"interval"` // seconds
	Timeout  int        `json:"timeout"`  // seconds
	Retries  int        `json:"retries"`
	HTTP     *httpCheck `json:"http,omitempty"`
}

type httpCheck struct {
	Domain      *string  `json:"domain,omitempty"`
	Path        string   `json:"path"`
	Response    *string  `json:"response,omitempty"`
	StatusCodes []string `json:"status_codes,omitempty"`
	TLS         bool     `json:"tls"`
}

type target struct {
	Type         hcloud.LoadBalancerTargetType `json:"type"`
	Server       *targetServer                 `json:"server,omitempty"`
	IP           *schema.LoadBalancerTargetIP  `json:"ip,omitempty"`
	UsePrivateIP *bool                         `json:"use_private_ip,omitempty"`

	HealthStatus []schema.LoadBalancerTargetHealthStatus `json:"health_status,omitempty"`
	Targets      []target                                `json:"targets,omitempty"` // of a selector
}

type targetServer struct {
	ID int64  `json:"id"`
	IP string `json:"ip,omitempty"`
}

func (b balancer) state() lb.State {
	public := b.PublicNet
	s := lb.State{
		ID: b.ID, Name: b.Name, Labels: b.Labels, Created: b.Created,
		Type: b.LoadBalancerType.Name, Algorithm: lb.Algorithm(b.Algorithm.Type),
		Location: b.Location.Name, NetworkZone: b.Location.NetworkZone,
		Public: public.Enabled, IPv4: parseAddr(public.IPv4.IP), IPv6: parseAddr(public.IPv6.IP),
		ReverseDNS:  lb.ReverseDNS{IPv4Name: public.IPv4.DNSPtr, IPv6Name: public.IPv6.DNSPtr},
		PrimaryIPv4: public.IPv4.ID, PrimaryIPv6: public.IPv6.ID,
	}
	if len(b.PrivateNet) > 0 { // it is attached to at most one network
		s.Network, s.PrivateIP = b.PrivateNet[0].Network, parseAddr(b.PrivateNet[0].IP)
	}
	for _, service := range b.Services {
		s.Listeners = append(s.Listeners, service.listener())
	}
	slices.SortFunc(s.Listeners, func(a, b lb.Listener) int { return cmp.Compare(a.Port, b.Port) })
	for _, t := range b.Targets {
		known, ok := t.known()
		if !ok {
			// A label selector counts once for each server that it matches.
			s.OtherTargets += max(1, len(t.Targets))
			continue
		}
		s.Targets = append(s.Targets, known)
		addResults(&s, known, t.HealthStatus)
	}
	slices.SortFunc(s.Targets, lb.Target.Compare)
	return s
}

// parseAddr returns the zero Addr for an address that the API omits.
func parseAddr(text string) netip.Addr {
	a, _ := netip.ParseAddr(text)
	return a.Unmap()
}

// known returns false for targets without a model in lb, such as label selectors. An IPv6 address
// of a server is a pod's; the API reports an address for every server, usually its primary IPv4.
func (t target) known() (lb.Target, bool) {
	switch {
	case t.Type == hcloud.LoadBalancerTargetTypeServer && t.Server != nil:
		private := ptr.Deref(t.UsePrivateIP, false)
		if ip := parseAddr(t.Server.IP); ip.Is6() && !private {
			return lb.Target{Server: t.Server.ID, Address: ip}, true
		}
		return lb.Target{Server: t.Server.ID, Private: private}, true
	case t.Type == hcloud.LoadBalancerTargetTypeIP && t.IP != nil:
		ip := parseAddr(t.IP.IP)
		return lb.AddressTarget(ip), ip.IsValid()
	}
	return lb.Target{}, false
}

// wireTarget omits UsePrivateIP for addresses, since the API accepts it for servers only.
func wireTarget(t lb.Target) target {
	switch {
	case t.Pod():
		server := &targetServer{ID: t.Server, IP: t.Address.String()}
		return target{Type: hcloud.LoadBalancerTargetTypeServer, Server: server}
	case t.Address.IsValid():
		ip := &schema.LoadBalancerTargetIP{IP: t.Address.String()}
		return target{Type: hcloud.LoadBalancerTargetTypeIP, IP: ip}
	}
	return target{
		Type:   hcloud.LoadBalancerTargetTypeServer,
		Server: &targetServer{ID: t.Server}, UsePrivateIP: &t.Private,
	}
}

func addResults(s *lb.State, t lb.Target, status []schema.LoadBalancerTargetHealthStatus) {
	for _, result := range status {
		verdict := lb.Unknown
		switch hcloud.LoadBalancerTargetHealthStatusStatus(result.Status) {
		case hcloud.LoadBalancerTargetHealthStatusStatusHealthy:
			verdict = lb.Healthy
		case hcloud.LoadBalancerTargetHealthStatusStatusUnhealthy:
			verdict = lb.Unhealthy
		}
		put(&s.Verdicts, result.ListenPort, t, verdict)
		if verdict == lb.Unhealthy && result.Detail != nil {
			put(&s.Why, result.ListenPort, t, lb.Cause{
				Detail: lb.Detail(*result.Detail), HTTPStatus: ptr.Deref(result.HTTPStatusCode, 0),
			})
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

func seconds(count int) time.Duration { return time.Duration(count) * time.Second }

func (s service) listener() lb.Listener {
	l := lb.Listener{
		Port: s.ListenPort, DestinationPort: s.DestinationPort,
		Protocol: s.Protocol, ProxyProtocol: s.ProxyProtocol,
	}
	if http := s.HTTP; s.Protocol != lb.ProtocolTCP && http != nil {
		l.HTTP = lb.HTTP{
			Sticky: http.StickySessions, CookieName: http.CookieName,
			CookieLifetime: seconds(http.CookieLifetime), IdleTimeout: seconds(http.TimeoutIdle),
			Redirect: http.RedirectHTTP, Certificates: lb.JoinCertificates(http.Certificates),
		}
	}
	c := s.HealthCheck
	l.Check = lb.HealthCheck{
		Protocol: c.Protocol, Port: c.Port,
		Interval: seconds(c.Interval), Timeout: seconds(c.Timeout), Retries: c.Retries,
	}
	// The HTTP settings of a TCP check have no effect.
	if http := c.HTTP; c.Protocol != lb.ProtocolTCP && http != nil {
		l.Check.Path, l.Check.StatusCodes = http.Path, strings.Join(http.StatusCodes, ",")
		l.Check.Domain, l.Check.Response = ptr.Deref(http.Domain, ""), ptr.Deref(http.Response, "")
		l.Check.TLS = http.TLS
	}
	return l
}

// wireService omits an empty domain, the API's default, and a response, which no Spec sets.
func wireService(l lb.Listener) service {
	s := service{
		Protocol: l.Protocol, ListenPort: l.Port, DestinationPort: l.DestinationPort,
		ProxyProtocol: l.ProxyProtocol,
		HealthCheck: serviceCheck{
			Protocol: l.Check.Protocol, Port: l.Check.Port, Retries: l.Check.Retries,
			Interval: int(l.Check.Interval.Seconds()), Timeout: int(l.Check.Timeout.Seconds()),
		},
	}
	if l.Check.Protocol == lb.ProtocolHTTP {
		s.HealthCheck.HTTP = &httpCheck{Path: l.Check.Path, TLS: l.Check.TLS}
		if l.Check.Domain != "" {
			s.HealthCheck.HTTP.Domain = &l.Check.Domain
		}
		if l.Check.StatusCodes != "" {
			s.HealthCheck.HTTP.StatusCodes = strings.Split(l.Check.StatusCodes, ",")
		}
	}
	if http := l.HTTP; l.Protocol != lb.ProtocolTCP {
		s.HTTP = &schema.LoadBalancerServiceHTTP{
			CookieName: http.CookieName, CookieLifetime: int(http.CookieLifetime.Seconds()),
			RedirectHTTP: http.Redirect, StickySessions: http.Sticky,
			TimeoutIdle: int(http.IdleTimeout.Seconds()), Certificates: []int64{},
		}
		for text := range strings.SplitSeq(http.Certificates, ",") {
			if id, err := strconv.ParseInt(text, 10, 64); err == nil {
				s.HTTP.Certificates = append(s.HTTP.Certificates, id)
			}
		}
	}
	return s
}

// updatedService sets every option, since an update keeps omitted ones.
func updatedService(l lb.Listener) service {
	s := wireService(l)
	if http := s.HealthCheck.HTTP; http != nil {
		http.Domain, http.Response = &l.Check.Domain, &l.Check.Response
	}
	return s
}

// fields are the body of a request.
type fields map[string]any

// creation leaves pods to later requests: the API accepts no address of a server here.
func creation(spec lb.Spec) fields {
	body := fields{
		"name": spec.Name, "labels": spec.Labels(), "load_balancer_type": spec.Type,
		"algorithm": fields{"type": spec.Algorithm}, "public_interface": spec.Public,
	}
	optional := func(key string, value any, set bool) {
		if set {
			body[key] = value
		}
	}
	optional("location", spec.Location, spec.Location != "")
	optional("network_zone", spec.NetworkZone, spec.NetworkZone != "")
	optional("network", spec.Network, spec.Network != 0)
	// The cloud creates the primary IPs that are not set.
	primary := schema.LoadBalancerCreateRequestPublicNet{
		IPv4: spec.PrimaryIPv4.ID, IPv6: spec.PrimaryIPv6.ID,
	}
	optional("public_net", primary, primary.IPv4 != 0 || primary.IPv6 != 0)
	services, targets := []service{}, []target{}
	for _, l := range spec.Listeners {
		services = append(services, wireService(l))
	}
	for _, t := range spec.Targets {
		if !t.Pod() {
			targets = append(targets, wireTarget(t))
		}
	}
	optional("services", services, len(services) > 0)
	optional("targets", targets, len(targets) > 0)
	return body
}
