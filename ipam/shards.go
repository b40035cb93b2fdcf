package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A stored ledger of many Nodes is spread over several objects. The root lists the shards and what
// each guards: blocks, which are aligned prefixes that overlap no other block. Whatever no block
// covers, the root guards.
//
// A prefix is given to a Node only when every object that guards a part of it has it under that
// Node. Of two prefixes that overlap, one lies in the other, so an object guards a part of both:
// whoever would give away the second has to write that object, and can't without having read the
// first. That needs no write of two objects at once, and no clock.
//
// Blocks are only ever added while the root lists a shard. Everything that changes what the root
// guards is a write of the root, which nobody can do who has not read the last one. How shards come
// and go, [Files] tells.
const (
	// RootObject is the number of the root among the objects.
	RootObject = 0
	// MaxShards is how many there may be. Those who may write the ledger may write objects of
	// just these names.
	MaxShards = 128
	// BlockBits tells the usual size of a block: as many node prefixes as that many bits count.
	BlockBits = 9
)

// A Shard is a part of the stored ledger that has an object of its own.
type Shard struct {
	Number int            // 1 to MaxShards
	Blocks []netip.Prefix // what it guards
}

// Words of the entries that tell about shards.
const (
	generationWord = "generation="
	// ShardPrefix begins the keys under which the root lists shards; what follows is the number.
	ShardPrefix = "_shard."
	// maxGeneration is the highest that is read, far above what layouts that change can come to and
	// far below where numbers overflow. A higher one was not written by Underlay.
	maxGeneration = 1 << 30
	// MarkKey is the key under which a shard's object says which generation it is of.
	MarkKey = "_shard"
)

// listing is how the root lists a shard.
func listing(generation int, blocks []netip.Prefix) string {
	return mark(generation) + " " + join(blocks, " ")
}

// mark is what a shard's object says of itself.
func mark(generation int) string { return generationWord + strconv.Itoa(generation) }

// parseMark reads the generation of a shard's object, 0 where it says nothing.
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

// implausible is the error of a generation that was not written by Underlay.
func implausible(generation int, err error) error {
	if err == nil && generation > maxGeneration {
		err = fmt.Errorf("the generation %d is higher than %d, which Underlay never comes to: write a lower one, for the root at least the shard's object's, for that at most the root's plus 1", generation, maxGeneration)
	}
	return err
}

// parseListing reads how the root lists a shard.
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

// parseNumber reads the number of a shard from its key in the root.
func parseNumber(key string) (number int, ok bool) {
	number, err := strconv.Atoi(strings.TrimPrefix(key, ShardPrefix))
	return number, err == nil && number >= 1 && number <= MaxShards && shardKey(number) == key
}

func shardKey(number int) string { return ShardPrefix + strconv.Itoa(number) }

// isName reports whether a key of an object is the name of a Node. No Node's name begins with an
// underscore.
func isName(key string) bool { return !strings.HasPrefix(key, "_") }

// A layout is which shard guards what.
type layout struct {
	blocks tree[int]              // the shard of each block; no two overlap
	shards map[int][]netip.Prefix // the same by shard, sorted
	grown  int                    // how often it changed
}

func (y *layout) add(number int, b netip.Prefix) {
	if y.shards == nil {
		y.shards = map[int][]netip.Prefix{}
	}
	y.grown++
	y.blocks.put(b, number)
	y.shards[number] = sorted(append(y.shards[number], b))
}

// guards are the objects that must have a prefix before anybody gets it, in ascending order.
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
		return b.Bits() <= p.Bits() // what holds it comes first
	}
	return false
}

// home is the one shard that guards a prefix, or the root.
func (y *layout) home(p netip.Prefix) int {
	if all := y.guards(p); len(all) == 1 {
		return all[0]
	}
	return RootObject
}

// last is the highest number of a shard, 0 where there is none.
func (y *layout) last() (number int) {
	for n := range y.shards {
		number = max(number, n)
	}
	return number
}

// numbers are those of the shards, in ascending order.
func (y *layout) numbers() []int { return slices.Sorted(maps.Keys(y.shards)) }

// Spread has what is handed out from now on guarded by shards.
func (l *Ledger) Spread() { l.spread = true }

// Gather takes all blocks back: the root guards everything.
func (l *Ledger) Gather() { l.layout, l.spread = layout{grown: l.layout.grown + 1}, false }

// grant gives the blocks around what a Node is to have to one shard, where the root guards it: to
// the shard that has the first already, or that has room for it, or to a new one. So all that a
// Node has is mostly written at once. What servers cut from prefixes of their own stays the
// root's: no block could hold several of them.
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
				return // nothing is gained: the Node's first prefix stays the root's
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

// relieve gives the block around the first prefix that the root guards of a pool to a shard, with
// all that is held in it. It reports which, and false where there is none, or no shard for it.
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

// join gives a shard the blocks of what the Nodes of a block have beside it.
func (l *Ledger) join(number int, block netip.Prefix) {
	for _, claims := range l.claims.overlapping(block) {
		for _, p := range claims[0].holder.prefixes {
			if b, ok := l.grantable(p); ok && l.room(number, b, 2) {
				l.layout.add(number, b)
			}
		}
	}
}

// grantable is the block around a pool's node prefix that the root guards, if a shard can have it.
func (l *Ledger) grantable(p netip.Prefix) (netip.Prefix, bool) {
	s := l.carver(p)
	if s == nil || l.layout.home(p) != RootObject {
		return netip.Prefix{}, false
	}
	return l.blockOf(choice{s, p})
}

// blockOf is the block that a node prefix would be guarded in. There is none where an existing
// block, of a pool that was cut otherwise, lies in it or around it.
func (l *Ledger) blockOf(c choice) (netip.Prefix, bool) {
	bits := max(c.pool.Prefix.Bits(), c.pool.NodeMask-l.blockBits)
	b := netip.PrefixFrom(c.prefix.Addr(), bits).Masked()
	_, taken := l.layout.blocks.first(b)
	return b, !taken
}

// opened is the shard for another block of a pool of the first family: the last one, if all its
// node prefixes of that family stay as many as one block may have; else the next.
func (l *Ledger) opened(b netip.Prefix) int {
	if last := l.layout.last(); last == 0 || !l.room(last, b, 1) {
		return last + 1
	}
	return l.layout.last()
}

// room reports whether a shard has room for another block: with it there are no more node prefixes
// of that family than so many blocks may have. Of the families after the first there may be two
// blocks, since they needn't begin where the first one's does.
func (l *Ledger) room(number int, b netip.Prefix, blocks int) bool {
	left := blocks<<l.blockBits - l.slots(b)
	for _, q := range l.layout.shards[number] {
		if q.Addr().Is4() == b.Addr().Is4() {
			left -= l.slots(q)
		}
	}
	return left >= 0
}

// slots is how many node prefixes a block has.
func (l *Ledger) slots(block netip.Prefix) int {
	for _, p := range l.pools {
		if !p.Own && p.Prefix.Overlaps(block) {
			return 1 << max(0, p.NodeMask-block.Bits())
		}
	}
	return 1 << l.blockBits
}

// parts divides a holding among the objects that have to have its prefixes.
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
