package inside_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// received waits for as many packets of a port.
func received(t *testing.T, h *host, port uint16, count int) []inside.Packet {
	t.Helper()
	var packets []inside.Packet
	eventually(t, "the packets have come", func() bool {
		var err error
		packets, err = h.Packets(t.Context(), port)
		must(t, err)
		return len(packets) >= count
	})
	return packets
}

func TestPacketsComeAsTheyWereSent(t *testing.T) {
	a, b := pair(t)
	ctx := t.Context()
	b.Run("ip", "address", "add", "10.77.0.0/24", "dev", "lo") // all of them are its own
	a.Run("ip", "route", "add", "10.77.0.0/24", "via", "10.0.0.2")
	b.Run("ip", "route", "add", "198.51.100.0/24", "via", "10.0.0.1")
	tests := map[string]struct {
		stream   inside.Stream
		from, to string
		size     int
	}{
		"from itself":    {inside.Stream{}, "10.0.0.1:4000", "10.0.0.2:5000", 64},
		"IPv6":           {inside.Stream{}, "[fd00::1]:4000", "[fd00::2]:5000", 64},
		"sized":          {inside.Stream{Size: 999}, "10.0.0.1:4000", "10.0.0.2:5000", 999},
		"sized, IPv6":    {inside.Stream{Size: 1499}, "[fd00::1]:4000", "[fd00::2]:5000", 1499},
		"full":           {inside.Stream{Size: 1500, DontFragment: true}, "10.0.0.1:4000", "10.0.0.2:5000", 1500},
		"full, IPv6":     {inside.Stream{Size: 1500, DontFragment: true}, "[fd00::1]:4000", "[fd00::2]:5000", 1500},
		"in parts":       {inside.Stream{Size: 3001}, "10.0.0.1:4000", "10.0.0.2:5000", 3001},
		"in parts, IPv6": {inside.Stream{Size: 3001}, "[fd00::1]:4000", "[fd00::2]:5000", 3001},
		"of another":     {inside.Stream{}, "198.51.100.7:4000", "10.0.0.2:5000", 64},
		"of another, 6":  {inside.Stream{}, "[fd00::99]:4000", "[fd00::2]:5000", 64},
		"to another":     {inside.Stream{}, "10.0.0.1:4000", "10.77.0.9:5000", 64},
		"from what the route has": {
			inside.Stream{From: netip.MustParseAddrPort("0.0.0.0:4000")}, "10.0.0.1:4000", "10.0.0.2:5000", 64,
		},
	}
	for name, test := range tests {
		s := test.stream
		if !s.From.IsValid() {
			s.From = netip.MustParseAddrPort(test.from)
		}
		s.To, s.Count, s.Every = netip.MustParseAddrPort(test.to), 3, 5*time.Millisecond
		must(t, b.Receive(ctx, 5000))
		if err := a.Send(ctx, s); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		packets := received(t, b, 5000, 3)
		for i, p := range packets {
			if p.Number != i || p.From.String() != test.from || p.To.String() != test.to || p.Size != test.size {
				t.Errorf("%s: packet %d came as %+v", name, i, p)
			}
			if took := p.At.Sub(p.Sent); took < 0 || took > time.Second {
				t.Errorf("%s: packet %d took %s", name, i, took)
			}
		}
		if took := packets[2].Sent.Sub(packets[0].Sent); len(packets) != 3 || took < 9*time.Millisecond {
			t.Errorf("%s: %d packets within %s", name, len(packets), took)
		}
	}
}

func TestPacketsLargerThanTheInterfacesMTU(t *testing.T) {
	a, b := pair(t)
	ctx := t.Context()
	for _, ends := range [][2]string{{"10.0.0.1:4000", "10.0.0.2:5000"}, {"[fd00::1]:4000", "[fd00::2]:5000"}} {
		s := inside.Stream{
			From: netip.MustParseAddrPort(ends[0]), To: netip.MustParseAddrPort(ends[1]),
			Count: 2, Size: 1501, DontFragment: true,
		}
		must(t, b.Receive(ctx, 5000))
		err := a.Send(ctx, s)
		if !errors.Is(err, inside.ErrTooLarge) || !strings.Contains(err.Error(), "server a") {
			t.Errorf("%s: error %v, want %v", ends, err, inside.ErrTooLarge)
		}
		s.To = netip.AddrPortFrom(s.To.Addr(), 5001) // nobody's port is no error
		s.Size = 1500
		must(t, a.Send(ctx, s))
	}
	must(t, a.SetMTU(ctx, "eth0", 1600))
	must(t, b.SetMTU(ctx, "eth0", 1600))
	must(t, a.Send(ctx, inside.Stream{
		To: netip.MustParseAddrPort("10.0.0.2:5000"), Count: 1, Size: 1600, DontFragment: true,
	}))
	if p := received(t, b, 5000, 1); len(p) != 1 || p[0].Size != 1600 {
		t.Errorf("with a larger MTU: %+v", p)
	}
}

