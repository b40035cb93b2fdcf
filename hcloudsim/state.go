package hcloudsim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// state is the JSON of all resources as in the API, followed by fields that the API lacks.
type state struct {
	Servers       []serverBody        `json:"servers"`
	Networks      []networkBody       `json:"networks"`
	LoadBalancers []loadBalancerBody  `json:"load_balancers"`
	PrimaryIPs    []schema.PrimaryIP  `json:"primary_ips"`
	FloatingIPs   []schema.FloatingIP `json:"floating_ips"`
	Certificates  []certificateBody   `json:"certificates"`
	SSHKeys       []schema.SSHKey     `json:"ssh_keys"`
	Images        []schema.Image      `json:"images"`
	Volumes       []schema.Volume     `json:"volumes"`
	Firewalls     []schema.Firewall   `json:"firewalls"`
	Actions       []schema.Action     `json:"actions"`

	PlacementGroups []schema.PlacementGroup `json:"placement_groups"`

	TargetHealth []targetHealth `json:"target_health"` // set by SetTargetFinding
	LastID       int64          `json:"last_id"`
	Addresses    uint32         `json:"addresses"` // number of allocated public addresses
}

type targetHealth struct {
	LoadBalancer int64      `json:"load_balancer"`
	Server       int64      `json:"server,omitempty"`
	IP           netip.Addr `json:"ip,omitzero"`
	ListenPort   int        `json:"listen_port"` // 0: all
	Status       Health     `json:"status"`
	Detail       Detail     `json:"detail,omitempty"`
	HTTPStatus   int        `json:"http_status_code,omitempty"`
}

func (h targetHealth) finding() Finding { return Finding{h.Status, h.Detail, h.HTTPStatus} }

func (h targetHealth) key() healthKey {
	return healthKey{TargetID{Server: h.Server, IP: h.IP}, h.ListenPort}
}

// Snapshot returns all resources as JSON, in the API's terms. A restore loses running actions,
// faults, the request log and the remaining budget.
func (s *Simulator) Snapshot() []byte {
	p, unlock := s.present()
	defer unlock()
	text, err := json.Marshal(p.state())
	if err != nil {
		// The snapshot contains only structs of this package and of schema.
		panic(fmt.Sprintf("hcloudsim: encoding a snapshot: %v", err))
	}
	return text
}

func (p *project) state() state {
	out := state{
		Servers:       rendered(p.servers.rows, p.serverBody),
		Networks:      rendered(p.networks.rows, p.networkBody),
		LoadBalancers: rendered(p.loadBalancers.rows, p.loadBalancerBody),
		PrimaryIPs:    rendered(p.primaryIPs.rows, p.renderPrimaryIP),
		FloatingIPs:   rendered(p.floatingIPs.rows, p.renderFloatingIP),
		Certificates:  rendered(p.certificates.rows, p.certificateBody),
		SSHKeys:       rendered(p.sshKeys.rows, p.renderSSHKey),
		Images:        rendered(p.images.rows, p.renderImage),
		Volumes:       rendered(p.volumes.rows, p.renderVolume),
		Firewalls:     rendered(p.firewalls.rows, p.renderFirewall),
		Actions:       rendered(p.actions.all, p.renderAction),
		TargetHealth:  []targetHealth{},

		PlacementGroups: rendered(p.groups.rows, p.renderPlacementGroup),
		LastID:          p.lastID, Addresses: p.public.count,
	}
	for _, lb := range p.loadBalancers.rows {
		for _, key := range sortedKeys(lb.health, compareHealthKeys) {
			f := lb.health[key]
			out.TargetHealth = append(out.TargetHealth, targetHealth{lb.id, key.target.Server, key.target.IP, key.port, f.Health, f.Detail, f.HTTPStatus})
		}
	}
	return out
}

func compareHealthKeys(a, b healthKey) int {
	return cmp.Or(cmp.Compare(a.target.Server, b.target.Server), a.target.IP.Compare(b.target.IP), cmp.Compare(a.port, b.port))
}

// Restore replaces the project with a snapshot, also an edited one. It does not apply the API's
// rules, so that tests can use states that the API would refuse. It returns an error, and changes
// nothing, if the snapshot can't be parsed.
func (s *Simulator) Restore(snapshot []byte) error {
	var wanted state
	if err := json.Unmarshal(snapshot, &wanted); err != nil {
		return fmt.Errorf("restoring a snapshot: %w", err)
	}
	p, unlock := s.present()
	defer unlock()
	made, err := wanted.project(s.opts)
	if err != nil {
		return fmt.Errorf("restoring a snapshot: %w", err)
	}
	made.now, made.touched, made.probing = p.now, true, p.probing
	made.public.count = max(wanted.Addresses, p.public.count)
	s.project = made
	return nil
}

func (w state) project(opts Options) (*project, error) {
	p := newProject(opts)
	p.lastID = w.LastID
	if len(w.Images) > 0 {
		p.images = table[*image]{}
		if err := read(p, &p.images, w.Images, readImage); err != nil {
			return nil, err
		}
	}
	if err := read(p, &p.primaryIPs, w.PrimaryIPs, readPrimaryIP); err != nil {
		return nil, err
	}
	if err := read(p, &p.servers, w.Servers, readServer); err != nil {
		return nil, err
	}
	if err := read(p, &p.floatingIPs, w.FloatingIPs, readFloatingIP(p)); err != nil {
		return nil, err
	}
	if err := read(p, &p.networks, w.Networks, readNetwork); err != nil {
		return nil, err
	}
	if err := read(p, &p.loadBalancers, w.LoadBalancers, readLoadBalancer(p)); err != nil {
		return nil, err
	}
	if err := read(p, &p.certificates, w.Certificates, readCertificate); err != nil {
		return nil, err
	}
	if err := read(p, &p.sshKeys, w.SSHKeys, readSSHKey); err != nil {
		return nil, err
	}
	if err := read(p, &p.groups, w.PlacementGroups, readPlacementGroup); err != nil {
		return nil, err
	}
	if err := read(p, &p.volumes, w.Volumes, readVolume(p)); err != nil {
		return nil, err
	}
	if err := read(p, &p.firewalls, w.Firewalls, readFirewall(p)); err != nil {
		return nil, err
	}
	for _, a := range w.Actions {
		if a.Status != "running" {
			p.actions.all = append(p.actions.all, readAction(a))
			p.lastID = max(p.lastID, a.ID)
		}
	}
	p.readHolders()
	for _, h := range w.TargetHealth {
		lb, err := must(&p.loadBalancers, kindLoadBalancer, h.LoadBalancer)
		if err != nil {
			return nil, fmt.Errorf("target_health: %w", err)
		}
		lb.health[h.key()] = h.finding()
	}
	return p, nil
}
