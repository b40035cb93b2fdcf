package agent

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// Packets to addresses of other nodes may arrive here if a provider routes them. A Node's own
// address is excluded: it is reached at more ports than those of Services.
func TestPassing(t *testing.T) {
	l, err := addresses.ParseLedger([]byte(ledgerText("192.0.2.1 a 1", "192.0.2.2 b 1", "192.0.2.3 b 1", "2001:db8::1 b 1", "198.51.100.1 b 1")))
	if err != nil {
		t.Fatal(err)
	}
	node := &kube.Node{Name: "c", ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.3")}}
	led := []addresses.Pool{pool(t, "192.0.2.0/24", "2001:db8::/120")}
	want := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1")}
	if got := Passing(l, led, []*kube.Node{node}); !slices.Equal(got, want) {
		t.Errorf("passing are %v, want %v", got, want)
	}
	if got := Passing(l, led, nil); len(got) > 0 {
		t.Errorf("before Nodes are known: %v", got)
	}
	if got := Passing(l, nil, []*kube.Node{node}); len(got) > 0 {
		t.Errorf("where no provider leads addresses: %v", got)
	}
}

// The packet filter gets addresses that a provider may route here although another node holds them.
// They are neither reported as held nor restored as held before.
func TestAddressesThatAProviderRoutesHereArePassedToTheFilter(t *testing.T) {
	for led, want := range map[bool][]netip.Addr{
		false: {netip.MustParseAddr("192.0.2.1")},
		true:  {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(t)
			m.api.put("one", ledgerText("192.0.2.1 a 1", "192.0.2.2 b 1"))
			m.routed = led
			m.start()
			defer m.stop()
			m.after(time.Second)
			if got := m.agent.Held.All(); !slices.Equal(got, want) {
				t.Errorf("routed %t: for the packet filter: %v, want %v", led, got, want)
			}
			if r := m.report(); len(r.Held) != 1 || len(r.Refused) != 0 {
				t.Errorf("it says %+v", r)
			}
			m.node("c", "192.0.2.2", true)
			m.api.put("one", ledgerText("192.0.2.1 a 1", "192.0.2.2 a 2"))
			m.after(time.Second)
			if r := m.report(); len(r.Held) != 1 || len(r.Refused) != 1 ||
				r.Refused[0].Reason != addresses.InUse {
				t.Errorf("of a Node's own address it says %+v", r)
			}
			m.api.put("one", ledgerText("192.0.2.1 a 1", "192.0.2.2 b 3", "192.0.2.3 b 1"))
			m.after(time.Second)
			elsewhere := "[192.0.2.2 192.0.2.3]"
			if led { // it is not refused here, so clients must not be redirected here
				elsewhere = "[192.0.2.3]"
			}
			notified := m.mover.log()
			if last := notified[len(notified)-1]; last != "one hold [{192.0.2.1 1 false}] elsewhere "+elsewhere+" doubt false" {
				t.Errorf("routed %t: the mover was told %q", led, last)
			}
		})
	}
}
