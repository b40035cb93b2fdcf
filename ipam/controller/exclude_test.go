package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// New Service ranges exclude their addresses at run time, until they are deleted.
func TestServiceRangesComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.addServiceCIDR("kubernetes", "10.0.0.0/24", "fd00::/108")
		p := start(t, api, dualStack(4))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00:0:0:1::/64")
		api.addServiceCIDR("more", "10.0.2.128/25")
		pass(time.Second)
		p.wantMetric(t, rangesMetric, 2, "v4", "excluded")
		api.create("b")
		pass(time.Second)
		wantPodCIDRs(t, api, "b", "10.0.3.0/24", "fd00:0:0:2::/64")
		api.create("c")
		pass(time.Second)
		p.events.want(t, 1, "c Warning PoolExhausted")
		api.deleteServiceCIDR("more")
		pass(time.Second)
		wantPodCIDRs(t, api, "c", "10.0.2.0/24", "fd00:0:0:3::/64")
		wantSound(t, api)
	})
}

// A Service range over a Node's podCIDR is reported; the Node keeps its podCIDR.
func TestAServiceRangeOverAPodCIDRIsShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(4))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		api.addServiceCIDR("late", "10.0.0.0/25")
		pass(time.Second)
		p.events.want(t, 1, "a Warning ForeignPodCIDR")
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		if got := entry(t, api, "a"); !slices.Equal(got.Prefixes, api.podCIDRs("a")) {
			t.Errorf("the ledger has %v for a", got)
		}
	})
}

// A reservation that waits for its write is replaced if a new Service range overlaps it.
func TestAReservationInANewServiceRangeIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(4))
		defer p.stop()
		pass(time.Second)
		api.inject(first("PATCH nodes", fault{refuse: true}, fault{refuse: true}, fault{refuse: true}, fault{refuse: true}))
		api.create("a")
		pass(200 * time.Millisecond)
		api.addServiceCIDR("late", "10.0.0.0/24")
		pass(time.Minute)
		if got := api.podCIDRs("a"); len(got) != 2 || got[0].Overlaps(pfx("10.0.0.0/24")) {
			t.Errorf("Node a has %v, which is a range of Services now\n%s", got, api)
		}
		wantSound(t, api)
	})
}

// A kubelet writes the addresses of its own Node. One that reports an address in every node prefix
// blocks few of them.
func TestReportedAddressesKeepFewPrefixes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, []Pool{pool("v4", "10.0.0.0/20", 24)})
		defer p.stop()
		pass(time.Second)
		var all []string
		for i := range 16 {
			all = append(all, fmt.Sprintf("10.0.%d.9", i), fmt.Sprintf("10.0.%d.9", i))
		}
		api.add("reporter", withAddress(all...))
		pass(time.Second)
		p.wantMetric(t, rangesMetric, kube.MostReported, "excluded")
		api.create("new")
		pass(time.Second)
		wantPodCIDRs(t, api, "new", "10.0.6.0/24")
	})
}

// A Node with more addresses than count gets an Event, and another one when the addresses change.
func TestANodeIsNotifiedOfAddressesThatDoNotCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, []Pool{pool("v4", "10.0.0.0/20", 24)})
		defer p.stop()
		pass(time.Second)
		names := func(n int) func(*corev1.Node) {
			var all []string
			for i := range n {
				all = append(all, fmt.Sprintf("192.0.2.%d", i))
			}
			return func(n *corev1.Node) {
				n.Status.Addresses = nil
				withAddress(append(all, all...)...)(n)
			}
		}
		api.add("a", names(kube.MostReported))
		pass(time.Second)
		p.events.want(t, 0, "a Warning TooManyAddresses")
		for i, n := range []int{6, 6, 7, 5, 6} {
			api.edit("a", names(n))
			api.edit("a", func(n *corev1.Node) { n.Labels = map[string]string{"edit": fmt.Sprint(i)} })
			pass(time.Minute)
			p.events.want(t, []int{1, 1, 2, 2, 3}[i], "a Warning TooManyAddresses it names")
		}
		p.events.want(t, 1, "a Warning TooManyAddresses it names 7 addresses, 192.0.2.0 to 192.0.2.6, of which 5 count")
	})
}

// A node prefix that contains the address of another Node isn't assigned while the Node has that
// address.
func TestNodeAddressesInsideAPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, []Pool{pool("v4", "10.0.0.0/23", 24)})
		defer p.stop()
		pass(time.Second)
		api.add("a", withAddress("10.0.0.7", "192.168.0.1", "2001:db8::1"))
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24")
		api.create("b")
		pass(time.Second)
		wantPodCIDRs(t, api, "b")
		p.wantMetric(t, rangesMetric, 1, "excluded")
		api.delete("a")
		pass(time.Minute)
		if got := api.podCIDRs("b"); len(got) != 1 {
			t.Errorf("Node b has %v, want something: the address in the way is gone\n%s", got, api)
		}
		// Now an address is added.
		api.create("c")
		api.edit("b", withAddress("10.0.0.9", "10.0.1.9"))
		pass(time.Minute)
		if got := api.podCIDRs("c"); len(got) > 1 {
			t.Errorf("Node c has %v", got)
		}
		wantSound(t, api)
	})
}
