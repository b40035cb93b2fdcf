package ipam_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ipam/cidrset"

	"github.com/underlay-ccm/underlay/ipam"
)

// An empty pool gives its node prefixes in the order of kube-controller-manager's allocator, and as
// many of them, so that a cluster can move from one to the other. cidrset is that allocator.
func TestPoolsAreCarvedAsByKubeControllerManager(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		base  string
		bits  [2]int // of pools, from and to
		masks [2]int
	}{
		{"10.0.0.0/8", [2]int{12, 24}, [2]int{24, 28}},
		{"fd00::/16", [2]int{50, 64}, [2]int{64, 66}},
	} {
		for range 40 {
			base := netip.MustParsePrefix(c.base)
			length := c.bits[0] + rng.IntN(c.bits[1]-c.bits[0]+1)
			mask := min(max(length, c.masks[0]+rng.IntN(c.masks[1]-c.masks[0]+1)), length+12)
			prefix := netip.PrefixFrom(base.Addr(), length)
			set, err := cidrset.NewCIDRSet(&net.IPNet{
				IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(length, prefix.Addr().BitLen()),
			}, mask)
			if err != nil {
				t.Fatal(err)
			}
			l, err := ipam.NewLedger([]ipam.PoolConfig{{Name: "pool", Prefix: prefix, NodeMask: mask}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; ; i++ {
				want, full := set.AllocateNext()
				node := ipam.Node{Name: fmt.Sprint("node-", i), UID: fmt.Sprint("uid-", i)}
				got, err := l.Assign(node, ipam.Offer{})
				if full != nil && err != nil {
					break
				}
				if full != nil || err != nil || len(got) != 1 || got[0].String() != want.String() {
					t.Fatalf("node prefix %d of /%d in %s: %v, %v; cidrset gives %v, %v", i, mask, prefix, got, err, want, full)
				}
			}
		}
	}
}
