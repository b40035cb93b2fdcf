package robotsim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Seeding takes effect at once and bypasses the web service: it uses no request or quota. It
// refuses states that the service can't have.

// ServerSeed describes a dedicated server to create. No field is required.
type ServerSeed struct {
	Number  int64  `json:"number"`  // 0: allocated
	Name    string `json:"name"`    // may be empty, as in Robot
	Product string `json:"product"` // default AX41-NVMe
	DC      string `json:"dc"`      // default FSN1-DC1

	IPv4      netip.Addr     `json:"ipv4,omitzero"`       // main address; zero: allocated
	IPv6      netip.Prefix   `json:"ipv6,omitzero"`       // main /64; zero: allocated
	NoIPv4    bool           `json:"no_ipv4,omitempty"`   // no main address
	NoIPv6    bool           `json:"no_ipv6,omitempty"`   // no main /64
	Addresses []netip.Addr   `json:"addresses,omitempty"` // additional single addresses
	Subnets   []netip.Prefix `json:"subnets,omitempty"`   // additional subnets

	Status           string `json:"status,omitempty"` // ready (default) or in process
	Cancelled        bool   `json:"cancelled,omitempty"`
	CancellationDate string `json:"cancellation_date,omitempty"` // last day, like 2026-12-31

	NoVSwitch bool     `json:"no_vswitch,omitempty"` // vSwitches are not available for it
	Resets    []string `json:"resets,omitempty"`     // default power, power_long, hw, man
	NoReset   bool     `json:"no_reset,omitempty"`   // no reset options
	Power     string   `json:"power,omitempty"`      // running (default), shut off or not supported
}

// VSwitchSeed describes a vSwitch to create.
type VSwitchSeed struct {
	ID               int64          `json:"id"` // 0: allocated
	Name             string         `json:"name"`
	VLAN             int            `json:"vlan"` // default 4000
	Servers          []MemberSeed   `json:"servers,omitempty"`
	Subnets          []netip.Prefix `json:"subnets,omitempty"`
	Cancelled        bool           `json:"cancelled,omitempty"`
	CancellationDate string         `json:"cancellation_date,omitempty"`
}

// MemberSeed describes a member of a vSwitch.
type MemberSeed struct {
	Number int64 `json:"number"`
	// Status is ready (default), failed or in process, which lasts until the vSwitch is changed.
	Status string `json:"status,omitempty"`
}

// FailoverSeed describes a failover address to create.
type FailoverSeed struct {
	Net    netip.Prefix `json:"net"`              // 203.0.113.7/32, or a /64
	Server int64        `json:"server"`           // number of the server that it belongs to
	Active netip.Addr   `json:"active,omitzero"`  // address that it is routed to; zero: that server
	Routed *bool        `json:"routed,omitempty"` // false: unrouted
}

// CreateServer adds a server to the account and returns its number.
func (s *Simulator) CreateServer(seed ServerSeed) (int64, error) {
	a, unlock := s.present()
	defer unlock()
	return a.seedServer(seed)
}

func (a *account) seedServer(seed ServerSeed) (int64, error) {
	made := &server{
		number: seed.Number, name: seed.Name, product: cmp.Or(seed.Product, "AX41-NVMe"), dc: cmp.Or(seed.DC, "FSN1-DC1"),
		status: cmp.Or(seed.Status, statusReady), ipv4: seed.IPv4, ipv6: seed.IPv6.Masked(),
		more: seed.Addresses, subnets: seed.Subnets, paid: a.now.AddDate(0, 1, 0).Format(dateFormat),
		cancelled: seed.Cancelled, vSwitch: !seed.NoVSwitch, resets: seed.Resets, power: cmp.Or(seed.Power, powerRunning),
	}
	if made.number == 0 {
		made.number = a.newID()
	}
	a.lastID = max(a.lastID, made.number)
	if err := made.check(seed); err != nil {
		return 0, fmt.Errorf("server %d: %w", made.number, err)
	}
	a.giveAddresses(made, seed)
	if len(made.resets) == 0 && !seed.NoReset {
		made.resets = []string{resetPower, resetPowerLong, resetHardware, resetManual}
	}
	return made.number, a.add(made)
}

