package hcloudsim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Health is the health of a target according to one service.
type Health string

const (
	HealthUnknown   Health = "unknown"
	HealthHealthy   Health = "healthy"
	HealthUnhealthy Health = "unhealthy"
)

// Finding is the result of a health check, or the health shown for a target.
type Finding struct {
	Health Health
	// Detail is the reason why a target is unhealthy; empty means [DetailUnspecified].
	Detail Detail
	// HTTPStatus is the HTTP status of the target's response, with [DetailHTTPStatus].
	HTTPStatus int
}

// Detail is the reason why a target is unhealthy, in the API's terms.
type Detail string

// The details defined by hcloud-go.
const (
	DetailUnspecified  Detail = "unspecified"
	DetailNoConnection Detail = "layer4_no_connection"
	DetailTimeout4     Detail = "layer4_timeout"
	DetailTimeout7     Detail = "layer7_timeout"
	DetailHTTPStatus   Detail = "unexpected_http_status"
	DetailHTTPContent  Detail = "unexpected_http_content"
)

// valid returns an error for a finding that the API can't show.
func (f Finding) valid() error {
	details := []Detail{"", DetailUnspecified, DetailNoConnection, DetailTimeout4, DetailTimeout7, DetailHTTPStatus, DetailHTTPContent}
	switch {
	case f.Health != HealthUnknown && f.Health != HealthHealthy && f.Health != HealthUnhealthy:
		return fmt.Errorf("health %q of a target: must be unknown, healthy or unhealthy", f.Health)
	case !slices.Contains(details, f.Detail):
		return fmt.Errorf("detail %q of a target's health: must be one of %q", f.Detail, details[1:])
	case f.Detail != "" && f.Health != HealthUnhealthy:
		return fmt.Errorf("detail %q of a target that is %s: only an unhealthy one has a detail", f.Detail, f.Health)
	case (f.HTTPStatus != 0) != (f.Detail == DetailHTTPStatus):
		return fmt.Errorf("HTTP status %d of a target with detail %q: one goes with detail %s, and only with that", f.HTTPStatus, f.Detail, DetailHTTPStatus)
	}
	return nil
}

// TargetID identifies a target: a server, also one selected by a label selector; an IP; or both,
// for a server at an address other than its primary IPv4.
type TargetID struct {
	Server int64      `json:"server,omitempty"`
	IP     netip.Addr `json:"ip,omitzero"`
}

// Probe describes one health check for a [Prober].
type Probe struct {
	LoadBalancer int64
	Target       TargetID
	Address      netip.Addr // the address at which the load balancer reaches the target
	Service      schema.LoadBalancerService
	// ProxyHeader reports whether the check begins with a header of the PROXY protocol, see
	// [Options.ProxyHeaderInChecks].
	ProxyHeader bool
}

// Prober carries out a health check of a target, and returns healthy or unhealthy. With the zero
// Finding the health depends on time, see [Options.HealthyAfter].
type Prober func(Probe) Finding

type healthKey struct {
	target TargetID
	port   int // listen port; 0: all
}

// SetTargetHealth fixes the health of a load balancer's target, for one listen port or, with 0,
// for all. An empty health removes the fixed value. The target need not exist yet.
func (s *Simulator) SetTargetHealth(loadBalancer int64, target TargetID, listenPort int, health Health) error {
	return s.SetTargetFinding(loadBalancer, target, listenPort, Finding{Health: health})
}

// SetTargetFinding is like SetTargetHealth, with the reason why a target is unhealthy. The zero
// Finding removes the fixed value.
func (s *Simulator) SetTargetFinding(loadBalancer int64, target TargetID, listenPort int, finding Finding) error {
	p, unlock := s.present()
	defer unlock()
	lb, err := must(&p.loadBalancers, kindLoadBalancer, loadBalancer)
	if err != nil {
		return err
	}
	key := healthKey{target, listenPort}
	if finding == (Finding{}) {
		delete(lb.health, key)
		return nil
	}
	if err := finding.valid(); err != nil {
		return err
	}
	lb.health[key] = finding
	return nil
}

// HealthyTargets returns the targets to which a service currently sends new connections: the
// reachable targets that the API shows as healthy for its listen port, and with
// [Options.ServeUnjudged] also those of unknown health. It returns nil for a missing service.
func (s *Simulator) HealthyTargets(loadBalancer int64, listenPort int) []PlaneTarget {
	p, unlock := s.present()
	defer unlock()
	var out []PlaneTarget
	lb, ok := p.loadBalancers.get(loadBalancer)
	if !ok {
		return nil
	}
	service := lb.serviceOn(listenPort)
	if service == nil || service.pending {
		return nil
	}
	for _, t := range lb.targets {
		if t.pending {
			continue
		}
		for _, id := range p.targetIDs(t) {
			if address := p.addressOf(lb, t, id); address.IsValid() && p.serves(p.findingOf(lb, service, t, id).Health) {
				out = append(out, PlaneTarget{id, address})
			}
		}
	}
	return out
}

func (p *project) serves(health Health) bool {
	return health == HealthHealthy || p.opts.ServeUnjudged && health == HealthUnknown
}

