package hcloudsim

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const (
	protocolTCP   = "tcp"
	protocolHTTP  = "http"
	protocolHTTPS = "https"

	redirectPort = 80 // listen port of redirect_http of an https service
)

type service struct {
	schema.LoadBalancerService
	since   time.Time // creation or last change
	pending bool
}

// serviceRequest is a service in POST /load_balancers, add_service and update_service. In
// update_service every field is optional.
type serviceRequest struct {
	Protocol        *string                                                   `json:"protocol"`
	ListenPort      *int                                                      `json:"listen_port"`
	DestinationPort *int                                                      `json:"destination_port"`
	Proxyprotocol   *bool                                                     `json:"proxyprotocol"`
	HTTP            *schema.LoadBalancerActionUpdateServiceRequestHTTP        `json:"http"`
	HealthCheck     *schema.LoadBalancerActionUpdateServiceRequestHealthCheck `json:"health_check"`
}

// serviceBody is the schema's type, with http omitted if absent.
type serviceBody struct {
	schema.LoadBalancerService
	HTTP        *schema.LoadBalancerServiceHTTP `json:"http,omitempty"`
	HealthCheck healthCheckBody                 `json:"health_check"`
}

type healthCheckBody struct {
	schema.LoadBalancerServiceHealthCheck
	HTTP *schema.LoadBalancerServiceHealthCheckHTTP `json:"http,omitempty"`
}

func newServiceBody(s schema.LoadBalancerService) serviceBody {
	return serviceBody{s, s.HTTP, healthCheckBody{*s.HealthCheck, s.HealthCheck.HTTP}}
}

// clone returns a deep copy.
func (s *service) clone() *service {
	out := *s
	if s.HTTP != nil {
		http := *s.HTTP
		http.Certificates = slices.Clone(http.Certificates)
		out.HTTP = &http
	}
	if s.HealthCheck != nil {
		check := *s.HealthCheck
		if check.HTTP != nil {
			http := *check.HTTP
			http.StatusCodes = slices.Clone(http.StatusCodes)
			check.HTTP = &http
		}
		out.HealthCheck = &check
	}
	return &out
}

// set assigns the requested value, if there is one.
func set[T any](value *T, asked *T) {
	if asked != nil {
		*value = *asked
	}
}

// with returns the service changed by a request, completed with defaults.
func (s *service) with(req serviceRequest) *service {
	out := s.clone()
	set(&out.Protocol, req.Protocol)
	set(&out.ListenPort, req.ListenPort)
	set(&out.DestinationPort, req.DestinationPort)
	set(&out.Proxyprotocol, req.Proxyprotocol)
	if out.Protocol != protocolTCP {
		out.ListenPort = cmp.Or(out.ListenPort, map[string]int{protocolHTTP: 80, protocolHTTPS: 443}[out.Protocol])
		out.DestinationPort = cmp.Or(out.DestinationPort, 80)
	}
	out.setHTTP(req.HTTP)
	out.setHealthCheck(req.HealthCheck)
	return out
}

// said returns an object of a request, or nil if it is empty: the hcloud CLI sends http objects
// for services of every protocol, and they are empty if the user has set no http option.
// https://github.com/hetznercloud/cli/blob/main/internal/cmd/loadbalancer/update_service.go
func said[T comparable](object *T) *T {
	if object == nil || *object == *new(T) {
		return nil
	}
	return object
}

func (s *service) setHTTP(req *schema.LoadBalancerActionUpdateServiceRequestHTTP) {
	if s.Protocol == protocolTCP && said(req) == nil {
		s.HTTP = nil
		return
	}
	if s.HTTP == nil {
		s.HTTP = &schema.LoadBalancerServiceHTTP{CookieName: "HCLBSTICKY", CookieLifetime: 300, TimeoutIdle: 60, Certificates: []int64{}}
	}
	if req == nil {
		return
	}
	set(&s.HTTP.CookieName, req.CookieName)
	set(&s.HTTP.CookieLifetime, req.CookieLifetime)
	set(&s.HTTP.Certificates, req.Certificates)
	set(&s.HTTP.RedirectHTTP, req.RedirectHTTP)
	set(&s.HTTP.StickySessions, req.StickySessions)
	set(&s.HTTP.TimeoutIdle, req.TimeoutIdle)
	if s.HTTP.Certificates == nil {
		s.HTTP.Certificates = []int64{}
	}
}

