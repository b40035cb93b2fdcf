package robot_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/internal/robot"
)

// failing is an account with failover addresses in pools. Servers 1 to 3 are Nodes, 9 is not.
type failing struct {
	t     *testing.T
	sim   *robotsim.Simulator
	f     *robot.Failovers
	nodes map[int64]string
}

const (
	shop    = "203.0.113.7"
	shopSix = "2001:db8:f::1" // of a /64
)

func newFailing(t *testing.T, o robotsim.Options) *failing {
	t.Helper()
	o.User, o.Password = "user", "right"
	l := &failing{t: t, sim: robotsim.New(o), nodes: map[int64]string{}}
	for _, n := range []int64{1, 2, 3, 9} {
		_, err := l.sim.CreateServer(robotsim.ServerSeed{
			Number: n, Name: fmt.Sprintf("s%d", n), IPv4: netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), IPv6: netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::/64", n)),
		})
		l.must(err)
		if n != 9 {
			l.nodes[n] = machine(n)
		}
	}
	l.order(shop+"/32", 1)
	l.order("2001:db8:f::/64", 1)
	l.order("203.0.113.99/32", 1)
	client, err := robot.New(robot.Options{
		Endpoint: "http://robot.test", Registry: metrics.NewKubeRegistry(), Transport: l.sim.Transport(),
		Credentials: func() (robot.Credentials, error) { return robot.NewCredentials("user", "right") },
	})
	l.must(err)
	l.f = robot.NewFailovers(robot.FailoverOptions{
		Client: client, Servers: robot.NewServers(client, func(error) {}), Ranges: ranges(t, "203.0.113.0-203.0.113.15", shopSix),
		Nodes: func(context.Context) (map[int64]string, error) { return l.nodes, nil },
	})
	return l
}

func ranges(t *testing.T, texts ...string) (all []addresses.Range) {
	t.Helper()
	for _, text := range texts {
		r, err := addresses.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func machine(number int64) string { return fmt.Sprintf("hrobot://%d", number) }

func (l *failing) order(net string, server int64) {
	l.t.Helper()
	l.must(l.sim.CreateFailover(robotsim.FailoverSeed{
		Net: netip.MustParsePrefix(net), Server: server,
	}))
}

func (l *failing) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *failing) route(ctx context.Context, address string, to int64) error {
	return l.f.Route(ctx, netip.MustParseAddr(address), addresses.Destination{ProviderID: machine(to)})
}

// at expects an address at a server, according to the adapter.
func (l *failing) at(address string, server int64) {
	l.t.Helper()
	time.Sleep(2 * time.Minute) // so that it reads the addresses again
	routed, err := l.f.Routed(l.t.Context())
	l.must(err)
	if got := routed[netip.MustParseAddr(address)]; got != machine(server) {
		l.t.Errorf("%s is at %q, want server %d", address, got, server)
	}
}

// sent counts the requests that match, by method.
func (l *failing) sent(method string) (n int) {
	for _, r := range l.sim.Requests() {
		if r.Method == method && strings.HasPrefix(r.Path, "/failover") {
			n++
		}
	}
	return n
}

func inAccount(t *testing.T, o robotsim.Options, test func(*failing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newFailing(t, o)) })
}

// Both families move, each move is one request beside one list for all, and a response that takes a
// minute is waited for.
func TestFailoverAddressesAreMoved(t *testing.T) {
	inAccount(t, robotsim.Options{FailoverTime: 50 * time.Second}, func(l *failing) {
		began := time.Now()
		var moves sync.WaitGroup
		for _, address := range []string{shop, shopSix} {
			moves.Go(func() {
				if err := l.route(l.t.Context(), address, 2); err != nil {
					l.t.Error(err)
				}
			})
		}
		moves.Wait()
		if took := time.Since(began); took < 50*time.Second || took > 110*time.Second {
			t.Errorf("it took %s", took)
		}
		if looks, posts := l.sent(http.MethodGet), l.sent(http.MethodPost); looks != 1 || posts != 2 {
			t.Errorf("%d looks, %d moves for two addresses", looks, posts)
		}
		l.at(shop, 2)
		l.at(shopSix, 2)
		l.sim.ResetRequests()
		l.must(l.route(l.t.Context(), shop, 2))
		l.must(l.f.Route(l.t.Context(), netip.MustParseAddr(shop), addresses.Destination{}))
		routed, err := l.f.Routed(l.t.Context())
		l.must(err)
		if at, known := routed[netip.MustParseAddr(shop)]; !known || at != "" || l.sent(http.MethodPost) != 0 || l.sent(http.MethodDelete) != 1 {
			t.Errorf("it is at %q after it was routed nowhere", at)
		}
	})
}

