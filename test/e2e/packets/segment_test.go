//go:build linux

package packets

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// A host on the segment reaches a machine until that is disconnected, and a claim is recorded with
// its sender.
func TestSegment(t *testing.T) {
	needLab(t)
	before := held(t)
	f, err := netlab.Start(context.WithoutCancel(t.Context()), netlab.Options{
		Metal: true, MachinesOnly: true, Dir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { expectNothingLeft(t, before) })
	t.Cleanup(f.Stop)
	m, err := f.Rent(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.AddNeighbor(t.Context(), "neighbor")
	if err != nil {
		t.Fatal(err)
	}
	w, err := f.WatchSegment()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := f.Serve(t.Context(), m.Namespace, "one", hostPort); err != nil {
		t.Fatal(err)
	}
	hardware, err := m.Hardware()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range m.Addresses() {
		began := time.Now()
		if _, err := netlab.Ask(t.Context(), n.Namespace, "tcp", ownPort(addr)); err != nil {
			t.Fatal(err)
		}
		if knows, err := n.Knows(t.Context(), addr); err != nil || knows != hardware {
			t.Errorf("the neighbor has %q for %s (%v), want %s", knows, addr, err, hardware)
		}
		await(t, "the machine's claim is noted", func() string {
			claims := w.Claims(addr, began)
			if len(claims) == 0 || claims[0].By != "one" || claims[0].Hardware != hardware {
				return fmt.Sprintf("claims of %s: %v, want one by one, who is at %s", addr, claims, hardware)
			}
			return ""
		})
	}
	if err := m.Cut(t.Context(), netlab.SideSegment); err != nil {
		t.Fatal(err)
	}
	if _, err := netlab.Ask(t.Context(), n.Namespace, "tcp", ownPort(m.Public.IPv4)); err == nil {
		t.Error("a machine that is parted from the segment answers")
	}
	if err := m.Heal(t.Context(), netlab.SideSegment); err != nil {
		t.Fatal(err)
	}
	if _, err := netlab.Ask(t.Context(), n.Namespace, "tcp", ownPort(m.Public.IPv4)); err != nil {
		t.Error(err)
	}
	if err := f.Split(t.Context(), []*netlab.Machine{m}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := netlab.Ask(t.Context(), n.Namespace, "tcp", ownPort(m.Public.IPv4)); err == nil {
		t.Error("a machine on the other side of a split segment answers")
	}
	if err := f.Split(t.Context(), []*netlab.Machine{m}, []*netlab.Neighbor{n}); err != nil {
		t.Fatal(err)
	}
	if _, err := netlab.Ask(t.Context(), n.Namespace, "tcp", ownPort(m.Public.IPv4)); err != nil {
		t.Errorf("on the same side of a split segment: %v", err)
	}
	if err := f.Unite(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := netlab.Ask(t.Context(), n.Namespace, "tcp", ownPort(m.Public.IPv6)); err == nil {
		t.Error("a machine without power answers")
	}
}
