package controller

import (
	"container/list"
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/ipam"
)

// node is the decider's state of one UID.
type node struct {
	ipam.Node
	phase   phase
	created time.Time // by the API server's clock
	met     time.Time // when this process first observed it
	labels  map[string]string
	cached  bool // in the informer; until then only a live GET shows whether it exists
	busy    bool // in ready, or at a worker

	own       ownPrefix
	inside    []netip.Addr // its counted addresses that lie in pools
	excess    string       // message about addresses beyond the limit; empty: within it
	warned    map[string]bool
	condition struct {
		reason  string // last written
		writing bool   // a write is in flight
	}
}

// A phase is *unserved, settled or *departed. A Node is departed exactly while the Ledger has its
// prefixes in quarantine.
type phase interface{ isPhase() }

// unserved is the phase without observed podCIDRs: the Node waits, or has a reservation.
type unserved struct {
	delivery delivery
	turn     *list.Element // its place among the waiting Nodes; nil: it doesn't wait
	stopped  time.Time     // since when it has waited for another allocator to stop
}

// settled is the phase with observed podCIDRs, which are immutable: there is nothing to do.
type settled struct{}

// departed is the phase of a deleted Node, observed here or recorded in the stored ledger.
type departed struct {
	since     time.Time // when this process first observed the deletion
	until     time.Time // end of the quarantine, on this process's monotonic clock
	confirmed bool      // by the API server, to this process
}

func (*unserved) isPhase() {}
func (settled) isPhase()   {}
func (*departed) isPhase() {}

// delivery is whether a request with a Node's reservation was sent.
type delivery int

const (
	unsent    delivery = iota
	maybeSent          // by the process that recorded the reservation
	sent               // by this process
)

// unserved returns the state of that phase, nil in another one.
func (n *node) unserved() *unserved {
	u, _ := n.phase.(*unserved)
	return u
}

// departed returns the state of that phase, nil in another one.
func (n *node) departed() *departed {
	g, _ := n.phase.(*departed)
	return g
}

func (n *node) settled() bool { return n.phase == settled{} }

func (n *node) gone() bool { return n.departed() != nil }

// delivered reports whether a request with the Node's reservation may have been sent.
func (n *node) delivered() bool {
	u := n.unserved()
	return u == nil || u.delivery != unsent
}

// age returns the time since a Node's creation, or since this process first observed the Node
// if the creation time is ahead of the local clock.
func (n *node) age() time.Duration { return max(time.Since(n.created), time.Since(n.met)) }

// identify returns the state of a UID, creating it if necessary.
func (d *decider) identify(owner ipam.Node) *node {
	n, ok := d.nodes[types.UID(owner.UID)]
	if !ok {
		n = &node{Node: owner, phase: &unserved{}, met: time.Now()}
		d.nodes[types.UID(owner.UID)] = n
		d.byName[owner.Name] = append(d.byName[owner.Name], n)
	}
	return n
}

// track returns the state of a Node's UID, updated from the live Node.
func (d *decider) track(live *corev1.Node) *node {
	n := d.identify(ipam.Node{
		Name: live.Name, UID: string(live.UID), ProviderID: live.Spec.ProviderID,
	})
	n.created, n.labels = live.CreationTimestamp.Time, live.Labels
	if n.ProviderID == live.Spec.ProviderID || live.Spec.ProviderID == "" {
		return n
	}
	n.ProviderID, n.own = live.Spec.ProviderID, ownPrefix{}
	if held, _, ok := d.ledger.Held(n.UID); ok && n.settled() {
		// So that the record identifies the machine after the Node's deletion.
		d.look(n, held)
		d.noted(n)
	}
	return n
}

// cachedNode returns the Node with this UID if the cache has it, or nil.
func (d *decider) cachedNode(owner ipam.Node) *corev1.Node {
	live, err := d.lister.Get(owner.Name) // the only error is that there is none
	if err != nil || string(live.UID) != owner.UID {
		return nil
	}
	return live
}

// forget puts the prefixes of a deleted UID into quarantine.
func (d *decider) forget(ctx context.Context, n *node) {
	if n.gone() {
		return
	}
	held, ok := d.ledger.Release(n.UID, moment())
	if !ok {
		d.drop(n)
		return
	}
	d.depart(n, held.Released)
	d.metrics.releases.Inc()
	d.noted(n)
	klog.FromContext(ctx).Info("Node is gone, its podCIDRs are in quarantine", "node", n.Name, "uid",
		n.UID, "podCIDRs", held.Prefixes)
}

// depart starts the quarantine of a deleted Node when this process first observes the deletion.
// The recorded time only shortens a quarantine that another process started. One that is over
// by that time, yet still exists, lasts its full time: the clock may have been behind.
func (d *decider) depart(n *node, recorded time.Time) {
	if n.gone() {
		return
	}
	d.stopWaiting(n)
	now := time.Now()
	left := recorded.Add(d.Quarantine).Sub(now)
	if left <= 0 || left > d.Quarantine {
		left = d.Quarantine
	}
	n.phase = &departed{since: now, until: now.Add(left)}
	d.stale = true
	d.expireIn(max(d.Quarantine, time.Second))
}

// revive marks a Node that the API server has as existing, and ends its quarantine.
func (d *decider) revive(n *node) {
	if n.gone() {
		n.phase, d.stale = &unserved{delivery: maybeSent}, true
		d.ledger.Revive(n.UID)
		d.noted(n)
	}
}

func (d *decider) drop(n *node) {
	d.stopWaiting(n)
	d.vacated = d.vacated || len(n.inside) > 0
	delete(d.nodes, types.UID(n.UID))
	d.byName[n.Name] = slices.DeleteFunc(d.byName[n.Name], func(other *node) bool {
		return other == n
	})
	if len(d.byName[n.Name]) == 0 {
		delete(d.byName, n.Name)
		d.queue.Forget(n.Name)
	}
}
