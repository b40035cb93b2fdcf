package hetzner_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// floating is a project with servers that are Nodes, a foreign server, and floating IPs in pools.
type floating struct {
	t     *testing.T
	sim   *hcloudsim.Simulator
	ips   *hetzner.FloatingIPs
	nodes map[int64]string // the Nodes, by their servers
	id    map[string]int64 // of servers by name, and of floating IPs by address
}

const (
	web  = "203.0.113.7"
	mail = "203.0.113.8"
	six  = "2001:db8:f::1"
)

func newFloating(t *testing.T, o hcloudsim.Options) *floating {
	t.Helper()
	sim, c, _ := project(t, o)
	f := &floating{t: t, sim: sim, nodes: map[int64]string{}, id: map[string]int64{}}
	for _, name := range []string{"a", "b", "c", "stranger"} {
		s, err := sim.CreateServer(hcloudsim.ServerSeed{Name: name})
		f.must(err)
		f.id[name] = s.ID
		if name != "stranger" {
			f.nodes[s.ID] = f.machine(name)
		}
	}
	for _, net := range []string{web + "/32", mail + "/32", "2001:db8:f::/64", "203.0.113.99/32"} {
		f.float(net, "", nil)
	}
	o2 := hetzner.FloatingIPOptions{
		Cluster: "prod",
		Nodes:   func(context.Context) (map[int64]string, error) { return f.nodes, nil },
	}
	for _, text := range []string{"203.0.113.0-203.0.113.15", six} {
		r, err := addresses.ParseRange(text)
		f.must(err)
		o2.Ranges = append(o2.Ranges, r)
	}
	f.ips = c.FloatingIPs(o2)
	return f
}

// float creates a floating IP, assigned to a server if it is named.
func (f *floating) float(net, server string, labels map[string]string) {
	p := netip.MustParsePrefix(net)
	seed := hcloudsim.FloatingIPSeed{Name: net, IP: p, Server: f.id[server], Labels: labels, Description: "kept"}
	seed.Name = strings.NewReplacer("/", "-", ":", "-").Replace(net)
	if p.Addr().Is6() {
		seed.Type = "ipv6"
	}
	made, err := f.sim.CreateFloatingIP(seed)
	f.must(err)
	f.id[p.Addr().String()] = made.ID
}

func (f *floating) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *floating) machine(name string) string { return fmt.Sprintf("hcloud://%d", f.id[name]) }

func (f *floating) route(address, server string) error {
	return f.ips.Route(f.t.Context(), netip.MustParseAddr(address), addresses.Destination{
		ProviderID: f.machine(server),
	})
}

// leads expects an address to be assigned to a server; empty: to none.
func (f *floating) leads(address, server string) {
	f.t.Helper()
	id, known := f.id[address]
	if !known {
		id = f.id["2001:db8:f::"]
	}
	got, _ := f.sim.FloatingIP(id)
	var on int64
	if got.Server != nil {
		on = *got.Server
	}
	if on != f.id[server] {
		f.t.Errorf("%s leads to server %d, want %s (%d)", address, on, server, f.id[server])
	}
}

// bubble runs a test with a project of its own in a synctest bubble.
func bubble(t *testing.T, o hcloudsim.Options, test func(*floating)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newFloating(t, o)) })
}

// A move is a list, an assignment and a poll or two; simultaneous moves share the list; nothing is
// written if it is assigned to the server already.
func TestFloatingIPsAreMoved(t *testing.T) {
	bubble(t, hcloudsim.Options{ActionTime: time.Second}, func(f *floating) {
		f.must(f.route(web, "a"))
		f.leads(web, "a")
		time.Sleep(time.Minute)
		f.must(f.route(web, "b")) // from which it learns the duration of an assignment
		time.Sleep(time.Minute)
		f.sim.ResetRequests()
		began := time.Now()
		f.must(f.route(web, "c"))
		f.must(f.route(six, "c"))
		f.must(f.route(six, "c"))
		f.leads(web, "c")
		f.leads(six, "c")
		lists, assigns, polls := requested(f.sim, "GET /v1/floating_ips"), requested(f.sim, "POST /v1/floating_ips"), requested(f.sim, "GET /v1/actions")
		t.Logf("two moves in %s: %d lists, %d assignments, %d polls", time.Since(began), lists, assigns, polls)
		if lists != 1 || assigns != 2 || polls > 4 || len(f.sim.Requests()) != lists+assigns+polls {
			t.Errorf("%d requests: %d lists, %d assignments, %d polls", len(f.sim.Requests()), lists, assigns, polls)
		}
		f.must(f.ips.Route(f.t.Context(), netip.MustParseAddr(six), addresses.Destination{}))
		f.leads(six, "")
	})
}

