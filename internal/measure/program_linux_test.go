package measure

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/complete"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// host is a server in a namespace with the real program.
func host(t *testing.T, space *netns.Space, address string) *program {
	t.Helper()
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		complete.Skip(t, "there is no /usr/bin/python3: install Debian's package python3")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "part-001")
	if err := os.WriteFile(file, []byte(userData("the-key")), 0o700); err != nil {
		t.Fatal(err)
	}
	// With process IDs of its own, so that background processes end with the test.
	ran, err := process.Start(process.Command{
		Name: "program", Path: "nsenter", Dir: dir,
		Args: []string{
			"--net=" + space.Path(), "--", "unshare", "--mount", "--pid", "--fork", "--kill-child",
			"--mount-proc", "--", "sh", "-c", "mount -t tmpfs run /run; " + file + "; exec sleep 600",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ran.Kill)
	p := newProgram("server", netip.MustParseAddr(address), "the-key",
		func(ctx context.Context, network, address string) (c net.Conn, err error) {
			space.Do(func() { c, err = new(net.Dialer).DialContext(ctx, network, address) })
			return c, err
		})
	err = until(t.Context(), 20*time.Second, "the program replies", func() (bool, error) {
		_, err := p.clock(t.Context())
		return err == nil, nil
	})
	if err != nil {
		text, _ := os.ReadFile(ran.Log)
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The program sends and receives packets of any size and source, unchanged in size, and records
// connections.
func TestProgram(t *testing.T) {
	left, right := netns.New(t), netns.New(t)
	netns.Link(left, "eth0", right, "eth0")
	for address, space := range map[string]*netns.Space{"1": left, "2": right} {
		space.Run("ip", "address", "add", "10.0.0."+address+"/24", "dev", "eth0")
		space.Run("ip", "address", "add", "fd00::"+address+"/64", "dev", "eth0", "nodad")
	}
	right.Run("ip", "route", "add", "198.51.100.0/24", "via", "10.0.0.1")
	a, b, ctx := host(t, left, "10.0.0.1"), host(t, right, "10.0.0.2"), t.Context()
	const last = 100 // bytes
	own, isLast := netip.MustParseAddr("10.0.0.1"), func(p packet) bool { return p.Size == last }
	for name, test := range map[string]struct {
		from, to string
		size     int
		lost     bool
	}{
		"small":                     {from: "10.0.0.1", to: "10.0.0.2", size: 64},
		"full":                      {from: "10.0.0.1", to: "10.0.0.2", size: 1500},
		"full, IPv6":                {from: "fd00::1", to: "fd00::2", size: 1500},
		"foreign":                   {from: "198.51.100.7", to: "10.0.0.2", size: 64},
		"larger":                    {from: "10.0.0.1", to: "10.0.0.2", size: 1501, lost: true},
		"larger, IPv6":              {from: "fd00::1", to: "fd00::2", size: 1501, lost: true},
		"an address without a host": {from: "10.0.0.1", to: "10.0.0.9", size: 64, lost: true},
	} {
		must(t, b.receive(ctx, 5000))
		from := netip.MustParseAddr(test.from)
		must(t, a.send(ctx, stream{
			from: from, to: netip.AddrPortFrom(netip.MustParseAddr(test.to), 5000), size: test.size,
			count: 3, every: time.Millisecond,
		}, true))
		if test.lost {
			// This packet arrives after the previous ones, if they arrive at all.
			must(t, a.send(ctx, stream{
				from: own, to: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), 5000),
				size: last, count: 1,
			}, true))
		}
		must(t, until(ctx, 10*time.Second, name+": packets arrive", func() (bool, error) {
			if test.lost {
				all, err := b.packets(ctx, 5000, own)
				return slices.ContainsFunc(all, isLast), err
			}
			all, err := b.packets(ctx, 5000, from)
			return len(all) == 3, err
		}))
		came, err := b.packets(ctx, 5000, from)
		must(t, err)
		came = slices.DeleteFunc(came, isLast)
		if lost := len(came) == 0; lost != test.lost {
			t.Errorf("%s: lost: %t, want %t", name, lost, test.lost)
		}
		if slices.ContainsFunc(came, func(p packet) bool { return p.Size != test.size }) {
			t.Errorf("%s: came as %v", name, came)
		}
	}
	expectRequests(t, left, b)
}

// expectRequests connects to a server at 10.0.0.2 and checks its program's record.
func expectRequests(t *testing.T, from *netns.Space, b *program) {
	t.Helper()
	ctx := t.Context()
	for header, version := range map[string]int{
		"": 0, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n": 1,
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c192.0.2.1234": 2,
	} {
		for _, replies := range []bool{true, false} {
			must(t, b.listen(ctx, 9001, replies))
			var reply []byte
			from.Do(func() {
				c, err := net.Dial("tcp", "10.0.0.2:9001")
				must(t, err)
				defer c.Close()
				_, err = c.Write([]byte(header + "GET / HTTP/1.1\r\n\r\n"))
				must(t, err)
				within := 500 * time.Millisecond
				if replies {
					within = 10 * time.Second
				}
				must(t, c.SetReadDeadline(time.Now().Add(within)))
				reply = make([]byte, 8)
				n, _ := c.Read(reply)
				reply = reply[:n]
			})
			if got := len(reply) > 0; got != replies {
				t.Errorf("header %q: reply %q, want one: %t", header, reply, replies)
			}
			all, err := b.requests(ctx, 9001)
			must(t, err)
			if len(all) != 1 || all[0].proxy() != version || all[0].From.Unmap().String() != "10.0.0.1" {
				t.Errorf("noted is %v, want version %d", all, version)
			}
		}
	}
}

// The program executes nothing without its key, and nothing twice.
func TestProgramRefuses(t *testing.T) {
	space := netns.New(t)
	p := host(t, space, "127.0.0.1")
	var sent *http.Request
	var body string
	next := p.http.Transport
	p.http.Transport = recorder(func(r *http.Request) (*http.Response, error) {
		reader, _ := r.GetBody()
		text := make([]byte, 4096)
		n, _ := reader.Read(text)
		sent, body = r, string(text[:n])
		return next.RoundTrip(r)
	})
	_, err := p.ip(t.Context(), "link", "show")
	must(t, err)
	for name, change := range map[string]func(r *http.Request) string{
		"replayed":      func(*http.Request) string { return body },
		"without a key": func(r *http.Request) string { r.Header.Del("Authorization"); return body },
		"another body": func(*http.Request) string {
			return strings.Replace(body, "show", "help", 1)
		},
		"another path": func(r *http.Request) string { r.URL.Path = "/send"; return body },
	} {
		r := sent.Clone(t.Context())
		text := change(r)
		again, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL.String(),
			strings.NewReader(text))
		must(t, err)
		again.Header = r.Header
		response, err := next.RoundTrip(again)
		must(t, err)
		_ = response.Body.Close()
		if response.StatusCode < 400 {
			t.Errorf("%s: accepted", name)
		}
	}
	p.key = "another"
	if _, err := p.clock(t.Context()); err == nil || strings.Contains(err.Error(), "another") {
		t.Errorf("another key: %v", err)
	}
}

type recorder func(*http.Request) (*http.Response, error)

func (f recorder) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
