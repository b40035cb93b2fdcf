//go:build linux

// Package address_test measures addresses that move between nodes in comparison with MetalLB's, on
// the same machines and with the same faults: the packets that a client on the segment loses when
// the holder of an address is drained, disconnected, upgraded or powered off, and the cost in
// frames and writes. Times are printed; that traffic flows in the end is asserted.
package address_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/test/testenv/metallb"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// binaries are Underlay's programs, set once before any benchmark runs.
var binaries netlab.Options

// rounds is how often each contender runs through all faults.
var rounds = flag.Int("rounds", 1, "how often each contender goes through all faults")

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		return m.Run() // there are only benchmarks
	}
	if err := netlab.Enter(); err != nil && !errors.Is(err, netlab.ErrNotRoot) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if !netlab.Entered() {
		return m.Run() // where each logs why it is skipped
	}
	folder, err := os.MkdirTemp("", "underlay-address-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	if err := binaries.Binaries(context.Background(), folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// excludeLabel excludes a node from all load balancers.
const excludeLabel = corev1.LabelNodeExcludeBalancers

func withPort(to netip.AddrPort, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(to.Addr(), port)
}

// needMetalLB skips a benchmark without a built MetalLB, or on a host that can't run a lab.
func needMetalLB(b *testing.B) metallb.MetalLB {
	b.Helper()
	if !netlab.Entered() {
		b.Skip("not root: a lab is made of network namespaces")
	}
	built, is, err := metallb.Built()
	if err != nil {
		b.Fatal(err)
	}
	if !is {
		b.Skipf("MetalLB %s isn't built: run this by make bench-address", built.Version)
	}
	return built
}

func BenchmarkAddress(b *testing.B) {
	built := needMetalLB(b)
	for _, c := range []contender{underlay{}, &peer{built: built, ranges: []string{addressRange}}} {
		b.Run(c.name(), func(b *testing.B) {
			for range *rounds { // each ends, with its lab, before the next begins
				b.Run("round", func(b *testing.B) { measure(b, c) })
			}
		})
	}
}

// measure runs a contender through every fault. The last one costs a machine.
func measure(b *testing.B, c contender) {
	w := begin(b, c)
	ctx := b.Context()
	for _, fault := range []struct {
		name        string
		begin, heal func(*netlab.Machine)
		lasts       time.Duration
	}{
		{
			"the holder is drained, and comes back",
			func(m *netlab.Machine) { w.drain(m.Name, true) },
			func(m *netlab.Machine) { w.drain(m.Name, false) }, settled,
		},
		{
			"what announces on the holder is replaced",
			func(m *netlab.Machine) { w.must(c.stop(ctx, w, m)) },
			func(m *netlab.Machine) { w.must(c.resume(ctx, w, m)) }, time.Second,
		},
		{
			"the holder loses the API server for 20 s",
			func(m *netlab.Machine) { w.must(m.Cut(ctx, netlab.SideAPI)) },
			func(m *netlab.Machine) { w.must(m.Heal(ctx, netlab.SideAPI)) }, 20 * time.Second,
		},
		{
			"the holder is parted from all for 20 s",
			func(m *netlab.Machine) { w.must(m.Cut(ctx, netlab.SideSegment, netlab.SideAPI)) },
			func(m *netlab.Machine) { w.must(m.Heal(ctx, netlab.SideSegment, netlab.SideAPI)) },
			20 * time.Second,
		},
		{
			"the holder and the client are parted from all others for 20 s",
			func(m *netlab.Machine) {
				w.must(w.lab.Split(ctx, []*netlab.Machine{m}, []*netlab.Neighbor{w.client}))
				w.must(m.Cut(ctx, netlab.SideAPI))
			},
			func(m *netlab.Machine) {
				w.must(w.lab.Unite(ctx))
				w.must(m.Heal(ctx, netlab.SideAPI))
			}, 20 * time.Second,
		},
		{
			"the holder loses its power",
			func(m *netlab.Machine) { w.must(m.PowerOff(ctx)) }, nil, 20 * time.Second,
		},
	} {
		o := w.during(fault.begin, fault.heal, fault.lasts)
		record(b, c.name(), fault.name, o)
	}
}

// drain makes a node unusable, as its administrator does before maintenance, or usable again.
func (w *world) drain(node string, out bool) {
	w.node(node, func(n *corev1.Node) {
		n.Spec.Unschedulable = out
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		if delete(n.Labels, excludeLabel); out {
			n.Labels[excludeLabel] = ""
		}
	})
}
