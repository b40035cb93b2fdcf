package hetzner_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/leadership"
)

// stopping is the transport of a process that is stopped when its nth request gets its response.
type stopping struct {
	next http.RoundTripper
	n    int
	stop func()
}

func (s *stopping) RoundTrip(r *http.Request) (*http.Response, error) {
	s.n--
	now := s.n == 0
	response, err := s.next.RoundTrip(r)
	if now {
		s.stop()
	}
	return response, err
}

// swap removes something before it adds its replacement; leadsTo returns the current value, "" for
// none.
type swap struct {
	do      func(context.Context) error
	leadsTo func() string
}

// A process that is stopped at any request releases its lease when everything that it removed has
// its replacement, and not before. The context of the swap never ends.
func TestASwapIsOverBeforeTheLeaseIsGivenBack(t *testing.T) {
	for name, prepare := range map[string]func(
		*testing.T, *hcloudsim.Simulator, *hetzner.Client, int64,
	) swap{
		"a route's gateway": replacedGateway,
		"a floating IP":     movedFloatingIP,
	} {
		t.Run(name, func(t *testing.T) {
			n, more := 0, true
			for more {
				n++
				synctest.Test(t, func(t *testing.T) { more = stopAt(t, n, prepare) })
			}
			if n < 5 {
				t.Errorf("it took %d requests only", n-1)
			}
		})
	}
}

// stopAt runs a swap that is stopped at a request, and reports whether it needs that many requests.
func stopAt(
	t *testing.T, n int, prepare func(*testing.T, *hcloudsim.Simulator, *hetzner.Client, int64) swap,
) bool {
	var gate leadership.Gate
	sim, _, network := project(t, hcloudsim.Options{ActionTime: time.Second, RefuseReassign: true})
	wire := &stopping{next: sim.Transport()}
	c, err := hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.test/v1", Token: func() (string, error) { return "right", nil },
		Registry: metrics.NewKubeRegistry(), Transport: gate.Wrap(wire),
	})
	if err != nil {
		t.Fatal(err)
	}
	it := prepare(t, sim, c, network)
	closed, done := make(chan error, 1), make(chan error, 1)
	wire.n, wire.stop = n, func() {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			closed <- gate.Close(ctx, 30*time.Second)
		}()
		synctest.Wait()
	}
	go func() { done <- it.do(context.WithoutCancel(t.Context())) }()
	select {
	case err = <-closed:
	case <-done:
		synctest.Wait()
		if len(closed) == 0 {
			return false
		}
		err = <-closed
		done <- nil
	}
	if err != nil {
		t.Errorf("stopped at request %d: %v", n, err)
	}
	time.Sleep(time.Second) // accepted actions continue in the cloud
	if it.leadsTo() == "" {
		t.Errorf("stopped at request %d, and nothing is in the place of what was taken away", n)
	}
	<-done
	return true
}

func replacedGateway(
	t *testing.T, sim *hcloudsim.Simulator, c *hetzner.Client, network int64,
) swap {
	seed(t, sim, network, 2)
	table, err := c.Network(t.Context(), "cluster")
	if err != nil {
		t.Fatal(err)
	}
	from, to := entry("10.244.1.0/24", "10.0.0.2"), entry("10.244.1.0/24", "10.0.0.3")
	if err := table.Add(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	return swap{
		do: func(ctx context.Context) error { return table.Replace(ctx, from, to, time.Time{}) },
		leadsTo: func() string {
			if now, _ := sim.Network(network); len(now.Routes) == 1 {
				return now.Routes[0].Gateway
			}
			return ""
		},
	}
}

func movedFloatingIP(t *testing.T, sim *hcloudsim.Simulator, c *hetzner.Client, _ int64) swap {
	nodes := map[int64]string{}
	var servers []int64
	for _, name := range []string{"a", "b"} {
		s, err := sim.CreateServer(hcloudsim.ServerSeed{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		nodes[s.ID], servers = fmt.Sprint("hcloud://", s.ID), append(servers, s.ID)
	}
	made, err := sim.CreateFloatingIP(hcloudsim.FloatingIPSeed{Name: "web", IP: netip.MustParsePrefix(web + "/32"), Server: servers[0]})
	if err != nil {
		t.Fatal(err)
	}
	all, err := addresses.ParseRange(web)
	if err != nil {
		t.Fatal(err)
	}
	ips := c.FloatingIPs(hetzner.FloatingIPOptions{
		Cluster: "prod", Ranges: []addresses.Range{all},
		Nodes: func(context.Context) (map[int64]string, error) { return nodes, nil },
	})
	return swap{
		do: func(ctx context.Context) error {
			return ips.Route(ctx, netip.MustParseAddr(web), addresses.Destination{
				ProviderID: nodes[servers[1]],
			})
		},
		leadsTo: func() string {
			if now, _ := sim.FloatingIP(made.ID); now.Server != nil {
				return fmt.Sprint(*now.Server)
			}
			return ""
		},
	}
}
