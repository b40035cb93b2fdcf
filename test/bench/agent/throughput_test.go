//go:build linux

package agent_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
	"github.com/underlay-ccm/underlay/test/bench/results"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// sending is how long each round of BenchmarkThroughput sends in each way.
const sending = 2 * time.Second

// BenchmarkThroughput sends by one TCP connection from a pod on a node with a route to one on
// another such node, and in turn to one on a node for which the table has no room, through a
// tunnel. The packets of both pass the same router.
func BenchmarkThroughput(b *testing.B) {
	kerneltest.Need(b)
	if os.Getenv("CNI_PATH") == "" {
		b.Skip("CNI_PATH names no folder with the CNI plugins; make cni builds them")
	}
	ctx := context.WithoutCancel(b.Context())
	o := netlab.Options{Dir: b.TempDir(), IPv4Only: true, Machines: []string{"one", "two"}, Settings: "routes: {limit: 2}\nwireguard: overflow\n"}
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() {
		if b.Failed() {
			b.Log(netlab.Logs(o.Dir, 40))
		}
	})
	must(o.Binaries(ctx, o.Dir))
	var err error
	o.WireGuard, err = cluster.BuildWireGuard(ctx, o.Dir)
	must(err)
	lab, err := netlab.Start(ctx, o)
	must(err)
	b.Cleanup(lab.Stop)
	must(lab.AddMachines(ctx, "beyond"))
	pods := map[string]*netlab.Pod{}
	for _, node := range []string{"one", "two", "beyond"} {
		pods[node], err = lab.RunPod(ctx, "pod-"+node, node, nil)
		must(err)
	}
	shaken, err := lab.Machine("beyond").TunnelHandshakes()
	if err != nil || len(shaken) != 2 {
		b.Fatalf("the node beyond the table has the tunnels %v (%v)", shaken, err)
	}
	for round := range rounds {
		plain, tunnel := throughput(b, pods["one"], pods["two"]), throughput(b, pods["one"], pods["beyond"])
		recordThroughput(b, round, plain, tunnel)
	}
	b.ReportMetric(0, "ns/op")
}

// throughput returns the MiB per second that arrive.
func throughput(b *testing.B, from, to *netlab.Pod) float64 {
	b.Helper()
	l, err := to.Namespace.Listen(b.Context(), "tcp", ":9000")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	const piece = 1 << 18
	type arrival struct {
		bytes int
		took  time.Duration
		err   error
	}
	arrived := make(chan arrival, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			arrived <- arrival{err: err}
			return
		}
		defer conn.Close()
		a, began, buffer := arrival{}, time.Now(), make([]byte, piece)
		for a.err == nil {
			n := 0
			n, a.err = conn.Read(buffer)
			a.bytes += n
		}
		a.took = time.Since(began)
		arrived <- a
	}()
	conn, err := from.Namespace.Dial(b.Context(), "tcp", netip.AddrPortFrom(to.IPv4, 9000).String())
	if err != nil {
		b.Fatal(err)
	}
	for until, buffer := time.Now().Add(sending), make([]byte, piece); time.Now().Before(until) &&
		err == nil; {
		_, err = conn.Write(buffer)
	}
	if closed := conn.Close(); err != nil || closed != nil {
		b.Fatal(err, closed)
	}
	a := <-arrived
	if a.err != io.EOF {
		b.Fatal(a.err)
	}
	return float64(a.bytes) / (1 << 20) / a.took.Seconds()
}

func recordThroughput(b *testing.B, round int, plain, tunnel float64) {
	const scenario = "One TCP connection from a pod to another node's"
	if round == 0 {
		fmt.Printf("\n  %s, in turn\n", scenario)
		results.Compare(b, results.Library(b, "golang.zx2c4.com/wireguard"))
		results.Explain(b, results.Note{Scenario: scenario, Text: "the tunnel is wireguard-go's, which encrypts in user space, because the kernel of the benchmarks has no WireGuard, which is faster. Pods send in turn to a node with a route in the network's table and to one for which it has no room, by the same router. All of it, sender, receiver and both ends of the tunnel, shares the machine's cores."})
	}
	for _, f := range []results.Figure{
		{Quantity: "by a plain route", Unit: "MiB/s", Value: plain},
		{Quantity: "by a tunnel of userspace WireGuard", Unit: "MiB/s", Value: tunnel},
		{Quantity: "tunnel beside plain route", Unit: "%", Value: 100 * tunnel / plain},
	} {
		fmt.Printf("    %-36s %8.1f %s\n", f.Quantity, f.Value, f.Unit)
		f.Scenario, f.Contender = scenario, ours
		results.Record(b, f)
	}
}
