package inside_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

// short is how long a connection that nobody answers is tried.
const short = 700 * time.Millisecond

func TestWhatListenersDo(t *testing.T) {
	a, b := pair(t)
	ctx := t.Context()
	tests := map[inside.Behavior]inside.Outcome{
		inside.Answers: inside.Answered,
		inside.Hangs:   inside.Unanswered,
		inside.Drops:   inside.Unanswered,
		inside.Closed:  inside.Refused,
	}
	for does, want := range tests {
		must(t, b.Listen(ctx, inside.Listener{Port: 9000, Does: does, Status: 200}))
		for _, to := range []netip.Addr{b.v4, b.v6} {
			within := 10 * time.Second
			if want == inside.Unanswered {
				within = short
			}
			got, err := a.Dial(ctx, netip.AddrPortFrom(to, 9000), within)
			if err != nil || got != want {
				t.Errorf("%s at %s: %s, %v; want %s", does, to, got, err, want)
			}
			accepts := does == inside.Answers || does == inside.Hangs
			if connects(t, a, netip.AddrPortFrom(to, 9000)) != accepts {
				t.Errorf("%s at %s: there is a connection: %t, want %t", does, to, !accepts, accepts)
			}
		}
		want := map[bool]int{true: 4}[does == inside.Answers || does == inside.Hangs]
		eventually(t, fmt.Sprintf("%s: %d connections are noted", does, want), func() bool {
			noted, err := b.Connections(ctx, 9000)
			must(t, err)
			return len(noted) == want
		})
	}
}

// connects reports whether there is a connection from a server, within a moment.
func connects(t *testing.T, from *host, to netip.AddrPort) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	c, err := dialer(from.Space)(ctx, "tcp", to.String())
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// TestOtherOutcomes is about what a Listener doesn't do, but load balancers and routers may.
func TestOtherOutcomes(t *testing.T) {
	a, b := pair(t)
	listener, err := listenIn(b, "10.0.0.2:9001")
	must(t, err)
	defer listener.Close()
	resets := true
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			if resets {
				_ = c.(*net.TCPConn).SetLinger(0)
			} else {
				_, _ = c.Read(make([]byte, 4096)) // else what isn't read makes it a reset
			}
			_ = c.Close()
			resets = false
		}
	}()
	b.Run("ip", "route", "add", "prohibit", "10.0.7.0/24")
	b.Sysctl("net/ipv4/ip_forward", "1")
	a.Run("ip", "route", "add", "10.0.7.0/24", "via", "10.0.0.2")
	tests := []struct {
		to   string
		want inside.Outcome
	}{
		{"10.0.0.2:9001", inside.Reset},
		{"10.0.0.2:9001", inside.Ended},
		{"10.0.7.1:9001", inside.Unreachable},  // a router says so
		{"10.9.0.1:9001", inside.Unreachable},  // there is no route
		{"10.0.0.99:9001", inside.Unreachable}, // nobody on the segment
	}
	for _, test := range tests {
		got, err := a.Dial(t.Context(), netip.MustParseAddrPort(test.to), 10*time.Second)
		if err != nil || got != test.want {
			t.Errorf("%s: %s, %v; want %s", test.to, got, err, test.want)
		}
	}
}

