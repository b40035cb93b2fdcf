package robotsim

import (
	"encoding/json"
	"fmt"
)

// state is the JSON of all resources.
type state struct {
	Servers   []ServerSeed   `json:"servers"`
	VSwitches []VSwitchSeed  `json:"vswitches"`
	Failovers []FailoverSeed `json:"failovers"`
	LastID    int64          `json:"last_id"`
	Addresses uint32         `json:"addresses"` // number of allocated public addresses
}

// Snapshot returns all resources as JSON with the fields of the seeds. Running changes keep their
// state, also after a restore. Faults, the request log, quotas and blocked addresses are not
// included.
func (s *Simulator) Snapshot() []byte {
	a, unlock := s.present()
	defer unlock()
	text, err := json.MarshalIndent(a.state(), "", "  ")
	if err != nil {
		panic(fmt.Sprintf("robotsim: encoding a snapshot: %v", err)) // only structs of this package
	}
	return text
}

func (a *account) state() state {
	out := state{Servers: []ServerSeed{}, VSwitches: []VSwitchSeed{}, Failovers: []FailoverSeed{}, LastID: a.lastID, Addresses: a.count}
	for _, s := range a.servers {
		seed := ServerSeed{
			Number: s.number, Name: s.name, Product: s.product, DC: s.dc, Status: s.status, IPv4: s.ipv4, IPv6: s.ipv6,
			NoIPv4: !s.ipv4.IsValid(), NoIPv6: !s.ipv6.IsValid(), Addresses: s.more, Subnets: s.subnets,
			Cancelled: s.cancelled, NoVSwitch: !s.vSwitch, Resets: s.resets, NoReset: len(s.resets) == 0, Power: s.power,
		}
		if !s.ends.IsZero() {
			seed.CancellationDate = s.ends.Format(dateFormat)
		}
		out.Servers = append(out.Servers, seed)
	}
	for _, v := range a.vSwitches {
		seed := VSwitchSeed{ID: v.id, Name: v.name, VLAN: v.vlan, Subnets: v.subnets, Cancelled: v.cancelled}
		if !v.ends.IsZero() {
			seed.CancellationDate = v.ends.Format(dateFormat)
		}
		for _, m := range v.members {
			seed.Servers = append(seed.Servers, MemberSeed{m.server.number, m.status})
		}
		out.VSwitches = append(out.VSwitches, seed)
	}
	for _, f := range a.failovers {
		routed := f.active.IsValid()
		out.Failovers = append(out.Failovers, FailoverSeed{Net: f.net, Server: f.owner.number, Active: f.active, Routed: &routed})
	}
	return out
}

// Restore replaces the account with a snapshot, also an edited or hand-written one. It returns an
// error, and changes nothing, if the snapshot is invalid.
func (s *Simulator) Restore(snapshot []byte) error {
	var wanted state
	if err := json.Unmarshal(snapshot, &wanted); err != nil {
		return fmt.Errorf("restoring a snapshot: %w", err)
	}
	old, unlock := s.present()
	defer unlock()
	made := newAccount(s.opts)
	made.lastID, made.count = max(wanted.LastID, firstID), max(wanted.Addresses, old.count)
	for _, seed := range wanted.Servers {
		if _, err := made.seedServer(seed); err != nil {
			return fmt.Errorf("restoring a snapshot: %w", err)
		}
	}
	for _, seed := range wanted.VSwitches {
		if _, err := made.seedVSwitch(seed); err != nil {
			return fmt.Errorf("restoring a snapshot: %w", err)
		}
	}
	for _, seed := range wanted.Failovers {
		if err := made.seedFailover(seed); err != nil {
			return fmt.Errorf("restoring a snapshot: %w", err)
		}
	}
	s.account = made
	return nil
}
