//go:build linux

package socket_test

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/layer2"
)

// BenchmarkRequests measures requests while 250 addresses of each family are held: one for a held
// address, with its reply, and one for another address. The figures include both sides, and the
// kernel between them.
func BenchmarkRequests(b *testing.B) {
	s := newSegment(b)
	a, client := s.host("a", "1"), s.host("client", "9")
	r, _ := a.responder()
	d := layer2.Desired{Assignment: addresses.Assignment{Cluster: "one"}, Links: []layer2.Link{a.link}}
	first := map[addresses.Family]netip.Addr{addresses.IPv4: netip.MustParseAddr("192.0.3.1"), addresses.IPv6: address6}
	d.Links[0].Prefixes = append(d.Links[0].Prefixes, netip.MustParsePrefix("192.0.3.0/24"))
	for _, address := range first {
		for range 250 {
			d.Hold = append(d.Hold, addresses.Assigned{Address: address, Epoch: 2, Held: true})
			address = address.Next()
		}
	}
	r.Set(d)
	await(b, 10*time.Second, "all are held", func() bool {
		for _, state := range r.State() {
			if state.Phase != layer2.Holding {
				return false
			}
		}
		return len(r.State()) == 500
	})
	for _, family := range []addresses.Family{addresses.IPv4, addresses.IPv6} {
		w, err := client.open(context.Background(), client.link, family)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = w.Close() })
		b.Run(family.String()+"/held", func(b *testing.B) { resolveAll(b, w, client.link.MAC, first[family], 250) })
		foreign := netip.MustParseAddr("192.0.2.200")
		if family == addresses.IPv6 {
			foreign = netip.MustParseAddr("2001:db8:1::")
		}
		b.Run(family.String()+"/foreign", func(b *testing.B) {
			frame := question(b, client.link.MAC, foreign)
			before := processTime()
			for range b.N {
				for w.Send(frame) != nil {
					// The interface's queue is full.
				}
			}
			b.ReportMetric(float64(processTime()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func question(b *testing.B, from net.HardwareAddr, address netip.Addr) []byte {
	frame, err := layer2.Frame{Kind: layer2.Probe, From: layer2.MAC(from), Address: address}.Ethernet()
	if err != nil {
		b.Fatal(err)
	}
	return frame
}

// resolveAll sends requests for consecutive addresses and waits for the replies.
func resolveAll(b *testing.B, w layer2.Wire, from net.HardwareAddr, first netip.Addr, n int) {
	var questions [][]byte
	for range n {
		questions = append(questions, question(b, from, first))
		first = first.Next()
	}
	buffer := make([]byte, 2048)
	before := processTime()
	b.ResetTimer()
	for i := range b.N {
		if err := w.Send(questions[i%n]); err != nil {
			b.Fatal(err)
		}
		for answered := false; !answered; {
			size, err := w.Receive(buffer)
			if err != nil {
				b.Fatal(err)
			}
			m, ok := layer2.Parse(buffer[:size])
			answered = ok && m.Claim.IsValid()
		}
	}
	b.ReportMetric(float64(processTime()-before)/float64(b.N), "cpu-ns/op")
}

// processTime returns the CPU time of this process so far.
func processTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
