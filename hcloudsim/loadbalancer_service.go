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

// service is a service of a load balancer. What it points to is never modified.
type service struct {
	schema.LoadBalancerService
	since time.Time // creation or last change
}

// serviceRequest is a service in POST /load_balancers, add_service and update_service. In
// update_service every field is optional.
type serviceRequest struct {
	Protocol        *string             `json:"protocol"`
	ListenPort      *int                `json:"listen_port"`
	DestinationPort *int                `json:"destination_port"`
	Proxyprotocol   *bool               `json:"proxyprotocol"`
	HTTP            *httpRequest        `json:"http"`
	HealthCheck     *healthCheckRequest `json:"health_check"`
}

type (
	httpRequest            = schema.LoadBalancerActionUpdateServiceRequestHTTP
	healthCheckRequest     = schema.LoadBalancerActionUpdateServiceRequestHealthCheck
	healthCheckHTTPRequest = schema.LoadBalancerActionUpdateServiceRequestHealthCheckHTTP
)

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

func newServiceBody(s *service) serviceBody {
	check := healthCheckBody{*s.HealthCheck, s.HealthCheck.HTTP}
	return serviceBody{s.LoadBalancerService, s.HTTP, check}
}

// with returns the service changed by a request, completed with defaults.
func (s *service) with(req serviceRequest) *service {
	out := *s
	set(&out.Protocol, req.Protocol)
	set(&out.ListenPort, req.ListenPort)
	set(&out.DestinationPort, req.DestinationPort)
	set(&out.Proxyprotocol, req.Proxyprotocol)
	switch out.Protocol {
	case protocolTCP:
	case protocolHTTPS:
		out.ListenPort = cmp.Or(out.ListenPort, 443)
		out.DestinationPort = cmp.Or(out.DestinationPort, 80)
	case protocolHTTP:
		out.ListenPort = cmp.Or(out.ListenPort, 80)
		out.DestinationPort = cmp.Or(out.DestinationPort, 80)
	}
	out.HTTP = out.http(cmp.Or(req.HTTP, &httpRequest{}))
	out.HealthCheck = out.healthCheck(cmp.Or(req.HealthCheck, &healthCheckRequest{}))
	return &out
}

// http returns the options of a service changed by a request. The hcloud CLI sends http objects
// for services of every protocol, and they are empty if the user has set no http option.
// https://github.com/hetznercloud/cli/blob/main/internal/cmd/loadbalancer/update_service.go
func (s *service) http(req *httpRequest) *schema.LoadBalancerServiceHTTP {
	if s.Protocol == protocolTCP && *req == (httpRequest{}) {
		return nil
	}
	out := schema.LoadBalancerServiceHTTP{
		CookieName: "HCLBSTICKY", CookieLifetime: 300, TimeoutIdle: 60,
	}
	set(&out, s.HTTP)
	set(&out.CookieName, req.CookieName)
	set(&out.CookieLifetime, req.CookieLifetime)
	set(&out.Certificates, req.Certificates)
	set(&out.RedirectHTTP, req.RedirectHTTP)
	set(&out.StickySessions, req.StickySessions)
	set(&out.TimeoutIdle, req.TimeoutIdle)
	if out.Certificates == nil {
		out.Certificates = []int64{}
	}
	return &out
}

func (s *service) healthCheck(req *healthCheckRequest) *schema.LoadBalancerServiceHealthCheck {
	out := schema.LoadBalancerServiceHealthCheck{
		Protocol: protocolHTTP, Port: s.DestinationPort, Interval: 15, Timeout: 10, Retries: 3,
	}
	if s.Protocol == protocolTCP {
		out.Protocol = protocolTCP
	}
	set(&out, s.HealthCheck)
	set(&out.Protocol, req.Protocol)
	set(&out.Port, req.Port)
	set(&out.Interval, req.Interval)
	set(&out.Timeout, req.Timeout)
	set(&out.Retries, req.Retries)
	requested := cmp.Or(req.HTTP, &healthCheckHTTPRequest{})
	if out.Protocol != protocolHTTP && *requested == (healthCheckHTTPRequest{}) {
		out.HTTP = nil
		return &out
	}
	http := schema.LoadBalancerServiceHealthCheckHTTP{Path: "/", StatusCodes: []string{"2??", "3??"}}
	set(&http, out.HTTP)
	set(&http.Domain, requested.Domain)
	set(&http.Path, requested.Path)
	set(&http.Response, requested.Response)
	set(&http.StatusCodes, requested.StatusCodes)
	set(&http.TLS, requested.TLS)
	out.HTTP = &http
	return &out
}

