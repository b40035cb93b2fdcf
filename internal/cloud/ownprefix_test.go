package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

func withExternalIP(ip string) nodeOption {
	return func(n *corev1.Node) {
		n.Status.Addresses = append(n.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Name},
			corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: ip})
	}
}

func TestOwnPrefix(t *testing.T) {
	only4, host := server(2, "only4", "10.0.0.3"), server(5, "host", "10.0.0.6")
	only4.PublicIPv6 = netip.Prefix{}
	host.PublicIPv6 = netip.MustParsePrefix("2001:db8:5::1/64")
	servers := []cloud.Machine{server(1, "a", "10.0.0.2"), only4, server(3, "twin", ""), server(4, "twin", ""), host}
	for _, c := range []struct {
		name string
		node *corev1.Node
		want string
	}{
		{"by ID", node("x", withID("hcloud://1")), "2001:db8:1::/64 [2001:db8:1::1]"},
		{"by name", node("a"), "2001:db8:1::/64 [2001:db8:1::1]"},
		{"by address", node("x", withIP("10.0.0.2")), "2001:db8:1::/64 [2001:db8:1::1]"},
		{"masked", node("host"), "2001:db8:5::/64 [2001:db8:5::1]"},
		{
			"addresses in it", node("a", withExternalIP("2001:db8:1::7"), withIP("2001:db8:1:0:8::"), withAnnotation("10.0.0.2, 2001:db8:1::7")),
			"2001:db8:1::/64 [2001:db8:1::1 2001:db8:1::7 2001:db8:1:0:8::]",
		},
		{"its own address once", node("a", withExternalIP("2001:db8:1::1")), "2001:db8:1::/64 [2001:db8:1::1]"},
		{"addresses elsewhere", node("a", withExternalIP("2001:db8:9::7"), withIP("10.0.0.2")), "2001:db8:1::/64 [2001:db8:1::1]"},
		{"no IPv6", node("only4"), "invalid Prefix []"},
		{"another provider", node("bm", withID("hrobot://7")), "invalid Prefix []"},
		{"no server", node("y"), "unknown"},
		{"no server with the ID", node("a", withID("hcloud://99")), "unknown"},
		{"two servers", node("twin"), "unknown"},
		{"name and address disagree", node("a", withIP("10.0.0.3")), "unknown"},
		{"wrong ID", node("a", withID("hcloud://x")), "failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			own, avoid, err := (&cloud.Machines{Cloud: &project{servers: servers}}).OwnPrefix(t.Context(),
				c.node)
			got := fmt.Sprintf("%v %v", own, avoid)
			switch {
			case errors.Is(err, cloud.ErrOwnUnknown):
				got = "unknown"
			case err != nil:
				got = "failed"
			}
			if got != c.want {
				t.Errorf("got %s (%v), want %s", got, err, c.want)
			}
		})
	}
}

func TestOwnPrefixOfAListThatFails(t *testing.T) {
	broken := errors.New("503")
	own, _, err := (&cloud.Machines{Cloud: &project{listErr: broken}}).OwnPrefix(t.Context(), node("a"))
	if !errors.Is(err, broken) || own.IsValid() {
		t.Errorf("%v, %v; want the list's error and no prefix", own, err)
	}
}

// history is a project with a cache of the maximum age.
type history struct {
	project
	before  []cloud.Machine
	changed time.Time
}

func (h *history) List(ctx context.Context, since time.Time) ([]cloud.Machine, error) {
	if since.Before(h.changed) {
		return h.before, nil
	}
	return h.project.List(ctx, since)
}

func (h *history) Look(ctx context.Context, questions []cloud.Question) ([]cloud.Machine, error) {
	return h.List(ctx, questions[0].Since)
}

// A server was replaced by another of the same name, and by the API server's clock the Node of the
// new one is older than the cached list. podCIDRs can't be taken back, so the list with the old
// server must not be used.
func TestOwnPrefixIsNotThatOfAPredecessor(t *testing.T) {
	old, next := server(1, "a", "10.0.0.2"), server(2, "a", "10.0.0.2")
	h := &history{
		project: project{servers: []cloud.Machine{next}},
		before:  []cloud.Machine{old},
		changed: time.Now().Add(-time.Minute),
	}
	joined := func(options ...nodeOption) *corev1.Node {
		n := node("a", options...)
		n.CreationTimestamp = metav1.NewTime(h.changed.Add(-time.Second))
		return n
	}
	for name, n := range map[string]*corev1.Node{"by name": joined(), "by ID": joined(withID("hcloud://2"))} {
		own, _, err := (&cloud.Machines{Cloud: h}).OwnPrefix(t.Context(), n)
		if err != nil || own != next.PublicIPv6 {
			t.Errorf("%s: %v, %v; want %v", name, own, err, next.PublicIPv6)
		}
	}
}
