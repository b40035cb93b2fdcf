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

// Ledger says who has which address, and which node holds it.
type Ledger struct {
	entries map[netip.Addr]Entry
	// of are the addresses that each Service has, in order; it follows the entries.
	of map[string][]netip.Addr
	// floor is the highest epoch of the entries that were dropped: all that come are higher.
	floor uint64
}

// Entry is one address. It stays for a while after the last Service has gone, so that the address
// is the last one to be handed out again.
type Entry struct {
	Address netip.Addr `json:"address"`
	// Shares are the Services that have it, by UID; none: it is free.
	Shares []Share `json:"services,omitempty"`
	// Holder is the node that holds it; empty: none does.
	Holder string `json:"node,omitempty"`
	// Nodes hold it together, each of them by announcing it to routers; such an address has no
	// Holder.
	Nodes []string `json:"-"`
	// Epoch grows with each change of the holder.
	Epoch uint64 `json:"epoch,omitempty"`
	// Held: a holder has said that it holds it, and none has left it to a stranger since. The next
	// holder need not look for strangers as long as the first one did.
	Held bool `json:"held,omitempty"`
}

// HeldBy reports whether a node is to hold the address, alone or with others.
func (e Entry) HeldBy(node string) bool {
	return node != "" && len(e.Shares) > 0 && (e.Holder == node || slices.Contains(e.Nodes, node))
}

// Local reports whether the address brings traffic only to pods of the node that holds it.
func (e Entry) Local() bool {
	return slices.ContainsFunc(e.Shares, func(s Share) bool { return s.Local })
}

// Check is the port of a holding node where kube-proxy says over HTTP, below /healthz, whether it
// serves the address: the Service's health check node port if traffic is local, else [ProxyPort].
func (e Entry) Check() int {
	for _, s := range e.Shares {
		if s.Local && s.Check != 0 {
			return s.Check
		}
	}
	return ProxyPort
}

// ProxyPort is where kube-proxy tells its health (--healthz-bind-address).
const ProxyPort = 10256

// Share is a Service's part in an address.
type Share struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Key       string `json:"key,omitempty"`
	// Pool is the one that the Service asked for, by its name, when it got the address, or when it
	// asked for this one's pool later.
	Pool  string `json:"pool,omitempty"`
	Local bool   `json:"local,omitempty"`
	Check int    `json:"check,omitempty"`
	Ports []Port `json:"ports,omitempty"`
	// Served are the numbers of the Service's ports while it has endpoints: a holder drops what
	// kube-proxy does not redirect there, and refuses it at every other port.
	Served []int `json:"served,omitempty"`
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
func (l Ledger) Of(uid string) []netip.Addr { return slices.Clone(l.of[uid]) }

// Entry is what the ledger has of an address.
func (l Ledger) Entry(a netip.Addr) (Entry, bool) {
	e, known := l.entries[a]
	return e, known
}

// put writes an entry into a ledger that may be changed.
func (l Ledger) put(e Entry) {
	for _, s := range l.entries[e.Address].Shares {
		if !e.has(s.UID) {
			// The slices are shared with clones.
			left := slices.DeleteFunc(slices.Clone(l.of[s.UID]), func(a netip.Addr) bool { return a == e.Address })
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

// share is a Service's part in the entry; the zero Share: it has none.
func (e Entry) share(uid string) Share {
	for _, s := range e.Shares {
		if s.UID == uid {
			return s
		}
	}
	return Share{}
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
// in the way. A key is no secret, so it is worth something only within a namespace; with policy Local
// the selector of the pods is a part of it.
func (e Entry) admits(s Share) (reason Reason, other Share) {
	for _, other := range e.Shares {
		switch {
		case other.UID == s.UID:
		case s.Key == "" || s.Key != other.Key || s.Namespace != other.Namespace || s.Local != other.Local:
			return Taken, other
		case slices.ContainsFunc(s.Ports, func(p Port) bool { return slices.Contains(other.Ports, p) }):
			return PortTaken, other
		}
	}
	return "", Share{}
}

// clone is a copy of the ledger that can be changed.
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

// returned is how many entries of addresses that were given back are kept. A pool of IPv6 may have
// more addresses than a ConfigMap can hold.
const returned = 256

// forget drops entries of addresses that were given back, those with the lowest epochs first, where
// there are more than are kept. An address that a node still holds is not given back yet.
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

// stored is the ledger's text form. Most addresses that several nodes hold are held by the same
// ones, so each set of nodes is there once.
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

// version is that of the text form. One that is unknown is not read: what it says of holders could
// be lost.
const version = 1

// MarshalText is the ledger as it is stored: the same for the same entries.
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

// ParseLedger reads what MarshalText has written. An empty text is an empty ledger.
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
		return Ledger{}, fmt.Errorf("%s: version %d, want %d: another version of Underlay wrote it, use that one", reading, s.Version, version)
	}
	l.floor = s.Floor
	for _, row := range s.Entries {
		e := row.Entry
		_, twice := l.entries[e.Address]
		switch {
		case !e.Address.IsValid() || twice:
			return Ledger{}, fmt.Errorf("%s: address %q is none, or there twice", reading, e.Address)
		case e.Holder != "" && e.Epoch == 0:
			return Ledger{}, fmt.Errorf("%s: %s has the holder %s without an epoch", reading, e.Address, e.Holder)
		case row.Group != nil && (*row.Group < 0 || *row.Group >= len(s.Groups) || e.Holder != ""):
			return Ledger{}, fmt.Errorf("%s: %s is held by the nodes of group %d, which is none of the %d, or by %q as well", reading, e.Address, *row.Group, len(s.Groups), e.Holder)
		case row.Group != nil:
			e.Nodes = s.Groups[*row.Group]
		}
		l.put(e)
	}
	return l, nil
}
