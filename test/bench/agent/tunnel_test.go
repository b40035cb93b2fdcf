//go:build linux

package agent_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
	"github.com/underlay-ccm/underlay/routes/wireguard"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

const (
	meshNodes  = 1001
	tunnelPort = 51999
)

// meshed are Nodes with WireGuard keys.
func meshed(nodes int) []*kube.Node {
	all := make([]*kube.Node, nodes)
	for i := range all {
		key := make([]byte, 32)
		_, _ = rand.Read(key)
		all[i] = &kube.Node{
			Name: fmt.Sprintf("node-%05d", i), UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)), Ready: true,
			PodCIDRs: []netip.Prefix{podPrefix(i, true)}, InternalIPs: []netip.Addr{nodeAddress(i, true)},
			WireGuard: &kube.WireGuard{
				Keys: []kube.WireGuardKey{
					{PublicKey: base64.StdEncoding.EncodeToString(key), Port: tunnelPort},
				},
			},
		}
	}
	return all
}

// BenchmarkTunnels connects a machine with 1,000 others: the decision, and what a device takes to
// have them all. The device is wireguard-go, which weighs more than the kernel's.
func BenchmarkTunnels(b *testing.B) {
	kerneltest.Need(b)
	s := agent.Situation{Settings: agent.Settings{
		Self: "node-00000", Modes: routes.Modes{IPv4: routes.ByCloud, IPv6: routes.Unrouted},
		Pools: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/10")}, PodRanges: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/10")},
		Tunnels: agent.TunnelSettings{Enabled: true, Port: tunnelPort, Phase: routes.RequireTunnels},
	}, Nodes: meshed(meshNodes), Links: []agent.Link{{Index: 1, Name: "uplink", Up: true, MTU: 1450, Addrs: []netip.Prefix{netip.PrefixFrom(nodeAddress(0, true), 16)}}}}
	s.Table = []agent.Entry{{Dst: netip.MustParsePrefix("10.0.0.0/16"), Link: 1, Kind: agent.Unicast, Protocol: 2}}
	s.Devices = []agent.TunnelState{{Port: tunnelPort, Link: 2}}
	var peers []agent.TunnelPeer
	b.Run("decide", func(b *testing.B) {
		for b.Loop() {
			d, err := agent.Decide(s)
			if peers = d.TunnelPlans[0].Peers; err != nil || len(peers) != meshNodes-1 ||
				len(d.Want) != meshNodes+1 {
				b.Fatalf("%d peers, %d routes (%v)", len(peers), len(d.Want), err)
			}
		}
	})
	for i := range peers {
		peers[i].Endpoint, peers[i].Keepalive = peers[i].Endpoints[0], 0
	}
	b.Run("set", func(b *testing.B) { setPeers(b, peers) })
}

func setPeers(b *testing.B, peers []agent.TunnelPeer) {
	binary, err := cluster.BuildWireGuard(b.Context(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	program := exec.Command(binary, "--foreground", agent.TunnelLink(tunnelPort))
	if err := program.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_, _ = program.Process.Kill(), program.Wait()
		_ = os.Remove("/var/run/wireguard/" + agent.TunnelLink(tunnelPort) + ".sock")
	}()
	for deadline := time.Now().Add(limit); ; runtime.Gosched() {
		if _, err := net.InterfaceByName(agent.TunnelLink(tunnelPort)); err == nil {
			break
		} else if time.Now().After(deadline) {
			b.Fatal(err)
		}
	}
	d, err := wireguard.Open(b.TempDir(), tunnelPort)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	if _, err := d.State(b.Context()); err != nil {
		b.Fatal(err)
	}
	before, rounds := resident(b, program.Process.Pid), 0
	var set, read time.Duration
	for b.Loop() {
		began := time.Now()
		if err := d.SetPeers(b.Context(), peers); err != nil {
			b.Fatal(err)
		}
		set += time.Since(began)
		began = time.Now()
		state, err := d.State(b.Context())
		if read += time.Since(began); err != nil || len(state.Peers) != len(peers) {
			b.Fatalf("%d peers of %d (%v)", len(state.Peers), len(peers), err)
		}
		if rounds++; rounds == 1 {
			b.ReportMetric(float64(resident(b, program.Process.Pid)-before)/float64(len(peers)), "kB/peer")
		}
		gone := make([]agent.TunnelPeer, 0, len(peers))
		for key := range state.Peers {
			gone = append(gone, agent.TunnelPeer{PublicKey: key, Remove: true})
		}
		if err := d.SetPeers(b.Context(), gone); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(set.Milliseconds())/float64(rounds), "set-ms")
	b.ReportMetric(float64(read.Milliseconds())/float64(rounds), "read-ms")
}

// resident returns a process' memory in kB.
func resident(b *testing.B, pid int) (kilobytes int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "VmRSS:")
	if _, err := fmt.Sscan(line, &kilobytes); err != nil {
		b.Fatal(err)
	}
	return kilobytes
}

// BenchmarkWireGuardKeys reports the cost of keys to each of 15,000 agents: in the directory that
// it reads, and in its memory.
func BenchmarkWireGuardKeys(b *testing.B) {
	size := func(nodes []*kube.Node) (bytes int) {
		for _, n := range nodes {
			text, err := json.Marshal(n)
			if err != nil {
				b.Fatal(err)
			}
			bytes += len(text)
		}
		return bytes
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		nodes := meshed(nodeCount)
		all, with := heap(), size(nodes)
		for _, n := range nodes {
			n.WireGuard = nil
		}
		kept, without := all-heap(), size(nodes)
		directory := float64(with-without) / nodeCount
		if directory > 120 || kept > 256*nodeCount {
			b.Errorf("a key takes %.0f bytes in the directory, and %d in memory", directory, kept/nodeCount)
		}
		b.ReportMetric(directory, "directory-B/node")
		b.ReportMetric(float64(kept)/nodeCount, "heap-B/node")
		runtime.KeepAlive(nodes)
	}
}