// Rejected moves write nothing, and name the remedy.
func TestFailoverAddressesThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		address string
		to      int64
		want    string
	}{
		"at a stranger":  {"203.0.113.8", 1, "dedicated server 9, which is no Node of the cluster: route it to one of the cluster's servers in Robot"},
		"to a stranger":  {shop, 9, "no Node on a dedicated server"},
		"in no pool":     {"203.0.113.99", 2, "in no pool"},
		"not in account": {"203.0.113.1", 2, "the account has none with this address: order it"},
	} {
		t.Run(name, func(t *testing.T) {
			inAccount(t, robotsim.Options{}, func(l *failing) {
				l.order("203.0.113.8/32", 9)
				err := l.route(l.t.Context(), c.address, c.to)
				if err == nil || !strings.Contains(err.Error(), c.want) ||
					!strings.Contains(err.Error(), c.address) {
					t.Errorf("error is %v, want %q", err, c.want)
				}
				var unrouted *addresses.Unrouted
				if stays := errors.As(err, &unrouted) && unrouted.About == addresses.AboutAddress; stays != (name != "to a stranger") {
					t.Errorf("%v is said to be about the address: %t", err, stays)
				}
				if l.sent(http.MethodPost) != 0 {
					t.Error("it was moved")
				}
			})
		})
	}
}

// The idle cost is twelve lists an hour also if addresses are routed to foreign servers: a retry
// after a list needs no further one.
func TestAnHourAtStrangers(t *testing.T) {
	inAccount(t, robotsim.Options{}, func(l *failing) {
		l.order("203.0.113.8/32", 9)
		l.order("203.0.113.9/32", 9)
		for range 12 {
			_, err := l.f.Routed(l.t.Context())
			l.must(err)
			for _, address := range []string{"203.0.113.8", "203.0.113.9"} {
				if err := l.route(l.t.Context(), address, 1); err == nil {
					t.Error("it was moved")
				}
			}
			time.Sleep(5 * time.Minute)
		}
		if looks := l.sent(http.MethodGet); looks != 12 {
			t.Errorf("%d looks in an hour", looks)
		}
	})
}

// A failover address of a server whose Node was deleted can be moved.
func TestAFailoverAddressAtAFormerNode(t *testing.T) {
	inAccount(t, robotsim.Options{}, func(l *failing) {
		_, err := l.f.Routed(l.t.Context())
		l.must(err)
		delete(l.nodes, 1)
		l.must(l.route(l.t.Context(), shop, 2))
		l.at(shop, 2)
	})
}

// A process that never observed the Node of a server identifies it by the name in the ledger. Any
// other name is no permission to move the address.
func TestAFailoverAddressAtTheFormerHolder(t *testing.T) {
	for former, moves := range map[string]bool{"s9": true, "": false, "s1": false, "s1 s9": true} {
		inAccount(t, robotsim.Options{}, func(l *failing) {
			l.order("203.0.113.8/32", 9)
			address := netip.MustParseAddr("203.0.113.8")
			err := l.f.Route(l.t.Context(), address, addresses.Destination{
				ProviderID: machine(2), Former: strings.Fields(former),
			})
			if moves != (err == nil) || l.sent(http.MethodPost) == 1 != moves {
				t.Errorf("held before by %q: %v, %d moves", former, err, l.sent(http.MethodPost))
			}
		})
	}
}

