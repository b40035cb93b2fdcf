package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// bare returns the Node of a dedicated server with these InternalIPs.
func bare(number int, internal ...string) *corev1.Node {
	n := node(fmt.Sprint("bare-", number), 1)
	n.Spec.ProviderID = fmt.Sprint("hrobot://", number)
	n.Status.Addresses = at(internal...)
	return n
}

func at(internal ...string) (addresses []corev1.NodeAddress) {
	for _, a := range internal {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return addresses
}

func addressTarget(a string) lb.Target { return lb.AddressTarget(netip.MustParseAddr(a)) }

func inNetwork(name string) *corev1.Service {
	svc := service(name)
	svc.Annotations[lb.HetznerPrefix+"use-private-ip"] = "true"
	return svc
}

// Dedicated servers become targets and are removed with their Nodes, as cloud servers are.
func TestNodesOfDedicatedServersAreTargets(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(inNetwork("web"))
		w.cloud.counts()

		joining := bare(5, "10.1.0.5")
		readiness(corev1.ConditionFalse)(joining)
		w.createNode(joining)
		w.expect("not Ready yet")
		w.editNode("bare-5", readiness(corev1.ConditionTrue))
		w.expect("Ready", "add IP 10.1.0.5")
		w.editNode("bare-5", readiness(corev1.ConditionUnknown))
		w.later()
		w.expect("not Ready any more")
		w.editNode("bare-5", readiness(corev1.ConditionTrue))
		w.expect("Ready again")
		w.editNode("bare-5", func(n *corev1.Node) { n.Status.Addresses = at("10.1.0.5", "192.168.0.5") })
		w.expect("one more address, which is elsewhere")
		w.editNode("bare-5", func(n *corev1.Node) { n.Status.Addresses = at("10.1.0.50") })
		w.expect("another address", "remove IP 10.1.0.5", "add IP 10.1.0.50")
		w.editNode("bare-5", func(n *corev1.Node) { n.Spec.ProviderID = "hcloud://bm-5" })
		w.expect("the older form of its provider ID")
		w.editNode("bare-5", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" })
		w.expect("excluded", "remove IP 10.1.0.50")
		w.editNode("bare-5", func(n *corev1.Node) { delete(n.Labels, corev1.LabelNodeExcludeBalancers) })
		w.expect("included", "add IP 10.1.0.50")
		w.deleteNode("bare-5")
		w.expect("deleted", "remove IP 10.1.0.50")
		if events := w.message(); len(events) != 0 {
			t.Errorf("Events %q", events)
		}

		w.createNode(node("elsewhere", 1))
		w.cloud.counts()
		w.editNode("elsewhere", func(n *corev1.Node) { n.Spec.ProviderID, n.Status.Addresses = "underlay://m1", at("10.1.0.9") })
		w.later()
		w.expect("a machine of another provider")
	})
}

// A drift of address targets is repaired like one of servers.
func TestDriftOfAddresses(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.createNode(bare(5, "10.1.0.5"))
		w.create(inNetwork("web"))
		w.cloud.change(w.cloud.all()[0].ID, func(s *lb.State) {
			s.Targets = []lb.Target{{Server: 1, Private: true}, {Server: 9, Private: true}, addressTarget("10.1.0.9")}
		})
		w.cloud.counts()
		w.later()
		w.expect("drift", "remove server 9 (private)", "remove IP 10.1.0.9", "add IP 10.1.0.5")
		w.later()
		w.expect("no drift")
	})
}

