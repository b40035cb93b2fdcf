package upstream_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/test/bench/routes/upstream"
)

// network is a route table with servers: a fresh list contains the attached ones, other lists those
// that were attached before.
type network struct {
	routes       []routes.Route
	known, fresh map[string]string // address to server, named like its Node
	looks        int
	err          error
}

func (n *network) List(
	context.Context,
) ([]routes.Route, error) {
	return slices.Clone(n.routes), n.err
}

func (n *network) Add(_ context.Context, r routes.Route) error {
	n.routes = append(n.routes, r)
	return n.err
}

func (n *network) Replace(context.Context, routes.Route, routes.Route, time.Time) error {
	return errors.New("upstream replaces nothing")
}

func (n *network) Delete(_ context.Context, r routes.Route, _ time.Time) error {
	n.routes = slices.DeleteFunc(n.routes, func(have routes.Route) bool { return have == r })
	return n.err
}

func (n *network) Gateways(
	_ context.Context, nodes []*corev1.Node, fresh bool,
) (routes.Gateways, error) {
	attached := n.known
	if fresh {
		attached, n.looks = n.fresh, n.looks+1
	}
	g := routes.Gateways{
		Of: map[string]netip.Addr{}, IDs: map[string]string{}, Servers: map[netip.Addr]string{},
		Missing: map[string]routes.Missing{},
	}
	for address, server := range attached {
		a := netip.MustParseAddr(address)
		g.Servers[a] = "id-" + server
		for _, node := range nodes {
			if node.Name == server {
				g.Of[server], g.IDs[server] = a, "id-"+server
			}
		}
	}
	for _, node := range nodes {
		if _, there := g.Of[node.Name]; !there {
			g.Missing[node.Name] = routes.Missing{Reason: "no server in the network"}
		}
	}
	return g, nil
}

func adapter(n *network, nodes ...string) *upstream.Routes {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, name := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == "a" {
			node.Spec.PodCIDR, node.Spec.PodCIDRs = "10.244.1.0/24", []string{"10.244.1.0/24"}
		}
		if err := store.Add(node); err != nil {
			panic(err)
		}
	}
	return &upstream.Routes{
		Table: n, Gateways: n, Nodes: corelisters.NewNodeLister(store),
		Ranges: []routes.Range{{Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeBits: 24}},
	}
}

func entry(dst, via string) routes.Route {
	return routes.Route{Dst: netip.MustParsePrefix(dst), Via: netip.MustParseAddr(via)}
}

// ListRoutes returns upstream its own routes and none that it might delete by mistake.
func TestListedRoutes(t *testing.T) {
	attached := map[string]string{"10.0.0.2": "a", "10.0.0.9": "stranger"}
	n := &network{known: attached, fresh: attached}
	p := adapter(n, "a", "left")
	n.known["10.0.0.77"] = "left"
	err := p.CreateRoute(t.Context(), "kubernetes", "hint", &cloudprovider.Route{TargetNode: "left", DestinationCIDR: "10.244.7.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	delete(attached, "10.0.0.77") // the route has no owner now
	n.routes = append(n.routes,
		entry("10.244.1.0/24", "10.0.0.2"),
		entry("10.244.6.0/24", "10.0.0.76"), // without an owner, and not written here
		entry("10.244.8.0/24", "10.0.0.9"),  // foreign
		entry("192.168.1.0/24", "10.0.0.2"), // outside
		entry("0.0.0.0/0", "10.0.0.2"),      // outside
	)
	listed, err := p.ListRoutes(t.Context(), "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range listed {
		what := r.DestinationCIDR + " " + string(r.TargetNode)
		if r.Blackhole {
			what += "black hole"
		}
		got = append(got, what)
	}
	if want := []string{"10.244.1.0/24 a", "10.244.7.0/24 black hole"}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	if n.looks != 1 {
		t.Errorf("%d fresh looks, want one for the gateway that is nobody's", n.looks)
	}
	if err := p.DeleteRoute(t.Context(), "kubernetes", listed[1]); err != nil || len(n.routes) != 5 {
		t.Errorf("deleting the black hole: %v, left %v", err, n.routes)
	}
}

// A gateway that the current list lacks may belong to a new server.
func TestANewServerIsNoBlackHole(t *testing.T) {
	n := &network{
		known: map[string]string{}, fresh: map[string]string{"10.0.0.2": "a"},
		routes: []routes.Route{entry("10.244.1.0/24", "10.0.0.2")},
	}
	listed, err := adapter(n, "a").ListRoutes(t.Context(), "kubernetes")
	if err != nil || len(listed) != 1 || listed[0].Blackhole || listed[0].TargetNode != "a" {
		t.Errorf("listed %+v, %v; want a's route", listed, err)
	}
}

func TestCreateRoute(t *testing.T) {
	attached := map[string]string{"10.0.0.2": "a"}
	for _, c := range []struct {
		name, node, cidr string
		want             string // the route, or part of the error
	}{
		{"to a Node's server", "a", "10.244.1.0/24", "10.244.1.0/24 via 10.0.0.2"},
		{"IPv6 needs no entry", "a", "fd00::/64", ""},
		{"a Node without a server", "b", "10.244.1.0/24", "no gateway of node b"},
		{"no Node", "c", "10.244.1.0/24", `"c" not found`},
		{"no prefix", "a", "10.244.1.0", "10.244.1.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &network{known: attached, fresh: attached}
			err := adapter(n, "a", "b").CreateRoute(t.Context(), "kubernetes", "hint",
				&cloudprovider.Route{TargetNode: types.NodeName(c.node), DestinationCIDR: c.cidr})
			got := ""
			if len(n.routes) > 0 {
				got = n.routes[0].String()
			}
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A failing list is no empty one.
func TestAFailingListIsAnError(t *testing.T) {
	if listed, err := adapter(&network{err: errors.New("503")}).ListRoutes(t.Context(), "kubernetes"); err == nil {
		t.Errorf("listed %v", listed)
	}
}