func (s *service) setHealthCheck(req *schema.LoadBalancerActionUpdateServiceRequestHealthCheck) {
	if s.HealthCheck == nil {
		s.HealthCheck = &schema.LoadBalancerServiceHealthCheck{
			Protocol: protocolTCP, Port: s.DestinationPort, Interval: 15, Timeout: 10, Retries: 3,
		}
		if s.Protocol != protocolTCP {
			s.HealthCheck.Protocol = protocolHTTP
		}
	}
	check := s.HealthCheck
	var http *schema.LoadBalancerActionUpdateServiceRequestHealthCheckHTTP
	if req != nil {
		set(&check.Protocol, req.Protocol)
		set(&check.Port, req.Port)
		set(&check.Interval, req.Interval)
		set(&check.Timeout, req.Timeout)
		set(&check.Retries, req.Retries)
		http = req.HTTP
	}
	if check.Protocol != protocolHTTP && said(http) == nil {
		check.HTTP = nil
		return
	}
	if check.HTTP == nil {
		check.HTTP = &schema.LoadBalancerServiceHealthCheckHTTP{Path: "/", StatusCodes: []string{"2??", "3??"}}
	}
	if http == nil {
		return
	}
	set(&check.HTTP.Domain, http.Domain)
	set(&check.HTTP.Path, http.Path)
	set(&check.HTTP.Response, http.Response)
	set(&check.HTTP.StatusCodes, http.StatusCodes)
	set(&check.HTTP.TLS, http.TLS)
}

func (s *service) check() error {
	switch s.Protocol {
	case protocolTCP, protocolHTTP, protocolHTTPS:
	default:
		return errInvalid("protocol", "must be one of tcp, http, https")
	}
	if err := within("listen_port", s.ListenPort, 1, 65535); err != nil {
		return err
	}
	if err := within("destination_port", s.DestinationPort, 1, 65535); err != nil {
		return err
	}
	if err := s.checkHTTP(); err != nil {
		return err
	}
	return s.checkHealthCheck()
}

func (s *service) checkHTTP() error {
	if s.HTTP == nil {
		return nil
	}
	switch {
	case s.Protocol == protocolTCP:
		return errInvalid("http", "is only available for the protocols http and https")
	case s.HTTP.RedirectHTTP && s.Protocol != protocolHTTPS:
		return errInvalid("http.redirect_http", "is only available for the protocol https")
	case len(s.HTTP.CookieName) < 1 || len(s.HTTP.CookieName) > 100:
		return errInvalid("http.cookie_name", "must have 1 to 100 characters")
	}
	if err := within("http.cookie_lifetime", s.HTTP.CookieLifetime, 30, 86400); err != nil {
		return err
	}
	return within("http.timeout_idle", s.HTTP.TimeoutIdle, 30, 300)
}

// statusPattern matches a status code with the wildcards ? (one character) and * (several).
var statusPattern = regexp.MustCompile(`^[0-9?*]{1,3}$`)

func (s *service) checkHealthCheck() error {
	check := s.HealthCheck
	if check.Protocol != protocolTCP && check.Protocol != protocolHTTP {
		return errInvalid("health_check.protocol", "must be one of tcp, http")
	}
	for _, figure := range []struct {
		field             string
		value, low, above int
	}{
		{"health_check.port", check.Port, 1, 65535},
		{"health_check.interval", check.Interval, 3, 60},
		{"health_check.timeout", check.Timeout, 1, 60},
		{"health_check.retries", check.Retries, 1, 5},
	} {
		if err := within(figure.field, figure.value, figure.low, figure.above); err != nil {
			return err
		}
	}
	if check.HTTP == nil {
		return nil
	}
	switch http := check.HTTP; {
	case check.Protocol != protocolHTTP:
		return errInvalid("health_check.http", "is only available for the protocol http")
	case http.Path == "" || len(http.Path) > 256 || strings.Contains(http.Path, " "):
		return errInvalid("health_check.http.path", "must have 1 to 256 characters and no spaces")
	case len(http.Domain) > 128 || strings.ContainsAny(http.Domain, ` %\`):
		return errInvalid("health_check.http.domain", "is no host name")
	case len(http.Response) > 256:
		return errInvalid("health_check.http.response", "must have at most 256 characters")
	case len(http.StatusCodes) > 20:
		return errInvalid("health_check.http.status_codes", "must have at most 20 entries")
	case slices.ContainsFunc(http.StatusCodes, func(code string) bool { return !statusPattern.MatchString(code) }):
		return errInvalid("health_check.http.status_codes", "must be status codes, with ? and * as wildcards")
	}
	return nil
}

func within(field string, value, low, high int) error {
	if value < low || value > high {
		return errInvalid(field, "must be from %d to %d", low, high)
	}
	return nil
}

func (s *service) ports() []int {
	if s.Protocol == protocolHTTPS && s.HTTP != nil && s.HTTP.RedirectHTTP && s.ListenPort != redirectPort {
		return []int{s.ListenPort, redirectPort}
	}
	return []int{s.ListenPort}
}

// checkPorts returns an error with the operation's status if another service has a port of s.
func (lb *loadBalancer) checkPorts(s, replaced *service, status int) error {
	for _, other := range lb.services {
		if other == replaced {
			continue
		}
		for _, port := range other.ports() {
			if slices.Contains(s.ports(), port) {
				e := errRefused("source_port_already_used", "source port %d is already in use", port)
				e.Status = status
				return e
			}
		}
	}
	return nil
}