func (a *account) giveAddresses(s *server, seed ServerSeed) {
	needs4, needs6 := !s.ipv4.IsValid() && !seed.NoIPv4, !s.ipv6.IsValid() && !seed.NoIPv6
	if needs4 || needs6 {
		a.count++
	}
	if needs4 {
		s.ipv4 = chosenIPv4(a.count)
	}
	if needs6 {
		s.ipv6 = chosenIPv6(a.count)
	}
}

// check validates a seed and parses its date.
func (s *server) check(seed ServerSeed) (err error) {
	switch {
	case seed.NoIPv4 && seed.NoIPv6:
		return fmt.Errorf("no_ipv4 and no_ipv6: a server has one of them at least")
	case s.ipv4.IsValid() && !s.ipv4.Is4():
		return fmt.Errorf("ipv4 %s: must be an IPv4 address", s.ipv4)
	case s.ipv6.IsValid() && (s.ipv6.Addr().Is4() || s.ipv6.Bits() != 64):
		return fmt.Errorf("ipv6 %s: must be a /64", s.ipv6)
	case s.status != statusReady && s.status != statusInProcess:
		return fmt.Errorf("status %q: must be %s or %s", s.status, statusReady, statusInProcess)
	case !slices.Contains([]string{powerRunning, powerOff, powerUnsupported}, s.power):
		return fmt.Errorf("power %q: must be %s, %s or %s", s.power, powerRunning, powerOff, powerUnsupported)
	}
	s.ends, err = readDate(seed.CancellationDate, seed.Cancelled)
	return err
}

func readDate(text string, cancelled bool) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	day, err := time.Parse(dateFormat, text)
	if err != nil || !cancelled {
		return day, fmt.Errorf("cancellation_date %q: must be a day like 2026-12-31, beside cancelled: true", text)
	}
	return day, nil
}

// chosenIPv4 and chosenIPv6 return addresses from the ranges for benchmarks and documentation;
// the cloud's simulator allocates from the other end of both.
func chosenIPv4(n uint32) netip.Addr {
	var bytes [4]byte
	binary.BigEndian.PutUint32(bytes[:], 198<<24|19<<16|(0xffff-n)&0xffff)
	return netip.AddrFrom4(bytes)
}

func chosenIPv6(n uint32) netip.Prefix {
	bytes := netip.MustParseAddr("2001:db8:d::").As16()
	binary.BigEndian.PutUint16(bytes[6:], uint16(n))
	return netip.PrefixFrom(netip.AddrFrom16(bytes), 64)
}

// RemoveServer removes a server at once, as at the end of its contract.
func (s *Simulator) RemoveServer(number int64) error {
	a, unlock := s.present()
	defer unlock()
	gone := a.numbered(number)
	if gone == nil {
		return errNoServer(number)
	}
	a.remove(gone)
	return nil
}

// CreateVSwitch adds a vSwitch to the account and returns its ID.
func (s *Simulator) CreateVSwitch(seed VSwitchSeed) (int64, error) {
	a, unlock := s.present()
	defer unlock()
	return a.seedVSwitch(seed)
}

func (a *account) seedVSwitch(seed VSwitchSeed) (int64, error) {
	v := &vSwitch{id: seed.ID, name: seed.Name, vlan: cmp.Or(seed.VLAN, vlanFirst), subnets: seed.Subnets, cancelled: seed.Cancelled}
	if v.id == 0 {
		v.id = a.newID()
	}
	a.lastID = max(a.lastID, v.id)
	if slices.ContainsFunc(a.vSwitches, func(other *vSwitch) bool { return other.id == v.id }) {
		return 0, fmt.Errorf("vSwitch %d: the ID is taken; give another one", v.id)
	}
	if v.vlan < vlanFirst || v.vlan > vlanLast {
		return 0, fmt.Errorf("vSwitch %d: vlan %d: must be %d to %d", v.id, v.vlan, vlanFirst, vlanLast)
	}
	var err error
	if v.ends, err = readDate(seed.CancellationDate, seed.Cancelled); err != nil {
		return 0, fmt.Errorf("vSwitch %d: %w", v.id, err)
	}
	for _, m := range seed.Servers {
		in := a.numbered(m.Number)
		status := cmp.Or(m.Status, statusReady)
		switch {
		case in == nil:
			return 0, fmt.Errorf("vSwitch %d: server %d: there is none of that number", v.id, m.Number)
		case a.uses(in, v.vlan) || v.member(in) != nil:
			return 0, fmt.Errorf("vSwitch %d: server %d: is in a vSwitch with VLAN %d already", v.id, m.Number, v.vlan)
		}
		if err := checkMember(status); err != nil {
			return 0, fmt.Errorf("vSwitch %d: server %d: %w", v.id, m.Number, err)
		}
		v.members = append(v.members, &member{server: in, status: status})
	}
	a.vSwitches = append(a.vSwitches, v)
	return v.id, nil
}

