package main

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// Whatever time the cloud takes to come back, it is waited for, and asked ever
// more seldom.
func TestALongOutageIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(hcloudsim.Options{Token: "right"})
		if _, err := sim.CreateNetwork(hcloudsim.NetworkSeed{Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8")}); err != nil {
			t.Fatal(err)
		}
		client, err := hetzner.New(hetzner.Options{
			Endpoint: "http://cloud.test/v1", Token: func() (string, error) { return "right", nil },
			Registry: metrics.NewKubeRegistry(), Transport: sim.Transport(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := sim.Inject(hcloudsim.Fault{Times: -1, Status: 503}); err != nil {
			t.Fatal(err)
		}
		m := &manager{config: config.Config{Network: "cluster", Endpoint: "http://cloud.test/v1"}, client: client}
		done := make(chan error, 1)
		go func() { done <- m.reach(t.Context(), nil) }()
		time.Sleep(3 * time.Hour) // on the bubble's clock
		select {
		case err := <-done:
			t.Fatalf("it stopped waiting: %v", err)
		default:
		}
		if n := len(sim.Requests()); n > 3*60*15 {
			t.Errorf("%d requests in three hours of an outage", n)
		}
		sim.ClearFaults()
		if err := <-done; err != nil || m.network == nil {
			t.Errorf("the cloud is back: %v, network %v", err, m.network)
		}
	})
}
