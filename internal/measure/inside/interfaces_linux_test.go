package inside_test

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// state is what a server's interfaces and routes are.
func (h *host) state() string {
	return h.Run("ip", "-brief", "address") + h.Run("ip", "-oneline", "link", "show", "dev", "eth0") +
		h.Run("ip", "route") + h.Run("ip", "-6", "route")
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestInterfaces(t *testing.T) {
	a, _ := pair(t)
	must(t, a.SetMTU(t.Context(), "eth0", 1400))
	got, err := a.Interfaces(t.Context())
	must(t, err)
	if len(got) != 1 || got[0].Name != "eth0" || got[0].MTU != 1400 {
		t.Fatalf("%+v, want eth0 alone", got)
	}
	for _, want := range []string{"10.0.0.1/24", "fd00::1/64"} {
		if !slices.Contains(got[0].Addresses, prefix(want)) {
			t.Errorf("addresses %v, want %s among them", got[0].Addresses, want)
		}
	}
}

// change changes all that can be changed, some of it twice.
func change(t *testing.T, h *host) {
	t.Helper()
	ctx := t.Context()
	via4, via6 := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")
	for range 2 {
		must(t, h.AddAddress(ctx, prefix("10.0.0.9/24"), "eth0"))
		must(t, h.AddAddress(ctx, prefix("10.50.0.0/24"), "lo"))
		must(t, h.AddAddress(ctx, prefix("fd00::9/64"), "eth0"))
		must(t, h.AddAddress(ctx, prefix("10.0.0.1/24"), "eth0")) // it is there already
		must(t, h.AddRoute(ctx, prefix("10.60.0.0/16"), via4, "eth0"))
		must(t, h.AddRoute(ctx, prefix("10.61.0.0/16"), netip.Addr{}, "eth0"))
		must(t, h.AddRoute(ctx, prefix("10.62.0.1/32"), netip.MustParseAddr("172.31.1.1"), "eth0")) // no subnet of its own
		must(t, h.AddRoute(ctx, prefix("fd60::/64"), via6, "eth0"))
		must(t, h.SetMTU(ctx, "eth0", 1400))
		must(t, h.SetMTU(ctx, "eth0", 1600))
		must(t, h.AnswerARP(ctx, "eth0", prefix("10.0.0.64/28")))
	}
	must(t, h.AddRoute(ctx, prefix("10.60.0.0/16"), netip.MustParseAddr("10.0.0.3"), "eth0"))
	for _, want := range []string{
		"10.0.0.9/24", "fd00::9/64", "10.50.0.0/24", "10.60.0.0/16 via 10.0.0.3", "10.62.0.1 via 172.31.1.1",
		"fd60::/64 via fd00::2", "10.61.0.0/16 dev eth0", " mtu 1600 ",
	} {
		if !strings.Contains(h.state(), want) {
			t.Errorf("%s isn't there:\n%s", want, h.state())
		}
	}
	reached := h.Run("ip", "route", "get", "10.50.0.77")
	if !strings.HasPrefix(reached, "local ") {
		t.Errorf("an address of the prefix on lo isn't the server's own: %s", reached)
	}
}

// TestEndsTakeBackWhatWasChanged, however the program ends.
func TestEndsTakeBackWhatWasChanged(t *testing.T) {
	ends := map[string]struct {
		lifetime time.Duration
		end      func(*testing.T, *host)
	}{
		"by itself":      {6 * time.Second, func(*testing.T, *host) {}},
		"as it is asked": {time.Minute, func(t *testing.T, h *host) { must(t, h.Stop(t.Context())) }},
		"by SIGTERM":     {time.Minute, func(t *testing.T, h *host) { must(t, h.program.Signal(syscall.SIGTERM)) }},
		"by Ctrl-C":      {time.Minute, func(t *testing.T, h *host) { must(t, h.program.Signal(os.Interrupt)) }},
	}
	for name, test := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait
			left, right := netns.New(t), netns.New(t)
			netns.Link(left, "eth0", right, "eth0")
			address(left, "eth0", "10.0.0.1/24", "fd00::1/64")
			h := start(t, left, "a", test.lifetime)
			before := h.state()
			change(t, h)
			test.end(t, h)
			if name == "as it is asked" && h.state() != before {
				t.Errorf("once Stop returns:\n%s\nwant as before:\n%s", h.state(), before)
			}
			select {
			case <-h.program.Done():
			case <-time.After(20 * time.Second):
				t.Fatal("the program goes on")
			}
			if code := h.program.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if h.state() != before {
				t.Errorf("at the end:\n%s\nwant as before:\n%s", h.state(), before)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := h.Ready(ctx); err == nil {
				t.Error("the program still answers")
			}
		})
	}
}