func checkMember(status string) error {
	if status != statusReady && status != statusFailed && status != statusInProcess {
		return fmt.Errorf("status %q: must be %s, %s or %s", status, statusReady, statusFailed, statusInProcess)
	}
	return nil
}

// SetMember sets the status of a server in a vSwitch at once: ready, failed, or in process, which
// lasts until the vSwitch is changed. It adds a missing member regardless of the rules; an empty
// status removes the member.
func (s *Simulator) SetMember(id, number int64, status string) error {
	a, unlock := s.present()
	defer unlock()
	i := slices.IndexFunc(a.vSwitches, func(v *vSwitch) bool { return v.id == id })
	if i < 0 {
		return fmt.Errorf("vSwitch %d: there is none of that ID", id)
	}
	v, in := a.vSwitches[i], a.numbered(number)
	if in == nil {
		return fmt.Errorf("vSwitch %d: server %d: there is none of that number", id, number)
	}
	v.members = slices.DeleteFunc(v.members, func(m *member) bool { return m.server == in && status == "" })
	if status == "" {
		return nil
	}
	if err := checkMember(status); err != nil {
		return fmt.Errorf("vSwitch %d: server %d: %w", id, number, err)
	}
	m := v.member(in)
	if m == nil {
		m = &member{server: in}
		v.members = append(v.members, m)
	}
	m.status, m.fails, m.leaves = status, false, false
	return nil
}

// CreateFailover adds a failover address to the account.
func (s *Simulator) CreateFailover(seed FailoverSeed) error {
	a, unlock := s.present()
	defer unlock()
	return a.seedFailover(seed)
}

func (a *account) seedFailover(seed FailoverSeed) error {
	f := &failover{net: seed.Net.Masked(), owner: a.numbered(seed.Server), active: seed.Active}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("failover address %s: %w", seed.Net, fmt.Errorf(format, args...))
	}
	is4 := f.net.Addr().Is4()
	switch {
	case !f.net.IsValid() || is4 && f.net.Bits() != 32 || !is4 && f.net.Bits() != 64:
		return wrong("must be an IPv4 address with /32 or an IPv6 net with /64")
	case f.owner == nil:
		return wrong("server %d: there is none of that number", seed.Server)
	case slices.ContainsFunc(a.failovers, func(other *failover) bool { return other.net.Overlaps(f.net) }):
		return wrong("exists already")
	}
	if seed.Routed != nil && !*seed.Routed {
		f.active = netip.Addr{}
	} else if !f.active.IsValid() {
		if f.active = f.owner.ipv4; !is4 {
			f.active = f.owner.ipv6.Addr()
		}
	}
	if f.active.IsValid() && (f.active.Is4() != is4 || a.main(f.active) == nil) {
		return wrong("active %s: is no server's main address of that family", f.active)
	}
	a.failovers = append(a.failovers, f)
	return nil
}

// Failovers returns the failover addresses with their current routes, for a data plane.
func (s *Simulator) Failovers() []FailoverSeed {
	a, unlock := s.present()
	defer unlock()
	return a.state().Failovers
}

// Owns reports whether a server, a failover address or a vSwitch subnet has the address.
func (s *Simulator) Owns(ip netip.Addr) bool {
	a, unlock := s.present()
	defer unlock()
	within := func(net netip.Prefix) bool { return net.Contains(ip) }
	return slices.ContainsFunc(a.servers, func(s *server) bool { return s.owns(ip) }) ||
		slices.ContainsFunc(a.failovers, func(f *failover) bool { return within(f.net) }) ||
		slices.ContainsFunc(a.vSwitches, func(v *vSwitch) bool { return slices.ContainsFunc(v.subnets, within) })
}

// Members returns the number of servers in a vSwitch, including those being added, for
// hcloudsim's VSwitchMembers. It is 0 if the vSwitch does not exist.
func (s *Simulator) Members(vSwitch int64) int {
	a, unlock := s.present()
	defer unlock()
	for _, v := range a.vSwitches {
		if v.id == vSwitch {
			return len(v.members)
		}
	}
	return 0
}
