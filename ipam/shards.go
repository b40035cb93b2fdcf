package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The stored ledger of a large cluster is spread over several objects. The root lists the
// shards and the blocks that each one guards: aligned prefixes that overlap no other block.
// The root guards everything outside of the blocks.
//
// A prefix is given to a Node only when every object that guards a part of it has recorded it for
// that Node. Of two overlapping prefixes one contains the other, so a common object guards a part
// of both: a process that is about to give away the second must write that object, and can't
// without having read the first. This needs neither an atomic write of two objects nor a clock.
//
// Blocks are only added while the root lists a shard. Every change of what the root guards is
// a write of the root, which requires having read its last version. [Files] describes how
// shards are added and removed.
const (
	// RootObject is the number of the root among the objects.
	RootObject = 0
	// MaxShards limits the number of shards. The ledger's RBAC rules list the objects' names.
	MaxShards = 128
	// BlockBits is the default size of a block: 2^BlockBits node prefixes.
	BlockBits = 9
)

// A Shard is a part of the stored ledger with its own object.
type Shard struct {
	Number int            // 1 to MaxShards
	Blocks []netip.Prefix // those it guards
}

// Words and keys of the entries about shards.
const (
	generationWord = "generation="
	// ShardPrefix begins the keys under which the root lists shards; the shard's number follows.
	ShardPrefix = "_shard."
	// maxGeneration limits the generations that are accepted. It is far above what changes of the
	// layout can reach and far below an overflow. A higher one was not written by Underlay.
	maxGeneration = 1 << 30
	// MarkKey is the key of the generation in a shard's object.
	MarkKey = "_shard"
)

func listing(generation int, blocks []netip.Prefix) string {
	return mark(generation) + " " + join(blocks, " ")
}

func mark(generation int) string { return generationWord + strconv.Itoa(generation) }

// parseMark returns the generation of a shard's object, 0 for an empty text.
func parseMark(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	number, ok := strings.CutPrefix(text, generationWord)
	generation, err := strconv.Atoi(number)
	if !ok || err != nil || generation < 1 || mark(generation) != text {
		return 0, fmt.Errorf("%q is no generation: write %s and a number from 1 on", text, generationWord)
	}
	return generation, nil
}

// implausible returns an error for a generation that Underlay did not write.
func implausible(generation int, err error) error {
	if err == nil && generation > maxGeneration {
		err = fmt.Errorf("the generation %d is higher than %d, which Underlay never comes to: write a lower one, for the root at least the shard's object's, for that at most the root's plus 1", generation, maxGeneration)
	}
	return err
}

func parseListing(text string) (generation int, blocks []netip.Prefix, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return 0, nil, fmt.Errorf("%q lists nothing: write %s and a number, and the shard's blocks", text, generationWord)
	}
	if generation, err = parseMark(words[0]); err != nil {
		return 0, nil, err
	}
	for _, word := range words[1:] {
		p, err := parsePrefix(word)
		if err != nil {
			return 0, nil, err
		}
		blocks = append(blocks, p)
	}
	if len(blocks) == 0 {
		return 0, nil, fmt.Errorf("%q lists no block: write those that the Nodes of the shard lie in", text)
	}
	return generation, blocks, nil
}

func parseNumber(key string) (number int, ok bool) {
	number, err := strconv.Atoi(strings.TrimPrefix(key, ShardPrefix))
	return number, err == nil && number >= 1 && number <= MaxShards && shardKey(number) == key
}

func shardKey(number int) string { return ShardPrefix + strconv.Itoa(number) }

// isName reports whether a key is a Node's name, which never begins with an underscore.
func isName(key string) bool { return !strings.HasPrefix(key, "_") }

// A layout maps blocks to shards.
type layout struct {
	blocks tree[int]              // the shard of each block; no two overlap
	shards map[int][]netip.Prefix // the blocks of each shard, sorted
	grown  int                    // number of changes
}

func (y *layout) add(number int, b netip.Prefix) {
	if y.shards == nil {
		y.shards = map[int][]netip.Prefix{}
	}
	y.grown++
	y.blocks.put(b, number)
	y.shards[number] = sorted(append(y.shards[number], b))
}

// guards returns the objects that must record a prefix before it is given away, in order.
func (y *layout) guards(p netip.Prefix) []int {
	all := []int{RootObject}
	if len(y.shards) == 0 {
		return all
	}
	for b, number := range y.blocks.overlapping(p) {
		if b.Bits() <= p.Bits() {
			return []int{number}
		}
		if !slices.Contains(all, number) {
			all = append(all, number)
		}
	}
	slices.Sort(all)
	return all
}

// covers reports whether a shard guards all of a prefix.
func (y *layout) covers(p netip.Prefix) bool {
	for b := range y.blocks.overlapping(p) {
		return b.Bits() <= p.Bits() // the containing block is first
	}
	return false
}

// home returns the only shard that guards a prefix, or RootObject.
func (y *layout) home(p netip.Prefix) int {
	if all := y.guards(p); len(all) == 1 {
		return all[0]
	}
	return RootObject
}

func (y *layout) last() (number int) {
	for n := range y.shards {
		number = max(number, n)
	}
	return number
}

