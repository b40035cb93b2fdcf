package hcloudsim

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// serverRequest is the simulated part of schema.ServerCreateRequest. User data is kept for
// [Simulator.UserData]; the API never shows it.
type serverRequest struct {
	Name             string             `json:"name"`
	ServerType       schema.IDOrName    `json:"server_type"`
	Image            *schema.IDOrName   `json:"image"`
	Location         *schema.IDOrName   `json:"location"`
	StartAfterCreate *bool              `json:"start_after_create"`
	Labels           *map[string]string `json:"labels"`
	Networks         []int64            `json:"networks"`
	PublicNet        publicNetRequest   `json:"public_net"`
	SSHKeys          []schema.IDOrName  `json:"ssh_keys"`
	UserData         string             `json:"user_data"`

	Volumes        []int64                        `json:"volumes"`
	Firewalls      []schema.ServerCreateFirewalls `json:"firewalls"`
	PlacementGroup int64                          `json:"placement_group"`
}

// publicNetRequest selects the public addresses of a server; the default is both families.
type publicNetRequest struct {
	EnableIPv4 *bool `json:"enable_ipv4"`
	EnableIPv6 *bool `json:"enable_ipv6"`
	IPv4ID     int64 `json:"ipv4"`
	IPv6ID     int64 `json:"ipv6"`
}

// userDataMost is in bytes.
const userDataMost = 32 << 10

// hostname matches a host name (RFC 1123).
var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?` +
	`(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

func checkServerName(name string) error {
	if len(name) > 253 || !hostname.MatchString(name) {
		return errInvalid("name", "must be a hostname as in RFC 1123")
	}
	return nil
}

// createServer implements POST /servers. The server exists at once, and is locked until it has
// been created, started and attached.
func (c *call) createServer(req serverRequest) (*server, map[string]any, error) {
	if req.Image == nil {
		return nil, nil, errInvalid("image", "is required")
	}
	if len(req.UserData) > userDataMost {
		return nil, nil, errInvalid("user_data", "must have at most %d bytes", userDataMost)
	}
	for _, key := range req.SSHKeys {
		if _, err := named(&c.sshKeys, kindSSHKey, key); err != nil {
			return nil, nil, err
		}
	}
	for _, id := range req.Networks {
		if _, err := c.idleNetwork(id); err != nil {
			return nil, nil, err
		}
	}
	named, err := c.namedPrimaryIPs(req.PublicNet.IPv4ID, req.PublicNet.IPv6ID)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.newServer(req)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range named.all() {
		s.addresses.set(k)
	}
	parts, err := c.partsOf(s, req)
	if err := cmp.Or(err, named.in(s.location)); err != nil {
		return nil, nil, err
	}
	c.addServer(s)
	more := c.beginCreation(s, parts, req.StartAfterCreate == nil || *req.StartAfterCreate)
	if len(req.SSHKeys) == 0 {
		more["root_password"] = simulatedPassword
	}
	return s, more, nil
}

// addServer adds a server with a new ID, and its primary IPs.
func (p *project) addServer(s *server) {
	s.base = p.newBase(s.base)
	p.servers.add(s)
	p.hold(s.addresses, s.ref(), s.location)
}

// partsOf validates what a new server is to be attached to. It returns functions that begin the
// attachments once the server has an ID.
func (c *call) partsOf(s *server, req serverRequest) (parts []func() change, err error) {
	for _, id := range req.Networks {
		n, _ := c.networks.get(id) // createServer has checked it
		a, err := c.attach(s, n, place{})
		if err != nil {
			return nil, err
		}
		parts = append(parts, func() change { return attaching(s, a) })
	}
	for i, id := range req.Volumes {
		v, err := must(&c.volumes, kindVolume, id)
		if err != nil {
			return nil, err
		}
		if slices.Contains(req.Volumes[:i], id) {
			return nil, errInvalid("volumes", "%d is named twice", id)
		}
		if err := cmp.Or(c.idle(v.ref()), c.mayAttachVolume(v, s, i)); err != nil {
			return nil, err
		}
		parts = append(parts, func() change { return c.volumeAttachment(v, s) })
	}
	for i, applied := range req.Firewalls {
		f, err := must(&c.firewalls, kindFirewall, applied.Firewall)
		if err != nil {
			return nil, err
		}
		if slices.Contains(req.Firewalls[:i], applied) {
			return nil, errRefused("server_already_added", "firewall %d is named twice", f.id)
		}
		if err := cmp.Or(c.idle(f.ref()), mayFilter(s, i)); err != nil {
			return nil, err
		}
		parts = append(parts, func() change {
			return f.applying([]firewallTarget{{server: s.id}})[0]
		})
	}
	return parts, nil
}

// beginCreation starts the actions of POST /servers, which run concurrently. It returns the
// actions and the absent password of a server with SSH keys for the reply.
func (c *call) beginCreation(s *server, parts []func() change, start bool) map[string]any {
	s.status = statusInitializing
	first := c.begin(change{
		command: "create_server",
		about:   []ref{s.ref()},
		finish: func() {
			if s.status == statusInitializing { // it may have been started already
				s.status = statusOff
			}
		},
		undo: func() { c.removeServer(s) },
	})
	var changes []change
	if start {
		changes = append(changes, change{
			command: "start_server",
			about:   []ref{s.ref()},
			finish:  func() { s.status = statusRunning },
		})
	}
	for _, part := range parts {
		changes = append(changes, part())
	}
	action := c.renderAction(first)
	return map[string]any{
		"action": action, "next_actions": c.beginAll(changes), "root_password": nil,
	}
}

// newServer validates a request and returns the server, which has no ID yet.
func (p *project) newServer(req serverRequest) (*server, error) {
	b, err := serverKind().new(p, req.Name, req.Labels)
	if err != nil {
		return nil, err
	}
	t, known := lookup(p.catalog.serverTypes, req.ServerType, serverTypeKey)
	if !known {
		return nil, errInvalid("server_type", "server type does not exist")
	}
	location, err := p.serverLocation(t, req.Location)
	if err == nil && req.PlacementGroup != 0 {
		err = p.mayJoin(req.PlacementGroup)
	}
	if err != nil {
		return nil, err
	}
	s := &server{
		base: b, status: statusRunning, serverType: t, disk: t.Disk, location: location,
		userData: req.UserData, group: req.PlacementGroup,
	}
	if s.image, err = p.imageFor(*req.Image, t); err != nil {
		return nil, err
	}
	s.addresses = p.newAddresses()
	if off(req.PublicNet.EnableIPv4) {
		s.addresses.ipv4 = nil
	}
	if off(req.PublicNet.EnableIPv6) {
		s.addresses.ipv6 = nil
	}
	return s, nil
}

// off reports whether an option that is enabled by default is disabled.
func off(enable *bool) bool { return enable != nil && !*enable }

// serverLocation returns the location of a new server, by default the type's first one.
func (p *project) serverLocation(
	t schema.ServerType, given *schema.IDOrName,
) (schema.Location, error) {
	if given == nil || *given == (schema.IDOrName{}) {
		given = &schema.IDOrName{Name: t.Locations[0].Name}
	}
	location, err := p.catalog.location("location", *given)
	if err == nil && !offered(t, location) {
		err = errInvalid("location", "server type %s is not available in %s", t.Name, location.Name)
	}
	return location, err
}
