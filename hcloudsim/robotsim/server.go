package robotsim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

type server struct {
	number    int64
	name      string
	product   string
	dc        string
	status    string
	ipv4      netip.Addr     // main address; zero: no IPv4
	ipv6      netip.Prefix   // main /64; zero: no IPv6
	more      []netip.Addr   // additional single addresses
	subnets   []netip.Prefix // besides the main /64
	paid      string
	cancelled bool
	ends      time.Time // day of the cancellation; zero: no date
	reason    string
	vSwitch   bool // vSwitches are available for it

	resets []string // reset options; empty: can't be reset
	power  string   // operating status
	manual bool     // a manual reset was ordered
}

const (
	statusReady     = "ready"
	statusInProcess = "in process"

	powerRunning     = "running"
	powerOff         = "shut off"
	powerUnsupported = "not supported"
)

// netBody is one of a server's subnets. The mask is a string in the API.
type netBody struct {
	IP   string `json:"ip"`
	Mask string `json:"mask"`
}

// serverBody is a server in a listing.
type serverBody struct {
	IP        *string   `json:"server_ip"`
	IPv6Net   *string   `json:"server_ipv6_net"`
	Number    int64     `json:"server_number"`
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
		IP: s.mainIP(), IPv6Net: s.mainNet(), Number: s.number, Name: s.name, Product: s.product, DC: s.dc,
		Traffic: "unlimited", Status: s.status, Cancelled: s.cancelled, PaidUntil: s.paid, IPs: []string{},
	}
	if s.ipv4.IsValid() {
		out.IPs = append(out.IPs, s.ipv4.String())
	}
	for _, ip := range s.more {
		out.IPs = append(out.IPs, ip.String())
	}
	for _, net := range s.nets() {
		out.Subnets = append(out.Subnets, netBody{net.Addr().String(), strconv.Itoa(net.Bits())})
	}
	return out
}

func (s *server) detail() serverDetail {
	return serverDetail{serverBody: s.body(), Reset: len(s.resets) > 0, Rescue: true}
}

func (s *server) nets() []netip.Prefix {
	if !s.ipv6.IsValid() {
		return s.subnets
	}
	return append([]netip.Prefix{s.ipv6}, s.subnets...)
}

func (s *server) mainIP() *string {
	if !s.ipv4.IsValid() {
		return nil
	}
	text := s.ipv4.String()
	return &text
}

func (s *server) mainNet() *string {
	if !s.ipv6.IsValid() {
		return nil
	}
	text := s.ipv6.Addr().String()
	return &text
}

func (s *server) owns(ip netip.Addr) bool {
	return ip == s.ipv4 || slices.Contains(s.more, ip) ||
		slices.ContainsFunc(s.nets(), func(net netip.Prefix) bool { return net.Contains(ip) })
}

// server returns a server by its number or, as the service still allows, by its main IPv4
// address. For members of vSwitches the main IPv6 net is allowed too.
func (a *account) server(identifier string) (*server, *Error) {
	number, err := strconv.ParseInt(identifier, 10, 64)
	ip, problem := netip.ParseAddr(identifier)
	for _, s := range a.servers {
		if err == nil && s.number == number || problem == nil && (s.ipv4 == ip || s.ipv6.IsValid() && s.ipv6.Addr() == ip) {
			return s, nil
		}
	}
	return nil, errNoServer(identifier)
}

func (a *account) numbered(number int64) *server {
	i := slices.IndexFunc(a.servers, func(s *server) bool { return s.number == number })
	if i < 0 {
		return nil
	}
	return a.servers[i]
}

func (c *call) named() (*server, *Error) { return c.server(c.request.PathValue("server")) }

func (c *call) listServers() (reply, error) {
	var out []map[string]serverBody
	for _, s := range half(c.fault, c.servers) {
		out = append(out, map[string]serverBody{"server": s.body()})
	}
	if len(out) == 0 {
		return reply{}, refusal(codeServerNotFound, "No server found")
	}
	return reply{body: out}, nil
}

