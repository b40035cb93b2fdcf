package hetzner_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// spent is a lab in which another program left only the requests of urgent changes.
func spent(t *testing.T, test func(t *testing.T, lab *balancerLab, attached lb.State)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sim := hcloudsim.New(hcloudsim.Options{
			Token: "lab", ActionTime: 300 * time.Millisecond, Latency: time.Millisecond, RateLimit: 3600, Owned: owned().Contains,
		})
		lab := newBalancerLab(t, sim)
		spec := lab.spec(t, nil)
		if err := lab.reconcile(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		have := lab.as(t, spec)
		for range 3450 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cloud.invalid/v1/locations", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer lab")
			response, err := sim.Transport().RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
		}
		if _, err := lab.network.List(t.Context()); err != nil { // it reads what is left
			t.Fatal(err)
		}
		test(t, lab, have)
	})
}

// Changes of targets wait for these reads.
func TestReadsOfLoadBalancersAreUrgent(t *testing.T) {
	spent(t, func(t *testing.T, lab *balancerLab, _ lb.State) {
		for name, read := range map[string]func(context.Context) error{
			"List":         func(ctx context.Context) error { _, err := lab.List(ctx, labOwner.Cluster, false); return err },
			"Carrying":     func(ctx context.Context) error { _, err := lab.Carrying(ctx, labOwner); return err },
			"Certificates": func(ctx context.Context) error { _, err := lab.Certificates(ctx); return err },
		} {
			began := time.Now()
			if err := read(t.Context()); err != nil || time.Since(began) > 10*time.Second {
				t.Errorf("%s: after %s: %v", name, time.Since(began), err)
			}
		}
	})
}

// A deletion holds the network's writer, so routes would wait with it; and it is given up before
// the read that it was decided on is old.
func TestADeletionDelaysNoRoute(t *testing.T) {
	spent(t, func(t *testing.T, lab *balancerLab, attached lb.State) {
		deleted := make(chan error, 1)
		began := time.Now()
		go func() { deleted <- lab.Apply(t.Context(), attached, lb.Delete{}) }()
		synctest.Wait()
		if err := lab.network.Add(t.Context(), entry("10.244.1.0/24", "10.0.0.2")); err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("the route: after %s: %v", time.Since(began), err)
		}
		if err := <-deleted; err != nil || time.Since(began) > time.Minute {
			t.Errorf("the deletion: after %s: %v", time.Since(began), err)
		}
	})
}

// A deletion without a network waits for its turn, but not for long.
func TestADeletionIsGivenUp(t *testing.T) {
	spent(t, func(t *testing.T, lab *balancerLab, have lb.State) {
		have.Network = 0
		began := time.Now()
		if err := lab.Apply(t.Context(), have, lb.Delete{}); err == nil ||
			time.Since(began) > time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
