package hetzner

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
)

// The demand far exceeds the project's limit. No request is ever rejected, with or without another
// program that spends from the same budget, and urgent requests don't wait.
func TestTheBudgetIsNeverOverspent(t *testing.T) {
	for _, c := range []struct {
		name   string
		others float64 // requests per second of another program
	}{{"alone", 0}, {"another program takes half", 0.5}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { overspend(t, c.others) })
		})
	}
}

func overspend(t *testing.T, others float64) {
	sim := hcloudsim.New(hcloudsim.Options{Token: "right", Latency: 20 * time.Millisecond, ActionTime: 200 * time.Millisecond})
	network, err := sim.CreateNetwork(hcloudsim.NetworkSeed{Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	client, err := New(Options{
		Endpoint: "http://cloud.test/v1", Token: func() (string, error) { return "right", nil },
		Registry: metrics.NewKubeRegistry(), Transport: sim.Transport(),
	})
	if err != nil {
		t.Fatal(err)
	}
	table, err := client.Network(t.Context(), fmt.Sprint(network.ID))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	repeat := func(pause time.Duration, do func(context.Context)) {
		working.Go(func() {
			for ctx.Err() == nil {
				do(ctx)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	for range 50 { // each would send ten requests a second
		repeat(100*time.Millisecond, func(ctx context.Context) { _, _ = client.LoadBalancers().List(ctx, "kubernetes", true) })
		repeat(100*time.Millisecond, func(ctx context.Context) {
			_, _ = client.LoadBalancers().Observe(ctx, lb.Owner{Cluster: "kubernetes", UID: "u"})
		})
	}
	if others > 0 {
		other := hcloud.NewClient(hcloud.WithEndpoint("http://cloud.test/v1"), hcloud.WithToken("right"),
			hcloud.WithHTTPClient(&http.Client{Transport: sim.Transport()}))
		repeat(time.Duration(float64(time.Second)/others), func(ctx context.Context) {
			_, _, _ = other.Server.List(ctx, hcloud.ServerListOpts{})
		})
	}
	var slowest time.Duration
	route, standing := routes.Route{Dst: netip.MustParsePrefix("10.244.1.0/24"), Via: netip.MustParseAddr("10.0.0.2")}, false
	repeat(time.Minute, func(ctx context.Context) {
		began, change := time.Now(), table.Add
		if standing {
			change = func(ctx context.Context, r routes.Route) error {
				return table.Delete(ctx, r, time.Time{})
			}
		}
		if err := change(ctx, route); err != nil && ctx.Err() == nil {
			t.Errorf("an urgent change: %v", err)
		}
		standing = !standing
		slowest = max(slowest, time.Since(began))
	})
	time.Sleep(3 * time.Hour) // on the bubble's clock
	stop()
	working.Wait()

	codes := map[int]int{}
	for _, r := range sim.Requests() {
		codes[r.Status]++
	}
	t.Logf("answers by status: %v; the slowest urgent change took %s", codes, slowest)
	if codes[http.StatusTooManyRequests] > 0 {
		t.Errorf("%d requests were refused for the budget", codes[http.StatusTooManyRequests])
	}
	if n := codes[http.StatusOK]; n < 3*3600/2 {
		t.Errorf("only %d requests in three hours: the budget is not used", n)
	}
	if slowest > 5*time.Second {
		t.Errorf("an urgent change took %s", slowest)
	}
}