// The API may allow moving an assigned floating IP, or require that it is unassigned first; one
// attempt finds out.
func TestReassigningMayBeRefused(t *testing.T) {
	bubble(t, hcloudsim.Options{ActionTime: time.Second, RefuseReassign: true}, func(f *floating) {
		for i, server := range []string{"a", "b", "c", "a"} {
			f.sim.ResetRequests()
			f.must(f.route(web, server))
			f.leads(web, server)
			want := 2 // unassign, assign
			if i == 0 {
				want = 1
			} else if i == 1 {
				want = 3
			}
			if n := requested(f.sim, "POST /v1/floating_ips"); n != want {
				t.Errorf("move %d took %d changes, want %d", i, n, want)
			}
		}
	})
}

// Floating IPs of Nodes are returned, labeled once with all other labels kept, and read in one
// request.
func TestRoutedFloatingIPs(t *testing.T) {
	bubble(t, hcloudsim.Options{}, func(f *floating) {
		f.float("203.0.113.9/32", "a", map[string]string{"team": "x"})
		f.float("203.0.113.10/32", "stranger", nil)
		f.float("203.0.113.98/32", "a", nil) // in no pool
		var got map[netip.Addr]string
		for range 3 {
			var err error
			got, err = f.ips.Routed(f.t.Context())
			f.must(err)
			time.Sleep(5 * time.Minute)
		}
		want := map[string]string{web: "", mail: "", six: "", "203.0.113.9": f.machine("a"), "203.0.113.10": f.machine("stranger")}
		if len(got) != len(want) {
			t.Errorf("routed: %v, want %v", got, want)
		}
		for address, machine := range want {
			if there, known := got[netip.MustParseAddr(address)]; !known || there != machine {
				t.Errorf("%s leads to %q (%t), want %q", address, there, known, machine)
			}
		}
		if n, writes := requested(f.sim, "GET /v1/floating_ips"), requested(f.sim, "PUT "); n != 3+1 || writes != 1 {
			t.Errorf("%d reads and %d labels for three looks, want three lists, one read before the label, and the label", n, writes)
		}
		labeled, _ := f.sim.FloatingIP(f.id["203.0.113.9"])
		if labeled.Labels["underlay.dev/cluster"] != "prod" || labeled.Labels["team"] != "x" || *labeled.Description != "kept" {
			t.Errorf("it is %+v", labeled)
		}
	})
}

// An idle hour: 12 lists for up to 50 floating IPs, and nothing else.
func TestAnHourOfFloatingIPsAtRest(t *testing.T) {
	bubble(t, hcloudsim.Options{}, func(f *floating) {
		for i := range 46 {
			f.float(fmt.Sprintf("203.0.113.%d/32", 9+i), []string{"a", "b", "c", ""}[i%4], nil)
		}
		look := func() {
			_, err := f.ips.Routed(f.t.Context())
			f.must(err)
			time.Sleep(5 * time.Minute)
		}
		look() // this one writes labels
		f.sim.ResetRequests()
		for range 12 {
			look()
		}
		if n, lists := len(f.sim.Requests()), requested(f.sim, "GET /v1/floating_ips"); n != 12 || lists != 12 {
			t.Errorf("%d requests in an hour, %d of them lists", n, lists)
		}
	})
}

