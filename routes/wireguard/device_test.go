//go:build linux

package wireguard

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

// Rules that another program has for the same table are kept, and ours follow the podCIDRs.
func TestRules(t *testing.T) {
	kerneltest.Need(t)
	d, err := Open(t.TempDir(), 51820)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	theirs := netlink.NewRule()
	theirs.Src, theirs.Table, theirs.Priority = ipnet.Of(netip.MustParsePrefix("192.0.2.0/24")), podTable, 100
	if err := netlink.RuleAdd(theirs); err != nil {
		t.Fatal(err)
	}
	one, two := netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd01:1::/64")
	for _, podCIDRs := range [][]netip.Prefix{{one, two}, {two}, nil} {
		if err := d.setRules(podCIDRs); err != nil {
			t.Fatal(err)
		}
		have, err := netlink.RuleListFiltered(netlink.FAMILY_ALL, &netlink.Rule{Table: podTable},
			netlink.RT_FILTER_TABLE)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]string, len(have))
		for i, r := range have {
			got[i] = r.Src.String()
		}
		want := []string{theirs.Src.String()}
		for _, p := range podCIDRs {
			want = append(want, p.String())
		}
		slices.Sort(got)
		if slices.Sort(want); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("with podCIDRs %v: rules from %v, want %v", podCIDRs, got, want)
		}
	}
}