// findingOf returns the health of a target for a service: the fixed value, the result of health
// checks, or the health that results from time.
func (p *project) findingOf(lb *loadBalancer, s *service, t *target, id TargetID) Finding {
	for _, port := range []int{s.ListenPort, 0} {
		if fixed, ok := lb.health[healthKey{id, port}]; ok {
			return fixed
		}
	}
	address := p.addressOf(lb, t, id)
	since := later(s.since, t.since)
	known := lb.checksOf(healthKey{id, s.ListenPort}, since)
	if p.probing > 0 {
		return known.finding
	}
	if p.opts.Prober != nil {
		if found := known.run(p.now, p.probe(lb, s, t, id), p.opts.Prober); found != (Finding{}) {
			return found
		}
	}
	switch {
	case p.now.Sub(since) < p.opts.HealthyAfter:
		return Finding{Health: HealthUnknown}
	case !address.IsValid() || !p.isUp(id):
		return Finding{Health: HealthUnhealthy, Detail: DetailTimeout4}
	}
	return Finding{Health: HealthHealthy}
}

func (p *project) probe(lb *loadBalancer, s *service, t *target, id TargetID) Probe {
	return Probe{
		LoadBalancer: lb.id, Target: id, Address: p.addressOf(lb, t, id), Service: s.clone().LoadBalancerService,
		ProxyHeader: s.Proxyprotocol && p.opts.ProxyHeaderInChecks,
	}
}

// isUp reports whether a target can respond at all. IPs of dedicated servers count as up.
func (p *project) isUp(id TargetID) bool {
	if id.Server == 0 {
		return true
	}
	s, ok := p.servers.get(id.Server)
	return ok && s.status == statusRunning
}

// addressOf returns the address at which a target is reached; zero if it is unreachable.
func (p *project) addressOf(lb *loadBalancer, t *target, id TargetID) netip.Addr {
	s, known := p.servers.get(id.Server)
	switch {
	case t.ip.IsValid():
		return t.ip
	case !known:
		return netip.Addr{}
	case !t.usePrivate:
		return s.ipv4()
	case lb.private == nil || lb.private.pending:
		return netip.Addr{}
	}
	if a := s.attachmentTo(lb.private.network); a != nil && !a.pending {
		return a.ip
	}
	return netip.Addr{}
}

// targetBody is a target as the API shows it: without fields that don't apply, and with the
// server's address, which the schema lacks.
type targetBody struct {
	Type          string                                  `json:"type"`
	Server        *targetServerBody                       `json:"server,omitempty"`
	LabelSelector *schema.LoadBalancerTargetLabelSelector `json:"label_selector,omitempty"`
	IP            *schema.LoadBalancerTargetIP            `json:"ip,omitempty"`
	HealthStatus  []healthBody                            `json:"health_status,omitzero"`
	UsePrivateIP  *bool                                   `json:"use_private_ip,omitempty"`
	Targets       []targetBody                            `json:"targets,omitzero"`
}

type targetServerBody struct {
	ID int64  `json:"id"`
	IP string `json:"ip"`
}

// healthBody has, like hcloud-go, fields that the description lacks.
type healthBody struct {
	ListenPort     int     `json:"listen_port"`
	Status         Health  `json:"status"`
	Detail         *string `json:"detail"`
	HTTPStatusCode *int    `json:"http_status_code"`
}

func newHealthBody(port int, f Finding) healthBody {
	out := healthBody{ListenPort: port, Status: f.Health}
	if f.Health == HealthUnhealthy {
		detail := string(cmp.Or(f.Detail, DetailUnspecified))
		out.Detail = &detail
	}
	if f.HTTPStatus != 0 {
		out.HTTPStatusCode = &f.HTTPStatus
	}
	return out
}

func (p *project) targetBody(lb *loadBalancer, t *target) targetBody {
	switch t.kind {
	case targetServer:
		return p.serverTargetBody(lb, t, t.server)
	case targetIP:
		return targetBody{
			Type: targetIP, IP: &schema.LoadBalancerTargetIP{IP: t.ip.String()},
			HealthStatus: p.healthBodies(lb, t, TargetID{IP: t.ip}),
		}
	}
	out := targetBody{
		Type: targetSelector, LabelSelector: &schema.LoadBalancerTargetLabelSelector{Selector: t.selector},
		UsePrivateIP: &t.usePrivate, Targets: []targetBody{},
	}
	for s := range p.selectedBy(t) {
		out.Targets = append(out.Targets, p.serverTargetBody(lb, t, s.id))
	}
	return out
}

func (p *project) serverTargetBody(lb *loadBalancer, t *target, server int64) targetBody {
	id := TargetID{Server: server, IP: t.ip}
	body := targetServerBody{ID: server}
	if address := p.addressOf(lb, t, id); address.IsValid() {
		body.IP = address.String()
	}
	return targetBody{
		Type: targetServer, Server: &body, UsePrivateIP: &t.usePrivate,
		HealthStatus: p.healthBodies(lb, t, id),
	}
}

func (p *project) healthBodies(lb *loadBalancer, t *target, id TargetID) []healthBody {
	out := []healthBody{}
	for _, s := range lb.services {
		if !s.pending {
			out = append(out, newHealthBody(s.ListenPort, p.findingOf(lb, s, t, id)))
		}
	}
	return out
}

func (b targetBody) plain() schema.LoadBalancerTarget {
	out := schema.LoadBalancerTarget{Type: b.Type, LabelSelector: b.LabelSelector, IP: b.IP}
	if b.Server != nil {
		out.Server = &schema.LoadBalancerTargetServer{ID: b.Server.ID}
	}
	set(&out.UsePrivateIP, b.UsePrivateIP)
	for _, h := range b.HealthStatus {
		out.HealthStatus = append(out.HealthStatus, schema.LoadBalancerTargetHealthStatus{ListenPort: h.ListenPort, Status: string(h.Status), Detail: h.Detail, HTTPStatusCode: h.HTTPStatusCode})
	}
	for _, t := range b.Targets {
		out.Targets = append(out.Targets, t.plain())
	}
	return out
}