// Rejected moves leave everything unchanged, and name the remedy.
func TestFloatingIPsThatStay(t *testing.T) {
	ours := map[string]string{"underlay.dev/cluster": "prod"}
	for name, c := range map[string]struct {
		on      string
		labels  map[string]string
		address string
		refused string // empty: it moves
	}{
		"of a stranger":               {"stranger", nil, "203.0.113.9", "no Node of cluster \"prod\": unassign it, or give it the label underlay.dev/cluster=prod"},
		"of a stranger that agrees":   {"stranger", ours, "203.0.113.9", ""},
		"unassigned, another's":       {"", map[string]string{"underlay.dev/cluster": "test"}, "203.0.113.9", "to cluster \"test\""},
		"at a Node, another's":        {"a", map[string]string{"underlay.dev/cluster": "test"}, "203.0.113.9", "to cluster \"test\""},
		"in the project, in no pool":  {"", ours, "203.0.113.99", "in no pool"},
		"in a pool, not in a project": {"", nil, "203.0.113.1", "the project has none with this address: create it"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, hcloudsim.Options{}, func(f *floating) {
				f.float("203.0.113.9/32", c.on, c.labels)
				before := string(f.sim.Snapshot())
				err := f.route(c.address, "b")
				if c.refused == "" {
					f.must(err)
					f.leads(c.address, "b")
					return
				}
				if err == nil || !strings.Contains(err.Error(), c.refused) ||
					!strings.Contains(err.Error(), c.address) {
					t.Errorf("error is %v, want %q", err, c.refused)
				}
				about(t, err, addresses.AboutAddress)
				if string(f.sim.Snapshot()) != before {
					t.Error("something changed")
				}
			})
		})
	}
	bubble(t, hcloudsim.Options{}, func(f *floating) {
		far, err := f.sim.CreateServer(hcloudsim.ServerSeed{Name: "far", Type: "cpx11", Location: "ash"})
		f.must(err)
		f.id["far"], f.nodes[far.ID] = far.ID, fmt.Sprintf("hcloud://%d", far.ID)
		if err := f.route(web, "far"); err == nil || !strings.Contains(err.Error(), "home location alone, fsn1 (eu-central)") {
			t.Errorf("across zones: %v", err)
		} else {
			about(t, err, addresses.AboutNode)
		}
		if err := f.route(web, "stranger"); err == nil || !strings.Contains(err.Error(), "no Node") {
			t.Errorf("to a stranger: %v", err)
		}
	})
}

// about expects the subject of an error.
func about(t *testing.T, err error, want addresses.Subject) {
	t.Helper()
	var unrouted *addresses.Unrouted
	if !errors.As(err, &unrouted) || unrouted.About != want {
		t.Errorf("%v is not said to be about %v", err, want)
	}
}

// An error caused by the server has it as its subject; if the token is read-only, or the API is
// unreachable, another server would fail too.
func TestSubjectOfARejection(t *testing.T) {
	for name, c := range map[string]struct {
		fault  hcloudsim.Fault
		server bool
	}{
		"a locked server":            {hcloudsim.Fault{Status: 423, Code: "locked", Times: -1}, true},
		"a server that has too many": {hcloudsim.Fault{Status: 403, Code: "resource_limit_exceeded"}, true},
		"a server that is gone":      {hcloudsim.Fault{Status: 404, Code: "not_found"}, true},
		"an action that fails":       {hcloudsim.Fault{FailAction: "server_locked"}, true},
		"a token that may not write": {hcloudsim.Fault{Status: 403, Code: "forbidden"}, false},
		"a token that is gone":       {hcloudsim.Fault{Status: 401, Code: "unauthorized"}, false},
		"maintenance":                {hcloudsim.Fault{Status: 503, Code: "maintenance"}, false},
		"an API that is away":        {hcloudsim.Fault{DropBeforeApply: true, Times: -1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, hcloudsim.Options{ActionTime: time.Second}, func(f *floating) {
				f.must(f.route(web, "a"))
				c.fault.Match = "POST /floating_ips/{rest...}"
				f.must(f.sim.Inject(c.fault))
				err := f.route(web, "b")
				if err == nil {
					t.Fatal("it was moved")
				}
				if c.server {
					about(t, err, addresses.AboutNode)
				} else if errors.As(err, new(*addresses.Unrouted)) {
					t.Errorf("another server would have no more luck: %v", err)
				}
			})
		})
	}
}

