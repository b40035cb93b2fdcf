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

func TestWrongQuestionsAreRefused(t *testing.T) {
	a := lonely(t)
	key := clientFileOf(t, a.credentials).Key
	tests := []struct {
		call, body string
		status     int
		want       string
	}{
		{"clock", "", 400, "no JSON"},
		{"clock", "[]", 400, "no object"},
		{"clock", strings.Repeat("[", 60000), 400, "no JSON"},
		{"clock", `{"x":"` + strings.Repeat("x", 70000) + `"}`, 400, "at most 65536 bytes"},
		{"nothing", "{}", 404, "no such call"},
		{"__init__", "{}", 404, "no such call"},
		{"listen", `{}`, 400, `"field": "port"`},
		{"listen", `{"port":"80"}`, 400, `"field": "port"`},
		{"listen", `{"port":65536}`, 400, `"field": "port"`},
		{"listen", `{"port":true}`, 400, `"field": "port"`},
		{"listen", `{"port":1e3}`, 400, `"field": "port"`},
		{"listen", `{"port":8443,"does":"closed"}`, 400, `"field": "port"`},
		{"listen", `{"port":80,"does":"sings"}`, 400, `"field": "does"`},
		{"listen", `{"port":80,"does":["answers"]}`, 400, `"field": "does"`},
		{"listen", `{"port":80,"does":"answers","status":99}`, 400, `"field": "status"`},
		{"connections", `{"port":81}`, 409, `"field": "port"`},
		{"packets", `{"port":81}`, 409, `"field": "port"`},
		{"receive", `{"port":0}`, 400, `"field": "port"`},
		{"add_address", `{"address":"10.0.0.1/33","device":"lo"}`, 400, `"field": "address"`},
		{"add_address", `{"address":"10.0.0.1/24","device":"eth7"}`, 400, `"field": "device"`},
		{"add_address", `{"address":"10.0.0.1/24","device":"../lo"}`, 400, `"field": "device"`},
		{"add_address", `{"address":"10.0.0.1/24","device":{}}`, 400, `"field": "device"`},
		{"set_mtu", `{"device":"lo","bytes":100}`, 400, `"field": "bytes"`},
		{"add_route", `{"destination":"10.0.0.1/24","device":"lo"}`, 400, `"field": "destination"`},
		{"add_route", `{"destination":"10.0.0.0/24","device":"lo","via":"x"}`, 400, `"field": "via"`},
		{"add_route", `{"destination":"10.0.0.0/24","device":"lo","via":"fd00::1"}`, 400, `"field": "via"`},
		{"answer_arp", `{"device":"lo","for":"fd00::/64"}`, 400, `"field": "for"`},
		{"start", `{"id":"x","to":"host:80","count":1}`, 400, `"field": "to"`},
		{"start", `{"id":"x","to":"10.0.0.1","count":1}`, 400, `"field": "to"`},
		{"start", `{"id":"x","to":"10.0.0.1:0","count":1}`, 400, `"field": "to"`},
		{"start", `{"id":"x","to":"127.0.0.1:5","from":"[::1]:4","count":1}`, 400, `"field": "from"`},
		{"start", `{"id":"x","to":"127.0.0.1:5","count":10001}`, 400, `"field": "count"`},
		{"start", `{"id":"x","to":"127.0.0.1:5","count":1,"size":63}`, 400, `"field": "size"`},
		{"start", `{"id":"x","to":"127.0.0.1:5","count":1,"every":-1}`, 400, `"field": "every"`},
		{"start", `{"id":"x","to":"255.255.255.255:5","count":1,"spread":2}`, 400, `"field": "spread"`},
		{"start", `{"id":"x","to":"10.0.0.1:5","count":1}`, 409, `"field": "to"`}, // no route
		{"start", `{"to":"127.0.0.1:5","count":1}`, 400, `"field": "id"`},
		{"wait", `{"id":"unknown"}`, 400, `"field": "id"`},
		{"dial", `{"to":"127.0.0.1:80"}`, 400, `"field": "within"`},
		{"dial", `{"to":"localhost:80","within":1}`, 400, `"field": "to"`},
	}
	for _, test := range tests {
		status, answer := a.say(t, key, test.call, test.body)
		if status != test.status || !strings.Contains(answer, test.want) {
			t.Errorf("%s %.60s: %d %s; want %d, %s", test.call, test.body, status, answer, test.status, test.want)
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

// TestNoQuestionBreaksTheProgram: whatever a field holds, the program says what is wrong with it,
// and goes on.
func TestNoQuestionBreaksTheProgram(t *testing.T) {
	a := lonely(t)
	key := clientFileOf(t, a.credentials).Key
	valid := map[string]string{
		"port": "9000", "does": `"answers"`, "status": "200", "address": `"10.0.0.1/24"`, "device": `"lo"`,
		"bytes": "1500", "destination": `"10.9.0.0/24"`, "via": `""`, "for": `"10.0.0.0/24"`, "id": `"x"`,
		"to": `"127.0.0.1:5000"`, "from": `"127.0.0.1:5000"`, "every": "1", "count": "1", "size": "64",
		"spread": "1", "dont_fragment": "true", "within": "1000000",
	}
	calls := map[string][]string{
		"add_address": {"address", "device"}, "remove_address": {"address", "device"},
		"set_mtu":   {"device", "bytes"},
		"add_route": {"destination", "via", "device"}, "remove_route": {"destination", "via", "device"},
		"answer_arp": {"device", "for"}, "stop_arp": {"device", "for"},
		"listen": {"port", "does", "status"}, "connections": {"port"}, "receive": {"port"}, "packets": {"port"},
		"start": {"id", "to", "from", "every", "count", "size", "spread", "dont_fragment"},
		"wait":  {"id", "within"}, "dial": {"to", "within"}, "clock": {"x"}, "interfaces": {"x"},
	}
	wrong := []string{
		"null", "true", "-1", "1.5", "1e400", "NaN", strings.Repeat("9", 40), strings.Repeat("9", 5000), `""`, "[]",
		"{}", `"\u0000"`, `"\ud800"`, `"-x"`, `"` + strings.Repeat("x", 300) + `"`, `"::"`, `"0.0.0.0:1"`, `"[::]:1"`,
		`"fe80::1%x"`, `"[fe80::1%-x]:1"`, `"0.0.0.0/0"`, `"::/0"`,
	}
	for call, fields := range calls {
		for _, field := range fields {
			for _, value := range wrong {
				var parts []string
				for _, f := range fields {
					v := valid[f]
					if f == field {
						v = value
					}
					parts = append(parts, `"`+f+`":`+v)
				}
				body := "{" + strings.Join(parts, ",") + "}"
				status, answer := a.say(t, key, call, body)
				if status >= 500 {
					t.Errorf("%s %.80s: %d %s", call, body, status, answer)
				}
			}
		}
	}
	must(t, a.Ready(t.Context()))
}
