package kube_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/underlay-ccm/underlay/internal/kube"
)

func TestPodCIDRs(t *testing.T) {
	for _, c := range []struct {
		name       string
		spec       corev1.NodeSpec
		want       []string
		unreadable string // part of the error; empty: no error
	}{
		{"none", corev1.NodeSpec{}, nil, ""},
		{"both families in order", corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24", "fd00:1::/64"}}, []string{"10.244.1.0/24", "fd00:1::/64"}, ""},
		{"only the old field", corev1.NodeSpec{PodCIDR: "10.244.1.0/24"}, []string{"10.244.1.0/24"}, ""},
		{"host bits are dropped", corev1.NodeSpec{PodCIDRs: []string{"10.244.1.7/24"}}, []string{"10.244.1.0/24"}, ""},
		{"leading zeros", corev1.NodeSpec{PodCIDRs: []string{"010.244.001.0/24"}}, []string{"10.244.1.0/24"}, ""},
		{"IPv4 in IPv6 notation", corev1.NodeSpec{PodCIDRs: []string{"::ffff:10.244.1.0/120"}}, []string{"10.244.1.0/24"}, ""},
		{"wider than IPv4", corev1.NodeSpec{PodCIDRs: []string{"::ffff:0:0/90"}}, []string{"::ffc0:0:0/90"}, ""},
		{"no prefix", corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0"}}, nil, `("10.244.1.0")`},
		{"some are none", corev1.NodeSpec{PodCIDRs: []string{"ten/24", "fd00:1::/64", ""}}, []string{"fd00:1::/64"}, `("ten/24", "")`},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: c.spec}
			got, err := kube.PodCIDRs(node)
			var want []netip.Prefix
			for _, s := range c.want {
				want = append(want, netip.MustParsePrefix(s))
			}
			if !slices.Equal(got, want) || (err != nil) != (c.unreadable != "") {
				t.Errorf("got %v, %v; want %v, unreadable %s", got, err, want, c.unreadable)
			}
			if err != nil && (!strings.Contains(err.Error(), c.unreadable) || !strings.Contains(err.Error(), "node-1")) {
				t.Errorf("error %q does not name node-1 and %s", err, c.unreadable)
			}
			if has := kube.HasPodCIDRs(node); has != (c.name != "none") {
				t.Errorf("HasPodCIDRs() = %t", has)
			}
		})
	}
}

func TestInternalIPs(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "a"},
		{Type: corev1.NodeInternalIP, Address: "10.0.0.2"},
		{Type: corev1.NodeExternalIP, Address: "192.0.2.1"},
		{Type: corev1.NodeInternalIP, Address: "not an address"},
		{Type: corev1.NodeInternalIP, Address: "fd00::2"},
	}}}
	want := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}
	if got := kube.InternalIPs(node); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAddresses(t *testing.T) {
	addrs := func(texts ...string) (out []netip.Addr) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddr(text))
		}
		return out
	}
	const annotation = "alpha.kubernetes.io/provided-node-ip"
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: "10.0.0.2, fd00::2"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "node-1"},
			{Type: corev1.NodeInternalIP, Address: "::ffff:10.0.0.3"},
			{Type: corev1.NodeExternalIP, Address: "0.0.0.0"},
		}},
	}
	if got, want := kube.ProvidedIPs(node), addrs("10.0.0.2", "fd00::2"); !slices.Equal(got, want) {
		t.Errorf("--node-ip gave %v, want %v", got, want)
	}
	if got, want := kube.Addresses(node), addrs("10.0.0.2", "fd00::2", "10.0.0.3"); !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v: host names and 0.0.0.0 are none", got, want)
	}
	if got := kube.Addresses(&corev1.Node{}); len(got) != 0 {
		t.Errorf("a bare Node has the addresses %v", got)
	}
}

func TestSetConditionKeepsTheTransitionTime(t *testing.T) {
	then, now := time.Unix(1000, 0), time.Unix(2000, 0)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated", LastTransitionTime: metav1.NewTime(then)},
		}},
	}
	for _, c := range []struct {
		name string
		to   corev1.ConditionStatus
		want time.Time
	}{
		{"another reason, same status", corev1.ConditionTrue, then},
		{"another status", corev1.ConditionFalse, now},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := kube.SetCondition(t.Context(), fake.NewClientset(node), node,
				corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: c.to, Reason: "Other"}, now)
			if err != nil {
				t.Fatal(err)
			}
			cond := kube.Condition(got, corev1.NodeNetworkUnavailable)
			if cond == nil || cond.Status != c.to || !cond.LastTransitionTime.Time.Equal(c.want) {
				t.Errorf("got %+v, want status %s since %s", cond, c.to, c.want)
			}
			if !kube.Ready(got) {
				t.Error("the Ready condition was touched")
			}
		})
	}
}

func TestNewestBridgesALaggingCache(t *testing.T) {
	at := func(uid, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID(uid), ResourceVersion: version}}
	}
	leaving := at("u", "10")
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
	held := leaving.DeepCopy()
	held.Finalizers = []string{"example.com/held"}
	for _, c := range []struct {
		name          string
		wrote, cached *corev1.Node
		ours          bool // the result of our write is the newer one
	}{
		{"the cache lags behind", at("u", "10"), at("u", "9"), true},
		{"the cache has our write", at("u", "10"), at("u", "10"), false},
		{"the cache has more", at("u", "9"), at("u", "10"), false},
		{"another object of the name", at("u", "10"), at("v", "9"), false},
		{"versions that cannot be compared", at("u", "x"), at("u", "9"), false},
		{"on its way out, held by a finalizer", held, at("u", "9"), true},
		{"gone with its last finalizer", leaving, at("u", "9"), false},
	} {
		memory := kube.NewNewest[*corev1.Node]()
		memory.Wrote(c.wrote)
		if got := memory.Of(c.cached); (got == c.wrote) != c.ours || (got == c.cached) == c.ours {
			t.Errorf("%s: got version %s of %s", c.name, got.ResourceVersion, got.UID)
		}
	}
	memory := kube.NewNewest[*corev1.Node]()
	memory.Wrote(at("u", "7"))
	memory.Of(at("u", "9"))
	if got := memory.Of(at("u", "5")); got.ResourceVersion != "5" {
		t.Errorf("the memory outlived its use: version %s, want 5", got.ResourceVersion)
	}
}

// A write that ends after the Node's deletion stores the Node again.
func TestNewestDropsDeletedObjects(t *testing.T) {
	at := func(name string, uid types.UID, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uid, ResourceVersion: version,
		}}
	}
	cache := map[string]*corev1.Node{"a": at("a", "u", "9"), "b": at("b", "v", "9"), "c": at("c", "w", "9")}
	get := func(n *corev1.Node) (*corev1.Node, error) {
		if cached, ok := cache[n.Name]; ok {
			return cached, nil
		}
		return nil, errors.New("not found")
	}
	memory := kube.NewNewest[*corev1.Node]()
	for range 2 { // the second round's writes end after the deletions
		for _, n := range []*corev1.Node{at("a", "u", "10"), at("b", "v", "10"), at("c", "w", "10")} {
			memory.Wrote(n)
		}
		delete(cache, "b")
		cache["c"] = at("c", "x", "11") // recreated
		memory.Prune(get)
		for uid, want := range map[types.UID]string{"u": "10", "v": "9", "w": "9"} {
			if got := memory.Of(at("any", uid, "9")); got.ResourceVersion != want {
				t.Errorf("Node %s: got version %s, want %s", uid, got.ResourceVersion, want)
			}
		}
	}
}