func TestOnlyWhatTheProgramAddedIsRemoved(t *testing.T) {
	a, _ := pair(t)
	ctx := t.Context()
	a.Run("ip", "route", "add", "10.60.0.0/16", "via", "10.0.0.7", "metric", "50") // another is no obstacle to the kernel
	a.Run("ip", "route", "add", "fd60::/64", "via", "fd00::7", "metric", "50")
	before := a.state()
	via := netip.MustParseAddr("10.0.0.2")
	refused := map[string]error{
		"its address":         a.RemoveAddress(ctx, prefix("10.0.0.1/24"), "eth0"),
		"its route, anew":     a.AddRoute(ctx, prefix("10.60.0.0/16"), via, "eth0"),
		"its IPv6 route anew": a.AddRoute(ctx, prefix("fd60::/64"), netip.MustParseAddr("fd00::2"), "eth0"),
	}
	for what, err := range refused {
		if err == nil || !strings.HasPrefix(err.Error(), "server a: ") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	must(t, a.RemoveRoute(ctx, prefix("10.60.0.0/16"), via, "eth0"))
	must(t, a.RemoveAddress(ctx, prefix("10.0.0.8/24"), "eth0")) // there is none
	must(t, a.StopARP(ctx, "eth0", prefix("10.0.0.64/28")))
	must(t, a.AddAddress(ctx, prefix("10.0.0.1/24"), "eth0"))
	if a.state() != before {
		t.Errorf("now:\n%s\nwant as before:\n%s", a.state(), before)
	}
	must(t, a.AddAddress(ctx, prefix("10.0.0.8/24"), "eth0"))
	must(t, a.AddRoute(ctx, prefix("10.70.0.0/16"), via, "eth0"))
	must(t, a.RemoveAddress(ctx, prefix("10.0.0.8/24"), "eth0"))
	must(t, a.RemoveRoute(ctx, prefix("10.70.0.0/16"), via, "eth0"))
	if a.state() != before {
		t.Errorf("what was added is still there:\n%s\nwant as before:\n%s", a.state(), before)
	}
	// What is gone by another hand is no error, and neither is its interface's end.
	must(t, a.AddAddress(ctx, prefix("10.0.0.8/24"), "eth0"))
	must(t, a.AddRoute(ctx, prefix("10.70.0.0/16"), via, "eth0"))
	a.Run("ip", "address", "del", "10.0.0.8/24", "dev", "eth0")
	must(t, a.RemoveAddress(ctx, prefix("10.0.0.8/24"), "eth0"))
	a.Run("ip", "link", "del", "eth0")
	must(t, a.Stop(ctx))
}

func TestAnswersARP(t *testing.T) {
	a, b := pair(t)
	ctx := t.Context()
	knows := func(address string) bool {
		b.Run("ip", "neighbor", "flush", "dev", "eth0")
		_, _ = b.Client.Dial(ctx, netip.AddrPortFrom(netip.MustParseAddr(address), 9), 200*time.Millisecond)
		return strings.Contains(b.Run("ip", "neighbor", "show", "to", address), "lladdr "+hardware(a))
	}
	if knows("10.0.0.70") {
		t.Fatal("somebody answers already")
	}
	must(t, a.AnswerARP(ctx, "eth0", prefix("10.0.0.64/28")))
	eventually(t, "an address of the prefix is answered for", func() bool { return knows("10.0.0.70") })
	if knows("10.0.0.80") {
		t.Error("an address outside of the prefix is answered for")
	}
	must(t, a.StopARP(ctx, "eth0", prefix("10.0.0.64/28")))
	if knows("10.0.0.70") {
		t.Error("it is answered for after StopARP")
	}
}

// hardware is the hardware address of a server.
func hardware(h *host) string {
	_, after, _ := strings.Cut(h.Run("ip", "-oneline", "link", "show", "dev", "eth0"), "link/ether ")
	address, _, _ := strings.Cut(after, " ")
	return address
}

// TestAnsweredAddressesGetPackets: what the dedicated experiments rest on.
func TestAnsweredAddressesGetPackets(t *testing.T) {
	a, b := pair(t)
	ctx := t.Context()
	must(t, a.AddAddress(ctx, prefix("10.0.0.64/28"), "lo"))
	must(t, a.AnswerARP(ctx, "eth0", prefix("10.0.0.64/28")))
	must(t, a.Receive(ctx, 5000))
	must(t, b.Send(ctx, inside.Stream{To: netip.MustParseAddrPort("10.0.0.70:5000"), Count: 1}))
	if p := received(t, a, 5000, 1); len(p) != 1 || p[0].To.String() != "10.0.0.70:5000" {
		t.Errorf("%+v", p)
	}
}
