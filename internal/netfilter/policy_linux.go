package netfilter

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/knftables"

	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/policy"
)

// PolicyTable manages the nftables table that enforces NetworkPolicies, in the caller's network
// namespace. It stays when the process ends: pods that start then have an address that is not in
// the table, and their packets are dropped.
//
// The elements in the kernel are not listed, because there may be hundreds of thousands. Instead,
// after a start, a failure, or a commit of another program to this table, one transaction fills
// it anew. Packets pass either the old rules or the new ones.
type PolicyTable struct {
	*kernelTable
	last *policy.Ruleset // what the table enforces, if known; nil without a table
	// uncut means that connections may exist that the table no longer allows.
	uncut bool
}

// NewPolicyTable checks that nft works; it changes nothing.
func NewPolicyTable() (*PolicyTable, error) {
	t, err := openTable(PolicyTableName)
	if err != nil {
		return nil, err
	}
	return &PolicyTable{kernelTable: t}, nil
}

// Apply sets the table to the ruleset, or removes it if want is nil, in one transaction, and then
// ends the connections that the ruleset does not allow. It returns a line per change.
func (t *PolicyTable) Apply(
	ctx context.Context, want *policy.Ruleset,
) (changed []string, err error) {
	known, err := t.unchanged()
	switch {
	case err != nil:
	case known:
		changed, err = t.amend(ctx, want)
	default:
		changed, err = t.refill(ctx, want)
	}
	if err != nil || want == nil || !t.uncut {
		return changed, err
	}
	n, err := cut(*want)
	if n > 0 {
		changed = append(changed, fmt.Sprintf("%d connections are cut that no NetworkPolicy allows now",
			n))
	}
	t.uncut = err != nil
	return changed, err
}

// amend applies the difference to the known content.
func (t *PolicyTable) amend(
	ctx context.Context, want *policy.Ruleset,
) (changed []string, err error) {
	switch {
	case t.last == nil && want == nil:
		return nil, nil
	case t.last == nil || want == nil || !slices.Equal(t.last.PodCIDRs, want.PodCIDRs) ||
		t.last.LogGroup != want.LogGroup:
		return t.refill(ctx, want)
	}
	e := policyEdit{tx: t.nft.NewTransaction()}
	if e.edit(*t.last, *want); e.tx.NumOperations() == 0 {
		t.last = want
		return nil, nil
	}
	if err := t.commit(ctx, e.tx); err != nil {
		return t.refill(ctx, want)
	}
	t.last, t.uncut = want, t.uncut || e.forbids
	return []string{
		fmt.Sprintf("nftables table %s: %d chains, %d sets and %d elements changed", PolicyTableName,
			e.chains, e.sets, e.elements),
	}, nil
}

// refill makes the table from any state. It keeps the base chain hooked unless it is unusable.
func (t *PolicyTable) refill(
	ctx context.Context, want *policy.Ruleset,
) (changed []string, err error) {
	parts, err := t.list(ctx)
	if err != nil {
		return nil, err
	}
	if want == nil {
		return t.remove(ctx, parts != nil)
	}
	for _, anew := range []bool{false, true} {
		if !anew && len(parts[""]) > 0 { // dormant: its chains are not hooked
			continue
		}
		if err = t.commit(ctx, t.filled(*want, parts, anew)); err == nil {
			t.last, t.uncut = want, true
			return []string{fmt.Sprintf("nftables table %s is filled: %d addresses of pods, %d chains, %d peers",
				PolicyTableName, len(want.Pods), len(chainsOf(*want)), len(want.Sets))}, nil
		}
	}
	err = fmt.Errorf("making the nftables table %s: %w", PolicyTableName, err)
	if parts == nil {
		err = fmt.Errorf("%w: %w", ErrDown, err)
	}
	return nil, err
}

func (t *PolicyTable) remove(ctx context.Context, exists bool) (changed []string, err error) {
	if exists {
		// While the kernel removes a table, packets still pass its rules, without their sets.
		open, removal := t.nft.NewTransaction(), t.nft.NewTransaction()
		open.Add(&knftables.Chain{Name: policyBase})
		open.Flush(&knftables.Chain{Name: policyBase})
		removal.Delete(&knftables.Table{})
		for _, tx := range []*knftables.Transaction{open, removal} {
			if err := t.commit(ctx, tx); err != nil {
				return nil, fmt.Errorf("removing the nftables table %s: %w", PolicyTableName, err)
			}
		}
		changed = []string{
			"nftables table " + PolicyTableName + " is removed: there is no NetworkPolicy to enforce",
		}
	}
	t.last, t.uncut = nil, false
	return changed, nil
}

