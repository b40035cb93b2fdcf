package controller

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/ipam"
)

// machines is a fake cloud with the machines' own prefixes, by provider ID.
type machines struct {
	mu      sync.Mutex
	own     map[string]string
	avoid   []netip.Addr
	down    bool
	checked int
}

func (m *machines) OwnPrefix(
	_ context.Context, node *corev1.Node,
) (netip.Prefix, []netip.Addr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checked++
	if m.down {
		return netip.Prefix{}, nil, errors.New("fake: the cloud doesn't answer")
	}
	if node.Spec.ProviderID == "" {
		return netip.Prefix{}, nil, errors.New("fake: nobody knows yet which machine this is")
	}
	own, ok := m.own[node.Spec.ProviderID]
	if !ok {
		return netip.Prefix{}, nil, nil
	}
	return pfx(own), m.avoid, nil
}

func (m *machines) setDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

func (m *machines) know(c *Config) { c.Own = m }

func ownPool(name string, mask int) Pool {
	return Pool{PoolConfig: ipam.PoolConfig{Name: name, NodeMask: mask, Own: true}}
}

func TestNodePrefixesAreCutFromTheMachinesOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		m := &machines{own: map[string]string{"cloud://1": "2001:db8:0:1::/64", "cloud://2": "2001:db8:0:2::/64"}}
		p := start(t, api, []Pool{pool("v4", "10.0.0.0/22", 24), ownPool("own", 80)}, m.know, quarantine(5*time.Minute))
		defer p.stop()
		pass(time.Second)
		api.add("a", onMachine("cloud://1"))
		pass(time.Second)
		// The block with the machine's own address ::1 is never assigned.
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "2001:db8:0:1:1::/80")
		m.mu.Lock()
		m.avoid = []netip.Addr{netip.MustParseAddr("2001:db8:0:2:1::53"), netip.MustParseAddr("2001:db8:0:2:2::1")}
		m.mu.Unlock()
		api.add("b", onMachine("cloud://2"))
		pass(time.Second)
		wantPodCIDRs(t, api, "b", "10.0.1.0/24", "2001:db8:0:2:3::/80")
		// The same machine returns under its name.
		api.delete("a")
		pass(time.Second)
		api.add("a", onMachine("cloud://1"))
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "2001:db8:0:1:1::/80")
		if got := api.stored()["b"]; got != "uid=uid-2 id=cloud://2 10.0.1.0/24@v4 2001:db8:0:2:3::/80@own" {
			t.Errorf("the ledger has %q for b", got)
		}
		wantSound(t, api)
	})
}

// A machine without an own prefix gets no IPv4 prefix either, until there is a fallback pool.
func TestAMachineWithoutAPrefixOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api, m := newFakeAPI(), &machines{own: map[string]string{}}
		pools := []Pool{pool("v4", "10.0.0.0/22", 24), ownPool("own", 80)}
		p := start(t, api, pools, m.know)
		pass(time.Second)
		api.add("a", onMachine("cloud://1"))
		pass(time.Minute)
		wantPodCIDRs(t, api, "a")
		p.events.want(t, 1, "a Warning NoOwnPrefix")
		p.wantMetric(t, rangesMetric, 4, "v4", "free")
		if free, shown := p.metric(t, rangesMetric, "own", "free"); shown {
			t.Errorf("%v prefixes are free in the pool of the machines' own: that reads as exhausted or as limited", free)
		}
		if got := api.holders(); len(got) > 0 {
			t.Errorf("the ledger has %q, want nobody", got)
		}
		p.stop()
		p = start(t, api, append(pools, pool("fallback", "fd00::/62", 64)), m.know, notFirst)
		defer p.stop()
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
	})
}

// Two Nodes are on one machine's /64: the second gets no part of it.
func TestASharedOwnPrefixServesOneNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		m := &machines{own: map[string]string{"cloud://1": "2001:db8::/64", "cloud://2": "2001:db8::/64"}}
		p := start(t, api, []Pool{pool("v4", "10.0.0.0/22", 24), ownPool("own", 80)}, m.know)
		defer p.stop()
		pass(time.Second)
		api.add("a", onMachine("cloud://1"))
		pass(time.Second)
		api.add("b", onMachine("cloud://2"))
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "2001:db8:0:0:1::/80")
		wantPodCIDRs(t, api, "b")
		p.events.want(t, 1, "b Warning SharedOwnPrefix")
		p.wantMetric(t, rangesMetric, 3, "v4", "free")
		wantSound(t, api)
	})
}

// While the cloud doesn't respond, Nodes wait: they get no fallback.
func TestAnUnresponsiveCloudIsQueriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		m := &machines{own: map[string]string{"cloud://1": "2001:db8:0:1::/64"}, down: true}
		p := start(t, api, []Pool{pool("v4", "10.0.0.0/22", 24), ownPool("own", 80), pool("fallback", "fd00::/62", 64)}, m.know)
		defer p.stop()
		pass(time.Second)
		api.add("a", onMachine("cloud://1"))
		pass(time.Minute)
		wantPodCIDRs(t, api, "a")
		p.events.want(t, 0, "a Warning NoOwnPrefix")
		m.setDown(false)
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "2001:db8:0:1:1::/80")
		if m.checked > 40 {
			t.Errorf("the cloud was asked %d times in two minutes", m.checked)
		}
	})
}

// Without such a pool the cloud gets no requests, and no Node waits.
func TestNoRequestsToTheCloudWithoutSuchAPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api, m := newFakeAPI(), &machines{down: true}
		p := start(t, api, []Pool{pool("v4", "10.0.0.0/22", 24)}, m.know)
		defer p.stop()
		pass(time.Second)
		api.add("a")
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24")
		if m.checked > 0 {
			t.Errorf("the cloud was asked %d times", m.checked)
		}
	})
}

// A Node without a provider ID, and so without a known machine, is looked up again when it gets
// one.
func TestAProviderIDThatComesLaterFindsTheMachine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		m := &machines{own: map[string]string{"cloud://1": "2001:db8:0:1::/64"}}
		p := start(t, api, []Pool{pool("v4", "10.0.0.0/22", 24), ownPool("own", 80)}, m.know)
		defer p.stop()
		pass(time.Second)
		api.add("a")
		pass(time.Second)
		wantPodCIDRs(t, api, "a")
		api.edit("a", onMachine("cloud://1"))
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "2001:db8:0:1:1::/80")
	})
}
