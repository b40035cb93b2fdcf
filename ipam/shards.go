package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The stored ledger consists of Shards objects. Which of them record a prefix depends on the
// prefix alone, never on a configuration: every family is divided into blocks, aligned ranges of
// equal size, and the blocks belong to the shards in turn.
//
// A prefix is given to a Node only when every shard with a block that overlaps it has recorded it
// for that Node. Of two overlapping prefixes one contains the other, so they have a shard in
// common: a process that is about to give away the second must write that shard, and can't without
// having read the first. This needs neither an atomic write of two objects nor a clock.
const (
	// Shards is the number of objects, numbered from 0. It must never change, and neither must
	// the lengths of blocks: a process with other ones would look for prefixes in other shards.
	Shards = 16
	// blockBits4 and blockBits6 are the lengths of blocks: 16 node prefixes of /24 or /64.
	blockBits4 = 20
	blockBits6 = 60
)

// MarkKey is the key of every object's mark: its number, and how many there are. An object without
// Nodes has it too, so an object without entries was emptied.
const MarkKey = "_shard"

// Mark returns the mark of an object.
func Mark(object int) string { return fmt.Sprintf("%d of %d", object, Shards) }

// Objects are the entries of all objects of the stored ledger, nil for a missing one.
type Objects [Shards]map[string]string

// Lost returns the objects without entries. Only a ledger that never existed lacks some.
func (o Objects) Lost() (lost []int) {
	for object, entries := range o {
		if len(entries) == 0 {
			lost = append(lost, object)
		}
	}
	return lost
}

// isName reports whether a key is a Node's name, which never begins with an underscore.
func isName(key string) bool { return !strings.HasPrefix(key, "_") }

func blockBits(a netip.Addr) int {
	if a.Is4() {
		return blockBits4
	}
	return blockBits6
}

// shardOf returns the first shard that records a prefix.
func shardOf(p netip.Prefix) int {
	return int(numberOf(p.Addr()).upTo(blockBits(p.Addr())) % Shards)
}

// shardsOf returns the shards that record a prefix, in order: more than one if it is larger than
// a block.
func shardsOf(p netip.Prefix) []int {
	blocks := 1
	for bits := p.Bits(); bits < blockBits(p.Addr()) && blocks < Shards; bits++ {
		blocks *= 2
	}
	all := make([]int, blocks)
	for i := range all {
		all[i] = shardOf(p) + i // a prefix is aligned, so this never exceeds the last one
	}
	return all
}

// shards returns the shards that record prefixes of a holding, in order.
func (h *Holding) shards() (all []int) {
	for _, p := range h.all() {
		all = append(all, shardsOf(p)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// part returns a holding with the prefixes that a shard records.
func (h Holding) part(shard int) Holding {
	elsewhere := func(p netip.Prefix) bool { return !slices.Contains(shardsOf(p), shard) }
	h.Prefixes = slices.DeleteFunc(slices.Clone(h.Prefixes), elsewhere)
	h.Abandoned = slices.DeleteFunc(slices.Clone(h.Abandoned), elsewhere)
	return h
}

// A DamagedEntry is an entry of the stored ledger that can't be parsed.
type DamagedEntry struct {
	Object int
	Key    string
	Err    error
}

func (d *DamagedEntry) Error() string { return fmt.Sprintf("key %q: %v", d.Key, d.Err) }

func (d *DamagedEntry) Unwrap() error { return d.Err }

// ParseStored returns the stored holdings by name, then in the order of lines. Damaged entries are
// returned in the order of objects and keys and skipped otherwise. The entries of a UID in several
// objects are one holding. If that has two prefixes of a family, the second is abandoned: its
// process didn't have the first. A prefix that not all of its shards record was never given to the
// Node, so it is abandoned too: of two processes that record it for two Nodes, neither goes on.
func ParseStored(objects Objects) ([]Holding, []*DamagedEntry) {
	var all []Holding
	var damaged []*DamagedEntry
	at := map[string]int{} // by UID
	type record struct {
		uid    string
		prefix netip.Prefix
	}
	recorded := map[record]int{} // in how many of its shards
	for object, entries := range objects {
		got := entries[MarkKey]
		if len(entries) > 0 && got != Mark(object) {
			err := fmt.Errorf("%q is not the mark of this object: write %q, if it was not made by another version", got, Mark(object))
			damaged = append(damaged, &DamagedEntry{object, MarkKey, err})
		}
		for _, key := range sortedKeys(entries) {
			if !isName(key) {
				continue
			}
			holdings, err := ParseRecords(key, entries[key])
			if err != nil {
				damaged = append(damaged, &DamagedEntry{object, key, err})
			}
			for _, h := range holdings {
				for _, p := range h.Prefixes {
					if slices.Contains(shardsOf(p), object) {
						recorded[record{h.Node.UID, p}]++
					}
				}
				if i, known := at[h.Node.UID]; known {
					all[i].merge(h)
				} else {
					at[h.Node.UID] = len(all)
					all = append(all, h)
				}
			}
		}
	}
	for i := range all {
		h := &all[i]
		h.Prefixes = slices.DeleteFunc(h.Prefixes, func(p netip.Prefix) bool {
			shards := len(shardsOf(p))
			partly := shards > 1 && recorded[record{h.Node.UID, p}] < shards
			if partly {
				h.Abandoned = append(h.Abandoned, p)
			}
			return partly
		})
	}
	slices.SortStableFunc(all, func(a, b Holding) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	return all, damaged
}
