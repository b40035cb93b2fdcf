package kube_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/underlay-ccm/underlay/internal/kube"
)

func TestPodCIDRs(t *testing.T) {
	for _, c := range []struct {
		name    string
		spec    corev1.NodeSpec
		want    []string
		wantErr bool
	}{
		{"none", corev1.NodeSpec{}, nil, false},
		{"both families in order", corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24", "fd00:1::/64"}}, []string{"10.244.1.0/24", "fd00:1::/64"}, false},
		{"only the old field", corev1.NodeSpec{PodCIDR: "10.244.1.0/24"}, []string{"10.244.1.0/24"}, false},
		{"host bits are dropped", corev1.NodeSpec{PodCIDRs: []string{"10.244.1.7/24"}}, []string{"10.244.1.0/24"}, false},
		{"no prefix", corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0"}}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := kube.PodCIDRs(&corev1.Node{Spec: c.spec})
			var want []netip.Prefix
			for _, s := range c.want {
				want = append(want, netip.MustParsePrefix(s))
			}
			if (err != nil) != c.wantErr || !slices.Equal(got, want) {
				t.Errorf("got %v, %v; want %v, error %v", got, err, want, c.wantErr)
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
	at := func(version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: version}}
	}
	memory := kube.NewNewest()
	memory.Wrote(at("7"))
	if got := memory.Of(at("5")); got.ResourceVersion != "7" {
		t.Errorf("a stale cache gives version %s, want our write's 7", got.ResourceVersion)
	}
	if got := memory.Of(at("9")); got.ResourceVersion != "9" {
		t.Errorf("a newer cache gives version %s, want 9", got.ResourceVersion)
	}
	if got := memory.Of(at("5")); got.ResourceVersion != "5" {
		t.Errorf("the memory outlived its use: version %s, want 5", got.ResourceVersion)
	}
}
