//go:build linux

package netlab

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/echo"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// A stream doesn't count a packet as lost that was sent while it ended, however late its sender was
// scheduled.
func TestTheEndOfAStreamLosesNothing(t *testing.T) {
	here, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(here.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := echo.Roomy(socket); err != nil {
		t.Fatal(err)
	}
	server := echo.Serve("echo", l, socket)
	t.Cleanup(server.Close)
	var all sync.WaitGroup
	for range 40 {
		s, err := StartStream(t.Context(), here, socket.LocalAddr().(*net.UDPAddr).AddrPort(),
			10*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for s.Answered() < 5 { // busy, so that senders are late
			}
			if got := s.Stop(); got.Lost > 0 {
				t.Errorf("of %d packets %d lost", got.Sent, got.Lost)
			}
		})
	}
	all.Wait()
}
