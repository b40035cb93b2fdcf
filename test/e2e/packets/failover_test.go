//go:build linux

package packets

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

const failoverPool = `addresses:
  pools:
    - {name: failover, mover: failover, ranges: [203.0.113.17, "2001:db8:f0::1"]}
`

// Failover addresses serve dedicated servers as floating IPs serve those of the cloud. Until Robot
// has rerouted one, the previous node keeps serving it.
func TestFailoverAddresses(t *testing.T) {
	names := []string{"one", "two", "three"}
	f := start(t, netlab.Options{Dedicated: names, Settings: failoverPool, ManagerArgs: []string{"--node-monitor-period=500ms"}})
	g := newGame(f, "203.0.113.17", "2001:db8:f0::1")
	g.moving = 3 * time.Second
	g.leads = func() (servers []int64) {
		for _, active := range f.FailoversAt() {
			var at int64
			for _, name := range names {
				if m := f.Machine(name); m.Public.IPv4 == active || m.Public.IPv6Prefix.Addr() == active {
					at = m.RobotNumber
				}
			}
			servers = append(servers, at)
		}
		return servers
	}
	for _, net := range []string{"203.0.113.17/32", "2001:db8:f0::/64"} {
		if err := f.OrderFailover(t.Context(), netip.MustParsePrefix(net), f.Machine("one")); err != nil {
			t.Fatal(err)
		}
	}
	g.play(t)
	moves := 0
	for _, r := range f.RobotRequests() {
		if r.Method == http.MethodPost && strings.HasPrefix(r.Path, "/failover/") {
			moves++
		}
	}
	// Each address moves once to its first node, unless it is there, once for the drain and once
	// for the failure.
	if moves < 4 || moves > 6 {
		t.Errorf("%d moves of two addresses, want 4 to 6", moves)
	}
}
