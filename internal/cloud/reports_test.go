package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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

// A kubelet reports an address that the list doesn't have for its server: the server is requested
// at once, and once an hour.
func TestAnAddressThatContradictsTheListIsLookedUp(t *testing.T) {
	for name, reported := range map[string]nodeOption{"InternalIP": withIP("10.0.0.9"), "--node-ip": withAnnotation("10.0.0.9")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := []cloud.Machine{server(1, "a", "10.0.0.2"), server(2, "b", "10.0.0.3")}
				l := &lagging{list: before, asked: time.Now(), servers: []cloud.Machine{server(1, "a", "10.0.0.9"), before[1]}}
				g := &cloud.Machines{Cloud: l}
				i := instances(&project{})
				i.Machines = g
				is := func(n *corev1.Node, want string, looks int) {
					t.Helper()
					got, err := g.Gateways(t.Context(), []*corev1.Node{n}, false)
					if err != nil || got.Of["a"] != netip.MustParseAddr(want) || l.looks != looks {
						t.Errorf("a is at %s after %d looks, %v; want %s after %d", got.Of["a"], l.looks, err, want, looks)
					}
					if m, err := i.InstanceMetadata(t.Context(), n); err != nil ||
						m.NodeAddresses[2].Address != want {
						t.Errorf("a is described as %+v, %v; want %s", m, err, want)
					}
					time.Sleep(time.Second) // on the bubble's clock
				}
				time.Sleep(time.Second) // on the bubble's clock
				is(node("a", withID("hcloud://1"), withIP("10.0.0.2")), "10.0.0.2", 0)
				for range 10 {
					is(node("a", withID("hcloud://1"), reported), "10.0.0.9", 1)
				}
				// An address without an owner is requested once an hour, not repeatedly.
				time.Sleep(time.Hour) // on the bubble's clock
				for range 10 {
					is(node("a", withID("hcloud://1"), withIP("10.99.0.1")), "10.0.0.9", 2)
				}
			})
		})
	}
}

// A kubelet that reports ever new addresses causes few requests.
func TestAKubeletThatReportsManyAddressesCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lagging{servers: []cloud.Machine{server(1, "a", "10.0.0.2"), server(2, "b", "10.0.0.3")}}
		g := &cloud.Machines{Cloud: l}
		for i := range 3600 {
			n := node("a", withID("hcloud://1"), withIP(fmt.Sprintf("10.%d.%d.7", 100+i/200, i%200)))
			if _, err := g.Gateways(t.Context(), []*corev1.Node{n, node("b", withID("hcloud://2"))}, false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // on the bubble's clock
		}
		if l.looks > 10 {
			t.Errorf("%d looks in an hour", l.looks)
		}
	})
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
