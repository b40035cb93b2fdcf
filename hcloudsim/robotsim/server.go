package robotsim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

type server struct {
	number  int64
	name    string
	product string
	dc      string
	ipv4    netip.Addr     // main address; zero: no IPv4
	ipv6    netip.Prefix   // main /64; zero: no IPv6
	more    []netip.Addr   // additional single addresses
	subnets []netip.Prefix // besides the main /64
	paid    string
	vSwitch bool // vSwitches are available for it

	resets bool // it has reset options
	off    bool // the operating status
	manual bool // a manual reset was ordered
}

// serverID identifies a server in replies.
type serverID struct {
	IP      *string `json:"server_ip"`
	IPv6Net *string `json:"server_ipv6_net"`
	Number  int64   `json:"server_number"`
}

func (s *server) id() serverID {
	out := serverID{Number: s.number}
	if s.ipv4.IsValid() {
		out.IP = new(s.ipv4.String())
	}
	if s.ipv6.IsValid() {
		out.IPv6Net = new(s.ipv6.Addr().String())
	}
	return out
}

// netBody is one of a server's subnets. The mask is a string in the API.
type netBody struct {
	IP   string `json:"ip"`
	Mask string `json:"mask"`
}

// serverBody is a server in a listing.
type serverBody struct {
	serverID
	Name      string    `json:"server_name"`
	Product   string    `json:"product"`
	DC        string    `json:"dc"`
	Traffic   string    `json:"traffic"`
	Status    string    `json:"status"`
	Cancelled bool      `json:"cancelled"`
	PaidUntil string    `json:"paid_until"`
	IPs       []string  `json:"ip"`
	Subnets   []netBody `json:"subnet"`
}

// serverDetail holds the additional fields of a single server.
type serverDetail struct {
	serverBody
	Reset            bool   `json:"reset"`
	Rescue           bool   `json:"rescue"`
	VNC              bool   `json:"vnc"`
	Windows          bool   `json:"windows"`
	Plesk            bool   `json:"plesk"`
	CPanel           bool   `json:"cpanel"`
	WOL              bool   `json:"wol"`
	HotSwap          bool   `json:"hot_swap"`
	LinkedStorageBox *int64 `json:"linked_storagebox"`
}

func (s *server) body() serverBody {
	out := serverBody{
		serverID: s.id(), Name: s.name, Product: s.product, DC: s.dc, Traffic: "unlimited",
		Status: statusReady, PaidUntil: s.paid, IPs: each(s.more, netip.Addr.String),
	}
	if s.ipv4.IsValid() {
		out.IPs = slices.Insert(out.IPs, 0, s.ipv4.String())
	}
	for _, net := range s.nets() {
		out.Subnets = append(out.Subnets, netBody{net.Addr().String(), strconv.Itoa(net.Bits())})
	}
	return out
}

func (s *server) detail() map[string]serverDetail {
	detail := serverDetail{serverBody: s.body(), Reset: s.resets, Rescue: true}
	return map[string]serverDetail{"server": detail}
}

func (s *server) nets() []netip.Prefix {
	if !s.ipv6.IsValid() {
		return s.subnets
	}
	return append([]netip.Prefix{s.ipv6}, s.subnets...)
}

func (s *server) owns(ip netip.Addr) bool {
	return ip == s.ipv4 || slices.Contains(s.more, ip) ||
		slices.ContainsFunc(s.nets(), func(net netip.Prefix) bool { return net.Contains(ip) })
}

// server returns a server by its number or, as the service still allows, by its main IPv4
// address. For members of vSwitches the main IPv6 net is allowed too.
func (a *account) server(identifier string) (*server, error) {
	number, err := strconv.ParseInt(identifier, 10, 64)
	ip, problem := netip.ParseAddr(identifier)
	for _, s := range a.servers {
		has := s.ipv4 == ip || s.ipv6.IsValid() && s.ipv6.Addr() == ip
		if err == nil && s.number == number || problem == nil && has {
			return s, nil
		}
	}
	return nil, errNoServer(identifier)
}

