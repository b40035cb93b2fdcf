package hetzner_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/routes"
)

// project is a simulated project with one network, and a client of it in the same synctest bubble.
func project(t *testing.T, o hcloudsim.Options) (*hcloudsim.Simulator, *hetzner.Client, int64) {
	t.Helper()
	o.Token = "right"
	sim := hcloudsim.New(o)
	network, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8"),
		Subnets: []hcloudsim.SubnetSeed{{IPRange: netip.MustParsePrefix("10.0.0.0/16")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return sim, client(t, sim, func() (string, error) { return "right", nil }), network.ID
}

func client(t *testing.T, sim *hcloudsim.Simulator, token func() (string, error)) *hetzner.Client {
	t.Helper()
	c, err := hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.test/v1", Token: token, Version: "test",
		Registry: metrics.NewKubeRegistry(), Transport: sim.Transport(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func seed(t *testing.T, sim *hcloudsim.Simulator, network int64, count int) {
	t.Helper()
	for i := range count {
		if _, err := sim.CreateServer(hcloudsim.ServerSeed{Name: fmt.Sprintf("n%d-%d", network, i), Network: network}); err != nil {
			t.Fatal(err)
		}
	}
}

// requested counts the requests that match "METHOD path-prefix".
func requested(sim *hcloudsim.Simulator, what string) int {
	n := 0
	for _, r := range sim.Requests() {
		if strings.HasPrefix(r.Method+" "+r.Path, what) {
			n++
		}
	}
	return n
}

func TestServersAreListedOncePerRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, network := project(t, hcloudsim.Options{AttachmentLimit: hcloudsim.Unlimited})
		seed(t, sim, network, 120)
		time.Sleep(time.Minute) // on the bubble's clock: none was created just now
		servers := c.Servers(network)
		for range 10 {
			list, err := servers.List(t.Context(), time.Time{})
			if err != nil || len(list) != 120 {
				t.Fatalf("%d servers, %v; want 120", len(list), err)
			}
			if !slices.IsSortedFunc(list, func(a, b cloud.Machine) int { return int(a.ID - b.ID) }) {
				t.Error("not in the order of their IDs")
			}
		}
		// The first page contains the number of pages, three.
		if n := requested(sim, "GET /v1/servers"); n != 1+3 {
			t.Errorf("%d pages for ten looks, want the 3 of one list and the first", n)
		}
		time.Sleep(6 * time.Minute) // on the bubble's clock: the list has grown old
		if _, err := servers.List(t.Context(), time.Time{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // on the bubble's clock
		if _, err := servers.List(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if n := requested(sim, "GET /v1/servers"); n < 10 || n > 13 {
			t.Errorf("%d pages, want one more list when the cache is old and a new one on demand", n)
		}
	})
}

func TestConcurrentRefreshesShareOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, network := project(t, hcloudsim.Options{Latency: 100 * time.Millisecond})
		seed(t, sim, network, 3)
		servers, since := c.Servers(network), time.Now()
		errs := make(chan error, 50)
		for range 50 {
			go func() { _, err := servers.List(t.Context(), since); errs <- err }()
		}
		for range 50 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n := requested(sim, "GET /v1/servers"); n != 1 {
			t.Errorf("%d lists for 50 callers, want 1", n)
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func TestGetDistinguishesAbsenceFromFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, network := project(t, hcloudsim.Options{})
		seed(t, sim, network, 1)
		servers := c.Servers(network)
		if s, err := servers.Get(t.Context(), sim.Servers()[0].ID); err != nil || s.Name != fmt.Sprintf("n%d-0", network) || !s.PrivateIP.IsValid() {
			t.Errorf("got %+v, %v", s, err)
		}
		if _, err := servers.Get(t.Context(), 4711); !errors.Is(err, cloud.ErrNoServer) {
			t.Errorf("a server that isn't there: %v, want ErrNoServer", err)
		}
		other := client(t, sim, func() (string, error) { return "wrong", nil })
		if _, err := other.Servers(0).Get(t.Context(), 4711); err == nil ||
			errors.Is(err, cloud.ErrNoServer) || !hetzner.Unauthorized(err) {
			t.Errorf("with a wrong token: %v, want that it is refused", err)
		}
	})
}

func TestNetworkByNameAndID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, id := project(t, hcloudsim.Options{})
		for _, ref := range []string{"cluster", fmt.Sprint(id)} {
			n, err := c.Network(t.Context(), ref)
			if err != nil || n.Last().ID != id || n.Last().IPRange != netip.MustParsePrefix("10.0.0.0/8") || len(n.Last().Subnets) != 1 {
				t.Errorf("%s: %+v, %v", ref, n, err)
			}
		}
		if _, err := c.Network(t.Context(), "nowhere"); !errors.Is(err, hetzner.ErrNoNetwork) {
			t.Errorf("a network that isn't there: %v", err)
		}
	})
}

func entry(dst, via string) routes.Route {
	return routes.Route{Dst: netip.MustParsePrefix(dst), Via: netip.MustParseAddr(via)}
}

