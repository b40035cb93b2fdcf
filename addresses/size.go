package addresses

import (
	"encoding/binary"
	"math"
)

// Size returns the number of addresses of the range, at most [math.MaxUint64].
func (r Range) Size() uint64 {
	first, last := r.First.As16(), r.Last.As16()
	high := binary.BigEndian.Uint64(last[:8]) - binary.BigEndian.Uint64(first[:8])
	low := binary.BigEndian.Uint64(last[8:]) - binary.BigEndian.Uint64(first[8:])
	if binary.BigEndian.Uint64(last[8:]) < binary.BigEndian.Uint64(first[8:]) {
		high-- // borrow
	}
	if high > 0 || low == math.MaxUint64 {
		return math.MaxUint64
	}
	return low + 1
}

// Size returns the number of addresses of a family in the pool, at most [math.MaxUint64].
func (p Pool) Size(f Family) uint64 {
	var all uint64
	for _, r := range p.Ranges {
		if FamilyOf(r.First) != f {
			continue
		}
		n := r.Size()
		if n > math.MaxUint64-all {
			return math.MaxUint64
		}
		all += n
	}
	return all
}
