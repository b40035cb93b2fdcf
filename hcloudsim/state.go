package hcloudsim

import (
	"encoding/json"
	"fmt"

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

	LastID    int64  `json:"last_id"`
	Addresses uint32 `json:"addresses"` // number of allocated public addresses
}

// Snapshot returns all resources as JSON, in the API's terms. A restore loses running actions,
// faults, findings that were set, the request log and the remaining budget.
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
	return state{
		Servers:       rendered(p.servers.rows, p.serverBody),
		Networks:      rendered(p.networks.rows, p.networkBody),
		LoadBalancers: rendered(p.loadBalancers.rows, p.loadBalancerBody),
		PrimaryIPs:    rendered(p.primaryIPs.rows, p.renderPrimaryIP),
		FloatingIPs:   rendered(p.floatingIPs.rows, p.renderFloatingIP),
		Certificates:  rendered(p.certificates.rows, p.renderCertificate),
		SSHKeys:       rendered(p.sshKeys.rows, p.renderSSHKey),
		Images:        rendered(p.images.rows, p.renderImage),
		Volumes:       rendered(p.volumes.rows, p.renderVolume),
		Firewalls:     rendered(p.firewalls.rows, p.renderFirewall),
		Actions:       rendered(p.actions.all, p.renderAction),

		PlacementGroups: rendered(p.groups.rows, p.renderPlacementGroup),
		LastID:          p.lastID, Addresses: p.addresses,
	}
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
	made.addresses = max(wanted.Addresses, p.addresses)
	s.project = made
	return nil
}

// project parses the API's representation into the state, the inverse of rendering.
func (w state) project(opts Options) (*project, error) {
	r := reader{project: newProject(opts)}
	r.lastID = w.LastID
	if len(w.Images) > 0 {
		r.images = table[*image]{}
	}
	read(&r, &r.images, w.Images, readImage)
	read(&r, &r.primaryIPs, w.PrimaryIPs, r.primaryIP)
	read(&r, &r.servers, w.Servers, r.server)
	read(&r, &r.floatingIPs, w.FloatingIPs, r.floatingIP)
	read(&r, &r.networks, w.Networks, r.network)
	read(&r, &r.loadBalancers, w.LoadBalancers, r.loadBalancer)
	read(&r, &r.certificates, w.Certificates, readCertificate)
	read(&r, &r.sshKeys, w.SSHKeys, readSSHKey)
	read(&r, &r.groups, w.PlacementGroups, readPlacementGroup)
	read(&r, &r.volumes, w.Volumes, readVolume)
	read(&r, &r.firewalls, w.Firewalls, readFirewall)
	for _, a := range w.Actions {
		if a.Status != "running" {
			r.actions.all = append(r.actions.all, readAction(a))
			r.lastID = max(r.lastID, a.ID)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	r.assignPrimaryIPs()
	return r.project, nil
}
