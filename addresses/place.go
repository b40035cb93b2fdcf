package addresses

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
)

// Eligible says which nodes may hold an address.
type Eligible struct {
	// Nodes may hold it.
	Nodes []string
	// Leaving may hold it too, and give it up as soon as another node may: they drain.
	Leaving []string
	// Keeping go on with what they hold, and get nothing: what speaks against them may not be so.
	Keeping []string
	// Together: all Nodes hold it at once, and those of Leaving only while there are no others.
	Together bool
}

// Move is a change of the node that holds an address.
type Move struct {
	Address  netip.Addr
	From, To string // empty: none
	Epoch    uint64 // from now on
}

// Place gives each address that Services have a node that holds it, and takes those from nodes that
// nobody has any more. An address that is missing from eligible has no eligible node.
//
// The rule: an address stays where it is while its node is eligible and not leaving. Otherwise it
// goes to the eligible node that holds the fewest addresses, and among several of those to the one
// with the highest hash of node and address, so that the addresses of one node go to many. Where no
// node is eligible it stays: whoever holds it may be wrong about nothing but our knowledge of it.
// So a node that goes moves just the addresses that it held, and one that comes moves none; see
// [Ledger.Balance].
func (l Ledger) Place(eligible map[netip.Addr]Eligible) (Ledger, []Move) {
	placed := l.clone()
	var moves []Move
	held := placed.held()
	for _, e := range placed.Entries() {
		to, may := e.Holder, eligible[e.Address]
		placed.together(&e, may)
		switch {
		case len(e.Shares) == 0 || len(e.Nodes) > 0:
			to = ""
		case slices.Contains(may.Nodes, e.Holder), slices.Contains(may.Keeping, e.Holder):
		case len(may.Nodes) > 0:
			to = choose(e.Address, may.Nodes, held)
		case slices.Contains(may.Leaving, e.Holder), len(may.Leaving) == 0:
		default:
			to = choose(e.Address, may.Leaving, held)
		}
		if to == e.Holder {
			continue
		}
		held[e.Holder]--
		held[to]++
		moves = append(moves, placed.move(e, to))
	}
	return placed, moves
}

// together writes down which nodes hold an address at once.
func (l Ledger) together(e *Entry, may Eligible) {
	nodes := slices.Clone(may.Nodes)
	for _, n := range may.Keeping {
		if slices.Contains(e.Nodes, n) {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		nodes = may.Leaving
	}
	switch {
	case len(e.Shares) == 0:
		e.Nodes = nil
	case may.Together && len(nodes) > 0:
		e.Nodes = slices.Compact(slices.Sorted(slices.Values(nodes)))
	case !may.Together && len(nodes) > 0:
		e.Nodes = nil
	}
	l.put(*e)
}

// Balance moves one address from the node that holds the most to the one that holds the fewest, if
// that makes them more equal and the address may go there. It returns false if there is none. It is
// for calm times: each move is one that nobody needed.
func (l Ledger) Balance(eligible map[netip.Addr]Eligible) (Ledger, Move, bool) {
	held := l.held()
	var best Entry
	var to string
	gain := 1 // a difference of one cannot be made smaller
	for _, e := range l.Entries() {
		nodes := eligible[e.Address].Nodes
		if e.Holder == "" || !slices.Contains(nodes, e.Holder) {
			continue
		}
		other := choose(e.Address, nodes, held)
		if difference := held[e.Holder] - held[other]; difference > gain {
			best, to, gain = e, other, difference
		}
	}
	if to == "" {
		return l, Move{}, false
	}
	balanced := l.clone()
	return balanced, balanced.move(best, to), true
}

// move gives an address another holder.
func (l Ledger) move(e Entry, to string) Move {
	m := Move{Address: e.Address, From: e.Holder, To: to, Epoch: max(e.Epoch, l.floor) + 1}
	e.Holder, e.Epoch, e.Held = to, m.Epoch, e.Held && to != ""
	l.put(e)
	return m
}

// held counts the addresses of each node.
func (l Ledger) held() map[string]int {
	held := make(map[string]int)
	for _, e := range l.entries {
		if e.Holder != "" {
			held[e.Holder]++
		}
	}
	return held
}

// choose is the node with the fewest addresses, and of several the one with the highest hash.
func choose(address netip.Addr, nodes []string, held map[string]int) string {
	return slices.MinFunc(nodes, func(a, b string) int {
		return cmp.Or(cmp.Compare(held[a], held[b]), cmp.Compare(weight(address, b), weight(address, a)), cmp.Compare(a, b))
	})
}

// weight is the rendezvous hash of a node for an address.
func weight(address netip.Addr, node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(address.AsSlice())
	_, _ = h.Write([]byte(node))
	return mix(h.Sum64())
}

// mix spreads the bits of a hash: FNV changes little where the last bytes do, and node-1 and node-2
// are to differ.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}
