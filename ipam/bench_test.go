package ipam_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/ipam"
)

func benchLedger(b *testing.B, pools ...ipam.PoolConfig) *ipam.Ledger {
	b.Helper()
	l, err := ipam.NewLedger(pools, nil)
	if err != nil {
		b.Fatal(err)
	}
	return l
}

func pool4() ipam.PoolConfig {
	return ipam.PoolConfig{Name: "v4", Prefix: netip.MustParsePrefix("10.0.0.0/8"), NodeMask: 24}
}

func pool6(prefix string) ipam.PoolConfig {
	return ipam.PoolConfig{Name: "v6", Prefix: netip.MustParsePrefix(prefix), NodeMask: 64}
}

func benchNode(i int) ipam.Node {
	return ipam.Node{
		Name:       fmt.Sprintf("pool-worker-%05d", i),
		UID:        fmt.Sprintf("3f0c51c2-6b5e-4f0e-9d3c-%012d", i),
		ProviderID: fmt.Sprintf("hcloud://%d", 100_000_000+i),
	}
}

func fillLedger(b *testing.B, l *ipam.Ledger, nodes int) {
	b.Helper()
	for i := range nodes {
		if _, err := l.Assign(benchNode(i), ipam.Offer{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAssign assigns and frees one Node beside the Nodes of each case.
func BenchmarkAssign(b *testing.B) {
	for _, c := range []struct {
		name   string
		pools  []ipam.PoolConfig
		nodes  int
		before func(l *ipam.Ledger)
	}{
		{name: "empty, 65536 ranges", pools: []ipam.PoolConfig{pool4()}},
		{name: "half of 65536 ranges", pools: []ipam.PoolConfig{pool4()}, nodes: 1 << 15},
		{name: "one of 65536 ranges left", pools: []ipam.PoolConfig{pool4()}, nodes: 1<<16 - 1},
		{name: "one of 65536 IPv6 ranges left", pools: []ipam.PoolConfig{pool6("fd00::/48")}, nodes: 1<<16 - 1},
		{name: "5000 dual-stack Nodes", pools: []ipam.PoolConfig{pool4(), pool6("fd00::/48")}, nodes: 5000},
		{name: "5000 dual-stack Nodes, 2^48 IPv6 ranges", pools: []ipam.PoolConfig{pool4(), pool6("fd00::/16")}, nodes: 5000},
		{name: "5000 dual-stack Nodes beside 5000 foreign ones", pools: []ipam.PoolConfig{pool4(), pool6("fd00::/48")}, nodes: 5000, before: foreigners},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := benchLedger(b, c.pools...)
			if c.before != nil {
				c.before(l)
			}
			fillLedger(b, l, c.nodes)
			node := ipam.Node{Name: "one-more", UID: "one-more"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Assign(node, ipam.Offer{}); err != nil {
					b.Fatal(err)
				}
				if freed := l.Free(node.UID); len(freed) != len(c.pools) {
					b.Fatalf("freed %v", freed)
				}
			}
		})
	}
}

// foreigners adds 5000 Nodes with podCIDRs of half the size of a node prefix.
func foreigners(l *ipam.Ledger) {
	for i := range 5000 {
		half := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 + byte(i>>8), byte(i), 128}), 25)
		l.Observe(ipam.Node{UID: fmt.Sprint("foreign-", i)}, []netip.Prefix{half}, time.Time{})
	}
}

// BenchmarkAssignAll assigns prefixes to all Nodes of an empty cluster.
func BenchmarkAssignAll(b *testing.B) {
	for _, nodes := range []int{5000, 1 << 16} {
		b.Run(fmt.Sprintf("%d dual-stack Nodes", nodes), func(b *testing.B) {
			for b.Loop() {
				fillLedger(b, benchLedger(b, pool4(), pool6("fd00::/48")), nodes)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(nodes), "ns/Node")
		})
	}
}

// BenchmarkRestart measures the start of a process: 5000 records are parsed and restored, and every
// Node is observed.
func BenchmarkRestart(b *testing.B) {
	const nodes = 5000
	l := benchLedger(b, pool4(), pool6("fd00::/48"))
	fillLedger(b, l, nodes)
	holdings := l.Holdings()
	for b.Loop() {
		l := benchLedger(b, pool4(), pool6("fd00::/48"))
		for _, h := range holdings {
			stored, err := ipam.ParseRecord(h.Node.Name, h.Record())
			if err != nil {
				b.Fatal(err)
			}
			l.Restore(stored)
			if w := l.Observe(h.Node, h.Prefixes, time.Time{}); w != nil {
				b.Fatal(w)
			}
		}
	}
}

// BenchmarkObserveMisfit observes, beside 5000 Nodes, a Node with a podCIDR that is not a node
// prefix: one that overlaps one Node, one that overlaps many, and one outside the pools.
func BenchmarkObserveMisfit(b *testing.B) {
	for _, prefix := range []string{"10.0.0.128/25", "10.0.0.0/20", "192.168.0.0/24"} {
		b.Run(strings.ReplaceAll(prefix, "/", " of "), func(b *testing.B) {
			l := benchLedger(b, pool4(), pool6("fd00::/48"))
			foreigners(l)
			fillLedger(b, l, 5000)
			node, seen := ipam.Node{UID: "misfit"}, []netip.Prefix{netip.MustParsePrefix(prefix)}
			for b.Loop() {
				if len(l.Observe(node, seen, time.Time{})) == 0 || l.Counts()[0].Allocated != 5000 {
					b.Fatal("no warning, or wrong counts")
				}
				l.Free(node.UID)
			}
		})
	}
}

// BenchmarkRecordSize measures the bytes that a Node needs in the stored ledger, and the Nodes that
// fit into one ConfigMap of 1 MiB, counting keys and values, as the API server does.
func BenchmarkRecordSize(b *testing.B) {
	for _, c := range []struct {
		name     string
		released bool
	}{{"held", false}, {"in quarantine", true}} {
		b.Run(c.name, func(b *testing.B) {
			const nodes, limit = 5000, 1 << 20
			l := benchLedger(b, pool4(), pool6("fd00:10:244::/48"))
			fillLedger(b, l, nodes)
			var size int
			for b.Loop() {
				size = 0
				for i := range nodes {
					node := benchNode(i)
					if c.released {
						l.Release(node.UID, time.Unix(1_800_000_000, 0))
					}
					for _, text := range l.Records(node.Name) {
						if text != "" {
							size += len(node.Name) + len(text)
						}
					}
				}
			}
			b.ReportMetric(float64(size)/nodes, "bytes/Node")
			b.ReportMetric(float64(limit)/(float64(size)/nodes), "Nodes/MiB")
		})
	}
}