// A floating IP can be moved from a server whose Node was deleted, because it is labeled.
func TestANodeThatIsNoneAnyMore(t *testing.T) {
	bubble(t, hcloudsim.Options{}, func(f *floating) {
		f.must(f.route(web, "a"))
		_, err := f.ips.Routed(f.t.Context())
		f.must(err)
		delete(f.nodes, f.id["a"])
		time.Sleep(time.Minute)
		f.must(f.route(web, "b"))
		f.leads(web, "b")
	})
}

// Many simultaneous moves to one server all succeed, with either behavior of the API, with few
// additional requests.
func TestManyMovesAtOnce(t *testing.T) {
	for name, o := range map[string]hcloudsim.Options{"conflict": {}, "locked": {Busy: hcloudsim.BusyLocked}} {
		t.Run(name, func(t *testing.T) {
			o.ActionTime, o.Latency = time.Second, 50*time.Millisecond
			bubble(t, o, func(f *floating) {
				const count = 6
				many := func(i int) string { return fmt.Sprintf("203.0.113.%d", 9+i) }
				for i := range count {
					f.float(many(i)+"/32", "", nil)
				}
				began := time.Now()
				var moves sync.WaitGroup
				for i := range count {
					moves.Go(func() {
						if err := f.route(many(i), "a"); err != nil {
							t.Error(err)
						}
					})
				}
				moves.Wait()
				for i := range count {
					f.leads(many(i), "a")
				}
				t.Logf("%d moves to one server took %s and %d requests", count, time.Since(began), len(f.sim.Requests()))
				if n := requested(f.sim, "POST /v1/floating_ips"); n > 8*count {
					t.Errorf("%d assignments for %d moves", n, count)
				}
			})
		})
	}
}

// Whatever happens to writes and their replies, a retry succeeds; and between a write with an
// unknown result and the next one there is always a read.
func TestLostRepliesOfFloatingIPs(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			o := hcloudsim.Options{
				ActionTime: 300 * time.Millisecond, EffectsAtOnce: r.IntN(2) == 0,
				RefuseReassign: r.IntN(2) == 0, RateLimit: hcloudsim.Unlimited,
			}
			bubble(t, o, func(f *floating) {
				for range 5 {
					to := []string{"a", "b", "c"}[r.IntN(3)]
					for range r.IntN(3) {
						fault := mishaps[r.IntN(len(mishaps))]
						fault.Match = "POST /floating_ips/{rest...}"
						f.must(f.sim.Inject(fault))
					}
					var err error
					for range 10 {
						if err = f.route(web, to); err == nil {
							break
						}
						time.Sleep(time.Second)
					}
					f.must(err)
					f.leads(web, to)
					f.sim.ClearFaults()
					time.Sleep(time.Second) // running actions end
				}
				unsure := false
				for _, q := range f.sim.Requests() {
					switch {
					case q.Method == http.MethodGet && q.Path == "/v1/floating_ips":
						unsure = false
					case q.Method == http.MethodPost && unsure:
						t.Fatalf("written again without a look: %s", q.Path)
					case q.Method == http.MethodPost:
						unsure = q.Dropped || q.Status >= http.StatusInternalServerError
					}
				}
			})
		})
	}
}

// A failed list is not an empty one, and a move with a spent budget precedes less urgent requests.
func TestFloatingIPsInTrouble(t *testing.T) {
	bubble(t, hcloudsim.Options{}, func(f *floating) {
		f.must(f.sim.Inject(hcloudsim.Fault{Match: "GET /floating_ips", Status: 403, Code: "forbidden"}))
		if got, err := f.ips.Routed(f.t.Context()); err == nil {
			t.Errorf("routed: %v", got)
		}
		f.must(f.sim.Inject(hcloudsim.Fault{Match: "GET /floating_ips", Status: 503, Code: "unavailable", Times: 2}))
		f.must(f.sim.Inject(hcloudsim.Fault{Match: "POST /floating_ips/{id}/actions/assign", Status: 429, Code: "rate_limit_exceeded"}))
		f.must(f.route(web, "a"))
		f.leads(web, "a")
	})
}
