package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	nodehelpers "k8s.io/cloud-provider/node/helpers"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// project is a cloud with a cached list: the result of List may be older than that of Get until a
// newer list is requested.
type project struct {
	cached  []cloud.Machine
	servers []cloud.Machine
	listErr error
	getErr  error
	asked   []string
	listed  time.Time // time of the last requested list
}

func (p *project) List(_ context.Context, since time.Time) ([]cloud.Machine, error) {
	if p.listErr != nil {
		return nil, p.listErr
	}
	if p.cached != nil && (since.IsZero() || since.Before(p.listed)) {
		return p.cached, nil
	}
	p.asked, p.listed = append(p.asked, "list"), time.Now()
	p.cached = p.servers
	return p.servers, nil
}

func (p *project) Look(ctx context.Context, questions []cloud.Question) ([]cloud.Machine, error) {
	return p.List(ctx, questions[0].Since)
}

func (p *project) Get(_ context.Context, id int64) (cloud.Machine, error) {
	p.asked = append(p.asked, fmt.Sprint("get ", id))
	if p.getErr != nil {
		return cloud.Machine{}, p.getErr
	}
	if i := slices.IndexFunc(p.servers, func(s cloud.Machine) bool { return s.ID == id }); i >= 0 {
		return p.servers[i], nil
	}
	return cloud.Machine{}, fmt.Errorf("server %d: %w", id, cloud.ErrNoServer)
}

func server(id int64, name, private string) cloud.Machine {
	s := cloud.Machine{
		ID: id, Name: name, Type: "cx22", Region: "fsn1",
		PublicIPv4: netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", id)),
		PublicIPv6: netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::/64", id)),
	}
	if private != "" {
		s.PrivateIP = netip.MustParseAddr(private)
	}
	return s
}

type nodeOption func(*corev1.Node)

func node(name string, options ...nodeOption) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(1000, 0)},
	}
	for _, o := range options {
		o(n)
	}
	return n
}

func withID(id string) nodeOption { return func(n *corev1.Node) { n.Spec.ProviderID = id } }

func withIP(ip string) nodeOption {
	return func(n *corev1.Node) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{
			Type: corev1.NodeInternalIP, Address: ip,
		})
	}
}

func withAnnotation(ips string) nodeOption {
	return func(n *corev1.Node) {
		n.Annotations = map[string]string{"alpha.kubernetes.io/provided-node-ip": ips}
	}
}

func withCondition(kind corev1.NodeConditionType, status corev1.ConditionStatus) nodeOption {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: status, LastTransitionTime: metav1.Now(),
		})
	}
}

func instances(p *project, nodes ...*corev1.Node) *cloud.Instances {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, n := range nodes {
		if err := store.Add(n); err != nil {
			panic(err)
		}
	}
	return &cloud.Instances{
		Machines: &cloud.Machines{Cloud: p}, Nodes: corelisters.NewNodeLister(store),
		Recorder: record.NewFakeRecorder(100),
		Family:   cloud.IPv4, InNetwork: true,
	}
}

func TestProviderIDs(t *testing.T) {
	for text, want := range map[string]string{
		"hcloud://42":     "42",
		"hcloud://bm-42":  "other",
		"hrobot://42":     "other",
		"aws:///i-42":     "other",
		"":                "other",
		"hcloud://":       "invalid",
		"hcloud://-1":     "invalid",
		"hcloud://0":      "invalid",
		"hcloud://42/foo": "invalid",
	} {
		id, err := kube.ParseProviderID(text)
		got := fmt.Sprint(id)
		switch {
		case errors.Is(err, kube.ErrOtherProvider):
			got = "other"
		case err != nil:
			got = "invalid"
		}
		if got != want {
			t.Errorf("%q is %s (%v), want %s", text, got, err, want)
		}
		if err == nil && kube.FormatProviderID(id) != text {
			t.Errorf("%q comes back as %q", text, kube.FormatProviderID(id))
		}
	}
}

