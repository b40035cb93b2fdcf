package ipam_test

import (
	"fmt"
	"net/netip"

	"github.com/underlay-ccm/underlay/ipam"
)

// A dual-stack cluster, one Node of which was set up by hand.
func Example() {
	ledger, err := ipam.NewLedger(
		[]ipam.PoolConfig{
			{Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeMask: 24},
			{Prefix: netip.MustParsePrefix("fd00:10:244::/48"), NodeMask: 64},
		},
		[]netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")}, // the Services
	)
	if err != nil {
		fmt.Println(err)
		return
	}

	old := ipam.Node{Name: "old", UID: "4711"}
	for _, warning := range ledger.Observe(old, []netip.Prefix{netip.MustParsePrefix("10.244.1.0/25"), netip.MustParsePrefix("fd00:10:244::/64")}) {
		fmt.Println(warning)
	}

	node := ipam.Node{Name: "new", UID: "4712"}
	podCIDRs, err := ledger.Assign(node)
	fmt.Println(podCIDRs, err)
	fmt.Println(ledger.Release(node.UID))

	// Output:
	// Node old has the podCIDR 10.244.1.0/25, which is no node prefix of the pool 10.244.0.0/16: set the node mask that it was made with, or recreate the Node
	// [10.244.2.0/24 fd00:10:244:1::/64] <nil>
	// [10.244.2.0/24 fd00:10:244:1::/64]
}

func ExamplePool() {
	pool, err := ipam.NewPool(ipam.PoolConfig{Prefix: netip.MustParsePrefix("10.244.0.0/22"), NodeMask: 24})
	if err != nil {
		fmt.Println(err)
		return
	}
	first, _ := pool.Take("node-a")
	second, _ := pool.Take("node-b")
	fmt.Println(first, second)

	fmt.Println(pool.Release(first, "node-b"))
	// Output:
	// 10.244.0.0/24 10.244.1.0/24
	// pool 10.244.0.0/22: 10.244.0.0/24 is not held by "node-b": nothing to release
}
