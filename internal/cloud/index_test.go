package cloud_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

// Another lookup in the same list, as for every Node, costs nothing that grows with the list.
func TestAListIsIndexedOnce(t *testing.T) {
	allocations := func(count int64) float64 {
		var servers []cloud.Machine
		for id := range count {
			servers = append(servers, cloud.Machine{
				ID: id + 1, Name: fmt.Sprint("n", id+1), PrivateIP: netip.AddrFrom4([4]byte{10, 0, byte(id / 200), byte(id%200 + 2)}),
			})
		}
		i := instances(&project{servers: servers, cached: servers})
		n := node("n1", withID("hcloud://1"))
		return testing.AllocsPerRun(20, func() {
			if _, err := i.InstanceMetadata(t.Context(), n); err != nil {
				t.Error(err)
			}
		})
	}
	few, many := allocations(10), allocations(5000)
	t.Logf("%.0f allocations with 10 servers, %.0f with 5000", few, many)
	if many > few+2 {
		t.Errorf("%.0f allocations with 5000 servers, %.0f with 10: the list was indexed again", many, few)
	}
}

// Another list gets a new index, also if it has the same length.
func TestAnotherListIsAnotherIndex(t *testing.T) {
	p := &project{servers: []cloud.Machine{server(1, "a", "10.0.0.2")}}
	g := &cloud.Machines{Cloud: p}
	for _, address := range []string{"10.0.0.2", "10.0.0.3"} {
		p.servers = []cloud.Machine{server(1, "a", address)}
		got, err := g.Gateways(t.Context(), []*corev1.Node{node("a")}, true)
		if err != nil || got.Of["a"] != netip.MustParseAddr(address) || got.Attached != 1 {
			t.Errorf("%v, %v; want a at %s", got.Of, err, address)
		}
	}
}

// A Node's gateway is its server's own address; the aliases are returned, too.
func TestGatewaysReturnAliases(t *testing.T) {
	s := server(1, "a", "10.0.0.2")
	s.AliasIPs = []netip.Addr{netip.MustParseAddr("10.0.0.20"), netip.MustParseAddr("10.0.0.21")}
	got, err := (&cloud.Machines{Cloud: &project{servers: []cloud.Machine{s, server(2, "b", ""), server(3, "c", "10.0.0.4")}}}).Gateways(
		t.Context(), []*corev1.Node{node("a")}, true)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Aliases["a"], s.AliasIPs) || got.Of["a"] != s.PrivateIP || got.Attached != 2 {
		t.Errorf("gateways %+v, want a's own address, its two aliases, and two servers attached", got)
	}
}

// A server was replaced by another of the same name. An older list would match a new Node without a
// provider ID with the deleted server.
func TestANameIsLookedUpInAListAsNewAsTheNode(t *testing.T) {
	p := &project{
		cached:  []cloud.Machine{server(1, "worker", "10.0.0.5")},
		servers: []cloud.Machine{server(2, "worker", "10.0.0.6")},
	}
	got, err := (&cloud.Machines{Cloud: p}).Gateways(t.Context(), []*corev1.Node{node("worker")}, false)
	if err != nil {
		t.Fatal(err)
	}
	if got.Of["worker"] != netip.MustParseAddr("10.0.0.6") {
		t.Errorf("worker is reached through %s, want its own server's 10.0.0.6", got.Of["worker"])
	}
	asked := len(p.asked)
	if _, err := (&cloud.Machines{Cloud: p}).Gateways(t.Context(), []*corev1.Node{node("worker", withID("hcloud://2"))}, false); err != nil || len(p.asked) != asked {
		t.Errorf("%v; a Node with a provider ID cost requests: %q", err, p.asked)
	}
}
