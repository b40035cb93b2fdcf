package balancer_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/test/testenv/balancer"
)

// With RefuseClients, a service doesn't listen while no target takes connections; existing
// connections are kept.
func TestRefusesClients(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, balancer.Options{NoTarget: balancer.RefuseClients})
	a := w.server("a")
	w.serve(netip.AddrPortFrom(private(a), 30080), func(c net.Conn) { _, _ = io.Copy(c, c) })
	lb := w.balance(hcloud.LoadBalancerCreateOpts{
		Services: []hcloud.LoadBalancerCreateOptsService{tcp(80, 30080)},
	}, a)
	w.healthy(lb, "a:80")
	w.listens(3 + 1)
	c := w.dial(ipnet.Addr(lb.PublicNet.IPv4.IP), 80)
	noError(t, echoes(c))
	for _, health := range []hcloudsim.Health{hcloudsim.HealthUnhealthy, hcloudsim.HealthHealthy} {
		noError(t, w.sim.SetTargetHealth(lb.ID, hcloudsim.TargetID{Server: a.ID}, 80, health))
		listeners := 1
		if health == hcloudsim.HealthHealthy {
			listeners = 3 + 1
		}
		w.listens(listeners)
		if err := echoes(c); err != nil {
			t.Errorf("with %s targets, a connection that there was: %v", health, err)
		}
	}
	noError(t, echoes(w.dial(ipnet.Addr(lb.PublicNet.IPv4.IP), 80)))
}

// echoes returns why a connection doesn't echo.
func echoes(c net.Conn) error {
	if _, err := io.WriteString(c, "x"); err != nil {
		return err
	}
	if got := readByte(c); got != "x" {
		return fmt.Errorf("it says %q, want x", got)
	}
	return nil
}
