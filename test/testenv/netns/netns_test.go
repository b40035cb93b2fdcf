//go:build linux

package netns_test

import (
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

func TestSpacesAreApartAndLinked(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	a, b := netns.New(t), netns.New(t)
	netns.Link(a, "left", b, "right")
	a.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "left")
	b.Run("ip", "addr", "add", "192.0.2.2/24", "dev", "right")
	if out := a.Run("ip", "-o", "link"); !strings.Contains(out, "left") || strings.Contains(out, "right") {
		t.Errorf("interfaces of the first space:\n%s", out)
	}

	var listener net.Listener
	b.Do(func() { listener, err = net.Listen("tcp4", "192.0.2.2:7") })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var conn net.Conn
	a.Do(func() { conn, err = net.Dial("tcp4", "192.0.2.2:7") })
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.LocalAddr().String(); !strings.HasPrefix(got, "192.0.2.1:") {
		t.Errorf("the connection comes from %s", got)
	}
	if after, err := os.Readlink("/proc/self/ns/net"); err != nil || after != before {
		t.Errorf("the process is in %s, was in %s (%v)", after, before, err)
	}
}

// A namespace may be closed while other goroutines enter it: they enter it, or get an error.
func TestANamespaceIsClosedWhileOthersEnter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: network namespaces take root")
	}
	for range 20 {
		n, err := netns.Open()
		if err != nil {
			t.Fatal(err)
		}
		own, err := os.Readlink("/proc/self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		var together sync.WaitGroup
		for range 4 {
			together.Go(func() {
				// After the close, an error is expected.
				_ = n.Do(func() {
					if there, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || there == own {
						t.Errorf("it was entered, and this is %s (%v)", there, err)
					}
				})
			})
		}
		n.Close()
		together.Wait()
		if err := n.Do(func() {}); err == nil {
			t.Error("it was entered after its end")
		}
	}
}
