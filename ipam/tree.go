package ipam

import (
	"iter"
	"net/netip"
)

// tree maps prefixes of both families to values and finds those that overlap a prefix without
// visiting the rest. Two prefixes overlap only if one contains the other, so the result is
// always a path from the root and one subtree. It is a binary tree with branches only where
// prefixes diverge. All prefixes must be canonical.
type tree[V any] struct {
	roots [2]*branch[V] // IPv4, IPv6
}

type branch[V any] struct {
	prefix netip.Prefix
	value  V
	set    bool // else only a fork of two prefixes
	child  [2]*branch[V]
}

func (t *tree[V]) root(p netip.Prefix) **branch[V] {
	if p.Addr().Is4() {
		return &t.roots[0]
	}
	return &t.roots[1]
}

// side returns the index of the child that the prefix belongs to, in a branch of this length.
func side(p netip.Prefix, bits int) int { return numberOf(p.Addr()).bit(bits) }

func (t *tree[V]) get(p netip.Prefix) (V, bool) {
	b := *t.root(p)
	for b != nil && b.prefix.Bits() < p.Bits() {
		b = b.child[side(p, b.prefix.Bits())]
	}
	if b == nil || b.prefix != p || !b.set {
		var none V
		return none, false
	}
	return b.value, true
}

func (t *tree[V]) put(p netip.Prefix, value V) {
	leaf := &branch[V]{prefix: p, value: value, set: true}
	at := t.root(p)
	for *at != nil {
		b := *at
		common := commonBits(b.prefix, p)
		switch {
		case common == b.prefix.Bits() && common == p.Bits():
			b.value, b.set = value, true
			return
		case common == b.prefix.Bits():
			at = &b.child[side(p, common)]
			continue
		case common == p.Bits():
			leaf.child[side(b.prefix, common)] = b
			*at = leaf
		default:
			fork := &branch[V]{prefix: netip.PrefixFrom(p.Addr(), common).Masked()}
			fork.child[side(p, common)] = leaf
			fork.child[side(b.prefix, common)] = b
			*at = fork
		}
		return
	}
	*at = leaf
}

func (t *tree[V]) remove(p netip.Prefix) {
	root := t.root(p)
	*root = (*root).without(p)
}

func (b *branch[V]) without(p netip.Prefix) *branch[V] {
	switch {
	case b == nil || b.prefix.Bits() > p.Bits():
		return b
	case b.prefix == p:
		var none V
		b.value, b.set = none, false
	case b.prefix.Bits() == p.Bits():
		return b
	default:
		i := side(p, b.prefix.Bits())
		b.child[i] = b.child[i].without(p)
	}
	switch {
	case b.set:
		return b
	case b.child[0] == nil:
		return b.child[1]
	case b.child[1] == nil:
		return b.child[0]
	}
	return b
}

// overlapping yields the prefixes that overlap a prefix, in the order of
// [netip.Prefix.Compare]. The tree must not change during the iteration.
func (t *tree[V]) overlapping(p netip.Prefix) iter.Seq2[netip.Prefix, V] {
	return func(yield func(netip.Prefix, V) bool) {
		b := *t.root(p)
		for b != nil && b.prefix.Bits() < p.Bits() {
			if !b.prefix.Contains(p.Addr()) || b.set && !yield(b.prefix, b.value) {
				return
			}
			b = b.child[side(p, b.prefix.Bits())]
		}
		if b != nil && b.prefix.Overlaps(p) {
			b.walk(yield)
		}
	}
}

func (b *branch[V]) walk(yield func(netip.Prefix, V) bool) bool {
	if b == nil {
		return true
	}
	return (!b.set || yield(b.prefix, b.value)) && b.child[0].walk(yield) && b.child[1].walk(yield)
}

// outside yields what overlapping does, without covered subtrees, which it doesn't visit.
func (t *tree[V]) outside(p netip.Prefix, covered func(netip.Prefix) bool) iter.Seq2[netip.Prefix, V] {
	return func(yield func(netip.Prefix, V) bool) {
		var walk func(b *branch[V]) bool
		walk = func(b *branch[V]) bool {
			if b == nil || !b.prefix.Overlaps(p) || covered(b.prefix) {
				return true
			}
			return (!b.set || yield(b.prefix, b.value)) && walk(b.child[0]) && walk(b.child[1])
		}
		walk(*t.root(p))
	}
}

// first returns the first prefix in that order that overlaps p.
func (t *tree[V]) first(p netip.Prefix) (netip.Prefix, bool) {
	for q := range t.overlapping(p) {
		return q, true
	}
	return netip.Prefix{}, false
}

func setOf(prefixes []netip.Prefix) tree[struct{}] {
	var t tree[struct{}]
	for _, p := range prefixes {
		if p = canonical(p); p.IsValid() {
			t.put(p, struct{}{})
		}
	}
	return t
}
