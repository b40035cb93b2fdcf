//go:build linux

package kernel_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
)

// diary records events.
type diary struct {
	mu     sync.Mutex
	events []agent.Event
}

func (d *diary) note(e agent.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

func (d *diary) read() []agent.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.events)
}

// await waits for an event for which such returns true.
func (d *diary) await(t *testing.T, what string, such func(agent.Event) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true,
		func(context.Context) (bool, error) {
			return slices.ContainsFunc(d.read(), such), nil
		})
	if err != nil {
		t.Fatalf("no event: %s; there were %+v", what, d.read())
	}
}

func watch(t *testing.T, k *kernel.Kernel, happened func(agent.Event)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := k.Watch(ctx, happened); err != nil {
			t.Errorf("watching ended: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

func TestWatch(t *testing.T) {
	segment := kerneltest.NewSegment(t, "uplink", "10.0.0.1/24", "fd00::1/64")
	k := open(t)
	var d diary
	watch(t, k, d.note)
	d.await(t, "the start", func(e agent.Event) bool { return e.Kind == agent.EventsLost })

	for _, entry := range []agent.Entry{
		toward("10.244.1.0/24", "10.0.0.2", segment.Index), toward("fd01:1::/64", "fd00::2", segment.Index),
		refusing("10.244.9.0/24"), refusing("fd01:9::/64"),
	} {
		if err := k.Add(t.Context(), []agent.Entry{entry})[0]; err != nil {
			t.Fatal(err)
		}
		d.await(t, "a route was added, exactly as we wrote it", func(e agent.Event) bool { return e == agent.Event{Kind: agent.RouteSet, Route: entry} })
		if err := k.Delete(t.Context(), entry); err != nil {
			t.Fatal(err)
		}
		d.await(t, "a route was deleted", func(e agent.Event) bool { return e == agent.Event{Kind: agent.RouteGone, Route: entry} })
	}
	segment.Withdraw("10.0.0.1/24")
	d.await(t, "an address went", func(e agent.Event) bool {
		return e.Kind == agent.AddressChanged && e.Link == segment.Index && e.Addr.String() == "10.0.0.1"
	})
	segment.Down()
	d.await(t, "an interface went down", func(e agent.Event) bool {
		return e.Kind == agent.LinkChanged && e.Link == segment.Index && e.Name == "uplink"
	})
}

// The watch reports every loss of routes: not each IPv4 route, but the link or the address that was
// removed with it. The agent resyncs then.
func TestLossesOfRoutesAreReported(t *testing.T) {
	link := func(name string) func(agent.Event) bool {
		return func(e agent.Event) bool { return e.Kind == agent.LinkChanged && e.Name == name }
	}
	address := func(text string) func(agent.Event) bool {
		return func(e agent.Event) bool {
			return e.Kind == agent.AddressChanged && e.Addr.String() == text
		}
	}
	for _, c := range []struct {
		name  string
		cause func(*testing.T, *kerneltest.Segment)
		told  func(agent.Event) bool
		left  int // the number of remaining routes, of two
	}{
		{"link down", func(_ *testing.T, s *kerneltest.Segment) { s.Down() }, link("uplink"), 0},
		{"the last IPv4 address goes", func(_ *testing.T, s *kerneltest.Segment) { s.Withdraw("10.0.0.1/24") }, address("10.0.0.1"), 1},
		{"an IPv6 address goes, and the route stays", func(_ *testing.T, s *kerneltest.Segment) { s.Withdraw("fd00::1/64") }, address("fd00::1"), 2},
		{"IPv6 is switched off", func(t *testing.T, s *kerneltest.Segment) {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+s.Name+"/disable_ipv6", []byte("1"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, address("fd00::1"), 1},
		{"the interface is deleted", func(t *testing.T, s *kerneltest.Segment) { ip(t, "link", "delete", s.Name) }, link("uplink"), 0},
		{"the interface is renamed", func(t *testing.T, s *kerneltest.Segment) {
			ip(t, "link", "set", s.Name, "down", "name", "renamed")
			ip(t, "link", "set", "renamed", "name", s.Name)
		}, link("renamed"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			segment := kerneltest.NewSegment(t, "uplink", "10.0.0.1/24", "fd00::1/64")
			k := open(t)
			both := []agent.Entry{toward("10.244.1.0/24", "10.0.0.2", segment.Index), toward("fd01:1::/64", "fd00::2", segment.Index)}
			for _, e := range both {
				if err := k.Add(t.Context(), []agent.Entry{e})[0]; err != nil {
					t.Fatal(err)
				}
			}
			var d diary
			watch(t, k, d.note)
			d.await(t, "the start", func(e agent.Event) bool { return e.Kind == agent.EventsLost })
			c.cause(t, segment)
			d.await(t, c.name, c.told)
			// The event of a removed IPv4 address precedes the removal of its routes; a dump of
			// links waits until both are removed.
			if _, err := k.Links(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left := slices.DeleteFunc(list(t, k), func(e agent.Entry) bool {
				return !e.Ours()
			}); len(left) != c.left {
				t.Errorf("left are %v, want %d", left, c.left)
			}
		})
	}
}

// Events beyond the buffer are reported as lost, and later ones are delivered.
func TestWatchGoesOnAfterOverflow(t *testing.T) {
	segment := kerneltest.NewSegment(t, "uplink", "10.0.0.1/24")
	k := open(t)
	var d diary
	release := make(chan struct{})
	blocked := make(chan struct{})
	var once sync.Once
	lost := make(chan struct{}, 10)
	watch(t, k, func(e agent.Event) {
		if e.Kind == agent.EventsLost {
			lost <- struct{}{}
		} else {
			once.Do(func() { close(blocked); <-release })
		}
		d.note(e)
	})
	<-lost // the start
	first := toward("10.244.0.0/24", "10.0.0.2", segment.Index)
	if err := k.Add(t.Context(), []agent.Entry{first})[0]; err != nil {
		t.Fatal(err)
	}
	<-blocked
	other := first
	other.Via = other.Via.Next()
	for range 80_000 { // the watcher doesn't read
		if err := k.Replace(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		first, other = other, first
	}
	close(release)
	select {
	case <-lost:
	case <-time.After(30 * time.Second):
		t.Fatal("the kernel dropped events and nobody was told")
	}
	marker := toward("10.244.77.0/24", "10.0.0.2", segment.Index)
	if err := k.Add(t.Context(), []agent.Entry{marker})[0]; err != nil {
		t.Fatal(err)
	}
	d.await(t, fmt.Sprint("after the overflow: ", marker), func(e agent.Event) bool { return e.Route == marker })
}
