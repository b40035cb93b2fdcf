package inside_test

import (
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

func lonely(t *testing.T) *host {
	t.Helper()
	return start(t, netns.New(t), "a", time.Minute)
}

// What the program can't do it says, and goes on.
func TestWrongQuestionsAreRefused(t *testing.T) {
	a := lonely(t)
	key := clientFileOf(t, a.credentials).Key
	for _, test := range []struct{ call, body, want string }{
		{"clock", "", "Expecting value"},
		{"clock", strings.Repeat("[", 60000), "recursion"},
		{"nothing", "{}", "nothing"},
		{"__init__", "{}", "__init__"},
		{"listen", "{}", "port"},
		{"connections", `{"port":81}`, "81"},
		{"packets", `{"port":81}`, "81"},
		{"add_address", `{"address":"10.0.0.1/24","device":"-x"}`, "no interface '-x'"},
		{"add_address", `{"address":"10.0.0.1/24","device":{}}`, "no interface {}"},
		{"add_address", `{"address":"10.0.0.1/33","device":"lo"}`, "10.0.0.1/33"},
		{"answer_arp", `{"device":"lo","for":"fd00::/64"}`, "AddressValueError"},
		{"start", `{"id":"x","to":"10.0.0.1:5","every":1,"count":1}`, "unreachable"}, // no route
		{"wait", `{"id":"unknown","within":1}`, "unknown"},
	} {
		status, answer := a.say(t, key, test.call, test.body)
		if status != 409 || !strings.Contains(answer, test.want) {
			t.Errorf("%s %.60s: %d %s; want 409, %s", test.call, test.body, status, answer, test.want)
		}
	}
	must(t, a.Ready(t.Context()))
}

func TestNobodyElseIsAnswered(t *testing.T) {
	a := lonely(t)
	key := clientFileOf(t, a.credentials).Key
	for _, wrong := range []string{"", "x", key[1:], key + "0", strings.ToUpper(key), "schlüssel"} {
		for _, call := range []string{"clock", "stop", "nothing"} {
			if status, answer := a.say(t, wrong, call, "{}"); status != 401 || strings.Contains(answer, key) {
				t.Errorf("%s with key %q: %d %s", call, wrong, status, answer)
			}
		}
	}
	other := inside.New(newCredentials(t, "a"), loopback, dialer(a.Space))
	defer other.Close()
	if _, err := other.Interfaces(t.Context()); err == nil {
		t.Error("a client trusts another certificate than its own")
	}
	must(t, a.Ready(t.Context()))
}

// TestStrangersDontKeepTheProgramFromAnswering: whoever finds the port may say anything, or
// nothing.
func TestStrangersDontKeepTheProgramFromAnswering(t *testing.T) {
	a := lonely(t)
	say := []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff\x01", "\x00\x00", ""}
	for i := range 40 {
		c, err := dialer(a.Space)(t.Context(), "tcp", loopback.String())
		must(t, err)
		defer c.Close()
		_, _ = io.WriteString(c, say[i%len(say)])
	}
	_, err := a.Clock(t.Context())
	must(t, err)
}

func TestPortsOfOthersAreRefused(t *testing.T) {
	a := lonely(t)
	l, err := listenIn(a, "127.0.0.1:9000")
	must(t, err)
	defer l.Close()
	err = a.Listen(t.Context(), inside.Listener{Port: 9000, Does: inside.Answers, Status: 200})
	if err == nil || !strings.Contains(err.Error(), "port 9000: Address already in use") {
		t.Errorf("error %v", err)
	}
}

func TestClockIsComparedWithOurs(t *testing.T) {
	a := lonely(t)
	clock, err := a.Clock(t.Context())
	must(t, err)
	// Both are the same machine's.
	if clock.Within <= 0 || clock.Ahead.Abs() > clock.Within {
		t.Errorf("%+v", clock)
	}
}

// TestThePortCanBeAnother, for servers on which something else has the usual one.
func TestThePortCanBeAnother(t *testing.T) {
	space := netns.New(t)
	first := start(t, space, "a", time.Minute)
	must(t, first.Stop(t.Context()))
	<-first.program.Done()
	l, err := listenIn(first, loopback.String())
	must(t, err)
	defer l.Close()
	h := startAt(t, space, "a", time.Minute, netip.AddrPortFrom(loopback.Addr(), 9443), "--port", "9443")
	must(t, h.Ready(t.Context()))
}
