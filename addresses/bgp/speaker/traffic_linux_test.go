package speaker_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses/bgp"
	"github.com/underlay-ccm/underlay/test/testenv/echo"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

const port = 7000

// serve replies at a service address in a node.
func serve(t *testing.T, node *netns.Space, name string, a netip.Addr) {
	t.Helper()
	at := netip.AddrPortFrom(a, port).String()
	var tcp net.Listener
	var udp net.PacketConn
	var err, failed error
	node.Do(func() {
		tcp, err = net.Listen("tcp", at)
		udp, failed = net.ListenPacket("udp", at)
	})
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	e := echo.Serve(name, tcp, udp)
	t.Cleanup(e.Close)
	if err := echo.Roomy(udp); err != nil {
		t.Fatal(err)
	}
}

// flows are clients that send requests all the time, over UDP from a few ports, and over one TCP
// connection after another.
type flows struct {
	stop   context.CancelFunc
	ended  sync.WaitGroup
	mu     sync.Mutex
	asked  int
	failed []error
	by     map[string]int // responses by node
}

func (f *flows) note(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if err != nil {
		f.failed = append(f.failed, err)
		return
	}
	f.by[name]++
}

// answers returns the number of a node's responses so far.
func (f *flows) answers(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.by[name]
}

// startClients starts clients of a service address.
func startClients(t *testing.T, client *netns.Space, a netip.Addr) *flows {
	t.Helper()
	at := netip.AddrPortFrom(a, port).String()
	ctx, stop := context.WithCancel(context.Background())
	f := &flows{stop: stop, by: map[string]int{}}
	t.Cleanup(func() { f.end() })
	dial := func(network string) (c net.Conn, err error) {
		client.Do(func() { c, err = net.DialTimeout(network, at, 2*time.Second) })
		return c, err
	}
	for range 8 {
		c, err := dial("udp")
		if err != nil {
			t.Fatal(err)
		}
		f.ended.Go(func() {
			defer c.Close()
			f.question(ctx, 5*time.Millisecond, func(number uint64) (string, error) {
				return exchange(c, binary.BigEndian.AppendUint64(nil, number))
			})
		})
	}
	f.ended.Go(func() {
		f.question(ctx, 20*time.Millisecond, func(uint64) (string, error) {
			c, err := dial("tcp")
			if err != nil {
				return "", err
			}
			defer c.Close()
			return exchange(c, nil)
		})
	})
	return f
}

// question sends a request at every tick until the end, one after another.
func (f *flows) question(
	ctx context.Context, every time.Duration, once func(number uint64) (string, error),
) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for number := uint64(0); ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f.note(once(number))
	}
}

// exchange sends a packet, if there is one, and returns the name of the responding node.
func exchange(c net.Conn, packet []byte) (string, error) {
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	if packet != nil {
		if _, err := c.Write(packet); err != nil {
			return "", err
		}
	}
	answer := make([]byte, 2048)
	n, err := c.Read(answer)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(answer[:n]), "\n") // the packet follows it
	a, err := echo.Parse(line)
	return a.Name, err
}

// questions returns the number of requests so far.
func (f *flows) questions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// end stops the clients and returns the number of requests, and the errors.
func (f *flows) end() (int, []error) {
	f.stop()
	f.ended.Wait()
	return f.asked, f.failed
}

// When nodes are added and removed, no packet is lost, as long as each node serves until routers
// know that it doesn't hold the address any more. A connection with packets that are hashed to
// another node before it ends is reset by that node, which doesn't have it: of consecutive
// connections, at most one in each change.
func TestNodesComeAndGo(t *testing.T) {
	for name, service := range map[string]netip.Addr{"IPv4": service4, "IPv6": service6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t)
			family, router := 4, router4
			if service.Is6() {
				family, router = 6, router6
			}
			f.route(session{node: "a", family: family}, session{node: "b", family: family})
			speakers := map[string]*speaking{}
			for node, n := range f.nodes {
				serve(t, n, node, service)
				speakers[node] = speak(t, n)
				speakers[node].set(of(node, hosts(service), router))
			}
			announced := func(want int) func() bool {
				return func() bool { return f.hops(bgp.Host(service)) == want }
			}
			f.until(soon, "two next hops", announced(2))
			clients := startClients(t, f.client, service)
			f.until(soon, "both serve", func() bool { return clients.answers("a") > 0 && clients.answers("b") > 0 })
			more := func() {
				before := clients.questions()
				f.until(soon, "some more questions", func() bool { return clients.questions() > before+500 })
			}
			changes := 0
			for _, node := range []string{"a", "b", "a", "b"} {
				changes += 2
				speakers[node].set(of(node, nil, router))
				f.until(soon, "one next hop", announced(1))
				before := clients.answers(node)
				f.until(soon, "the other one serves alone", func() bool {
					rest := clients.answers(node) - before
					before += rest
					return rest == 0
				})
				more()
				speakers[node].set(of(node, hosts(service), router))
				f.until(soon, "two next hops", announced(2))
				f.until(soon, "it serves again", func() bool { return clients.answers(node) > before })
				more()
			}
			asked, failed := clients.end()
			reset := 0
			for _, err := range failed {
				if !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("a question without an answer: %v", err)
					continue
				}
				reset++
			}
			t.Logf("%d questions, %d without an answer, of which %d were reset", asked, len(failed), reset)
			if reset > changes {
				t.Errorf("%d connections were reset in %d changes, want at most one in each", reset, changes)
			}
		})
	}
}