// Whatever the outcome of a move, a retry succeeds, without a second request while the first may be
// in progress.
func TestMovesWhoseEndIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		fault robotsim.Fault
		posts int
	}{
		"reply lost":         {robotsim.Fault{DropAfterApply: true}, 1},
		"request lost":       {robotsim.Fault{DropBeforeApply: true}, 2},
		"proxy's timeout":    {robotsim.Fault{Status: http.StatusGatewayTimeout}, 2},
		"failed":             {robotsim.Fault{FailAction: "failed"}, 2},
		"not complete":       {robotsim.Fault{Code: "FAILOVER_NOT_COMPLETE"}, 2},
		"somebody moves it":  {robotsim.Fault{Code: robot.CodeLocked}, 2},
		"it was there":       {robotsim.Fault{Code: robot.CodeAlreadyRouted}, 1},
		"quota of others":    {robotsim.Fault{Code: robot.CodeRateLimit}, 2},
		"looks fail as well": {robotsim.Fault{DropAfterApply: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inAccount(t, robotsim.Options{FailoverTime: 50 * time.Second}, func(l *failing) {
				c.fault.Match = "POST /failover/{ip}"
				l.must(l.sim.Inject(c.fault))
				began := time.Now()
				if name == "looks fail as well" {
					time.AfterFunc(10*time.Second, func() {
						if err := l.sim.Inject(robotsim.Fault{Match: "GET /failover", DropBeforeApply: true, Times: 3}); err != nil {
							t.Error(err)
						}
					})
				}
				var err error
				for range 100 {
					if err = l.route(l.t.Context(), shop, 2); err == nil {
						break
					}
					time.Sleep(5 * time.Second)
				}
				l.must(err)
				t.Logf("after %s: %d moves, %d looks", time.Since(began), l.sent(http.MethodPost), l.sent(http.MethodGet))
				if n := l.sent(http.MethodPost); n != c.posts {
					t.Errorf("%d requests for a move, want %d", n, c.posts)
				}
				if name != "it was there" {
					l.at(shop, 2)
				}
			})
		})
	}
}

// Of 50 moves an hour some are reserved for failures, none is for balancing, and a postponed move
// is reported at once.
func TestMovesAreScarce(t *testing.T) {
	inAccount(t, robotsim.Options{}, func(l *failing) {
		planned := func(to int) error {
			return l.f.Route(l.t.Context(), netip.MustParseAddr(shop), addresses.Destination{
				ProviderID: machine(int64(to)), Planned: true,
			})
		}
		if err := l.route(requests.WithPriority(l.t.Context(), requests.Background), shop, 2); err == nil || !strings.Contains(err.Error(), "balance") {
			t.Errorf("for the balance: %v", err)
		}
		made := 0
		var err error
		for ; made < 60 && err == nil; made++ {
			err = planned(2 + made%2)
			time.Sleep(time.Second)
		}
		if made != 45+1 || !strings.Contains(err.Error(), "kept for failures of nodes; a planned move is possible at ") {
			t.Errorf("%d planned moves, then %v", made-1, err)
		}
		for i := range 5 {
			l.must(l.route(l.t.Context(), shop, int64(2+(made+1+i)%2)))
		}
		began := time.Now()
		err = l.route(l.t.Context(), shop, 1)
		if err == nil || !strings.Contains(err.Error(), "50 moves an hour are used up") || time.Since(began) > time.Second {
			t.Errorf("the 51st: %v after %s", err, time.Since(began))
		}
		time.Sleep(time.Hour)
		l.must(l.route(l.t.Context(), shop, 1))
		for _, r := range l.sim.Requests() {
			if r.Status == http.StatusForbidden {
				t.Errorf("refused for the quota: %s %s", r.Method, r.Path)
			}
		}
	})
}

// An idle hour: 12 lists.
func TestAnHourOfFailoversAtRest(t *testing.T) {
	inAccount(t, robotsim.Options{}, func(l *failing) {
		for range 12 {
			_, err := l.f.Routed(l.t.Context())
			l.must(err)
			time.Sleep(5 * time.Minute)
		}
		if n := l.sent(http.MethodGet); n != 12 || l.sent(http.MethodPost) != 0 {
			t.Errorf("%d looks in an hour, %d moves", n, l.sent(http.MethodPost))
		}
	})
}
