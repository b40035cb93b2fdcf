package addresses

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
)

// Eligible lists the nodes that may hold an address, the best first: an address moves only to a
// node of a list that precedes that of its holder.
type Eligible struct {
	// Nodes serve the address.
	Nodes []string
	// Leaving serve the address and are being drained.
	Leaving []string
	// Recovering serve the address and were unresponsive lately.
	Recovering []string
	// Ending have only terminating endpoints.
	Ending []string
	// Last are unresponsive, or a provider refuses to route the address to them.
	Last []string

	// Keeping are nodes that keep their addresses but get no more: their failure is uncertain.
	Keeping []string
	// Together makes all nodes of the best list hold the address at once.
	Together bool
}

// best returns the first list with a node, or nil.
func (e Eligible) best() []string {
	for _, nodes := range [][]string{e.Nodes, e.Leaving, e.Recovering, e.Ending, e.Last} {
		if len(nodes) > 0 {
			return nodes
		}
	}
	return nil
}

// Move is a change of the node that holds an address.
type Move struct {
	Address  netip.Addr
	From, To string // empty if there is none
	Epoch    uint64 // after the move
}

// Place assigns each address in use to a node and removes the holders of unused addresses. An
// address that is missing in eligible has no eligible node.
//
// An address keeps its holder while no list of nodes is better. Otherwise it moves to the node of
// the best list with the fewest addresses; of several, to the node with the highest hash of node
// and address, which spreads the addresses of a failed node. If no node is eligible it is not
// moved: the information about its holder may be wrong. So removing a node moves only the addresses
// that it held, and adding a node moves none; see [Ledger.Balance].
func (l Ledger) Place(eligible map[netip.Addr]Eligible) (Ledger, []Move) {
	placed := l.clone()
	var moves []Move
	held := placed.held()
	for _, e := range placed.Entries() {
		to, may := e.Holder, eligible[e.Address]
		best := may.best()
		placed.together(&e, may)
		switch {
		case len(e.Shares) == 0 || len(e.Nodes) > 0:
			to = ""
		case slices.Contains(best, e.Holder), slices.Contains(may.Keeping, e.Holder), len(best) == 0:
		default:
			to = choose(e.Address, best, held)
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

func (l Ledger) together(e *Entry, may Eligible) {
	nodes := slices.Clone(may.best())
	for _, n := range may.Keeping {
		if slices.Contains(e.Nodes, n) {
			nodes = append(nodes, n)
		}
	}
	switch {
	case len(e.Shares) == 0, !may.Together && len(nodes) > 0:
		e.Nodes = nil
	case len(nodes) > 0:
		e.Nodes = slices.Compact(slices.Sorted(slices.Values(nodes)))
	}
	l.put(*e)
}

// Balance moves one address to the eligible node with the fewest addresses, choosing the address
// with the largest difference between the numbers of the old and the new holder. It returns false
// if no move makes the numbers more equal. No move is necessary: call it only at rest.
func (l Ledger) Balance(eligible map[netip.Addr]Eligible) (Ledger, Move, bool) {
	held := l.held()
	var best Entry
	var to string
	gain := 1 // moving an address does not reduce a difference of 1
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

func (l Ledger) move(e Entry, to string) Move {
	m := Move{Address: e.Address, From: e.Holder, To: to, Epoch: max(e.Epoch, l.floor) + 1}
	e.Holder, e.Epoch, e.Held = to, m.Epoch, e.Held && to != ""
	l.put(e)
	return m
}

func (l Ledger) held() map[string]int {
	held := make(map[string]int)
	for _, e := range l.entries {
		if e.Holder != "" {
			held[e.Holder]++
		}
	}
	return held
}

// choose returns the node with the fewest addresses; of several, the node with the highest hash.
func choose(address netip.Addr, nodes []string, held map[string]int) string {
	key := string(address.AsSlice())
	return slices.MinFunc(nodes, func(a, b string) int {
		return cmp.Or(cmp.Compare(held[a], held[b]), cmp.Compare(weight(key, b), weight(key, a)),
			cmp.Compare(a, b))
	})
}

// weight returns the rendezvous hash of a node for a key. FNV changes few bits from node-1 to
// node-2, so they are mixed.
func weight(key, node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key + node))
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}
