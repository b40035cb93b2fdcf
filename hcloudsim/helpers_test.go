package hcloudsim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// hcloud-go's helpers work as with the real API: pages, waiting for many actions at once, retries.
func TestClientHelpers(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		c := client(w.sim, hcloud.WithRetryOpts(hcloud.RetryOpts{
			MaxRetries: 5, BackoffFunc: hcloud.ConstantBackoff(time.Second),
		}))
		for i := range 60 {
			seedServer(t, w.sim, hcloudsim.ServerSeed{Name: fmt.Sprintf("s%02d", i), Labels: map[string]string{"even": fmt.Sprint(i%2 == 0)}})
		}
		even, err := c.Server.AllWithOpts(t.Context(), hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: "even=true", PerPage: 7}})
		noError(t, err)
		if len(even) != 30 {
			t.Errorf("%d servers have even numbers, want 30 on pages of 7", len(even))
		}

		var actions []*hcloud.Action
		for _, s := range even {
			a, _, err := c.Server.Poweroff(t.Context(), s)
			noError(t, err)
			actions = append(actions, a)
		}
		w.sim.ResetRequests()
		noError(t, c.Action.WaitFor(t.Context(), actions...))
		for _, s := range w.sim.Servers() {
			if off := s.Status == "off"; off != (s.Labels["even"] == "true") {
				t.Errorf("server %s is %s", s.Name, s.Status)
			}
		}
		if polls := len(w.sim.Requests()); polls < 2 || polls > 2*5 {
			t.Errorf("waiting took %d requests, want two for each poll", polls)
		}

		// A conflict is retried until the other change is done.
		noError(t, addRoute(t, c, w.net, "10.244.0.0/24", "10.0.0.2"))
		noError(t, addRoute(t, c, w.net, "10.244.1.0/24", "10.0.0.2"))
		noError(t, w.sim.Inject(hcloudsim.Fault{Match: "POST /", NotJSON: true, Status: 502, Times: 2}))
		noError(t, addRoute(t, c, w.net, "10.244.2.0/24", "10.0.0.2"))
	})
}
