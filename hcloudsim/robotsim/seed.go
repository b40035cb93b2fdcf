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

	IPv4      netip.Addr     `json:"ipv4"`      // main address; zero: allocated
	IPv6      netip.Prefix   `json:"ipv6"`      // main /64; zero: allocated
	NoIPv4    bool           `json:"no_ipv4"`   // no main address
	NoIPv6    bool           `json:"no_ipv6"`   // no main /64
	Addresses []netip.Addr   `json:"addresses"` // additional single addresses
	Subnets   []netip.Prefix `json:"subnets"`   // additional subnets

	NoVSwitch bool `json:"no_vswitch"` // vSwitches are not available for it
	NoReset   bool `json:"no_reset"`   // no reset options
}

// VSwitchSeed describes a vSwitch to create.
type VSwitchSeed struct {
	ID      int64          `json:"id"` // 0: allocated
	Name    string         `json:"name"`
	VLAN    int            `json:"vlan"` // default 4000
	Servers []MemberSeed   `json:"servers"`
	Subnets []netip.Prefix `json:"subnets"`
}

// MemberSeed describes a member of a vSwitch.
type MemberSeed struct {
	Number int64 `json:"number"`
	// Status is ready (default), failed or in process, which lasts until the vSwitch is changed.
	Status string `json:"status"`
}

// FailoverSeed describes a failover address to create.
type FailoverSeed struct {
	Net    netip.Prefix `json:"net"`    // 203.0.113.7/32, or a /64
	Server int64        `json:"server"` // number of the server that it belongs to
	Active netip.Addr   `json:"active"` // address that it is routed to; zero in a seed: that server
}

// CreateServer adds a server to the account and returns its number.
func (s *Simulator) CreateServer(seed ServerSeed) (int64, error) {
	a, unlock := s.present()
	defer unlock()
	made := &server{
		number: a.id(seed.Number), name: seed.Name, product: cmp.Or(seed.Product, "AX41-NVMe"),
		dc: cmp.Or(seed.DC, "FSN1-DC1"), ipv4: seed.IPv4, ipv6: seed.IPv6.Masked(),
		more: seed.Addresses, subnets: seed.Subnets, vSwitch: !seed.NoVSwitch, resets: !seed.NoReset,
		paid: a.now.AddDate(0, 1, 0).Format(time.DateOnly),
	}
	wrong := func(format string, args ...any) (int64, error) {
		return 0, fmt.Errorf("server %d: %w", made.number, fmt.Errorf(format, args...))
	}
	switch {
	case seed.NoIPv4 && seed.NoIPv6:
		return wrong("no_ipv4 and no_ipv6: a server has one of them at least")
	case made.ipv4.IsValid() && !made.ipv4.Is4():
		return wrong("ipv4 %s: must be an IPv4 address", made.ipv4)
	case made.ipv6.IsValid() && (made.ipv6.Addr().Is4() || made.ipv6.Bits() != 64):
		return wrong("ipv6 %s: must be a /64", made.ipv6)
	}
	a.count++
	if !made.ipv4.IsValid() && !seed.NoIPv4 {
		made.ipv4 = chosenIPv4(a.count)
	}
	if !made.ipv6.IsValid() && !seed.NoIPv6 {
		made.ipv6 = chosenIPv6(a.count)
	}
	return made.number, a.add(made)
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
	if a.vSwitch(seed.ID) != nil {
		return 0, fmt.Errorf("vSwitch %d: the ID is taken; give another one", seed.ID)
	}
	vlan := cmp.Or(seed.VLAN, vlanFirst)
	v := &vSwitch{id: a.id(seed.ID), name: seed.Name, vlan: vlan, subnets: seed.Subnets}
	if v.vlan < vlanFirst || v.vlan > vlanLast {
		return 0, fmt.Errorf("vSwitch %d: vlan %d: must be %d to %d", v.id, v.vlan, vlanFirst, vlanLast)
	}
	for _, m := range seed.Servers {
		if in := a.numbered(m.Number); in != nil && a.uses(in, v.vlan) {
			return 0, fmt.Errorf("vSwitch %d: server %d: is in a vSwitch with VLAN %d already",
				v.id, m.Number, v.vlan)
		}
		if err := a.setMember(v, m.Number, cmp.Or(m.Status, statusReady)); err != nil {
			return 0, err
		}
	}
	a.vSwitches = append(a.vSwitches, v)
	return v.id, nil
}

// SetMember sets the status of a server in a vSwitch at once: ready, failed, or in process, which
// lasts until the vSwitch is changed. It adds a missing member regardless of the rules; an empty
// status removes the member.
func (s *Simulator) SetMember(id, number int64, status string) error {
	a, unlock := s.present()
	defer unlock()
	v := a.vSwitch(id)
	if v == nil {
		return fmt.Errorf("vSwitch %d: there is none of that ID", id)
	}
	return a.setMember(v, number, status)
}

func (a *account) setMember(v *vSwitch, number int64, status string) error {
	in := a.numbered(number)
	if in == nil {
		return fmt.Errorf("vSwitch %d: server %d: there is none of that number", v.id, number)
	}
	m := v.member(in)
	switch status {
	case "":
		v.members = slices.DeleteFunc(v.members, func(other *member) bool { return other == m })
		return nil
	case statusReady, statusFailed, statusInProcess:
	default:
		return fmt.Errorf("vSwitch %d: server %d: status %q: must be %s, %s or %s",
			v.id, number, status, statusReady, statusFailed, statusInProcess)
	}
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
	f := &failover{net: seed.Net.Masked(), owner: a.numbered(seed.Server), active: seed.Active}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("failover address %s: %w", seed.Net, fmt.Errorf(format, args...))
	}
	is4 := f.net.Addr().Is4()
	overlaps := func(other *failover) bool { return other.net.Overlaps(f.net) }
	switch {
	case !f.net.IsValid() || is4 && f.net.Bits() != 32 || !is4 && f.net.Bits() != 64:
		return wrong("must be an IPv4 address with /32 or an IPv6 net with /64")
	case f.owner == nil:
		return wrong("server %d: there is none of that number", seed.Server)
	case slices.ContainsFunc(a.failovers, overlaps):
		return wrong("exists already")
	}
	if !f.active.IsValid() {
		if f.active = f.owner.ipv4; !is4 {
			f.active = f.owner.ipv6.Addr()
		}
	}
	if f.active.IsValid() && (f.active.Is4() != is4 || !a.isMain(f.active)) {
		return wrong("active %s: is no server's main address of that family", f.active)
	}
	a.failovers = append(a.failovers, f)
	return nil
}

// Failovers returns the failover addresses with their current routes, for a data plane. Active is
// zero for an address that is not routed.
func (s *Simulator) Failovers() []FailoverSeed {
	a, unlock := s.present()
	defer unlock()
	return each(a.failovers, func(f *failover) FailoverSeed {
		return FailoverSeed{Net: f.net, Server: f.owner.number, Active: f.active}
	})
}

// Owns reports whether a server, a failover address or a vSwitch subnet has the address.
func (s *Simulator) Owns(ip netip.Addr) bool {
	a, unlock := s.present()
	defer unlock()
	within := func(net netip.Prefix) bool { return net.Contains(ip) }
	return slices.ContainsFunc(a.servers, func(s *server) bool { return s.owns(ip) }) ||
		slices.ContainsFunc(a.failovers, func(f *failover) bool { return within(f.net) }) ||
		slices.ContainsFunc(a.vSwitches, func(v *vSwitch) bool {
			return slices.ContainsFunc(v.subnets, within)
		})
}
