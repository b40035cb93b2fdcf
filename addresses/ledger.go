package addresses

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Ledger says who has which address, and which node holds it.
type Ledger struct {
	entries map[netip.Addr]Entry
}

// Entry is one address. It stays after the last Service has gone, so that its next holder has a
// higher epoch than all before.
type Entry struct {
	Address netip.Addr `json:"address"`
	// Shares are the Services that have it, by UID; none: it is free.
	Shares []Share `json:"services,omitempty"`
	// Holder is the node that holds it; empty: none does.
	Holder string `json:"node,omitempty"`
	// Epoch grows with each change of the holder.
	Epoch uint64 `json:"epoch,omitempty"`
}

// Share is a Service's part in an address.
type Share struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Key       string `json:"key,omitempty"`
	Local     bool   `json:"local,omitempty"`
	Ports     []Port `json:"ports,omitempty"`
}

// Entries are all, by address.
func (l Ledger) Entries() []Entry {
	all := make([]Entry, 0, len(l.entries))
	for _, e := range l.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return a.Address.Compare(b.Address) })
	return all
}

// Of are the addresses that a Service has, in order.
func (l Ledger) Of(uid string) (addresses []netip.Addr) {
	for _, e := range l.Entries() {
		if e.has(uid) {
			addresses = append(addresses, e.Address)
		}
	}
	return addresses
}

func (e Entry) has(uid string) bool {
	return slices.ContainsFunc(e.Shares, func(s Share) bool { return s.UID == uid })
}

// without is the entry without a Service.
func (e Entry) without(uid string) Entry {
	e.Shares = slices.DeleteFunc(slices.Clone(e.Shares), func(s Share) bool { return s.UID == uid })
	if len(e.Shares) == 0 {
		e.Shares = nil // as it is read
	}
	return e
}

// with is the entry with a Service's share in place of what it had.
func (e Entry) with(s Share) Entry {
	e = e.without(s.UID)
	e.Shares = append(e.Shares, s)
	slices.SortFunc(e.Shares, func(a, b Share) int { return strings.Compare(a.UID, b.UID) })
	return e
}

// admits says why a Service cannot have a part in the address; empty: it can. other is the Service
// in the way.
func (e Entry) admits(s Share) (reason Reason, other Share) {
	for _, other := range e.Shares {
		switch {
		case other.UID == s.UID:
		case s.Key == "" || s.Key != other.Key || s.Local || other.Local:
			return Taken, other
		case slices.ContainsFunc(s.Ports, func(p Port) bool { return slices.Contains(other.Ports, p) }):
			return PortTaken, other
		}
	}
	return "", Share{}
}

// clone is a copy of the ledger that can be changed.
func (l Ledger) clone() Ledger {
	entries := make(map[netip.Addr]Entry, len(l.entries))
	for a, e := range l.entries {
		entries[a] = e
	}
	return Ledger{entries}
}

// stored is the ledger's text form.
type stored struct {
	Version int     `json:"version"`
	Entries []Entry `json:"addresses"`
}

// version is that of the text form. One that is unknown is not read: what it says of holders could
// be lost.
const version = 1

// MarshalText is the ledger as it is stored: the same for the same entries.
func (l Ledger) MarshalText() ([]byte, error) {
	return json.Marshal(stored{version, l.Entries()})
}

// ParseLedger reads what MarshalText has written. An empty text is an empty ledger.
func ParseLedger(text []byte) (Ledger, error) {
	l := Ledger{make(map[netip.Addr]Entry)}
	if len(text) == 0 {
		return l, nil
	}
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return Ledger{}, fmt.Errorf("reading the ledger of addresses: %w", err)
	}
	if s.Version != version {
		return Ledger{}, fmt.Errorf("reading the ledger of addresses: version %d, want %d: another version of Underlay wrote it, use that one", s.Version, version)
	}
	for _, e := range s.Entries {
		_, twice := l.entries[e.Address]
		if !e.Address.IsValid() || twice {
			return Ledger{}, fmt.Errorf("reading the ledger of addresses: address %q is none, or there twice", e.Address)
		}
		if e.Holder != "" && e.Epoch == 0 {
			return Ledger{}, fmt.Errorf("reading the ledger of addresses: %s has the holder %s without an epoch", e.Address, e.Holder)
		}
		l.entries[e.Address] = e
	}
	return l, nil
}