func (y *layout) numbers() []int { return slices.Sorted(maps.Keys(y.shards)) }

// Spread lets shards guard the prefixes handed out from this call on.
func (l *Ledger) Spread() { l.spread = true }

// Gather removes all blocks, so that the root guards everything.
func (l *Ledger) Gather() { l.layout, l.spread = layout{grown: l.layout.grown + 1}, false }

// grant assigns blocks that the root guards, around the node prefixes chosen for a Node, to
// one shard: the shard that has the first prefix, or that has room for it, or a new shard. So
// most Nodes need the write of a single object. Prefixes cut from servers' own prefixes stay
// with the root: no block could contain several of them.
func (l *Ledger) grant(plan []choice) {
	if !l.spread || slices.ContainsFunc(plan, func(c choice) bool { return c.pool.Own }) {
		return
	}
	home := l.layout.home(plan[0].prefix)
	for i, c := range plan {
		b, ok := l.blockOf(c)
		if !ok || l.layout.home(c.prefix) != RootObject {
			continue
		}
		if home == RootObject {
			if i > 0 {
				return // no benefit: the root still guards the Node's first prefix
			}
			if home = l.opened(b); home > MaxShards {
				return
			}
		}
		if i == 0 || l.room(home, b, 2) {
			l.layout.add(home, b)
		}
	}
}

// relieve assigns the block around the first pool prefix of the root, with all that is held in
// it, to a shard and returns its number. It reports false if there is no such prefix or shard.
func (l *Ledger) relieve() (number int, ok bool) {
	if slices.ContainsFunc(l.pools, func(p *pool) bool { return p.Own }) {
		return 0, false
	}
	for _, pool := range l.pools {
		for p := range l.claims.outside(pool.Prefix, l.layout.covers) {
			b, ok := l.grantable(p)
			if !ok {
				continue
			}
			number = l.opened(b)
			if number > MaxShards {
				return 0, false
			}
			l.layout.add(number, b)
			l.join(number, b)
			return number, true
		}
	}
	return 0, false
}

// join adds to a shard the blocks of the other prefixes of the Nodes in a block.
func (l *Ledger) join(number int, block netip.Prefix) {
	for _, claims := range l.claims.overlapping(block) {
		for _, p := range claims[0].holder.prefixes {
			if b, ok := l.grantable(p); ok && l.room(number, b, 2) {
				l.layout.add(number, b)
			}
		}
	}
}

// grantable returns the block around a node prefix that the root guards, if a shard can have it.
func (l *Ledger) grantable(p netip.Prefix) (netip.Prefix, bool) {
	s := l.carver(p)
	if s == nil || l.layout.home(p) != RootObject {
		return netip.Prefix{}, false
	}
	return l.blockOf(choice{s, p})
}

// blockOf returns the block that would guard a node prefix. It reports false if an existing
// block overlaps it, from a pool with another node mask.
func (l *Ledger) blockOf(c choice) (netip.Prefix, bool) {
	bits := max(c.pool.Prefix.Bits(), c.pool.NodeMask-l.blockBits)
	b := netip.PrefixFrom(c.prefix.Addr(), bits).Masked()
	_, taken := l.layout.blocks.first(b)
	return b, !taken
}

// opened returns the shard for another block of a pool of the first family: the last one, if
// its node prefixes of that family still fit into one block; else the next.
func (l *Ledger) opened(b netip.Prefix) int {
	if last := l.layout.last(); last == 0 || !l.room(last, b, 1) {
		return last + 1
	}
	return l.layout.last()
}

// room reports whether another block fits into a shard: all its blocks of that family then
// have at most as many node prefixes as the given number of blocks. Families after the first
// may have two, since their blocks needn't be aligned with those of the first.
func (l *Ledger) room(number int, b netip.Prefix, blocks int) bool {
	left := blocks<<l.blockBits - l.slots(b)
	for _, q := range l.layout.shards[number] {
		if q.Addr().Is4() == b.Addr().Is4() {
			left -= l.slots(q)
		}
	}
	return left >= 0
}

func (l *Ledger) slots(block netip.Prefix) int {
	for _, p := range l.pools {
		if !p.Own && p.Prefix.Overlaps(block) {
			return 1 << max(0, p.NodeMask-block.Bits())
		}
	}
	return 1 << l.blockBits
}

// parts splits a holding by the objects that must record its prefixes.
func (l *Ledger) parts(h Holding) map[int]Holding {
	if len(l.layout.shards) == 0 {
		return map[int]Holding{RootObject: h}
	}
	parts := map[int]Holding{}
	add := func(p netip.Prefix, list func(*Holding) *[]netip.Prefix) {
		for _, object := range l.layout.guards(p) {
			part, ok := parts[object]
			if !ok {
				part = Holding{Node: h.Node, Pools: h.Pools, Released: h.Released}
			}
			*list(&part) = append(*list(&part), p)
			parts[object] = part
		}
	}
	for _, p := range h.Prefixes {
		add(p, func(part *Holding) *[]netip.Prefix { return &part.Prefixes })
	}
	for _, p := range h.Abandoned {
		add(p, func(part *Holding) *[]netip.Prefix { return &part.Abandoned })
	}
	return parts
}