func listenIn(h *host, at string) (l net.Listener, err error) {
	h.Do(func() { l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", at) })
	return l, err
}

func TestAnswersNameTheServerAndTheStatus(t *testing.T) {
	a, b := pair(t)
	must(t, b.Listen(t.Context(), inside.Listener{Port: 9000, Does: inside.Answers, Status: 503}))
	said := talk(t, a, "[fd00::2]:9000", "GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
	if !strings.HasPrefix(said, "HTTP/1.1 503 ") || !strings.HasSuffix(said, "\r\n\r\nb\n") {
		t.Errorf("the answer is %q", said)
	}
}

// talk opens a connection from a server, says something and returns all of the answer.
func talk(t *testing.T, from *host, to, say string) string {
	t.Helper()
	c, err := dialer(from.Space)(t.Context(), "tcp", to)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = c.Write([]byte(say))
	must(t, err)
	var b strings.Builder
	buffer := make([]byte, 4096)
	for {
		n, err := c.Read(buffer)
		b.Write(buffer[:n])
		if err != nil {
			return b.String()
		}
	}
}

func TestConnectionsAreNoted(t *testing.T) {
	a, b := pair(t)
	ctx := t.Context()
	header2 := "\r\n\r\n\x00\r\nQUIT\n\x21\x11" + string(binary.BigEndian.AppendUint16(nil, 12)) +
		"\x0a\x00\x00\x01\x0a\x00\x00\x02\x04\xd2\x00\x50"
	get := "GET / HTTP/1.0\r\n\r\n"
	tests := []struct {
		say   string
		proxy int
	}{
		{get, 0},
		{"PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\n" + get, 1},
		{header2 + get, 2},
	}
	must(t, b.Listen(ctx, inside.Listener{Port: 9000, Does: inside.Answers, Status: 200}))
	began := time.Now()
	for _, test := range tests {
		if said := talk(t, a, "10.0.0.2:9000", test.say); !strings.HasSuffix(said, "\nb\n") {
			t.Errorf("%q is answered by %q", test.say, said)
		}
	}
	noted, err := b.Connections(ctx, 9000)
	must(t, err)
	if len(noted) != len(tests) {
		t.Fatalf("%d connections are noted, want %d: %v", len(noted), len(tests), noted)
	}
	for i, test := range tests {
		n := noted[i]
		if string(n.First) != test.say || n.Proxy != test.proxy {
			t.Errorf("%q is noted as %q, version %d; want %d", test.say, n.First, n.Proxy, test.proxy)
		}
		if n.From.Addr() != a.v4 || n.To != netip.AddrPortFrom(b.v4, 9000) {
			t.Errorf("from %s to %s", n.From, n.To)
		}
		if n.At.Before(began.Add(-time.Second)) || n.At.After(time.Now().Add(time.Second)) {
			t.Errorf("at %s, began %s", n.At, began)
		}
	}

	must(t, b.Listen(ctx, inside.Listener{Port: 9000, Does: inside.Hangs}))
	noted, err = b.Connections(ctx, 9000)
	if err != nil || len(noted) != 0 {
		t.Errorf("after Listen: %v, %v", noted, err)
	}
	c, err := dialer(a.Space)(ctx, "tcp", "[fd00::2]:9000")
	must(t, err)
	defer c.Close()
	_, err = fmt.Fprint(c, strings.Repeat("x", 600))
	must(t, err)
	eventually(t, "512 bytes are noted while the connection is open", func() bool {
		noted, err = b.Connections(ctx, 9000)
		return err == nil && len(noted) == 1 && len(noted[0].First) == 512
	})
	if noted[0].From.Addr() != a.v6 || noted[0].To.Addr() != b.v6 {
		t.Errorf("from %s to %s", noted[0].From, noted[0].To)
	}
}

// TestListenBreaksOffWhatWasOpen: who still hangs on what a port did before is no longer served.
func TestListenBreaksOffWhatWasOpen(t *testing.T) {
	a, b := pair(t)
	ctx := t.Context()
	must(t, b.Listen(ctx, inside.Listener{Port: 9000, Does: inside.Hangs}))
	c, err := dialer(a.Space)(ctx, "tcp", "10.0.0.2:9000")
	must(t, err)
	defer c.Close()
	eventually(t, "the connection is noted", func() bool {
		noted, err := b.Connections(ctx, 9000)
		return err == nil && len(noted) == 1
	})
	must(t, b.Listen(ctx, inside.Listener{Port: 9000, Does: inside.Answers, Status: 200}))
	must(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
	if _, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection goes on: %v", err)
	}
	got, err := a.Dial(ctx, netip.MustParseAddrPort("10.0.0.2:9000"), 10*time.Second)
	if err != nil || got != inside.Answered {
		t.Errorf("then: %s, %v", got, err)
	}
}
