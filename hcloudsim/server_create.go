package hcloudsim

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// serverRequest is the simulated part of schema.ServerCreateRequest. User data is kept for
// [Simulator.UserData]; the API never shows it.
type serverRequest struct {
	Name             string             `json:"name"`
	ServerType       schema.IDOrName    `json:"server_type"`
	Image            *schema.IDOrName   `json:"image"`
	Location         string             `json:"location"`
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
var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`)

func checkServerName(name string) error {
	if len(name) > 253 || !hostname.MatchString(name) {
		return errInvalid("name", "must be a hostname as in RFC 1123")
	}
	return nil
}

// createServer implements POST /servers. The server exists at once, and is locked until it has
// been created, started and attached.
func (c *call) createServer() (reply, error) {
	req, err := decode[serverRequest](c)
	if err != nil {
		return reply{}, err
	}
	if req.Image == nil {
		return reply{}, errInvalid("image", "is required")
	}
	if len(req.UserData) > userDataMost {
		return reply{}, errInvalid("user_data", "must have at most %d bytes", userDataMost)
	}
	if err := req.checkReferences(); err != nil {
		return reply{}, err
	}
	if err := c.knowsSSHKeys(req.SSHKeys); err != nil {
		return reply{}, err
	}
	networks, err := c.networksOf(req.Networks)
	if err != nil {
		return reply{}, err
	}
	named, err := c.namedPrimaryIPs(req.PublicNet.IPv4ID, req.PublicNet.IPv6ID)
	if err != nil {
		return reply{}, err
	}
	s, err := c.newServer(req)
	if err != nil {
		return reply{}, err
	}
	if err := named.in(s.location); err != nil {
		return reply{}, err
	}
	for _, n := range networks {
		if _, err := c.attach(s, n, place{}); err != nil {
			return reply{}, err
		}
	}
	s.base = c.newBase(s.name, s.labels)
	c.servers.add(s)
	for _, k := range named.all() {
		s.addresses.set(k)
	}
	c.hold(s.addresses, s.ref(), s.location)
	action, next := c.beginCreation(s, networks, req.StartAfterCreate == nil || *req.StartAfterCreate)
	var password *string // a server with SSH keys has no password
	if len(req.SSHKeys) == 0 {
		simulated := "simulated"
		password = &simulated
	}
	return reply{status: http.StatusCreated, body: map[string]any{
		kindServer: c.serverBody(s), "action": action, "next_actions": next, "root_password": password,
	}}, nil
}

// beginCreation starts the actions of POST /servers, which run concurrently.
func (c *call) beginCreation(s *server, networks []*network, start bool) (first schema.Action, next []schema.Action) {
	s.status = statusInitializing
	create := c.begin(change{
		command: "create_server",
		about:   []ref{s.ref()},
		finish: func() {
			if s.status == statusInitializing { // it may have been started already
				s.status = statusOff
			}
		},
		undo: func() { c.removeServer(s) },
	})
	next = []schema.Action{}
	if start {
		on := c.begin(change{command: "start_server", about: []ref{s.ref()}, finish: func() { s.status = statusRunning }})
		next = append(next, c.renderAction(on))
	}
	for i, n := range networks {
		a := s.private[i]
		a.pending = true
		attach := c.begin(change{
			command: "attach_to_network",
			about:   []ref{s.ref(), n.ref()},
			finish:  func() { a.pending = false },
			undo:    func() { s.detach(n.id) },
		})
		next = append(next, c.renderAction(attach))
	}
	return c.renderAction(create), next
}

func (r serverRequest) checkReferences() error {
	switch {
	case len(r.Volumes) > 0:
		return errNotFound("volume", r.Volumes[0])
	case len(r.Firewalls) > 0:
		return errNotFound("firewall", r.Firewalls[0].Firewall)
	case r.PlacementGroup != 0:
		return errNotFound("placement_group", r.PlacementGroup)
	}
	return nil
}

func (c *call) networksOf(ids []int64) ([]*network, error) {
	var out []*network
	for _, id := range ids {
		n, err := must(&c.networks, kindNetwork, id)
		if err != nil {
			return nil, err
		}
		if err := c.idle(n.ref()); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// newServer validates a request and returns the server, which has no ID yet.
func (p *project) newServer(req serverRequest) (*server, error) {
	if exceeds(len(p.servers.rows), p.opts.ServerLimit) {
		return nil, errLimit("server_limit", p.opts.ServerLimit)
	}
	if err := checkServerName(req.Name); err != nil {
		return nil, err
	}
	if err := p.servers.nameFree(req.Name, 0); err != nil {
		return nil, err
	}
	t, known := lookup(p.catalog.serverTypes, req.ServerType, serverTypeKey)
	if !known {
		return nil, errInvalid("server_type", "server type does not exist")
	}
	location, err := p.serverLocation(t, req.Location)
	if err != nil {
		return nil, err
	}
	labels, err := newLabels(req.Labels)
	if err != nil {
		return nil, err
	}
	s := &server{base: base{name: req.Name, labels: labels}, status: statusRunning, serverType: t, location: location, userData: req.UserData}
	if req.Image != nil {
		if s.image, err = p.imageFor(*req.Image, t); err != nil {
			return nil, err
		}
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

func (p *project) serverLocation(t schema.ServerType, text string) (schema.Location, error) {
	if strings.TrimSpace(text) == "" {
		text = t.Locations[0].Name
	}
	location, err := p.catalog.location(text)
	if err != nil {
		return location, err
	}
	for _, l := range t.Locations {
		if l.Name == location.Name {
			return location, nil
		}
	}
	return location, errInvalid("location", "server type %s is not available in %s", t.Name, location.Name)
}
