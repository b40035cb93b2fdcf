//go:build linux

package socket_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/layer2"
)

// answersLate makes the machine reply for an address after a delay, like one that sleeps between
// packets.
func (h *host) answersLate(address netip.Addr, after time.Duration) {
	w, err := h.open(context.Background(), h.link, addresses.FamilyOf(address))
	if err == nil && address.Is6() {
		err = w.Join([]netip.Addr{address})
	}
	if err != nil {
		h.t.Fatal(err)
	}
	var running sync.WaitGroup
	h.t.Cleanup(running.Wait)
	h.t.Cleanup(func() { _ = w.Close() })
	running.Go(func() {
		buffer := make([]byte, 2048)
		for {
			n, err := w.Receive(buffer)
			if err != nil {
				return
			}
			m, ok := layer2.Parse(buffer[:n])
			if !ok || m.Target != address {
				continue
			}
			answer, err := layer2.Frame{
				Kind: layer2.Reply, From: layer2.MAC(h.link.MAC), Address: address, To: m.ReplyTo,
				Requester: m.Requester,
			}.Ethernet()
			if err != nil {
				h.t.Error(err)
				return
			}
			time.AfterFunc(after, func() { _ = w.Send(answer) }) // fails after the end
		}
	})
}

// One node found that an external host has the addresses, and the next one probes them: the
// external host keeps them, although it replies later than other machines.
func TestAStrangerAnswersLate(t *testing.T) {
	s := newSegment(t)
	a, stranger, client := s.host("a", "1"), s.host("stranger", "66"), s.host("client", "9")
	for _, address := range []netip.Addr{address4, address6} {
		stranger.answersLate(address, 150*time.Millisecond)
	}
	r, _ := a.responder()
	d := a.hold(2)
	for i := range d.Hold {
		d.Hold[i].Held = false
	}
	r.Set(d)
	for _, state := range awaitPhase(t, r, layer2.Refused) {
		if state.By.String() != stranger.link.MAC.String() || state.Sent[layer2.Announce] > 0 {
			t.Errorf("%+v", state)
		}
	}
	client.poke(address4)
	client.finds(address4, stranger)
}
