package addresses

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Ledger records the Services and the holder of each address.
type Ledger struct {
	entries map[netip.Addr]Entry
	// of lists the addresses of each Service in order; it is derived from entries.
	of map[string][]netip.Addr
	// floor is the highest epoch of all dropped entries: new epochs must be higher.
	floor uint64
}

// Entry is the state of an address. It is kept for a while after the last Service released the
// address, so that the address is the last to be reused.
type Entry struct {
	Address netip.Addr `json:"address"`
	// Shares are the Services that have the address, sorted by UID; empty if it is free.
	Shares []Share `json:"services,omitempty"`
	// Holder is the node that holds the address; empty if it has none.
	Holder string `json:"node,omitempty"`
	// Nodes hold the address together and announce it to routers; there is no Holder then.
	Nodes []string `json:"-"`
	// Epoch increases with each change of the holder.
	Epoch uint64 `json:"epoch,omitempty"`
	// Held is set when a holder reports the address as held and cleared when a holder reports it
	// in use by an external host. If it is set, the next holder sends fewer probes.
	Held bool `json:"held,omitempty"`
}

// HeldBy reports whether a node is to hold the address, alone or together with other nodes.
func (e Entry) HeldBy(node string) bool {
	return node != "" && len(e.Shares) > 0 && (e.Holder == node || slices.Contains(e.Nodes, node))
}

// Local reports whether the address brings traffic only to pods of the node that holds it.
func (e Entry) Local() bool {
	return slices.ContainsFunc(e.Shares, func(s Share) bool { return s.Local })
}

// Check returns the holder's port at which kube-proxy serves /healthz for the address: the
// Service's health check node port if traffic is local, else [ProxyPort].
func (e Entry) Check() int {
	for _, s := range e.Shares {
		if s.Local && s.Check != 0 {
			return s.Check
		}
	}
	return ProxyPort
}

// ProxyPort is the port of kube-proxy's health check server (--healthz-bind-address).
const ProxyPort = 10256

// Share is the part of a Service in an address.
type Share struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Key       string `json:"key,omitempty"`
	// Pool is the name of the pool in the Service's last request that the address fulfilled.
	Pool  string `json:"pool,omitempty"`
	Local bool   `json:"local,omitempty"`
	Check int    `json:"check,omitempty"`
	Ports []Port `json:"ports,omitempty"`
	// Served are the Service's port numbers while it has endpoints. The holder drops packets to
	// these ports that kube-proxy does not redirect, and rejects packets to all other ports.
	Served []int `json:"served,omitempty"`
}

// Entries returns all entries, sorted by address.
func (l Ledger) Entries() []Entry {
	all := make([]Entry, 0, len(l.entries))
	for _, e := range l.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return a.Address.Compare(b.Address) })
	return all
}

// Of returns the addresses of a Service in order.
func (l Ledger) Of(uid string) []netip.Addr { return slices.Clone(l.of[uid]) }

// Entry returns the entry of an address, if there is one.
func (l Ledger) Entry(a netip.Addr) (Entry, bool) {
	e, known := l.entries[a]
	return e, known
}

// put writes an entry in place, so l must be a clone.
func (l Ledger) put(e Entry) {
	for _, s := range l.entries[e.Address].Shares {
		if !e.has(s.UID) {
			// Clones share the slices.
			left := slices.DeleteFunc(slices.Clone(l.of[s.UID]), func(a netip.Addr) bool {
				return a == e.Address
			})
			if l.of[s.UID] = left; len(left) == 0 {
				delete(l.of, s.UID)
			}
		}
	}
	for _, s := range e.Shares {
		if at, has := slices.BinarySearchFunc(l.of[s.UID], e.Address, netip.Addr.Compare); !has {
			l.of[s.UID] = slices.Insert(slices.Clone(l.of[s.UID]), at, e.Address)
		}
	}
	l.entries[e.Address] = e
}

func (e Entry) has(uid string) bool {
	return slices.ContainsFunc(e.Shares, func(s Share) bool { return s.UID == uid })
}

func (e Entry) share(uid string) Share {
	for _, s := range e.Shares {
		if s.UID == uid {
			return s
		}
	}
	return Share{}
}

func (e Entry) without(uid string) Entry {
	e.Shares = slices.DeleteFunc(slices.Clone(e.Shares), func(s Share) bool { return s.UID == uid })
	if len(e.Shares) == 0 {
		e.Shares = nil // as in a parsed ledger
	}
	return e
}

// with returns the entry with s in place of the Service's share.
func (e Entry) with(s Share) Entry {
	e = e.without(s.UID)
	e.Shares = append(e.Shares, s)
	slices.SortFunc(e.Shares, func(a, b Share) int { return strings.Compare(a.UID, b.UID) })
	return e
}

