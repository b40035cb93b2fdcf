package ipam_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/ipam"
)

// In a dual-stack cluster the podCIDR of one Node was set by hand.
func Example() {
	ledger, err := ipam.NewLedger(
		[]ipam.PoolConfig{
			{Name: "default", Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeMask: 24},
			{Name: "v6", Prefix: netip.MustParsePrefix("fd00:10:244::/48"), NodeMask: 64},
		},
		[]netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")}, // the Services
	)
	if err != nil {
		fmt.Println(err)
		return
	}

	old := ipam.Node{Name: "old", UID: "4711"}
	for _, warning := range ledger.Observe(old, []netip.Prefix{netip.MustParsePrefix("10.244.1.0/25"), netip.MustParsePrefix("fd00:10:244::/64")}, time.Now()) {
		fmt.Println(warning)
	}

	node := ipam.Node{Name: "new", UID: "4712"}
	podCIDRs, err := ledger.Assign(node, ipam.Offer{})
	fmt.Println(podCIDRs, err)
	fmt.Println(ledger.Free(node.UID))

	// Output:
	// Node old has the podCIDR 10.244.1.0/25, which is no node prefix of the pool 10.244.0.0/16: set the node mask that it was made with, or recreate the Node
	// [10.244.2.0/24 fd00:10:244:1::/64] <nil>
	// [10.244.2.0/24 fd00:10:244:1::/64]
}

// The stored text is enough to continue in another process.
func ExampleLedger_Restore() {
	pools := []ipam.PoolConfig{{Name: "default", Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeMask: 24}}
	ledger, err := ipam.NewLedger(pools, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	worker := ipam.Node{Name: "worker", UID: "4711", ProviderID: "hcloud://1234567"}
	_, err = ledger.Assign(worker, ipam.Offer{})
	ledger.Release(worker.UID, time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC))
	records := ledger.Records("worker")[0]
	fmt.Println(err)
	fmt.Println(records)

	// In the next process, the machine returns during its quarantine.
	ledger, err = ipam.NewLedger(pools, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	holdings, err := ipam.ParseRecords("worker", records)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, h := range holdings {
		ledger.Restore(h)
	}
	worker.UID = "4712"
	fmt.Println(ledger.Assign(worker, ipam.Offer{}))

	// Output:
	// <nil>
	// uid=4711 id=hcloud://1234567 10.244.0.0/24@default released=2026-11-20T22:00:00Z
	// [10.244.0.0/24] <nil>
}

// IPv6 prefixes come from the server's own prefix, and from a pool for servers without one.
func ExampleOffer() {
	ledger, err := ipam.NewLedger([]ipam.PoolConfig{
		{Name: "native", NodeMask: 80, Own: true},
		{Name: "v6", Prefix: netip.MustParsePrefix("fd00:10:244::/48"), NodeMask: 64},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	own := ipam.Offer{Own: netip.MustParsePrefix("2001:db8:7:7::/64")}
	fmt.Println(ledger.Assign(ipam.Node{Name: "a", UID: "1"}, own))
	fmt.Println(ledger.Assign(ipam.Node{Name: "b", UID: "2"}, ipam.Offer{}))

	_, err = ledger.Assign(ipam.Node{Name: "c", UID: "3"}, ipam.Offer{Pools: func(name string) bool { return name != "v6" }})
	fmt.Println(err)

	// Output:
	// [2001:db8:7:7:1::/80] <nil>
	// [fd00:10:244::/64] <nil>
	// podCIDRs for Node c: the server has no usable IPv6 prefix of its own, and pool native (the servers' own prefixes) needs one: give it one, or configure another IPv6 pool
}
