package survey

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/underlay-ccm/underlay/internal/config"
)

// PoolsView shows the usage of the pools.
type PoolsView struct {
	Pools []PoolRow `json:"pools"`
	// Room is how many more Nodes can get prefixes of all families; nil means unlimited.
	Room *int `json:"room,omitempty"`
	// Removed describes Nodes' prefixes of pools that are no longer configured.
	Removed []string `json:"removed,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	NotSeen []string `json:"notSeen,omitempty"`
}

// PoolRow is a pool. The numbers count node prefixes.
type PoolRow struct {
	Name string `json:"name"`
	// CIDR is the zero Prefix if Source is node.
	CIDR netip.Prefix `json:"cidr,omitzero"`
	// Source is cidr, node (each server's own prefix) or vswitch (inside the vSwitch's subnet).
	Source string `json:"source"`
	Mask   int    `json:"mask"`
	State  string `json:"state"`
	// Unlimited: the pool has no capacity limit; Capacity and Free are 0.
	Unlimited   bool   `json:"unlimited,omitempty"`
	Capacity    uint64 `json:"capacity"`
	Free        uint64 `json:"free"`
	Used        uint64 `json:"used"`
	Quarantined uint64 `json:"quarantined"`
	// Foreign can't be allocated because of Nodes' podCIDRs of another size or alignment,
	// Excluded because of exclusions.
	Foreign  uint64 `json:"foreign"`
	Excluded uint64 `json:"excluded"`
}

// The sources of pools, named as in the configuration where it has a name.
const (
	sourceCIDR    = "cidr"
	sourceNode    = "node"
	sourceVSwitch = "vswitch"
)

func source(p config.Pool) string {
	switch {
	case p.Own:
		return sourceNode
	case p.VSwitch:
		return sourceVSwitch
	default:
		return sourceCIDR
	}
}

// PoolsParts are the parts of PoolsOf, of which only PartConfig is required.
const PoolsParts = PartConfig | PartNodes | PartLedger | PartServiceCIDRs | PartNetwork

// PoolsOf counts the used and free prefixes of the pools.
func PoolsOf(s *Snapshot) (PoolsView, error) {
	if err := s.Require(PartConfig); err != nil {
		return PoolsView{}, err
	}
	v := PoolsView{Pools: []PoolRow{}, NotSeen: s.NotSeen()}
	if len(s.Config.IPAM.Pools) == 0 {
		v.Notes = append(v.Notes, "no pool is configured: give --cluster-cidr to underlay-ccm, or pools in its file ("+s.ConfigFrom+")")
		return v, nil
	}
	if !s.Config.IPAM.Enabled {
		v.Notes = append(v.Notes, "nothing is handed out: underlay-ccm runs without --allocate-node-cidrs")
	}
	book, err := s.Book()
	if err != nil {
		return PoolsView{}, err
	}
	for i, c := range book.Counts() {
		row := PoolRow{
			Name: c.Name, CIDR: c.Pool, Source: source(s.Config.IPAM.Pools[i]), Mask: c.NodeMask, State: c.State.String(),
			Free: c.Free, Used: c.Allocated, Quarantined: c.Quarantined, Foreign: c.Foreign, Excluded: c.Excluded,
		}
		if s.Config.IPAM.Pools[i].Own {
			row.Unlimited = true
		} else {
			row.Capacity = 1 << (c.NodeMask - c.Pool.Bits())
		}
		v.Pools = append(v.Pools, row)
	}
	if room := book.Room(); room != math.MaxInt {
		v.Room = &room
	}
	for _, o := range book.Removed() {
		v.Removed = append(v.Removed, fmt.Sprintf("Node %s holds %s of pool %s, which is configured no more: configure it with state: draining", o.Node.Name, o.Prefix, o.Pool))
	}
	if len(book.Damage) > 0 {
		v.Notes = append(v.Notes, "the stored ledger is damaged, so quarantine is counted in part: "+Join(book.Damage, "; "))
	}
	for _, w := range book.Warnings {
		v.Notes = append(v.Notes, w.String())
	}
	return v, nil
}
