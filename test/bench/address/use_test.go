//go:build linux

package address_test

import (
	"fmt"
	"net/netip"

	"github.com/underlay-ccm/underlay/test/bench/results"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// use is the clients' traffic with all addresses while a cluster moves.
type use struct {
	*move
	streams []*netlab.Stream
	knocks  []*netlab.Knocking
}

func (m *move) use() *use {
	m.b.Helper()
	ctx := m.b.Context()
	u := &use{move: m}
	for _, a := range m.addresses {
		to := netip.AddrPortFrom(a, netlab.EchoPort)
		m.await(a.String()+" answers", func() string {
			if _, err := netlab.Ask(ctx, m.client.Namespace, "tcp", to); err != nil {
				return err.Error()
			}
			return ""
		})
		s, err := netlab.StartStream(ctx, m.client.Namespace, to, pace)
		m.must(err)
		u.streams = append(u.streams, s)
		u.knocks = append(u.knocks, netlab.StartKnocking(ctx, m.client.Namespace, to, knock))
	}
	u.flows()
	return u
}

// flows waits until every address has replied some more times.
func (u *use) flows() {
	u.b.Helper()
	for i, s := range u.streams {
		k := u.knocks[i]
		packets, connections := s.Answered()+50, k.Answered()+20
		u.await(u.addresses[i].String()+" goes on", func() string {
			if s.Answered() < packets || k.Answered() < connections {
				return fmt.Sprintf("%d packets and %d connections", s.Answered(), k.Answered())
			}
			return ""
		})
	}
}

// end prints the clients' results, and expects that the move had no effect on them.
func (u *use) end() {
	u.b.Helper()
	u.flows()
	const scenario = "Services move from MetalLB, by the how-to"
	results.Explain(u.b, results.Note{Text: "Services of policy Cluster and Local, dual-stack and with a shared address, while the how-to's commands are run: a packet of UDP every 5 ms and a connection every 20 ms to each address."})
	for i, a := range u.addresses {
		udp, tcp := u.streams[i].Stop(), u.knocks[i].Stop()
		fmt.Printf("%-20s of %d packets %d lost, longest gap %s; of %d connections %d refused, %d unanswered, longest gap %s\n",
			a, udp.Sent, udp.Lost, udp.Gap, tcp.Made, tcp.Refused+tcp.Broken, tcp.Unanswered, tcp.Gap)
		if udp.Lost > lostAtMost || tcp.Refused+tcp.Broken+tcp.Unanswered > 0 {
			u.b.Errorf("%s: of %d packets %d lost; of %d connections %d refused and %d unanswered", a, udp.Sent, udp.Lost, tcp.Made, tcp.Refused+tcp.Broken, tcp.Unanswered)
		}
		results.Record(
			u.b,
			results.Figure{Scenario: scenario, Contender: "underlay", Quantity: "packets of UDP lost, " + a.String(), Value: float64(udp.Lost)},
			results.Figure{Scenario: scenario, Contender: "underlay", Quantity: "longest gap of UDP, " + a.String(), Unit: "ms", Value: milliseconds(udp.Gap)},
		)
	}
}
