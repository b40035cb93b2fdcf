//go:build linux

package kernel_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
)

// diary writes down what happened.
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

// await waits until an event is such.
func (d *diary) await(t *testing.T, what string, such func(agent.Event) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
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
		if err := k.Add(t.Context(), entry); err != nil {
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

// More events than there is room for are said to be lost, and those that come
// afterwards arrive.
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
	if err := k.Add(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	<-blocked
	other := first
	other.Via = other.Via.Next()
	for range 80_000 { // nobody reads
		if err := k.Replace(t.Context(), first, other); err != nil {
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
	if err := k.Add(t.Context(), marker); err != nil {
		t.Fatal(err)
	}
	d.await(t, fmt.Sprint("after the overflow: ", marker.Route), func(e agent.Event) bool { return e.Route == marker })
}
