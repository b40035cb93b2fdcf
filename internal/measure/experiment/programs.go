package experiment

import (
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

// InsidePrograms are the real programs.
type InsidePrograms struct {
	// Dial connects to them; nil: as the machine does.
	Dial inside.Dialer
	// Lifetime is when they end by themselves; 0: [inside.Lifetime].
	Lifetime time.Duration
}

// Prepare implements [Programs].
func (p InsidePrograms) Prepare(server string) (userData string, at func(netip.Addr) Program, err error) {
	keys, err := inside.NewCredentials(server)
	if err != nil {
		return "", nil, err
	}
	lifetime := p.Lifetime
	if lifetime == 0 {
		lifetime = inside.Lifetime
	}
	return inside.UserData(keys, lifetime), func(a netip.Addr) Program {
		return inside.New(keys, netip.AddrPortFrom(a, inside.Port), p.Dial)
	}, nil
}
