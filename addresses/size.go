package addresses

import (
	"math"
	"math/big"
)

// Size returns the number of addresses of a family in the pool, at most [math.MaxUint64].
func (p Pool) Size(f Family) uint64 {
	all := new(big.Int)
	for _, r := range p.Ranges {
		if FamilyOf(r.First) == f {
			first, last := r.First.As16(), r.Last.As16()
			all.Add(all, new(big.Int).SetBytes(last[:]))
			all.Sub(all, new(big.Int).SetBytes(first[:]))
			all.Add(all, big.NewInt(1))
		}
	}
	if !all.IsUint64() {
		return math.MaxUint64
	}
	return all.Uint64()
}