func TestRouteTable(t *testing.T) {
	for _, busy := range []hcloudsim.Busy{hcloudsim.BusyConflict, hcloudsim.BusyLocked} {
		synctest.Test(t, func(t *testing.T) {
			sim, c, id := project(t, hcloudsim.Options{
				ActionTime: 400 * time.Millisecond, Busy: busy, RouteLimit: 3,
			})
			seed(t, sim, id, 3)
			table, err := c.Network(t.Context(), "cluster")
			if err != nil {
				t.Fatal(err)
			}
			one, two, moved := entry("10.244.1.0/24", "10.0.0.2"), entry("10.244.2.0/24", "10.0.0.3"), entry("10.244.2.0/24", "10.0.0.4")
			// Two at once: the network allows one change at a time.
			errs := make(chan error, 2)
			go func() { errs <- table.Add(t.Context(), one) }()
			go func() { errs <- table.Add(t.Context(), two) }()
			for range 2 {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			expect(t, table, one, two)
			if err := table.Replace(t.Context(), two, moved, time.Time{}); err != nil {
				t.Error(err)
			}
			expect(t, table, one, moved)
			if err := table.Delete(t.Context(), one, time.Time{}); err != nil {
				t.Error(err)
			}
			expect(t, table, moved)
			for _, r := range sim.Requests() {
				if r.Status >= 400 {
					t.Errorf("a refused request: %+v", r)
				}
			}
		})
	}
}

func expect(t *testing.T, table routes.Table, want ...routes.Route) {
	t.Helper()
	got, err := table.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b routes.Route) int { return a.Dst.Addr().Compare(b.Dst.Addr()) })
	if !slices.Equal(got, want) {
		t.Errorf("the table holds %v, want %v", got, want)
	}
}

func TestAFullTableIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, id := project(t, hcloudsim.Options{RouteLimit: 1})
		seed(t, sim, id, 2)
		table, err := c.Network(t.Context(), "cluster")
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Add(t.Context(), entry("10.244.1.0/24", "10.0.0.2")); err != nil {
			t.Fatal(err)
		}
		if err := table.Add(t.Context(), entry("10.244.2.0/24", "10.0.0.3")); !errors.Is(err, routes.ErrFull) {
			t.Errorf("got %v, want ErrFull", err)
		}
	})
}

// Deleting a missing route succeeds; a missing network is an error.
func TestDeletingAMissingRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, id := project(t, hcloudsim.Options{})
		seed(t, sim, id, 1)
		table, err := c.Network(t.Context(), "cluster")
		if err != nil {
			t.Fatal(err)
		}
		one, two := entry("10.244.1.0/24", "10.0.0.2"), entry("10.244.1.0/24", "10.0.0.9")
		if err := table.Delete(t.Context(), one, time.Time{}); err != nil {
			t.Errorf("deleting a route that isn't there: %v", err)
		}
		if err := table.Replace(t.Context(), one, two, time.Time{}); err != nil {
			t.Errorf("replacing a route that isn't there: %v", err)
		}
		expect(t, table, two)
		if err := sim.DeleteNetwork(id); err != nil {
			t.Fatal(err)
		}
		if err := table.Delete(t.Context(), two, time.Time{}); !errors.Is(err, hetzner.ErrNoNetwork) {
			t.Errorf("deleting from a network that is gone: %v", err)
		}
	})
}

// A change of the network by another client is waited for.
func TestABusyNetworkIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, id := project(t, hcloudsim.Options{
			ActionTime: 3 * time.Second, Busy: hcloudsim.BusyLocked,
		})
		seed(t, sim, id, 2)
		mine, err := c.Network(t.Context(), "cluster")
		if err != nil {
			t.Fatal(err)
		}
		others, err := client(t, sim, func() (string, error) { return "right", nil }).Network(t.Context(), "cluster")
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 2)
		go func() { errs <- others.Add(t.Context(), entry("10.244.9.0/24", "10.0.0.3")) }()
		synctest.Wait()
		go func() { errs <- mine.Add(t.Context(), entry("10.244.1.0/24", "10.0.0.2")) }()
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		expect(t, mine, entry("10.244.1.0/24", "10.0.0.2"), entry("10.244.9.0/24", "10.0.0.3"))
	})
}

