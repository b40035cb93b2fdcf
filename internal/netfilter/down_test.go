//go:build linux

package netfilter

import (
	"errors"
	"testing"
)

// After a failed commit pods have no packet filter only if its table or rules are missing: outdated
// rules, or an earlier version's, keep filtering.
func TestAFailureReportsWhetherAFilterExists(t *testing.T) {
	for damage, down := range map[string]bool{
		"delete table inet underlay":                          true,
		"add table inet underlay { flags dormant; }":          true,
		"flush chain inet underlay inbound":                   true,
		"flush chain inet underlay leaving":                   true,
		"add rule inet underlay leaving counter":              false,
		"add element inet underlay inside-4 { 203.0.113.9 }":  false,
		"add chain inet underlay somebodys { counter ; }":     false,
		"add set inet underlay theirs { type ipv4_addr ; }":   false,
		"add table inet theirs ; add chain inet theirs other": false,
	} {
		n := newNode(t)
		n.apply(dualStack())
		n.Run("nft", damage)
		n.lists.refused = 2
		var err error
		n.Do(func() { _, _, err = n.table.Apply(n.t.Context(), dualStack()) })
		if errors.Is(err, ErrDown) != down {
			t.Errorf("%s: %v, want down %t", damage, err, down)
		}
		n.lists.refused = 0
		n.apply(dualStack())
	}
}
