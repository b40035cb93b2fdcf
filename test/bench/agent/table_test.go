//go:build linux

package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
)

// BenchmarkTable fills the kernel's table for 15,000 dual-stack Nodes, taking turns: the agent with
// synced caches, which also reads and plans; and three that only write. Two of them write the same
// routes as the agent, and ip -batch also those of programs that give all routes one metric.
func BenchmarkTable(b *testing.B) {
	kerneltest.Need(b)
	segment := cable(b)
	k := open(b)
	o := observe(b, k)
	const peers = 2 * (nodeCount - 1)
	fmt.Printf("\n  %d dual-stack Nodes: %d routes from an empty table\n", nodeCount, peers)
	contenders := []struct {
		name string
		want int
		fill func(b *testing.B) (begin func() (stop func()))
	}{
		{ours, peers + 2, func(b *testing.B) func() func() { return prepare(b, k, nodeCount).run }},
		{"ip-batch", peers, func(b *testing.B) func() func() { return batch(b, agent.PeerMetric) }},
		{"ip-batch, one metric", peers, func(b *testing.B) func() func() {
			return batch(b, func(netip.Prefix) uint32 { return agent.MetricPeer })
		}},
		{"socket-per-route", peers, func(b *testing.B) func() func() { return loop(b, segment.Index) }},
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for round := range rounds {
			for i := range contenders {
				c := contenders[(round+i)%len(contenders)]
				begin := c.fill(b)
				runtime.GC() // garbage of the preparation
				o.expect(c.want)
				began := time.Now()
				stop := begin()
				o.await(b, c.name)
				took[c.name] = append(took[c.name], time.Since(began))
				complete(b, k, c.want)
				stop()
				clear(b, k)
			}
		}
	}
	for _, c := range contenders {
		report(b, c.name, took[c.name])
		recordTable(b, peers, c.name, took[c.name])
	}
}

// complete counts the routes in the kernel.
func complete(b *testing.B, k *kernel.Kernel, want int) {
	b.Helper()
	table, err := k.List(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	ours := 0
	for _, e := range table {
		if e.Ours() {
			ours++
		}
	}
	if ours != want {
		b.Errorf("%d routes stand, want %d", ours, want)
	}
}

// batch is iproute2 with all routes in one file.
func batch(b *testing.B, metric func(netip.Prefix) uint32) func() func() {
	var lines bytes.Buffer
	for i := 1; i < nodeCount; i++ {
		for _, ipv4 := range []bool{true, false} {
			fmt.Fprintf(&lines, "route add %s via %s dev uplink metric %d proto %d\n", podPrefix(i, ipv4), nodeAddress(i, ipv4), metric(podPrefix(i, ipv4)), agent.Protocol)
		}
	}
	file := filepath.Join(b.TempDir(), "batch")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	return func() func() {
		if out, err := exec.CommandContext(b.Context(), "ip", "-batch", file).CombinedOutput(); err != nil {
			b.Fatalf("ip -batch: %v: %s", err, out)
		}
		return func() {}
	}
}

// loop works as most node-route programs do: each call opens a socket.
func loop(b *testing.B, link int) func() func() {
	return func() func() {
		for i := 1; i < nodeCount; i++ {
			for _, ipv4 := range []bool{true, false} {
				dst := podPrefix(i, ipv4)
				err := netlink.RouteAdd(&netlink.Route{
					Dst: &net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), dst.Addr().BitLen())},
					Gw:  nodeAddress(i, ipv4).AsSlice(), LinkIndex: link, Priority: int(agent.PeerMetric(dst)),
					Protocol: agent.Protocol, Table: unix.RT_TABLE_MAIN,
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		return func() {}
	}
}

// settled is an agent that has filled the table.
func settled(b *testing.B, k *kernel.Kernel) (*running, *observer) {
	o := observe(b, k)
	o.expect(2 * nodeCount)
	r := prepare(b, k, nodeCount)
	stop := r.run()
	b.Cleanup(func() { stop(); clear(b, k) })
	o.await(b, "the first table")
	return r, o
}

// BenchmarkNodeChange moves one of a thousand Nodes to another address, repeatedly: it measures
// from the API's event until both of its routes are in the kernel.
func BenchmarkNodeChange(b *testing.B) {
	kerneltest.Need(b)
	segment := cable(b)
	k := open(b)
	r, o := settled(b, k)
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		i := 1 + n%(nodeCount-1)
		moved := node(i)
		at := nodeCount + n%50_000
		for f, ipv4 := range []bool{true, false} {
			moved.Status.Addresses[f] = corev1.NodeAddress{
				Type: corev1.NodeInternalIP, Address: nodeAddress(at, ipv4).String(),
			}
		}
		o.expect(2)
		began := time.Now()
		if _, err := r.client.CoreV1().Nodes().UpdateStatus(b.Context(), moved,
			metav1.UpdateOptions{}); err != nil {
			b.Fatal(err)
		}
		o.await(b, moved.Name)
		for _, ipv4 := range []bool{true, false} {
			if o.at(toward(podPrefix(i, ipv4), at, ipv4, segment.Index)).IsZero() {
				b.Fatalf("%s: another route was set: %v", moved.Name, o.set)
			}
		}
		took = append(took, time.Since(began))
	}
	report(b, "one of "+thousands(nodeCount)+" Nodes changes, both families", took)
	recordLatency(b, "One of "+thousands(nodeCount)+" Nodes changes its addresses", took)
}

func toward(dst netip.Prefix, at int, ipv4 bool, link int) agent.Entry {
	return agent.Entry{
		Dst: dst, Via: nodeAddress(at, ipv4), Kind: agent.Unicast,
		Link: link, Metric: agent.PeerMetric(dst), Protocol: agent.Protocol,
	}
}

// BenchmarkRepair deletes one of two thousand routes by hand, repeatedly. The agent's period is an
// hour, so the event triggers the repair.
func BenchmarkRepair(b *testing.B) {
	kerneltest.Need(b)
	segment := cable(b)
	k := open(b)
	_, o := settled(b, k)
	hand := open(b)
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		i, ipv4 := 1+n%(nodeCount-1), n%2 == 0
		e := toward(podPrefix(i, ipv4), i, ipv4, segment.Index)
		o.expect(1)
		began := time.Now()
		if err := hand.Delete(b.Context(), e); err != nil {
			b.Fatal(err)
		}
		o.await(b, e.String())
		if o.at(e).IsZero() {
			b.Fatalf("another route was set: %v", o.set)
		}
		took = append(took, o.at(e).Sub(began))
	}
	complete(b, k, 2*nodeCount)
	report(b, "a deleted route is put back", took)
	recordLatency(b, "One of "+thousands(2*(nodeCount-1))+" routes is deleted by hand", took)
}
