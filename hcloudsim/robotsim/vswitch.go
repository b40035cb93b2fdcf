package robotsim

import (
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// The VLAN IDs allowed for a vSwitch.
const vlanFirst, vlanLast = 4000, 4091

const (
	statusFailed     = "failed"
	statusProcessing = "processing"
)

// vSwitch is a layer 2 network between dedicated servers.
type vSwitch struct {
	id        int64
	name      string
	vlan      int
	cancelled bool
	ends      time.Time // day of the cancellation; zero: no date
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
		m.status, m.fails = statusInProcess, c.fault.FailChange
	}
	v.busy, v.until = true, c.now.Add(c.vSwitchTime())
	v.at(c.now)
}

func (a *account) vSwitchTime() time.Duration {
	if times := a.opts.VSwitchTimes; len(times) > 0 {
		return times[a.rand.IntN(len(times))]
	}
	return a.opts.VSwitchTime
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
	IP      *string `json:"server_ip"`
	IPv6Net *string `json:"server_ipv6_net"`
	Number  int64   `json:"server_number"`
	Status  string  `json:"status"`
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
	out := vSwitchDetail{vSwitchBody: v.body(), Servers: []memberBody{}, Subnets: []subnetBody{}, CloudNetworks: []cloudBody{}}
	for _, m := range v.members {
		status := m.status
		if status == statusInProcess && c.opts.Processing {
			status = statusProcessing
		}
		out.Servers = append(out.Servers, memberBody{m.server.mainIP(), m.server.mainNet(), m.server.number, status})
	}
	for _, net := range v.subnets {
		out.Subnets = append(out.Subnets, subnetBody{net.Addr().String(), net.Bits(), net.Addr().Next().String()})
	}
	for _, s := range c.coupled {
		if s.VSwitch == v.id {
			out.CloudNetworks = append(out.CloudNetworks, cloudBody{s.Network, subnetBody{s.Range.Addr().String(), s.Range.Bits(), s.Gateway.String()}})
		}
	}
	return out
}

func (c *call) found() (*vSwitch, *Error) {
	id, err := strconv.ParseInt(c.request.PathValue("id"), 10, 64)
	for _, v := range c.vSwitches {
		if err == nil && v.id == id {
			return v, nil
		}
	}
	return nil, refusal(codeNotFound, "vSwitch not found")
}

func (c *call) listVSwitches() (reply, error) {
	out := []vSwitchBody{}
	for _, v := range half(c.fault, c.vSwitches) {
		out = append(out, v.body())
	}
	return reply{body: out}, nil
}

func (c *call) getVSwitch() (reply, error) {
	v, err := c.found()
	if err != nil {
		return reply{}, err
	}
	return reply{body: c.detail(v)}, nil
}

func (c *call) wanted() (name string, vlan int, err *Error) {
	if name = c.form.Get("name"); name == "" {
		err = errMissing("name")
	}
	vlan, problem := c.integer("vlan")
	switch {
	case problem != nil && err != nil:
		err = &Error{Status: err.Status, Code: err.Code, Message: err.Message, Missing: append(problem.Missing, err.Missing...), Invalid: problem.Invalid}
	case problem != nil:
		err = problem
	case vlan < vlanFirst || vlan > vlanLast:
		invalid := errInvalid("vlan")
		if err != nil {
			invalid.Missing = err.Missing
		}
		err = invalid
	}
	return name, vlan, err
}

func (c *call) createVSwitch() (reply, error) {
	name, vlan, err := c.wanted()
	if err != nil {
		return reply{}, err
	}
	if exceeds(len(c.vSwitches), c.opts.VSwitchLimit) {
		return reply{}, refusal(codeVSwitchLimit, "The maximum count of vSwitches is reached")
	}
	v := &vSwitch{id: c.newID(), name: name, vlan: vlan}
	c.vSwitches = append(c.vSwitches, v)
	return reply{status: 201, body: c.detail(v)}, nil
}

func (c *call) updateVSwitch() (reply, error) {
	v, err := c.found()
	if err != nil {
		return reply{}, err
	}
	name, vlan, err := c.wanted()
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
	return refusal(codeVSwitchInProcess, "The vSwitch cannot be updated because a update is currently running")
}

func errVLAN(s *server) *Error {
	return refusal(codeVLANNotUnique, "The vSwitch cannot be updated because of a conflicting VLAN ID (server %d)", s.number)
}

// uses reports whether a server is in a vSwitch with this VLAN.
func (a *account) uses(s *server, vlan int) bool {
	return slices.ContainsFunc(a.vSwitches, func(v *vSwitch) bool { return v.vlan == vlan && v.member(s) != nil })
}

func (v *vSwitch) member(s *server) *member {
	i := slices.IndexFunc(v.members, func(m *member) bool { return m.server == s })
	if i < 0 {
		return nil
	}
	return v.members[i]
}

func (c *call) cancelVSwitch() (reply, error) {
	v, err := c.found()
	if err != nil {
		return reply{}, err
	}
	day, err := c.cancellation()
	switch {
	case err != nil:
		return reply{}, err
	case v.cancelled:
		return reply{}, refusal(codeConflict, "The vSwitch is already cancelled")
	}
	v.cancelled, v.ends = true, day
	if day.IsZero() {
		c.vSwitches = slices.DeleteFunc(c.vSwitches, func(other *vSwitch) bool { return other == v })
	}
	return reply{}, nil
}

// members returns the servers named in a request, without duplicates.
func (c *call) members() ([]*server, *Error) {
	var found []*server
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

func (c *call) addServers() (reply, error) {
	v, err := c.found()
	if err != nil {
		return reply{}, err
	}
	servers, err := c.members()
	if err != nil {
		return reply{}, err
	}
	if v.busy {
		return reply{}, errVSwitchBusy()
	}
	servers = slices.DeleteFunc(servers, func(s *server) bool { return v.member(s) != nil })
	if err := c.checkNew(v, servers); err != nil {
		return reply{}, err
	}
	var added []*member
	for _, s := range servers {
		added = append(added, &member{server: s})
	}
	v.members = append(v.members, added...)
	c.change(v, added...)
	return reply{status: 201}, nil
}

// checkNew validates the servers to add to a vSwitch. Either all or none are added.
func (c *call) checkNew(v *vSwitch, servers []*server) error {
	if n := c.opts.VSwitchServerLimit; n != Unlimited && len(v.members)+len(servers) > n {
		return refusal(codeVSwitchServers, "The maximum number of servers is reached for this vSwitch")
	}
	for _, s := range servers {
		var in int
		for _, other := range c.vSwitches {
			if other.member(s) != nil {
				in++
			}
		}
		switch {
		case !s.vSwitch:
			return refusal(codeVSwitchUnavailable, "The vSwitch feature is not available for server %d", s.number)
		case c.uses(s, v.vlan):
			return errVLAN(s)
		case exceeds(in, c.opts.ServerVSwitchLimit):
			return refusal(codeServerVSwitches, "The maximum number of vSwitches is reached for server %d", s.number)
		}
	}
	return nil
}

func (c *call) removeServers() (reply, error) {
	v, err := c.found()
	if err != nil {
		return reply{}, err
	}
	servers, err := c.members()
	if err != nil {
		return reply{}, err
	}
	var leaving []*member
	for _, s := range servers {
		m := v.member(s)
		if m == nil {
			return reply{}, errNoServer(s.number)
		}
		leaving = append(leaving, m)
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
