package survey

import (
	"fmt"
	"math"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/table"
	"github.com/underlay-ccm/underlay/ipam"
)

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

// PoolsOf counts the node prefixes of the pools: in use, free, in quarantine, and those that can't
// be allocated because of Nodes' podCIDRs of another size (foreign) or of exclusions.
func PoolsOf(s *Snapshot) (table.Page, error) {
	if err := s.Require(PartConfig); err != nil {
		return table.Page{}, err
	}
	out := table.Page{NotSeen: s.NotSeen()}
	if len(s.Config.IPAM.Pools) == 0 {
		out.Notes = []string{
			"no pool is configured: give --cluster-cidr to underlay-ccm, or pools in its file (" +
				s.ConfigFrom + ")",
		}
		return out, nil
	}
	book, err := s.Book()
	if err != nil {
		return table.Page{}, err
	}
	t := table.New("pools", "", "NAME", "CIDR", "SOURCE", "MASK", "STATE", ">CAPACITY", ">FREE",
		">USED", ">QUARANTINED", ">FOREIGN", "+>EXCLUDED")
	for i, c := range book.Counts() {
		p, active := s.Config.IPAM.Pools[i], c.State == ipam.Active
		var cidr, capacity, free any = "each server's own", "unlimited", "unlimited"
		if !p.Own {
			cidr, capacity = c.Pool, uint64(1)<<(c.NodeMask-c.Pool.Bits())
			free = table.Toned(c.Free, table.Bad, c.Free == 0 && active)
		}
		t.Add(c.Name, cidr, source(p), fmt.Sprint("/", c.NodeMask),
			table.Toned(c.State.String(), table.Warn, !active),
			capacity, free, c.Allocated, c.Quarantined, c.Foreign, c.Excluded)
	}
	out.Tables = []table.Table{t}
	if room := book.Room(); room != math.MaxInt {
		out.Lines = []string{fmt.Sprintf("Room for %d more Nodes.", room)}
	}
	for _, o := range book.Removed() {
		out.Notes = append(out.Notes, fmt.Sprintf("Node %s holds %s of pool %s, which is configured no more: configure it with state: draining", o.Node.Name, o.Prefix, o.Pool))
	}
	if !s.Config.IPAM.Enabled {
		out.Notes = append(out.Notes,
			"nothing is handed out: underlay-ccm runs without --allocate-node-cidrs")
	}
	if len(book.Damage) > 0 {
		out.Notes = append(out.Notes, "the stored ledger is damaged, so quarantine is counted in part: "+
			Join(book.Damage, "; "))
	}
	for _, w := range book.Warnings {
		out.Notes = append(out.Notes, w.String())
	}
	return out, nil
}
