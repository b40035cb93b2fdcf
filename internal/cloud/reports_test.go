package cloud_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

// lagging is a project whose list doesn't change until a new one is requested, as a whole or for
// single servers.
type lagging struct {
	list, servers []cloud.Machine
	asked         time.Time
	looks         int
}

func (l *lagging) List(_ context.Context, since time.Time) ([]cloud.Machine, error) {
	if l.asked.Before(since) {
		l.looks++
		l.list, l.asked = l.servers, time.Now()
	}
	return l.list, nil
}

func (l *lagging) Look(ctx context.Context, questions []cloud.Question) ([]cloud.Machine, error) {
	var since time.Time
	for _, q := range questions {
		if q.Since.After(since) {
			since = q.Since
		}
	}
	return l.List(ctx, since)
}

func (l *lagging) Get(context.Context, int64) (cloud.Machine, error) {
	return cloud.Machine{}, cloud.ErrNoServer
}

// No controller removes a Node without a server, and node IPAM requests its prefix twice a minute.
func TestANodeWithoutAServerCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lagging{servers: []cloud.Machine{server(1, "a", "10.0.0.2"), server(2, "twin", ""), server(3, "twin", "")}}
		o := &cloud.Machines{Cloud: l}
		for range 120 {
			for _, name := range []string{"dedicated", "twin"} {
				if own, _, err := o.OwnPrefix(t.Context(), node(name)); !errors.Is(err, cloud.ErrOwnUnknown) {
					t.Fatalf("%s: %v, %v", name, own, err)
				}
			}
			time.Sleep(30 * time.Second) // on the bubble's clock
		}
		if l.looks > 10 {
			t.Errorf("%d looks in an hour", l.looks)
		}
	})
}

// The API server's clock is ahead: a Node with a creation time in the future causes one request,
// not one for each call until that time.
func TestANodeFromTheFutureIsLookedUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lagging{servers: []cloud.Machine{server(1, "a", "10.0.0.2")}}
		g := &cloud.Machines{Cloud: l}
		n := node("a")
		n.CreationTimestamp.Time = time.Now().Add(3 * time.Minute)
		for range 180 {
			if _, err := g.Gateways(t.Context(), []*corev1.Node{n}, false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // on the bubble's clock
		}
		if l.looks != 1 {
			t.Errorf("%d looks in three minutes, want 1", l.looks)
		}
	})
}