func TestMatching(t *testing.T) {
	servers := []cloud.Machine{
		server(1, "a", "10.0.0.2"), server(2, "b", "10.0.0.3"), server(3, "renamed", "10.0.0.4"),
		server(4, "twin", "10.0.0.5"), server(5, "twin", "10.0.0.6"),
	}
	servers[2].AliasIPs = []netip.Addr{netip.MustParseAddr("10.0.0.40")}
	for _, c := range []struct {
		name string
		node *corev1.Node
		want string // provider ID or part of the error
	}{
		{"by provider ID, whatever the name", node("x", withID("hcloud://3")), "hcloud://3"},
		{"the provider ID outranks name and address", node("a", withID("hcloud://2"), withIP("10.0.0.2")), "hcloud://2"},
		{"by name", node("a"), "hcloud://1"},
		{"by name, the address agrees", node("a", withIP("10.0.0.2")), "hcloud://1"},
		{"by name, the address is outside the network", node("a", withIP("192.0.2.77")), "hcloud://1"},
		{"by address", node("x", withIP("10.0.0.4")), "hcloud://3"},
		{"by the address given to the kubelet", node("x", withAnnotation("10.0.0.4")), "hcloud://3"},
		{"by alias address", node("x", withIP("10.0.0.40")), "hcloud://3"},
		{"name and address disagree", node("a", withIP("10.0.0.3")), "more than one server"},
		{"two addresses of two servers", node("x", withIP("10.0.0.2"), withIP("10.0.0.3")), "more than one server"},
		{"two servers with the name", node("twin"), "more than one server"},
		{"nothing fits", node("x"), "no matching server"},
		{"an ID that is gone is not searched by name", node("a", withID("hcloud://77")), "no matching server"},
		{"another provider's machine", node("a", withID("hrobot://1")), "another provider"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := instances(&project{servers: servers}).InstanceMetadata(t.Context(), c.node)
			is := fmt.Sprint(err)
			if err == nil {
				is = got.ProviderID
			}
			if !strings.Contains(is, c.want) {
				t.Errorf("got %q, want %q", is, c.want)
			}
		})
	}
}

func TestAddressesByFamily(t *testing.T) {
	both, only6, alone := server(1, "a", "10.0.0.2"), server(1, "a", "10.0.0.2"), server(1, "a", "")
	only6.PublicIPv4 = netip.Addr{}
	// All are the final addresses of the Node: cloud-provider keeps only the given ones of a type.
	for _, c := range []struct {
		family cloud.AddressFamily
		server cloud.Machine
		given  string // by the kubelet's --node-ip
		want   string
	}{
		{cloud.IPv4, both, "", "Hostname=a ExternalIP=192.0.2.1 InternalIP=10.0.0.2"},
		{cloud.IPv6, both, "", "Hostname=a ExternalIP=2001:db8:1::1 InternalIP=10.0.0.2"},
		{cloud.DualStack, both, "", "Hostname=a ExternalIP=192.0.2.1 ExternalIP=2001:db8:1::1 InternalIP=10.0.0.2"},
		{cloud.IPv4, only6, "", "Hostname=a InternalIP=10.0.0.2"},
		{cloud.DualStack, both, "10.0.0.2", "Hostname=a ExternalIP=192.0.2.1 ExternalIP=2001:db8:1::1 InternalIP=10.0.0.2"},
		{cloud.DualStack, both, "10.0.0.2,2001:db8:1::1", "Hostname=a ExternalIP=192.0.2.1 InternalIP=10.0.0.2 InternalIP=2001:db8:1::1"},
		{cloud.IPv4, both, "10.0.0.2,2001:db8:1::7", "Hostname=a ExternalIP=192.0.2.1 InternalIP=10.0.0.2 InternalIP=2001:db8:1::7"},
		{cloud.DualStack, both, "2001:db8:1::1", "Hostname=a ExternalIP=2001:db8:1::1 InternalIP=10.0.0.2"},
		{cloud.DualStack, both, "192.0.2.1,2001:db8:1::7", "Hostname=a ExternalIP=192.0.2.1 ExternalIP=2001:db8:1::7 InternalIP=10.0.0.2"},
		{cloud.DualStack, alone, "192.0.2.1,2001:db8:1::1", "Hostname=a ExternalIP=192.0.2.1 InternalIP=2001:db8:1::1"},
	} {
		i := instances(&project{servers: []cloud.Machine{c.server}})
		i.Family, i.InNetwork = c.family, c.server.PrivateIP.IsValid()
		got, err := i.InstanceMetadata(t.Context(), node("a", withAnnotation(c.given)))
		if err != nil {
			t.Fatal(err)
		}
		kept := got.NodeAddresses
		if c.given != "" { // upstream's treatment of the addresses
			if kept, err = nodehelpers.GetNodeAddressesFromNodeIP(c.given, kept); err != nil {
				t.Errorf("%s, given %q: %v", c.family, c.given, err)
				continue
			}
		}
		var is []string
		for _, a := range kept {
			is = append(is, string(a.Type)+"="+a.Address)
		}
		if !slices.Equal(slices.Sorted(slices.Values(is)),
			slices.Sorted(slices.Values(strings.Fields(c.want)))) {
			t.Errorf("%s, given %q: %q, want %q", c.family, c.given, is, c.want)
		}
		if got.InstanceType != "cx22" || got.Region != "fsn1" || got.Zone != "fsn1-dc14" {
			t.Errorf("labels %s %s %s", got.InstanceType, got.Region, got.Zone)
		}
	}
}

