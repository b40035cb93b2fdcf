package hcloudsim_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/internal/hcloudsim"
)

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := newSim(hcloudsim.Options{HealthyAfter: 10 * time.Second})
		c := client(sim)
		s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
		lb := createWhole(t, c, nil, s).LoadBalancer
		health := func(port int) string {
			now, _ := sim.LoadBalancer(lb.ID)
			for _, h := range now.Targets[0].HealthStatus {
				if h.ListenPort == port {
					return h.Status
				}
			}
			return "none"
		}
		expect := func(port int, want string) {
			t.Helper()
			if got := health(port); got != want {
				t.Errorf("target is %s on port %d, want %s", got, port, want)
			}
		}
		expect(80, "unknown")
		time.Sleep(10 * time.Second)
		expect(80, "healthy")
		_, _, err := c.LoadBalancer.AddService(t.Context(), lb, hcloud.LoadBalancerAddServiceOpts{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(81), DestinationPort: hcloud.Ptr(81),
		})
		noError(t, err)
		expect(80, "healthy")
		expect(81, "unknown") // a new service asks for itself

		id := hcloudsim.TargetID{Server: s.ID}
		noError(t, sim.SetTargetHealth(lb.ID, id, 0, hcloudsim.HealthUnhealthy))
		noError(t, sim.SetTargetHealth(lb.ID, id, 81, hcloudsim.HealthHealthy))
		expect(80, "unhealthy")
		expect(81, "healthy")
		noError(t, sim.SetTargetHealth(lb.ID, id, 0, ""))
		expect(80, "healthy")
		_, _, err = c.Server.Poweroff(t.Context(), s)
		noError(t, err)
		expect(80, "unhealthy")
		if err := sim.SetTargetHealth(lb.ID, id, 0, "sick"); err == nil {
			t.Error("a health that isn't one is accepted")
		}
	})
}

func TestProber(t *testing.T) {
	var asked hcloudsim.Probe
	sim := newSim(hcloudsim.Options{Prober: func(p hcloudsim.Probe) hcloudsim.Health {
		asked = p
		return hcloudsim.HealthUnhealthy
	}})
	n := seedNetwork(t, sim)
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: n.ID})
	made := createWhole(t, client(sim), n, s).LoadBalancer
	lb, _ := sim.LoadBalancer(made.ID)
	if got := lb.Targets[0].HealthStatus[0].Status; got != "unhealthy" {
		t.Errorf("target is %s, want what the prober says", got)
	}
	if asked.Address != netip.MustParseAddr("10.0.0.2") || asked.Target.Server != s.ID || asked.Service.DestinationPort != 30080 {
		t.Errorf("the prober was asked for %+v", asked)
	}
}