// A dedicated server without an address in the network is reported once, and becomes a target when
// it has one.
func TestDedicatedServerGetsItsAddress(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.createNode(bare(5, "192.168.0.5"))
		w.create(inNetwork("web"))
		events := w.message()
		if len(events) != 1 || !strings.Contains(events[0], lb.ReasonTargetAddressMissing) || !strings.Contains(events[0], "bare-5") || !strings.Contains(events[0], "--node-ip") {
			t.Errorf("Events %q", events)
		}
		if got := accepted(w.service("web")); got != "False "+lb.ReasonTargetAddressMissing {
			t.Errorf("accepted: %s", got)
		}
		w.createNode(bare(6, "192.168.0.6"))
		for range 3 {
			w.later()
		}
		if events := w.message(); len(events) != 0 {
			t.Errorf("one more is news: %q", events)
		}
		w.cloud.counts()
		for _, number := range []int{5, 6} {
			w.editNode(fmt.Sprint("bare-", number), func(n *corev1.Node) { n.Status.Addresses = at(fmt.Sprint("10.1.0.", number)) })
		}
		w.expect("addresses", "add IP 10.1.0.5", "add IP 10.1.0.6")
		if got := accepted(w.service("web")); got != "True Accepted" {
			t.Errorf("accepted: %s", got)
		}
	})
}

// With policy Local, nodes of both kinds with ready endpoints are targets first if there is no room
// for all; the Event counts both kinds together.
func TestDedicatedServersWithEndpointsComeFirst(t *testing.T) {
	inWorld(t, newCloud(), nodes(20), func(w *world) {
		for i := range 10 {
			w.createNode(bare(100+i, fmt.Sprint("10.1.0.", 100+i)))
		}
		svc := inNetwork("web")
		toLocal(svc)
		w.endpoints("web", "bare-109", "bare-108", "node-3")
		w.create(svc)
		targets := w.cloud.all()[0].Targets
		for _, want := range []lb.Target{{Server: 3, Private: true}, {Server: 20, Private: true}, addressTarget("10.1.0.108"), addressTarget("10.1.0.109")} {
			if len(targets) != 25 || !slices.Contains(targets, want) {
				t.Errorf("targets %v, want %s among 25", targets, want)
			}
		}
		if events := w.message(); len(events) != 1 || !strings.Contains(events[0], "TargetsTruncated") || !strings.Contains(events[0], "25 of 30 nodes") {
			t.Errorf("Events %q, want one with both numbers", events)
		}
		w.cloud.counts()
		w.endpoints("web", "bare-107", "bare-108", "node-3")
		w.expect("endpoints move", "remove IP 10.1.0.109", "add IP 10.1.0.107")
	})
}

// A rejected address is retried when its Node changes, and when the network gets a subnet of type
// vswitch.
func TestRejectedAddressIsRetried(t *testing.T) {
	none, coupled := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, []netip.Prefix{vSwitch}
	var ranges atomic.Pointer[[]netip.Prefix]
	ranges.Store(&none)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, newCloud(), nodes(1))
		w.ranges = func() []netip.Prefix { return *ranges.Load() }
		w.reachable = func(context.Context, time.Time) (map[lb.Target]bool, error) { return nil, nil }
		w.start()
		defer func() { w.stop() }()
		w.cloud.setFault(func(op lb.Op) error {
			if add, ok := op.(lb.AddTarget); ok && add.Target.Address.IsValid() {
				return &lb.RejectedError{Code: "network_has_no_vswitch_subnet", Message: "the network has no vSwitch subnet", Target: true}
			}
			return nil
		})
		w.create(inNetwork("web"))
		w.cloud.counts()
		w.createNode(bare(5, "10.1.0.5"))
		w.expect("refused", "add IP 10.1.0.5")
		w.later()
		if _, writes := w.cloud.counts(); len(writes) < 3 || len(writes) > 7 {
			t.Errorf("%d times in the first minutes", len(writes))
		}
		time.Sleep(5 * time.Hour)
		w.settle()
		if _, writes := w.cloud.counts(); len(writes) > 10 {
			t.Errorf("%d times in five hours", len(writes))
		}
		if got := accepted(w.service("web")); got != "False Rejected" {
			t.Errorf("accepted: %s", got)
		}
		w.editNode("bare-5", func(n *corev1.Node) { n.Status.Addresses = at("10.1.0.5", "192.168.0.5") })
		w.expect("its Node has changed", "add IP 10.1.0.5")

		w.cloud.setFault(nil)
		ranges.Store(&coupled)
		time.Sleep(20 * time.Second)
		w.settle()
		w.expect("a vSwitch subnet", "add IP 10.1.0.5")
		if got := accepted(w.service("web")); got != "True Accepted" {
			t.Errorf("accepted: %s", got)
		}
	})
}

