package hcloudsim

import (
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func floatingIPOperations() []operation {
	k := kind[*floatingIP]{
		name: kindFloatingIP, plural: "floating_ips",
		rows:    func(p *project) *table[*floatingIP] { return &p.floatingIPs },
		body:    func(p *project, f *floatingIP) any { return p.renderFloatingIP(f) },
		unnamed: true,
		// Names and labels do not affect routing.
		editableAlways: true,
		edit: func(f *floatingIP, req updateRequest) error {
			set(&f.description, req.Description)
			return nil
		},
		mayDelete: func(_ *project, f *floatingIP) error {
			if f.server == 0 {
				return nil
			}
			return errRefused("must_be_unassigned",
				"the floating IP is assigned to server %d", f.server)
		},
	}
	return k.operations((*call).createFloatingIP,
		on(k, "assign", (*call).assignFloatingIP),
		on(k, "unassign", (*call).unassignFloatingIP),
		on(k, "change_dns_ptr", func(_ *call, f *floatingIP, req pointerRequest) (change, error) {
			return f.pointers.change(f.net, req)
		}),
		k.protection(),
	)
}

type floatingIPRequest struct {
	Type         string             `json:"type"`
	HomeLocation *schema.IDOrName   `json:"home_location"`
	Server       *int64             `json:"server"`
	Name         *string            `json:"name"`
	Description  *string            `json:"description"`
	Labels       *map[string]string `json:"labels"`
}

// createFloatingIP creates the floating IP at once; an action assigns it, if requested.
func (c *call) createFloatingIP() (reply, error) {
	req, err := decode[floatingIPRequest](c)
	if err != nil {
		return reply{}, err
	}
	f, s, err := c.judgeFloatingIP(req)
	if err != nil {
		return reply{}, err
	}
	c.addFloatingIP(f)
	body := map[string]any{kindFloatingIP: c.renderFloatingIP(f)}
	if s != nil {
		a := c.renderAction(c.begin(c.floating(f, s)))
		body["action"], body[kindFloatingIP] = a, c.renderFloatingIP(f)
	}
	return reply{status: http.StatusCreated, body: body}, nil
}

// floating assigns a floating IP, unless the server is deleted before the action ends.
func (p *project) floating(f *floatingIP, s *server) change {
	return change{command: "assign_floating_ip", about: []ref{f.ref(), s.ref()}, finish: func() {
		if _, there := p.servers.get(s.id); there {
			f.server = s.id
		}
	}}
}

func (c *call) assignFloatingIP(f *floatingIP, req struct{ Server *int64 }) (change, error) {
	if req.Server == nil {
		return change{}, errInvalid("server", "is required")
	}
	s, err := must(&c.servers, kindServer, *req.Server)
	if err != nil {
		return change{}, err
	}
	return c.floating(f, s), c.mayFloat(f, s)
}

func (c *call) unassignFloatingIP(f *floatingIP, _ struct{}) (change, error) {
	if f.server == 0 {
		return change{}, errInvalid("server", "the floating IP is assigned to no server")
	}
	on := ref{kindServer, f.server}
	return change{
		command: "unassign_floating_ip",
		about:   []ref{f.ref(), on},
		finish:  func() { f.server = 0 },
	}, c.idle(on)
}