// Reads are always retried, writes only if the API did nothing.
func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   hcloudsim.Fault
		write   bool
		wantErr bool
	}{
		{"a read, 503", hcloudsim.Fault{Match: "GET /networks/{id}", Times: 2, Code: "unavailable", Status: 503}, false, false},
		{"a read, 502", hcloudsim.Fault{Match: "GET /networks/{id}", Times: 2, Code: "bad_gateway", Status: 502}, false, false},
		{"a read, no answer", hcloudsim.Fault{Match: "GET /networks/{id}", Times: 2, DropBeforeApply: true}, false, false},
		{"a read, 429", hcloudsim.Fault{Match: "GET /networks/{id}", Times: 2, Code: "rate_limit_exceeded", Status: 429}, false, false},
		{"a write, 429", hcloudsim.Fault{Match: "POST /networks/{rest...}", Times: 2, Code: "rate_limit_exceeded", Status: 429}, true, false},
		{"a write, 423", hcloudsim.Fault{Match: "POST /networks/{rest...}", Times: 2, Code: "locked", Status: 423}, true, false},
		{"a write, 503: unknown", hcloudsim.Fault{Match: "POST /networks/{rest...}", Times: 1, Code: "unavailable", Status: 503}, true, true},
		{"a write, reply lost: unknown", hcloudsim.Fault{Match: "POST /networks/{rest...}", Times: 1, DropAfterApply: true}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, cl, id := project(t, hcloudsim.Options{})
				seed(t, sim, id, 1)
				table, err := cl.Network(t.Context(), "cluster")
				if err != nil {
					t.Fatal(err)
				}
				if err := sim.Inject(c.fault); err != nil {
					t.Fatal(err)
				}
				sim.ResetRequests()
				if c.write {
					err = table.Add(t.Context(), entry("10.244.1.0/24", "10.0.0.2"))
				} else {
					_, err = table.List(t.Context())
				}
				if (err != nil) != c.wantErr {
					t.Errorf("got %v, want an error: %v", err, c.wantErr)
				}
				if n := requested(sim, "POST"); c.wantErr && n != 1 {
					t.Errorf("a write of unknown fate was sent %d times", n)
				}
			})
		})
	}
}

func TestAnActionThatIsLostIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, id := project(t, hcloudsim.Options{ActionTime: time.Second})
		seed(t, sim, id, 1)
		table, err := c.Network(t.Context(), "cluster")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := table.Add(ctx, entry("10.244.1.0/24", "10.0.0.2")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that waiting was cut short", err)
		}
	})
}

// The client learns how long actions take, so that one poll is usually enough.
func TestPollsBecomeFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, id := project(t, hcloudsim.Options{ActionTime: 900 * time.Millisecond})
		seed(t, sim, id, 1)
		table, err := c.Network(t.Context(), "cluster")
		if err != nil {
			t.Fatal(err)
		}
		sim.ResetRequests()
		const count = 50
		for i := range count {
			if err := table.Add(t.Context(), entry(fmt.Sprintf("10.244.%d.0/24", i), "10.0.0.2")); err != nil {
				t.Fatal(err)
			}
		}
		if n := requested(sim, "GET /v1/actions"); n > count*3/2 {
			t.Errorf("%d polls for %d actions", n, count)
		}
	})
}

// A token that is rotated on disk is used from the next request on.
func TestARotatedTokenIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, _, id := project(t, hcloudsim.Options{})
		seed(t, sim, id, 1)
		token := "wrong"
		servers := client(t, sim, func() (string, error) { return token, nil }).Servers(id)
		if _, err := servers.List(t.Context(), time.Time{}); !hetzner.Unauthorized(err) {
			t.Errorf("a wrong token: %v", err)
		}
		token = "right"
		if list, err := servers.List(t.Context(), time.Time{}); err != nil || len(list) != 1 {
			t.Errorf("after the rotation: %d servers, %v", len(list), err)
		}
	})
}

// An action that takes long costs few polls, and one that never ends doesn't block the network
// forever.
func TestSlowActionsCostFewLooks(t *testing.T) {
	for _, c := range []struct {
		takes   time.Duration
		most    int
		wantErr bool
	}{{10 * time.Second, 10, false}, {time.Minute, 25, false}, {time.Hour, 80, true}} {
		synctest.Test(t, func(t *testing.T) {
			sim, cl, id := project(t, hcloudsim.Options{ActionTime: c.takes})
			seed(t, sim, id, 1)
			table, err := cl.Network(t.Context(), "cluster")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			err = table.Add(t.Context(), entry("10.244.1.0/24", "10.0.0.2"))
			if (err != nil) != c.wantErr {
				t.Errorf("an action of %s: %v, want an error: %v", c.takes, err, c.wantErr)
			}
			if n := requested(sim, "GET /v1/actions"); n > c.most {
				t.Errorf("an action of %s cost %d looks, want at most %d", c.takes, n, c.most)
			}
			if waited := time.Since(began); waited > 6*time.Minute {
				t.Errorf("it was waited for %s", waited)
			}
		})
	}
}

// The token is sent to the API and nowhere else, despite redirects.
func TestRedirectsAreNotFollowed(t *testing.T) {
	synctest.Test(t, redirects)
}

func redirects(t *testing.T) {
	var hosts []string
	c, err := hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.test/v1", Token: func() (string, error) { return "right", nil },
		Registry: metrics.NewKubeRegistry(),
		Transport: transport(func(r *http.Request) (*http.Response, error) {
			hosts = append(hosts, r.URL.Host)
			return &http.Response{
				StatusCode: http.StatusTemporaryRedirect, Request: r, Body: http.NoBody,
				Header: http.Header{"Location": {"http://elsewhere.test/v1/servers"}},
			}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Servers(0).List(t.Context(), time.Time{}); err == nil {
		t.Error("a redirect is no answer")
	}
	for _, host := range hosts {
		if host != "cloud.test" {
			t.Errorf("the token went to %s", host)
		}
	}
}