// A Node without addresses stays a target for a while. Only targets that are known to be another
// Node's are removed.
func TestDedicatedServerLosesItsAddresses(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		for number := 5; number <= 7; number++ {
			w.createNode(bare(number, fmt.Sprint("10.1.0.", number)))
		}
		w.create(inNetwork("web"))
		w.cloud.counts()
		w.editNode("bare-5", func(n *corev1.Node) { n.Status.Addresses = nil })
		w.expect("no address")
		if events := w.message(); len(events) != 1 || !strings.Contains(events[0], lb.ReasonTargetAddressMissing) || !strings.Contains(events[0], "bare-5") {
			t.Errorf("Events %q", events)
		}
		w.editNode("bare-5", readiness(corev1.ConditionFalse))
		w.restart()
		w.expect("not Ready, and after a restart")
		w.editNode("bare-6", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" })
		w.later()
		w.expect("another one is excluded", "remove IP 10.1.0.6")
		w.deleteNode("bare-7")
		w.later()
		w.expect("another one is gone, and 10.1.0.7 may be anybody's")
		w.editNode("bare-5", func(n *corev1.Node) { n.Status.Addresses = at("10.1.0.5") })
		w.expect("its address", "remove IP 10.1.0.7")
		w.editNode("bare-5", readiness(corev1.ConditionTrue))
		w.later()
		w.expect("Ready")
		if events := w.message(); len(events) != 0 {
			t.Errorf("Events %q", events)
		}
		if got := accepted(w.service("web")); got != "True Accepted" {
			t.Errorf("accepted: %s", got)
		}
	})
}

// Addresses without a Node are removed at a takeover and when another client adds them, as servers
// are.
func TestStrangersAreRemoved(t *testing.T) {
	found := peers("awebuid")
	found.Targets = append(found.Targets, lb.Target{Server: 9}, addressTarget("203.0.113.8"), addressTarget("203.0.113.9"))
	inWorld(t, newCloud(found), nodes(2), func(w *world) {
		w.create(takenOver())
		for range 3 {
			w.later()
		}
		var many []lb.Target
		for i := range 12 {
			many = append(many, addressTarget(fmt.Sprint("203.0.113.", 100+i)))
		}
		w.cloud.change(w.cloud.all()[0].ID, func(s *lb.State) {
			s.Targets = append(slices.Clone(s.Targets), many...)
		})
		w.later()
		if targets := w.cloud.all()[0].Targets; slices.ContainsFunc(targets, func(t lb.Target) bool {
			return t.Address.IsValid()
		}) {
			t.Errorf("targets %v", targets)
		}
	})
}

// The ranges of dedicated servers are looked up with the regular resync, if there are dedicated
// servers, and a failed lookup has no other effect.
func TestRangesAreLookedUpRegularly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w := newWorld(t, newCloud(), nodes(1))
		w.refresh = func(context.Context) error { asked++; return errors.New("no answer") }
		w.start()
		defer func() { w.stop() }()
		w.create(inNetwork("web"))
		w.later()
		if asked != 0 {
			t.Errorf("asked %d times without a dedicated server", asked)
		}
		w.createNode(bare(5, "10.1.0.5"))
		for range 10 {
			w.later()
		}
		if asked < 9 || asked > 12 {
			t.Errorf("asked %d times in an hour, want once every 5 minutes", asked)
		}
		w.cloud.counts()
		w.cloud.change(w.cloud.all()[0].ID, func(s *lb.State) { s.Targets = s.Targets[:1] })
		w.later()
		w.expect("drift", "add IP 10.1.0.5")
	})
}
