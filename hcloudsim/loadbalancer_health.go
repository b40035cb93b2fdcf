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
	healths := []Health{HealthUnknown, HealthHealthy, HealthUnhealthy}
	details := []Detail{
		DetailUnspecified, DetailNoConnection, DetailTimeout4, DetailTimeout7, DetailHTTPStatus,
		DetailHTTPContent,
	}
	switch {
	case !slices.Contains(healths, f.Health):
		return fmt.Errorf("health %q of a target: must be one of %q", f.Health, healths)
	case f.Detail != "" && !slices.Contains(details, f.Detail):
		return fmt.Errorf("detail %q of a target's health: must be one of %q", f.Detail, details)
	case f.Detail != "" && f.Health != HealthUnhealthy:
		return fmt.Errorf("detail %q of a target that is %s: only an unhealthy one has a detail",
			f.Detail, f.Health)
	case (f.HTTPStatus != 0) != (f.Detail == DetailHTTPStatus):
		return fmt.Errorf("HTTP status %d of a target with detail %q: one goes with detail %s, "+
			"and only with that", f.HTTPStatus, f.Detail, DetailHTTPStatus)
	}
	return nil
}

// TargetID identifies a target: a server, also one selected by a label selector; an IP; or both,
// for a server at an address other than its primary IPv4.
type TargetID struct {
	Server int64      `json:"server,omitempty"`
	IP     netip.Addr `json:"ip,omitzero"`
}

type healthKey struct {
	target TargetID
	port   int // listen port; 0: all
}

// SetTargetHealth fixes the health of a load balancer's target, for one listen port or, with 0,
// for all. An empty health removes the fixed value. The target need not exist yet.
func (s *Simulator) SetTargetHealth(
	loadBalancer int64, target TargetID, listenPort int, health Health,
) error {
	return s.SetTargetFinding(loadBalancer, target, listenPort, Finding{Health: health})
}

// SetTargetFinding is like SetTargetHealth, with the reason why a target is unhealthy. The zero
// Finding removes the fixed value.
func (s *Simulator) SetTargetFinding(
	loadBalancer int64, target TargetID, listenPort int, finding Finding,
) error {
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

// resolvedTarget is a server or an IP that a target currently resolves to.
type resolvedTarget struct {
	*target
	PlaneTarget
}

func (p *project) resolve(lb *loadBalancer) (all []resolvedTarget) {
	for _, t := range shown(p, lb.targets) {
		found := []TargetID{{Server: t.server, IP: t.ip}}
		if t.kind == targetSelector {
			found = rendered(ids(&p.servers, t.reaches), func(id int64) TargetID {
				return TargetID{Server: id}
			})
		}
		for _, id := range found {
			all = append(all, resolvedTarget{t, PlaneTarget{id, p.addressOf(lb, t, id)}})
		}
	}
	return all
}

// HealthyTargets returns the targets to which a service currently sends new connections: the
// reachable targets that the API shows as healthy for its listen port, and with
// [Options.ServeUnjudged] also those of unknown health. It returns nil for a missing service.
func (s *Simulator) HealthyTargets(loadBalancer int64, listenPort int) (healthy []PlaneTarget) {
	p, unlock := s.present()
	defer unlock()
	lb, ok := p.loadBalancers.get(loadBalancer)
	if !ok {
		return nil
	}
	service := lb.serviceOn(listenPort)
	if service == nil || p.creating[service] {
		return nil
	}
	for _, to := range p.resolve(lb) {
		health := p.findingOf(lb, service, to.target, to.TargetID).Health
		serves := health == HealthHealthy || p.opts.ServeUnjudged && health == HealthUnknown
		if to.Address.IsValid() && serves {
			healthy = append(healthy, to.PlaneTarget)
		}
	}
	return healthy
}

// findingOf returns the health of a target for a service: the fixed value, the result of health
// checks, or the health that results from time.
func (p *project) findingOf(lb *loadBalancer, s *service, t *target, id TargetID) Finding {
	for _, port := range []int{s.ListenPort, 0} {
		if fixed, ok := lb.health[healthKey{id, port}]; ok {
			return fixed
		}
	}
	known := lb.checksOf(s, t, id)
	if p.probing > 0 {
		return known.finding
	}
	if p.opts.Prober != nil {
		if found := known.run(p.now, p.probe(lb, s, t, id), p.opts.Prober); found != (Finding{}) {
			return found
		}
	}
	server, isServer := p.servers.get(id.Server)
	up := id.Server == 0 || isServer && server.status == statusRunning
	switch {
	case p.now.Sub(known.since) < p.opts.HealthyAfter:
		return Finding{Health: HealthUnknown}
	case !p.addressOf(lb, t, id).IsValid() || !up:
		return Finding{Health: HealthUnhealthy, Detail: DetailTimeout4}
	}
	return Finding{Health: HealthHealthy}
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
	case lb.private == nil || p.creating[lb.private]:
		return netip.Addr{}
	}
	if a := s.attachmentTo(lb.private.network); a != nil && !p.creating[a] {
		return a.ip
	}
	return netip.Addr{}
}

// healthOf returns the health of a target as the API shows it, for each service.
func (p *project) healthOf(
	lb *loadBalancer, t *target, id TargetID,
) []schema.LoadBalancerTargetHealthStatus {
	return rendered(shown(p, lb.services), func(s *service) schema.LoadBalancerTargetHealthStatus {
		f := p.findingOf(lb, s, t, id)
		out := schema.LoadBalancerTargetHealthStatus{ListenPort: s.ListenPort, Status: string(f.Health)}
		if f.Health == HealthUnhealthy {
			out.Detail = new(string(cmp.Or(f.Detail, DetailUnspecified)))
		}
		if f.HTTPStatus != 0 {
			out.HTTPStatusCode = &f.HTTPStatus
		}
		return out
	})
}