// statusPattern matches a status code with the wildcards ? (one character) and * (several).
var statusPattern = regexp.MustCompile(`^[0-9?*]{1,3}$`)

func (s *service) check() error {
	http, check := s.HTTP, s.HealthCheck
	switch {
	case !slices.Contains([]string{protocolTCP, protocolHTTP, protocolHTTPS}, s.Protocol):
		return errInvalid("protocol", "must be one of tcp, http, https")
	case http != nil && s.Protocol == protocolTCP:
		return errInvalid("http", "is only available for the protocols http and https")
	case http != nil && http.RedirectHTTP && s.Protocol != protocolHTTPS:
		return errInvalid("http.redirect_http", "is only available for the protocol https")
	case http != nil && (len(http.CookieName) < 1 || len(http.CookieName) > 100):
		return errInvalid("http.cookie_name", "must have 1 to 100 characters")
	case check.Protocol != protocolTCP && check.Protocol != protocolHTTP:
		return errInvalid("health_check.protocol", "must be one of tcp, http")
	}
	type figure struct {
		field            string
		value, low, high int
	}
	figures := []figure{
		{"listen_port", s.ListenPort, 1, 65535},
		{"destination_port", s.DestinationPort, 1, 65535},
		{"health_check.port", check.Port, 1, 65535},
		{"health_check.interval", check.Interval, 3, 60},
		{"health_check.timeout", check.Timeout, 1, 60},
		{"health_check.retries", check.Retries, 1, 5},
	}
	if http != nil {
		figures = append(figures, figure{"http.cookie_lifetime", http.CookieLifetime, 30, 86400},
			figure{"http.timeout_idle", http.TimeoutIdle, 30, 300})
	}
	for _, f := range figures {
		if f.value < f.low || f.value > f.high {
			return errInvalid(f.field, "must be from %d to %d", f.low, f.high)
		}
	}
	return s.checkHealthCheckHTTP()
}

func (s *service) checkHealthCheckHTTP() error {
	wrong := func(code string) bool { return !statusPattern.MatchString(code) }
	switch http := s.HealthCheck.HTTP; {
	case http == nil:
	case s.HealthCheck.Protocol != protocolHTTP:
		return errInvalid("health_check.http", "is only available for the protocol http")
	case http.Path == "" || len(http.Path) > 256 || strings.Contains(http.Path, " "):
		return errInvalid("health_check.http.path", "must have 1 to 256 characters and no spaces")
	case len(http.Domain) > 128 || strings.ContainsAny(http.Domain, ` %\`):
		return errInvalid("health_check.http.domain", "is no host name")
	case len(http.Response) > 256:
		return errInvalid("health_check.http.response", "must have at most 256 characters")
	case len(http.StatusCodes) > 20:
		return errInvalid("health_check.http.status_codes", "must have at most 20 entries")
	case slices.ContainsFunc(http.StatusCodes, wrong):
		return errInvalid("health_check.http.status_codes",
			"must be status codes, with ? and * as wildcards")
	}
	return nil
}

func (s *service) ports() []int {
	redirects := s.Protocol == protocolHTTPS && s.HTTP != nil && s.HTTP.RedirectHTTP
	if redirects && s.ListenPort != redirectPort {
		return []int{s.ListenPort, redirectPort}
	}
	return []int{s.ListenPort}
}
