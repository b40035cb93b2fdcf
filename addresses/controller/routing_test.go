package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/addresses"
)

// provider is a Router with moves that take time and may fail.
type provider struct {
	mu      sync.Mutex
	leads   map[netip.Addr]string
	takes   time.Duration
	fails   map[string]error // by address, by node, "planned", and "" for Routed
	request int
	tried   []time.Time
	moves   []string
	flying  map[netip.Addr]bool
	most    int
	twice   bool
}

func (p *provider) Routed(context.Context) (map[netip.Addr]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.request++
	return maps.Clone(p.leads), p.fails[""]
}

func (p *provider) Route(ctx context.Context, a netip.Addr, to addresses.Destination) error {
	p.mu.Lock()
	p.twice = p.twice || p.flying[a]
	p.flying[a] = true
	p.tried = append(p.tried, time.Now())
	p.most = max(p.most, len(p.flying))
	takes := p.takes
	p.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.flying, a)
	if p.leads[a] == to.ProviderID && ctx.Err() == nil {
		return nil
	}
	if err := errors.Join(ctx.Err(), p.fails[a.String()], p.fails[to.ProviderID]); err != nil {
		return err
	}
	if err := p.fails["planned"]; err != nil && to.Planned {
		return err
	}
	p.leads[a] = to.ProviderID
	move := a.String() + ">" + to.ProviderID
	if to.Planned {
		move += "(planned)"
	}
	if len(to.Former) > 0 {
		move += "(from " + strings.Join(to.Former, " ") + ")"
	}
	p.moves = append(p.moves, move)
	return nil
}

func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *provider) reported() (request int, moves string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.moves)
	moves = strings.Join(p.moves, " ")
	request, p.moves, p.request = p.request, nil, 0
	return request, moves
}

// runRouting runs the routing of a mover until stop is called, which waits for its end.
func runRouting(
	t *testing.T, p *provider, announce func(addresses.Mover, netip.Addr, destination, error),
) (r *routing, stop func()) {
	t.Helper()
	m, err := newMetrics(metrics.NewKubeRegistry())
	if err != nil {
		t.Fatal(err)
	}
	r = newRouting("failover", Routing{Router: p}, m, announce, func() {})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	return r, func() { cancel(); running.Wait() }
}

func routed(
	t *testing.T, test func(p *provider, want func(to map[string]string), events *[]string),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &provider{
			leads: map[netip.Addr]string{}, flying: map[netip.Addr]bool{}, fails: map[string]error{},
			takes: time.Minute,
		}
		var events []string
		r, stop := runRouting(t, p, func(_ addresses.Mover, a netip.Addr, d destination, err error) {
			events = append(events, fmt.Sprintf("%s>%s: %v", a, d.node, err))
		})
		test(p, func(to map[string]string) {
			wanted := map[netip.Addr]destination{}
			for a, node := range to {
				wanted[netip.MustParseAddr(a)] = destination{providerID: node, node: node}
			}
			r.set(wanted)
			synctest.Wait()
		}, &events)
		stop()
		if p.twice {
			t.Error("an address was routed twice at the same time")
		}
	})
}

const a1, a2, a3 = "203.0.113.1", "203.0.113.2", "203.0.113.3"

// Addresses are routed concurrently, changes during a move follow it, and at rest there is a
// request only every five minutes.
func TestAddressesGoTogether(t *testing.T) {
	routed(t, func(p *provider, want func(map[string]string), events *[]string) {
		want(map[string]string{a1: "x", a2: "x", a3: "y"})
		time.Sleep(20 * time.Second)
		want(map[string]string{a1: "y", a2: "x", a3: "y"}) // the move of a1 to x is in flight
		time.Sleep(41 * time.Second)
		if request, moves := p.reported(); moves != a1+">x "+a2+">x "+a3+">y" || request > 2 || p.most != 3 {
			t.Errorf("asked %d times, moved %q, %d at a time", request, moves, p.most)
		}
		time.Sleep(time.Minute)
		if _, moves := p.reported(); moves != a1+">y" {
			t.Errorf("moved %q", moves)
		}
		p.set(func() { p.leads[netip.MustParseAddr(a3)] = "x" }) // as another client
		time.Sleep(7 * time.Minute)
		if _, moves := p.reported(); moves != a3+">y" {
			t.Errorf("moved %q", moves)
		}
		time.Sleep(time.Hour)
		if request, moves := p.reported(); request > 12 || moves != "" {
			t.Errorf("asked %d times in an hour, moved %q", request, moves)
		}
		if len(*events) > 0 {
			t.Errorf("told %q", *events)
		}
	})
}