// TestPacketsLargerThanThePath: a router on the way says that they are too large, and the program
// goes on to send them, as whole as the others.
func TestPacketsLargerThanThePath(t *testing.T) {
	left, router, right := netns.New(t), netns.New(t), netns.New(t)
	netns.Link(left, "eth0", router, "left")
	netns.Link(router, "right", right, "eth0")
	address(left, "eth0", "10.0.1.2/24", "fd00:1::2/64")
	address(router, "left", "10.0.1.1/24", "fd00:1::1/64")
	address(router, "right", "10.0.2.1/24", "fd00:2::1/64")
	address(right, "eth0", "10.0.2.2/24", "fd00:2::2/64")
	router.Sysctl("net/ipv4/ip_forward", "1")
	router.Sysctl("net/ipv6/conf/all/forwarding", "1")
	router.Run("ip", "link", "set", "right", "mtu", "1400")
	for _, way := range [][2]string{{"-4", "10.0.1.1"}, {"-6", "fd00:1::1"}} {
		left.Run("ip", way[0], "route", "add", "default", "via", way[1])
	}
	for _, way := range [][2]string{{"-4", "10.0.2.1"}, {"-6", "fd00:2::1"}} {
		right.Run("ip", way[0], "route", "add", "default", "via", way[1])
	}
	a, b := start(t, left, "a", time.Minute), start(t, right, "b", time.Minute)
	for _, to := range []string{"10.0.2.2:5000", "[fd00:2::2]:5000"} {
		must(t, b.Receive(t.Context(), 5000))
		for _, size := range []int{1401, 1401, 1400} {
			must(t, a.Send(t.Context(), inside.Stream{
				To: netip.MustParseAddrPort(to), Count: 3, Every: 5 * time.Millisecond, Size: size, DontFragment: true,
			}))
		}
		packets := received(t, b, 5000, 3)
		if len(packets) != 3 || packets[0].Size != 1400 {
			t.Errorf("%s: %+v came, want 3 of 1400 bytes", to, packets)
		}
	}
}

func TestPacketsSpread(t *testing.T) {
	a, b := pair(t)
	ctx := t.Context()
	must(t, b.AddAddress(ctx, netip.MustParsePrefix("10.77.0.0/23"), "lo"))
	a.Run("ip", "route", "add", "10.77.0.0/23", "via", "10.0.0.2")
	must(t, b.Receive(ctx, 5000))
	must(t, a.Send(ctx, inside.Stream{To: netip.MustParseAddrPort("10.77.0.254:5000"), Spread: 3, Count: 7}))
	var to []string
	for _, p := range received(t, b, 5000, 7) {
		to = append(to, p.To.Addr().String())
	}
	want := "10.77.0.254 10.77.0.255 10.77.1.0 10.77.0.254 10.77.0.255 10.77.1.0 10.77.0.254"
	if got := strings.Join(to, " "); got != want {
		t.Errorf("packets went to %s, want %s", got, want)
	}
}

func TestReceiveForgets(t *testing.T) {
	a, b := pair(t)
	ctx := t.Context()
	to := netip.MustParseAddrPort("10.0.0.2:5000")
	must(t, b.Receive(ctx, 5000))
	must(t, a.Send(ctx, inside.Stream{To: to, Count: 5}))
	received(t, b, 5000, 5)
	must(t, b.Receive(ctx, 5000))
	if packets, err := b.Packets(ctx, 5000); err != nil || len(packets) != 0 {
		t.Errorf("after Receive: %+v, %v", packets, err)
	}
	must(t, a.Send(ctx, inside.Stream{To: to, Count: 1}))
	if packets := received(t, b, 5000, 1); len(packets) != 1 {
		t.Errorf("then: %+v", packets)
	}
}

// TestStreamsRunAtOnce: Start doesn't wait, a server can receive where it sends from, and streams
// don't wait for each other.
func TestStreamsRunAtOnce(t *testing.T) {
	a, b := pair(t)
	ctx := t.Context()
	at := func(h *host) netip.AddrPort { return netip.AddrPortFrom(h.v4, 5000) }
	must(t, a.Receive(ctx, 5000))
	must(t, b.Receive(ctx, 5000))
	began := time.Now()
	for range 3 {
		must(t, a.Start(ctx, inside.Stream{From: at(a), To: at(b), Count: 20, Every: 50 * time.Millisecond}))
	}
	must(t, b.Start(ctx, inside.Stream{From: at(b), To: at(a), Count: 20, Every: 50 * time.Millisecond}))
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("Start waited %s", took)
	}
	if got := received(t, b, 5000, 60); len(got) != 60 {
		t.Errorf("%d packets came to b, want 60", len(got))
	}
	if got := received(t, a, 5000, 20); len(got) != 20 || got[0].From != at(b) {
		t.Errorf("%d packets came to a, want 20", len(got))
	}
}

// TestAQuestionThatIsRepeatedSendsNothingAgain: a client repeats one whose answer was lost.
func TestAQuestionThatIsRepeatedSendsNothingAgain(t *testing.T) {
	a, b := pair(t)
	ctx := t.Context()
	must(t, b.Receive(ctx, 5000))
	key := clientFileOf(t, a.credentials).Key
	for range 2 {
		question := `{"id":"x","to":"10.0.0.2:5000","count":3,"every":1}`
		if status, answer := a.say(t, key, "start", question); status != 200 {
			t.Fatal(answer)
		}
	}
	if status, answer := a.say(t, key, "wait", `{"id":"x","within":5000000000}`); status != 200 {
		t.Fatal(answer)
	}
	must(t, a.Send(ctx, inside.Stream{To: netip.MustParseAddrPort("10.0.0.2:5000"), Count: 1, Size: 99}))
	if packets := received(t, b, 5000, 4); len(packets) != 4 || packets[3].Size != 99 {
		t.Errorf("%d packets came, want 3 and the last one: %+v", len(packets), packets)
	}
}