// If a kubelet has an address that is not its server's, its Node remains uninitialized, with an
// Event that gives the reason.
func TestAnAddressThatIsNotTheServers(t *testing.T) {
	for _, given := range []string{"10.0.0.99", "10.0.0.2,2001:db8:2::1", "192.0.2.7"} {
		i := instances(&project{servers: []cloud.Machine{server(1, "a", "10.0.0.2")}})
		i.Family, i.InNetwork = cloud.IPv4, true
		n := node("a", withAnnotation(given))
		m, events := reported(i, n)
		_, err := m.InstanceMetadata(t.Context(), n)
		wrong := given[strings.LastIndex(given, ",")+1:]
		if err == nil || !strings.Contains(err.Error(), wrong+" is no address of server 1") {
			t.Errorf("given %s: %v, want an error that names %s", given, err, wrong)
		}
		if e := shown(events); e != "AddressMismatch" {
			t.Errorf("given %s: Events %q, want AddressMismatch", given, e)
		}
	}
}

// A node is not initialized before the route controller handles it, nor before its server is
// attached.
func TestTheGate(t *testing.T) {
	p := &project{servers: []cloud.Machine{server(1, "a", "10.0.0.2"), server(2, "detached", "")}}
	i := instances(p)
	i.Gated = true
	if _, err := i.InstanceMetadata(t.Context(), node("a")); err == nil {
		t.Error("a node without the condition was described")
	}
	uninitialized := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized"}}
	}
	if got, err := i.InstanceMetadata(t.Context(), node("a", uninitialized)); got != nil || err != nil {
		t.Errorf("a new node without the condition: %v, %v; want nothing, which upstream takes for not yet", got, err)
	}
	shown := withCondition(corev1.NodeNetworkUnavailable, corev1.ConditionTrue)
	if _, err := i.InstanceMetadata(t.Context(), node("a", shown)); err != nil {
		t.Errorf("a node with the condition was not described: %v", err)
	}
	if _, err := i.InstanceMetadata(t.Context(), node("detached", shown)); err == nil {
		t.Error("a node whose server isn't attached was described")
	}
	i.InNetwork = false
	if _, err := i.InstanceMetadata(t.Context(), node("detached", shown)); err != nil {
		t.Errorf("without a network nothing needs attaching: %v", err)
	}
}