// filled returns the transaction that makes the table of one that has parts, in place or anew.
func (t *PolicyTable) filled(
	want policy.Ruleset, parts map[string][]string, anew bool,
) *knftables.Transaction {
	tx := t.nft.NewTransaction()
	table := &knftables.Table{Comment: knftables.PtrTo("NetworkPolicies, kept by underlay-agent")}
	tx.Add(table)
	if anew {
		tx.Delete(&knftables.Table{})
		tx.Add(table)
		parts = nil
	}
	empty(tx, parts)
	chains, referred := policyFrame(want.PodCIDRs)
	for _, object := range referred {
		tx.Add(object)
	}
	for _, c := range chains {
		c.addTo(tx)
	}
	e := policyEdit{tx: tx}
	e.edit(policy.Ruleset{}, want)
	return tx
}

// empty removes everything but the base chain. First go the references, then what they refer to.
func empty(tx *knftables.Transaction, parts map[string][]string) {
	var chains, verdicts []string
	var last []knftables.Object
	for part := range parts {
		switch kind, name, _ := strings.Cut(part, " "); kind {
		case "chain":
			chains = append(chains, name)
		case "map":
			verdicts = append(verdicts, name)
		case "set":
			last = append(last, &knftables.Set{Name: name})
		case "counter":
			last = append(last, &knftables.Counter{Name: name})
		}
	}
	for _, name := range chains {
		tx.Flush(&knftables.Chain{Name: name})
	}
	for _, name := range verdicts {
		tx.Delete(&knftables.Map{Name: name})
	}
	for _, name := range chains {
		if name != policyBase {
			tx.Delete(&knftables.Chain{Name: name})
		}
	}
	for _, object := range last {
		tx.Delete(object)
	}
}

// Drops returns the number of dropped packets by chain, since the chain was added.
func (t *PolicyTable) Drops(ctx context.Context) (map[*policy.Chain]uint64, error) {
	if t.last == nil {
		return nil, nil
	}
	counters, err := t.nft.ListCounters(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the counters of the nftables table %s: %w", PolicyTableName, err)
	}
	chains, drops := chainsOf(*t.last), map[*policy.Chain]uint64{}
	for _, c := range counters {
		if chain := chains[c.Name]; chain != nil && c.Packets != nil {
			drops[chain] = *c.Packets
		}
	}
	return drops, nil
}

// forbidden matches tracked connections that a ruleset does not allow, except for those of the
// machine's own addresses, which are not forwarded.
type forbidden struct {
	policy.Ruleset
	own map[netip.Addr]bool
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter. The filter judges the source of the
// first packet and the source of replies, before the masquerading and after the destination's
// rewriting.
func (f forbidden) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	c := policy.Connection{
		From: ipnet.Addr(flow.Forward.SrcIP), To: ipnet.Addr(flow.Reverse.SrcIP),
		Protocol: policy.Protocol(flow.Forward.Protocol),
	}
	switch c.Protocol {
	case policy.TCP, policy.UDP, policy.SCTP:
		c.Port = flow.Reverse.SrcPort
	}
	return !f.own[c.From] && !f.own[c.To] && !f.Allows(c)
}

// cut deletes the conntrack entries of connections that are not allowed, and returns their number.
// Established connections pass the table by their entries alone.
func cut(rules policy.Ruleset) (int, error) {
	f := forbidden{rules, map[netip.Addr]bool{}}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return 0, fmt.Errorf("reading the machine's addresses: %w", err)
	}
	for _, a := range own {
		if p, ok := a.(*net.IPNet); ok {
			f.own[ipnet.Addr(p.IP)] = true
		}
	}
	n, err := deleteConnections(f)
	if err != nil {
		return n, fmt.Errorf("cutting connections that no NetworkPolicy allows now: %w", err)
	}
	return n, nil
}
