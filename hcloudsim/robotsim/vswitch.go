package robotsim

import (
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// The VLAN IDs allowed for a vSwitch, and the documented limits.
const (
	vlanFirst, vlanLast = 4000, 4091
	serversPerVSwitch   = 100
	vSwitchesPerServer  = 5
)

const (
	statusReady     = "ready"
	statusInProcess = "in process"
	statusFailed    = "failed"
)

// vSwitch is a layer 2 network between dedicated servers.
type vSwitch struct {
	id        int64
	name      string
	vlan      int
	cancelled bool // for a later day, which never comes here
	members   []*member
	subnets   []netip.Prefix // public subnets ordered for the vSwitch

	// busy reports whether a change is running; it ends at until.
	busy  bool
	until time.Time
}

type member struct {
	server *server
	status string
	// Result of the running change.
	fails, leaves bool
}

// at completes a running change if it has ended.
func (v *vSwitch) at(now time.Time) {
	if !v.busy || now.Before(v.until) {
		return
	}
	v.busy = false
	v.members = slices.DeleteFunc(v.members, func(m *member) bool { return m.leaves && !m.fails })
	for _, m := range v.members {
		if m.status == statusInProcess {
			m.status = statusReady
			if m.fails {
				m.status = statusFailed
			}
		}
		m.fails, m.leaves = false, false
	}
}

// change locks the vSwitch while members are being configured.
func (c *call) change(v *vSwitch, members ...*member) {
	if len(members) == 0 {
		return
	}
	for _, m := range members {
		m.status, m.fails = statusInProcess, c.Fault.FailAction != ""
	}
	took := c.opts.VSwitchTime
	if times := c.opts.VSwitchTimes; len(times) > 0 {
		took = times[c.rand.IntN(len(times))]
	}
	v.busy, v.until = true, c.now.Add(took)
	v.at(c.now)
}

type vSwitchBody struct {
	ID        int64  `json:"id"`
	Name      string `json:"name"`
	VLAN      int    `json:"vlan"`
	Cancelled bool   `json:"cancelled"`
}

type vSwitchDetail struct {
	vSwitchBody
	Servers       []memberBody `json:"server"`
	Subnets       []subnetBody `json:"subnet"`
	CloudNetworks []cloudBody  `json:"cloud_network"`
}

type memberBody struct {
	serverID
	Status string `json:"status"`
}

type subnetBody struct {
	IP      string `json:"ip"`
	Mask    int    `json:"mask"`
	Gateway string `json:"gateway"`
}

type cloudBody struct {
	ID int64 `json:"id"`
	subnetBody
}

func (v *vSwitch) body() vSwitchBody { return vSwitchBody{v.id, v.name, v.vlan, v.cancelled} }

func (c *call) detail(v *vSwitch) vSwitchDetail {
	out := vSwitchDetail{
		vSwitchBody: v.body(), CloudNetworks: []cloudBody{},
		Servers: each(v.members, func(m *member) memberBody {
			if m.status == statusInProcess && c.opts.Processing {
				return memberBody{m.server.id(), "processing"}
			}
			return memberBody{m.server.id(), m.status}
		}),
		Subnets: each(v.subnets, func(net netip.Prefix) subnetBody {
			return subnetBody{net.Addr().String(), net.Bits(), net.Addr().Next().String()}
		}),
	}
	for _, s := range c.coupled {
		if s.VSwitch == v.id {
			net := subnetBody{s.Range.Addr().String(), s.Range.Bits(), s.Gateway.String()}
			out.CloudNetworks = append(out.CloudNetworks, cloudBody{s.Network, net})
		}
	}
	return out
}

func (c *call) vSwitchInPath() (*vSwitch, error) {
	id, err := strconv.ParseInt(c.request.PathValue("id"), 10, 64)
	if v := c.vSwitch(id); err == nil && v != nil {
		return v, nil
	}
	return nil, refusal(codeNotFound, "vSwitch not found")
}

// vSwitch returns the vSwitch with an ID, or nil.
func (a *account) vSwitch(id int64) *vSwitch {
	return first(a.vSwitches, func(v *vSwitch) bool { return v.id == id })
}

func (c *call) listVSwitches() (reply, error) {
	return reply{body: each(half(c.Fault, c.vSwitches), (*vSwitch).body)}, nil
}

func (c *call) getVSwitch(v *vSwitch) (reply, error) {
	return reply{body: c.detail(v)}, nil
}

func (c *call) nameAndVLAN() (name string, vlan int, err error) {
	var missing, invalid []string
	text := c.form.Get("vlan")
	vlan, problem := strconv.Atoi(text)
	switch {
	case text == "":
		missing = append(missing, "vlan")
	case problem != nil || vlan < vlanFirst || vlan > vlanLast:
		invalid = append(invalid, "vlan")
	}
	if name = c.form.Get("name"); name == "" {
		missing = append(missing, "name")
	}
	if missing != nil || invalid != nil {
		return "", 0, errInput(missing, invalid)
	}
	return name, vlan, nil
}

func (c *call) createVSwitch() (reply, error) {
	name, vlan, err := c.nameAndVLAN()
	if err != nil {
		return reply{}, err
	}
	v := &vSwitch{id: c.id(0), name: name, vlan: vlan}
	c.vSwitches = append(c.vSwitches, v)
	return reply{status: 201, body: c.detail(v)}, nil
}

func (c *call) updateVSwitch(v *vSwitch) (reply, error) {
	name, vlan, err := c.nameAndVLAN()
	switch {
	case err != nil:
		return reply{}, err
	case v.busy:
		return reply{}, errVSwitchBusy()
	}
	if vlan != v.vlan {
		for _, m := range v.members {
			if c.uses(m.server, vlan) {
				return reply{}, errVLAN(m.server)
			}
		}
		v.vlan = vlan
		c.change(v, v.members...)
	}
	v.name = name
	return reply{}, nil
}

func errVSwitchBusy() *Error {
	return refusal(codeVSwitchInProcess,
		"The vSwitch cannot be updated because a update is currently running")
}

func errVLAN(s *server) *Error {
	return refusal(codeVLANNotUnique,
		"The vSwitch cannot be updated because of a conflicting VLAN ID (server %d)", s.number)
}

// of returns the vSwitches of a server.
func (a *account) of(s *server) (in []*vSwitch) {
	for _, v := range a.vSwitches {
		if v.member(s) != nil {
			in = append(in, v)
		}
	}
	return in
}

// uses reports whether a server is in a vSwitch with this VLAN.
func (a *account) uses(s *server, vlan int) bool {
	return slices.ContainsFunc(a.of(s), func(v *vSwitch) bool { return v.vlan == vlan })
}

// member returns the membership of a server, or nil.
func (v *vSwitch) member(s *server) *member {
	return first(v.members, func(m *member) bool { return m.server == s })
}

func (c *call) cancelVSwitch(v *vSwitch) (reply, error) {
	const field = "cancellation_date"
	text := c.form.Get(field)
	day, err := time.Parse(time.DateOnly, text)
	switch {
	case text == "":
		return reply{}, errMissing(field)
	case text != "now" && (err != nil || day.Before(c.now.UTC().Truncate(24*time.Hour))):
		return reply{}, errInvalid(field)
	case v.cancelled:
		return reply{}, refusal(codeConflict, "The vSwitch is already cancelled")
	}
	v.cancelled = true
	if text == "now" {
		c.vSwitches = slices.DeleteFunc(c.vSwitches, func(other *vSwitch) bool { return other == v })
	}
	return reply{}, nil
}

// members returns the servers named in a request, without duplicates.
func (c *call) members() (found []*server, err error) {
	identifiers := c.list("server")
	if len(identifiers) == 0 {
		return nil, errMissing("server")
	}
	for _, identifier := range identifiers {
		s, err := c.server(identifier)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	return found, nil
}

// addServers adds either all or none of the servers.
func (c *call) addServers(v *vSwitch) (reply, error) {
	servers, err := c.members()
	switch {
	case err != nil:
		return reply{}, err
	case v.busy:
		return reply{}, errVSwitchBusy()
	}
	servers = slices.DeleteFunc(servers, func(s *server) bool { return v.member(s) != nil })
	if len(v.members)+len(servers) > serversPerVSwitch {
		return reply{}, refusal(codeVSwitchServers,
			"The maximum number of servers is reached for this vSwitch")
	}
	for _, s := range servers {
		switch {
		case !s.vSwitch:
			return reply{}, refusal(codeVSwitchUnavailable,
				"The vSwitch feature is not available for server %d", s.number)
		case c.uses(s, v.vlan):
			return reply{}, errVLAN(s)
		case len(c.of(s)) >= vSwitchesPerServer:
			return reply{}, refusal(codeServerVSwitches,
				"The maximum number of vSwitches is reached for server %d", s.number)
		}
	}
	added := each(servers, func(s *server) *member { return &member{server: s} })
	v.members = append(v.members, added...)
	c.change(v, added...)
	return reply{status: 201}, nil
}

func (c *call) removeServers(v *vSwitch) (reply, error) {
	servers, err := c.members()
	if err != nil {
		return reply{}, err
	}
	leaving := each(servers, v.member)
	if i := slices.Index(leaving, nil); i >= 0 {
		return reply{}, errNoServer(servers[i].number)
	}
	if v.busy {
		return reply{}, errVSwitchBusy()
	}
	for _, m := range leaving {
		m.leaves = true
	}
	c.change(v, leaving...)
	return reply{}, nil
}