// A failing address is retried, reported once, and doesn't delay others; another node is tried at
// once.
func TestOneAddressFails(t *testing.T) {
	routed(t, func(p *provider, want func(map[string]string), events *[]string) {
		p.takes = time.Second
		p.fails[a1] = errors.New("no")
		want(map[string]string{a1: "x", a2: "x"})
		time.Sleep(10 * time.Minute)
		if _, moves := p.reported(); moves != a2+">x" || strings.Join(*events, ", ") != a1+">x: no" {
			t.Errorf("moved %q, told %q", moves, *events)
		}
		p.set(func() { delete(p.fails, a1) })
		want(map[string]string{a1: "y", a2: "x"})
		time.Sleep(2 * time.Second)
		if _, moves := p.reported(); moves != a1+">y" {
			t.Errorf("moved %q", moves)
		}
	})
}

// While the routes are unknown, no address is routed, and they are read again.
func TestRoutesOfAddressesAreUnknown(t *testing.T) {
	routed(t, func(p *provider, want func(map[string]string), events *[]string) {
		p.takes = time.Second
		p.fails[""] = errors.New("away")
		want(map[string]string{a1: "x"})
		time.Sleep(10 * time.Minute)
		if request, moves := p.reported(); moves != "" || request > 20 {
			t.Errorf("asked %d times, moved %q", request, moves)
		}
		p.set(func() { delete(p.fails, "") })
		time.Sleep(2 * time.Minute)
		if _, moves := p.reported(); moves != a1+">x" {
			t.Errorf("moved %q", moves)
		}
	})
}

// With any desired routes, refusals, delays and changes by others, each address is routed to its
// node in the end, no address has two moves in flight, and at rest there is a request every five
// minutes.
func TestAnyRoutingSchedule(t *testing.T) {
	all := []string{a1, a2, a3}
	for seed := range uint64(40) {
		routed(t, func(p *provider, want func(map[string]string), _ *[]string) {
			random := rand.New(rand.NewPCG(seed, 7))
			node := func() string { return string(rune('x' + random.IntN(3))) }
			causes := []error{aboutAddress, aboutNode, errToken}
			wanted := map[string]string{}
			for range 80 {
				address := all[random.IntN(len(all))]
				p.set(func() {
					switch random.IntN(6) {
					case 0:
						p.takes = time.Duration(random.IntN(100)) * time.Second
					case 1:
						p.fails[address] = causes[random.IntN(len(causes))]
					case 2:
						p.fails[node()] = aboutNode
					case 3:
						p.fails[""] = errToken
					case 4:
						p.leads[netip.MustParseAddr(address)] = node()
					case 5:
						clear(p.fails)
					}
				})
				if wanted[address] = node(); random.IntN(4) == 0 {
					delete(wanted, address)
				}
				want(wanted)
				time.Sleep(time.Duration(random.IntN(90)) * time.Second)
			}
			p.set(func() { clear(p.fails) })
			time.Sleep(12 * time.Minute)
			p.reported()
			time.Sleep(time.Hour)
			if request, moves := p.reported(); request != 12 || moves != "" {
				t.Errorf("seed %d: at rest asked %d times in an hour, moved %q", seed, request, moves)
			}
			p.set(func() {
				for address, node := range wanted {
					if leads := p.leads[netip.MustParseAddr(address)]; leads != node {
						t.Errorf("seed %d: %s leads to %q, want %q", seed, address, leads, node)
					}
				}
			})
		})
	}
}
