//go:build linux

package policy_test

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/netfilter"
	"github.com/underlay-ccm/underlay/test/bench/results"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

const (
	// A turn is short, so that both of a pair find the machine in the same state.
	connections, clients = 250, 2
	perSecond            = "new connections"
)

// path leads from a pod of another node by node-0 to one of its pods.
type path struct {
	node, far *netns.Space
	to        string
}

func newPath(b *testing.B) path {
	b.Helper()
	node, pod, far := netns.New(b), netns.New(b), netns.New(b)
	server, client := podOf(0).Addresses[0], podOf(1).Addresses[0]
	netns.Link(node, "veth0", pod, "eth0")
	netns.Link(node, "eth0", far, "eth0")
	node.Sysctl("net/ipv4/ip_forward", "1")
	for _, end := range []struct {
		*netns.Space
		own  netip.Addr
		link string
	}{{pod, server, "veth0"}, {far, client, "eth0"}} {
		end.Run("ip", "address", "add", end.own.String()+"/32", "dev", "eth0")
		end.Run("ip", "route", "add", "default", "dev", "eth0")
		node.Run("ip", "route", "add", end.own.String(), "dev", end.link)
		node.Sysctl("net/ipv4/conf/"+end.link+"/proxy_arp", "1")
	}
	node.Run("ip", "address", "add", "10.255.255.1/32", "dev", "lo")
	// kube-proxy's rules track connections, with policies and without. Ended ones must not fill
	// the kernel's table.
	node.Run("nft", "add table inet kube-proxy; add chain inet kube-proxy c { type filter hook forward priority -10 ; }; add rule inet kube-proxy c ct state new counter")
	node.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_close", "1")
	p := path{node, far, netip.AddrPortFrom(server, 8080).String()}
	accept(b, pod, p.to)
	return p
}

// BenchmarkConnections opens TCP connections in turns over a node without a filter, and over one
// with the filter of all policies.
func BenchmarkConnections(b *testing.B) {
	open, filtered := newPath(b), newPath(b)
	x, _ := cluster(b)
	rules := x.Ruleset()
	var err error
	filtered.node.Do(func() {
		var table *netfilter.PolicyTable
		if table, err = netfilter.NewPolicyTable(netfilter.Options{}); err == nil {
			_, err = table.Apply(b.Context(), &rules)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	var without, with, ratios []float64
	for b.Loop() {
		// The order changes, because a machine slows down or recovers over time.
		first := len(ratios)%2 == 0
		rates := map[bool]float64{}
		for _, isFiltered := range []bool{first, !first} {
			rates[isFiltered] = connect(b, map[bool]path{false: open, true: filtered}[isFiltered])
		}
		without, with = append(without, rates[false]), append(with, rates[true])
		ratios = append(ratios, rates[true]/rates[false])
	}
	const ratio = "new connections with policies to those without"
	results.Explain(
		b,
		results.Note{Quantity: perSecond, Text: "of TCP from another node's pod, over the node of the pod that accepts them, which tracks connections in both cases. The median of turns of 250."},
		results.Note{Quantity: ratio, Text: "the median of all pairs of turns."},
	)
	results.Record(
		b,
		results.Figure{Scenario: "no NetworkPolicy", Contender: ours, Quantity: perSecond, Unit: "1/s", Value: middle(without)},
		results.Figure{Scenario: scenario, Contender: ours, Quantity: perSecond, Unit: "1/s", Value: middle(with)},
		results.Figure{Scenario: scenario, Contender: ours, Quantity: ratio, Value: middle(ratios)},
	)
	b.ReportMetric(middle(without), "conn/s-without")
	b.ReportMetric(middle(with), "conn/s-with")
	b.ReportMetric(middle(ratios), "ratio")
}

func middle(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// accept accepts and closes connections until the benchmark ends.
func accept(b *testing.B, pod *netns.Space, at string) {
	b.Helper()
	var listener net.Listener
	var err error
	if pod.Do(func() { listener, err = net.Listen("tcp", at) }); err != nil {
		b.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	b.Cleanup(func() { _ = listener.Close(); ended.Wait() })
}

// connect returns how many connections begin in a second.
func connect(b *testing.B, over path) float64 {
	b.Helper()
	var left atomic.Int64
	left.Store(connections)
	var all sync.WaitGroup
	began := time.Now()
	for range clients {
		all.Go(func() {
			over.far.Do(func() {
				for left.Add(-1) >= 0 {
					conn, err := net.DialTimeout("tcp", over.to, 10*time.Second)
					if err != nil {
						b.Error(err)
						return
					}
					_ = conn.(*net.TCPConn).SetLinger(0) // the port is free at once
					_ = conn.Close()
				}
			})
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return connections / time.Since(began).Seconds()
}