// numbered returns the server with a number, or nil.
func (a *account) numbered(number int64) *server {
	return first(a.servers, func(s *server) bool { return s.number == number })
}

func (c *call) serverInPath() (*server, error) { return c.server(c.request.PathValue("server")) }

func (c *call) listServers() (reply, error) {
	out := each(half(c.Fault, c.servers), func(s *server) map[string]serverBody {
		return map[string]serverBody{"server": s.body()}
	})
	if len(out) == 0 {
		return reply{}, refusal(codeServerNotFound, "No server found")
	}
	return reply{body: out}, nil
}

func (c *call) getServer(s *server) (reply, error) { return reply{body: s.detail()}, nil }

func (c *call) renameServer(s *server) (reply, error) {
	name, given := c.form["server_name"]
	if !given {
		return reply{}, errMissing("server_name")
	}
	s.name = name[0]
	return c.getServer(s)
}

// remove deletes a server, its memberships in vSwitches and its failover addresses.
func (a *account) remove(gone *server) {
	a.servers = slices.DeleteFunc(a.servers, func(s *server) bool { return s == gone })
	for _, v := range a.vSwitches {
		v.members = slices.DeleteFunc(v.members, func(m *member) bool { return m.server == gone })
	}
	a.failovers = slices.DeleteFunc(a.failovers, func(f *failover) bool { return f.owner == gone })
}

// add adds a server to the account, sorted by number.
func (a *account) add(s *server) error {
	if a.numbered(s.number) != nil {
		return fmt.Errorf("server %d: the number is taken; give another one", s.number)
	}
	for _, other := range a.servers {
		both6 := s.ipv6.IsValid() && other.ipv6.IsValid()
		if s.ipv4.IsValid() && other.owns(s.ipv4) || both6 && other.ipv6.Overlaps(s.ipv6) {
			return fmt.Errorf("server %d: an address is already that of server %d; give another one",
				s.number, other.number)
		}
	}
	a.servers = append(a.servers, s)
	slices.SortFunc(a.servers, func(a, b *server) int { return cmp.Compare(a.number, b.number) })
	return nil
}

const (
	resetPowerLong = "power_long"
	resetManual    = "man"
)

// resetTypes returns the options of every server that can be reset.
func resetTypes() []string { return []string{"power", resetPowerLong, "hw", resetManual} }

// resetBody lists the reset options of a server; a listing omits the operating status.
type resetBody struct {
	serverID
	Types  []string `json:"type"`
	Status string   `json:"operating_status,omitempty"`
}

type resetDone struct {
	serverID
	Type string `json:"type"`
}

func (c *call) listResets() (reply, error) {
	var out []map[string]resetBody
	for _, s := range half(c.Fault, c.servers) {
		if s.resets {
			out = append(out, map[string]resetBody{"reset": {s.id(), resetTypes(), ""}})
		}
	}
	if len(out) == 0 {
		return reply{}, refusal(codeNotFound, "No servers with reset option found")
	}
	return reply{body: out}, nil
}

// resettable returns the server in the path, or an error if it has no reset options.
func (c *call) resettable() (*server, error) {
	s, err := c.serverInPath()
	if err == nil && !s.resets {
		err = refusal(codeResetUnavailable, "The server has no reset option")
	}
	return s, err
}

func (c *call) getReset(s *server) (reply, error) {
	status := "running"
	if s.off {
		status = "shut off"
	}
	return reply{body: map[string]resetBody{"reset": {s.id(), resetTypes(), status}}}, nil
}

func (c *call) reset(s *server) (reply, error) {
	kind := c.form.Get("type")
	switch {
	case kind == "":
		return reply{}, errMissing("type")
	case !slices.Contains(resetTypes(), kind):
		return reply{}, errInvalid("type")
	case s.manual && kind == resetManual:
		return reply{}, refusal(codeResetManual, "There is already a running manual reset")
	case kind == resetManual:
		s.manual = true // no technician ever performs it
	default:
		s.off = kind == resetPowerLong || kind == "power" && !s.off
	}
	return reply{body: map[string]resetDone{"reset": {s.id(), kind}}}, nil
}
