package hetzner_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// through is a client that calls before for its requests, which may change the project.
func through(t *testing.T, sim *hcloudsim.Simulator, before func(*http.Request)) *hetzner.Client {
	t.Helper()
	c, err := hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.test/v1", Token: func() (string, error) { return "right", nil },
		Registry: metrics.NewKubeRegistry(),
		Transport: transport(func(r *http.Request) (*http.Response, error) {
			before(r)
			return sim.Transport().RoundTrip(r)
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func idsOf(servers []cloud.Machine) map[int64]bool {
	ids := map[int64]bool{}
	for _, s := range servers {
		ids[s.ID] = true
	}
	return ids
}

// Whatever is created and deleted between the pages of a list, it contains every server that exists
// during the whole read, and it needs few more requests than it has pages.
func TestAListIsCompleteWhateverChangesBetweenItsPages(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			sim, _, _ := project(t, hcloudsim.Options{RateLimit: 1_000_000})
			made := 0
			create := func(count int) {
				for range count {
					made++
					if _, err := sim.CreateServer(hcloudsim.ServerSeed{Name: fmt.Sprint("n", made)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			remove := func(count int) {
				all := sim.Servers()
				for _, i := range rng.Perm(len(all))[:min(count, len(all))] {
					if err := sim.DeleteServer(all[i].ID); err != nil {
						t.Fatal(err)
					}
				}
			}
			create(rng.IntN(220))
			c := through(t, sim, func(*http.Request) {
				create(rng.IntN(3))
				remove(rng.IntN(3))
			})
			servers := c.Servers(0)
			for range 4 {
				before := sim.Servers()
				sim.ResetRequests()
				list, err := servers.List(t.Context(), time.Now())
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				have, pages := idsOf(list), (len(before)+49)/50
				alive := map[int64]bool{}
				for _, s := range sim.Servers() {
					alive[s.ID] = true
				}
				for _, s := range before {
					if alive[s.ID] && !have[s.ID] {
						t.Errorf("seed %d: server %d of %d is missing", seed, s.ID, len(before))
					}
				}
				if len(have) != len(list) {
					t.Errorf("seed %d: %d servers are in the list twice", seed, len(list)-len(have))
				}
				if n := requested(sim, "GET /v1/servers"); n > 2*pages+4 {
					t.Errorf("seed %d: %d requests for a list of %d pages", seed, n, pages)
				}
				create(rng.IntN(60))
				remove(rng.IntN(60))
				time.Sleep(time.Second) // on the bubble's clock
			}
		})
	}
}

// Continuous creation of servers doesn't prevent the list from being read.
func TestAListIsReadWhileServersAreCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, _, _ := project(t, hcloudsim.Options{Latency: 20 * time.Millisecond})
		seed(t, sim, 0, 60)
		names := 0
		c := through(t, sim, func(*http.Request) {
			names++
			if _, err := sim.CreateServer(hcloudsim.ServerSeed{Name: fmt.Sprint("new-", names)}); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		list, err := c.Servers(0).List(t.Context(), began)
		if err != nil || len(list) < 60 {
			t.Fatalf("%d servers, %v; want the 60 that were there", len(list), err)
		}
		if n := requested(sim, "GET /v1/servers"); n > 3 || time.Since(began) > time.Second {
			t.Errorf("%d requests in %s for two pages", n, time.Since(began))
		}
	})
}

// An unchanging list needs one request for each page, also when it has grown or shrunk since,
// except for the one that finds that out.
func TestAListTakesARequestForEachPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, _ := project(t, hcloudsim.Options{})
		seed(t, sim, 0, 120)
		servers := c.Servers(0)
		read := func(want int) {
			t.Helper()
			sim.ResetRequests()
			if list, err := servers.List(t.Context(), time.Now()); err != nil ||
				len(list) != len(sim.Servers()) {
				t.Errorf("%d servers, %v; want %d", len(list), err, len(sim.Servers()))
			}
			if n := requested(sim, "GET /v1/servers"); n != want {
				t.Errorf("%d requests, want %d", n, want)
			}
			time.Sleep(time.Second) // on the bubble's clock
		}
		read(4) // the first doesn't have the number of pages
		read(3)
		for i := range 40 {
			if _, err := sim.CreateServer(hcloudsim.ServerSeed{Name: fmt.Sprint("later-", i)}); err != nil {
				t.Fatal(err)
			}
		}
		read(5)
		read(4)
		for _, s := range sim.Servers()[30:] {
			if err := sim.DeleteServer(s.ID); err != nil {
				t.Fatal(err)
			}
		}
		read(2)
		read(1)
	})
}

// A page with too few objects is rejected.
func TestAPageThatIsCutIsNotBelieved(t *testing.T) {
	for name, fault := range map[string]hcloudsim.Fault{"half a page": {PartialList: true}, "an empty page": {EmptyList: true}} {
		for number := range 3 {
			t.Run(fmt.Sprint(name, number), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sim, _, _ := project(t, hcloudsim.Options{})
					seed(t, sim, 0, 120)
					cut := -1 // number of the request with that response
					c := through(t, sim, func(*http.Request) {
						if cut--; cut == 0 {
							if err := sim.Inject(fault); err != nil {
								t.Error(err)
							}
						}
					})
					servers := c.Servers(0)
					if _, err := servers.List(t.Context(), time.Now()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second) // on the bubble's clock
					cut = number + 1
					list, err := servers.List(t.Context(), time.Now())
					if err != nil || len(list) != 120 || cut > 0 {
						t.Errorf("%d servers, %v; want all 120", len(list), err)
					}
				})
			})
		}
	}
}