func (c *call) getServer() (reply, error) {
	s, err := c.named()
	if err != nil {
		return reply{}, err
	}
	return reply{body: map[string]serverDetail{"server": s.detail()}}, nil
}

func (c *call) renameServer() (reply, error) {
	s, err := c.named()
	if err != nil {
		return reply{}, err
	}
	name, given := c.form["server_name"]
	if !given {
		return reply{}, errMissing("server_name")
	}
	s.name = name[0]
	return reply{body: map[string]serverDetail{"server": s.detail()}}, nil
}

type cancellationBody struct {
	IP         *string `json:"server_ip"`
	IPv6Net    *string `json:"server_ipv6_net"`
	Number     int64   `json:"server_number"`
	Name       string  `json:"server_name"`
	Earliest   string  `json:"earliest_cancellation_date"`
	Cancelled  bool    `json:"cancelled"`
	Reservable bool    `json:"reservation_possible"`
	Reserved   bool    `json:"reserved"`
	Date       *string `json:"cancellation_date"`
	Reason     any     `json:"cancellation_reason"`
}

func (c *call) cancellationOf(s *server) reply {
	out := cancellationBody{
		IP: s.mainIP(), IPv6Net: s.mainNet(), Number: s.number, Name: s.name,
		Earliest: c.now.UTC().Format(dateFormat), Cancelled: s.cancelled,
	}
	switch {
	case !s.cancelled:
		out.Reason = []string{"Server no longer necessary due to project ending", "Server too expensive"}
	case s.reason != "":
		out.Reason = s.reason
	}
	if s.cancelled && !s.ends.IsZero() {
		day := s.ends.Format(dateFormat)
		out.Date = &day
	}
	return reply{body: map[string]cancellationBody{"cancellation": out}}
}

func (c *call) getCancellation() (reply, error) {
	s, err := c.named()
	if err != nil {
		return reply{}, err
	}
	return c.cancellationOf(s), nil
}

func (c *call) cancelServer() (reply, error) {
	s, err := c.named()
	if err != nil {
		return reply{}, err
	}
	day, err := c.cancellation()
	switch {
	case err != nil:
		return reply{}, err
	case s.cancelled:
		return reply{}, refusal(codeConflict, "The server is already cancelled")
	case c.form.Get("reserve_location") != "" && c.form.Get("reserve_location") != "false":
		return reply{}, refusal(codeReserveLocation, "It is not possible to reserve the location. Remove parameter reserve_location or set value to 'false'")
	}
	s.cancelled, s.ends, s.reason = true, day, c.form.Get("cancellation_reason")
	out := c.cancellationOf(s)
	if day.IsZero() {
		c.remove(s)
	}
	return out, nil
}

func (c *call) keepServer() (reply, error) {
	s, err := c.named()
	if err != nil {
		return reply{}, err
	}
	if !s.cancelled {
		return reply{}, refusal(codeConflict, "The cancellation cannot be revoked")
	}
	s.cancelled, s.ends, s.reason = false, time.Time{}, ""
	return reply{}, nil
}

// dropCancelled removes the servers and vSwitches after the day of their cancellation.
func (a *account) dropCancelled() {
	for _, s := range slices.Clone(a.servers) {
		if s.cancelled && over(s.ends, a.now) {
			a.remove(s)
		}
	}
	a.vSwitches = slices.DeleteFunc(a.vSwitches, func(v *vSwitch) bool { return v.cancelled && over(v.ends, a.now) })
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
		if s.ipv4.IsValid() && other.owns(s.ipv4) || s.ipv6.IsValid() && other.ipv6.IsValid() && other.ipv6.Overlaps(s.ipv6) {
			return fmt.Errorf("server %d: an address is already that of server %d; give another one", s.number, other.number)
		}
	}
	a.servers = append(a.servers, s)
	slices.SortFunc(a.servers, func(a, b *server) int { return cmp.Compare(a.number, b.number) })
	return nil
}