// admits returns the reason that excludes a Service from the address and the Service that it
// conflicts with, or an empty reason. A key is not a secret, so it is valid only within a
// namespace; with policy Local it includes the selector of the pods.
func (e Entry) admits(s Share) (reason Reason, other Share) {
	for _, other := range e.Shares {
		switch {
		case other.UID == s.UID:
		case s.Key == "" || s.Key != other.Key || s.Namespace != other.Namespace ||
			s.Local != other.Local:
			return Taken, other
		case slices.ContainsFunc(s.Ports, func(p Port) bool { return slices.Contains(other.Ports, p) }):
			return PortTaken, other
		}
	}
	return "", Share{}
}

func (l Ledger) clone() Ledger {
	c := Ledger{maps.Clone(l.entries), maps.Clone(l.of), l.floor}
	if c.entries == nil {
		c = newLedger()
		c.floor = l.floor
	}
	return c
}

func newLedger() Ledger {
	return Ledger{entries: make(map[netip.Addr]Entry), of: make(map[string][]netip.Addr)}
}

// returned limits the number of entries that are kept for free addresses. An IPv6 pool may have
// more addresses than a ConfigMap can hold.
const returned = 256

// forget drops entries of free addresses with the lowest epochs until at most returned entries
// are left. An address that still has a holder is not free.
func (l *Ledger) forget() {
	var free []Entry
	for _, e := range l.Entries() {
		if len(e.Shares) == 0 && e.Holder == "" && len(e.Nodes) == 0 {
			free = append(free, e)
		}
	}
	slices.SortStableFunc(free, func(a, b Entry) int { return cmp.Compare(a.Epoch, b.Epoch) })
	for len(free) > returned {
		l.floor = max(l.floor, free[0].Epoch)
		delete(l.entries, free[0].Address)
		free = free[1:]
	}
}

// LedgerName is the name of the ConfigMap that stores the ledger, LedgerKey the key in its data.
const (
	LedgerName = "underlay-addresses"
	LedgerKey  = "ledger"
)

// stored is the encoding of a ledger. Most addresses that several nodes hold have the same nodes,
// so each set of nodes is encoded once.
type stored struct {
	Version int           `json:"version"`
	Floor   uint64        `json:"floor,omitempty"`
	Groups  [][]string    `json:"groups,omitempty"`
	Entries []storedEntry `json:"addresses"`
}

type storedEntry struct {
	Entry
	Group *int `json:"group,omitempty"`
}

// version is the version of the encoding. Others are rejected: recorded holders could be lost.
const version = 1

// MarshalText encodes the ledger. Equal ledgers have equal encodings.
func (l Ledger) MarshalText() ([]byte, error) {
	s := stored{Version: version, Floor: l.floor, Entries: []storedEntry{}}
	groups := make(map[string]int)
	for _, e := range l.Entries() {
		row := storedEntry{Entry: e}
		if len(e.Nodes) > 0 {
			key := strings.Join(e.Nodes, " ")
			group, known := groups[key]
			if !known {
				group = len(s.Groups)
				groups[key] = group
				s.Groups = append(s.Groups, e.Nodes)
			}
			row.Group = &group
		}
		s.Entries = append(s.Entries, row)
	}
	return json.Marshal(s)
}

// MarshalJSON is MarshalText, whose text is JSON.
func (l Ledger) MarshalJSON() ([]byte, error) { return l.MarshalText() }

// UnmarshalJSON is [ParseLedger].
func (l *Ledger) UnmarshalJSON(text []byte) (err error) {
	*l, err = ParseLedger(text)
	return err
}

// ParseLedger decodes the output of MarshalText. An empty text is an empty ledger.
func ParseLedger(text []byte) (Ledger, error) {
	const reading = "reading the ledger of addresses"
	l := newLedger()
	if len(text) == 0 {
		return l, nil
	}
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return Ledger{}, fmt.Errorf("%s: %w", reading, err)
	}
	if s.Version != version {
		return Ledger{},
			fmt.Errorf("%s: version %d, want %d: another version of Underlay wrote it, use that one",
				reading, s.Version, version)
	}
	l.floor = s.Floor
	for _, row := range s.Entries {
		e := row.Entry
		_, twice := l.entries[e.Address]
		switch {
		case !e.Address.IsValid() || twice:
			return Ledger{}, fmt.Errorf("%s: address %q is none, or there twice", reading, e.Address)
		case e.Holder != "" && e.Epoch == 0:
			return Ledger{},
				fmt.Errorf("%s: %s has the holder %s without an epoch", reading, e.Address, e.Holder)
		case row.Group != nil && (*row.Group < 0 || *row.Group >= len(s.Groups) || e.Holder != ""):
			return Ledger{},
				fmt.Errorf("%s: %s is held by the nodes of group %d, which is none of the %d, or by %q as well",
					reading, e.Address, *row.Group, len(s.Groups), e.Holder)
		case row.Group != nil:
			e.Nodes = s.Groups[*row.Group]
		}
		l.put(e)
	}
	return l, nil
}
