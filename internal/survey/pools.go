package survey

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/underlay-ccm/underlay/internal/config"
)

// PoolsView is how full the pools are.
type PoolsView struct {
	Pools []PoolRow `json:"pools"`
	// Room is how many more Nodes can get prefixes of all families; without it
	// there is no limit.
	Room *int `json:"room,omitempty"`
	// Removed are prefixes that Nodes hold of pools that are configured no more.
	Removed []string `json:"removed,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	NotSeen []string `json:"notSeen,omitempty"`
}

// PoolRow is one pool. The numbers are of node prefixes.
type PoolRow struct {
	Name string `json:"name"`
	// CIDR is the zero Prefix where node prefixes come from each server's own.
	CIDR netip.Prefix `json:"cidr,omitzero"`
	// Source is where node prefixes come from: cidr, node (each server's own) or
	// vswitch (a CIDR inside the vSwitch's subnet).
	Source string `json:"source"`
	Mask   int    `json:"mask"`
	// State is active or draining.
	State string `json:"state"`
	// Unlimited: there is no capacity to run out of; Capacity and Free are 0.
	Unlimited   bool   `json:"unlimited,omitempty"`
	Capacity    uint64 `json:"capacity"`
	Free        uint64 `json:"free"`
	Used        uint64 `json:"used"`
	Quarantined uint64 `json:"quarantined"`
	// Foreign can't be handed out because of podCIDRs of another size or place
	// that Nodes have, Excluded because they overlap an exclusion.
	Foreign  uint64 `json:"foreign"`
	Excluded uint64 `json:"excluded"`
}

// The sources of pools, in the configuration's words where it has any.
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

// PoolsParts are what PoolsOf needs; all but the first is shown as not seen.
const PoolsParts = PartConfig | PartNodes | PartLedger | PartServiceCIDRs | PartNetwork

// PoolsOf counts what the pools have left.
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