func TestInstanceExists(t *testing.T) {
	var nodes []*corev1.Node
	var all []cloud.Machine
	for id := range int64(10) {
		all = append(all, server(id+1, fmt.Sprint("n", id+1), fmt.Sprintf("10.0.0.%d", id+2)))
		nodes = append(nodes, node(fmt.Sprint("n", id+1), withID(kube.FormatProviderID(id+1)),
			withCondition(corev1.NodeReady, corev1.ConditionUnknown)))
	}
	first := nodes[0]
	for _, c := range []struct {
		name    string
		project project
		node    *corev1.Node
		exists  bool
		wantErr bool
	}{
		{"there", project{servers: all}, first, true, false},
		{"deleted", project{servers: all[1:]}, first, false, false},
		{"deleted, the cache doesn't know", project{cached: all, servers: all[1:]}, first, false, false},
		{"a failing list says nothing", project{listErr: errors.New("503")}, first, true, true},
		{"a failing GET says nothing", project{servers: all[1:], getErr: errors.New("503")}, first, true, true},
		{"an empty list is a token of another project", project{servers: []cloud.Machine{}}, first, true, true},
		{"so is a list of others", project{servers: []cloud.Machine{server(99, "x", "")}}, first, true, true},
		{"all but one may go", project{servers: all[9:]}, first, false, false},
		{"no provider ID yet", project{servers: all}, node("new"), true, false},
		{"a dedicated server", project{servers: all}, node("bm", withID("hrobot://7")), true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			exists, err := instances(&c.project, nodes...).InstanceExists(t.Context(), c.node)
			if exists != c.exists || (err != nil) != c.wantErr {
				t.Errorf("exists %v, %v; want %v, error %v (asked %q)", exists, err, c.exists, c.wantErr, c.project.asked)
			}
		})
	}
}

func TestInstanceShutdown(t *testing.T) {
	off := server(1, "a", "10.0.0.2")
	off.Off = true
	i := instances(&project{servers: []cloud.Machine{off, server(2, "b", "10.0.0.3")}})
	for id, want := range map[string]bool{"hcloud://1": true, "hcloud://2": false} {
		if got, err := i.InstanceShutdown(t.Context(), node("a", withID(id))); got != want || err != nil {
			t.Errorf("%s: shut down %v, %v; want %v", id, got, err, want)
		}
	}
	if got, err := i.InstanceShutdown(t.Context(), node("bm", withID("hrobot://7"))); got || err != nil {
		t.Errorf("a dedicated server: shut down %v, %v; want no judgment", got, err)
	}
}

func TestGateways(t *testing.T) {
	a, b := server(1, "a", "10.0.0.2"), server(2, "b", "")
	a.AliasIPs = []netip.Addr{netip.MustParseAddr("10.0.0.20")}
	stranger := server(9, "other-cluster", "10.0.0.9")
	got, err := (&cloud.Machines{
		Cloud: &project{servers: []cloud.Machine{a, b, stranger}},
	}).Gateways(t.Context(),
		[]*corev1.Node{node("a", withID("hcloud://1")), node("b"), node("c")}, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Of) != 1 || got.Of["a"] != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("gateways %v, want only a's", got.Of)
	}
	if b, c := got.Missing["b"], got.Missing["c"]; !b.Detached || b.Reason == "" || c.Detached || c.Reason == "" {
		t.Errorf("missing %+v, want b detached, c unknown, both with reasons", got.Missing)
	}
	if got.Doubt != nil {
		t.Errorf("in doubt although a Node's server is there: %v", got.Doubt)
	}
	doubtful, err := (&cloud.Machines{
		Cloud: &project{servers: []cloud.Machine{stranger}},
	}).Gateways(t.Context(),
		[]*corev1.Node{node("a", withID("hcloud://1"))}, true)
	if err != nil || doubtful.Doubt == nil {
		t.Errorf("%+v, %v; want doubt about a list without any of our servers", doubtful, err)
	}
	if got.IDs["b"] != "hcloud://2" {
		t.Errorf("b's server is %q; a server that isn't attached is a member all the same", got.IDs["b"])
	}
	for addr, id := range map[string]string{"10.0.0.2": "hcloud://1", "10.0.0.20": "hcloud://1", "10.0.0.9": "hcloud://9"} {
		if got.Servers[netip.MustParseAddr(addr)] != id {
			t.Errorf("%s belongs to %q, want %s", addr, got.Servers[netip.MustParseAddr(addr)], id)
		}
	}
	if _, err := (&cloud.Machines{Cloud: &project{listErr: errors.New("503")}}).Gateways(t.Context(), nil, false); err == nil {
		t.Error("a failing list is no empty answer")
	}
}
