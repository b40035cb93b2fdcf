package survey_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/ipam"
	"github.com/underlay-ccm/underlay/routes"
)

// now is the time of these tests' Snapshots.
func now() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

const usualFile = `apiVersion: underlay.dev/v1alpha1
kind: CloudConfig
network: cluster
endpoint: https://cloud.example/v1
loadBalancers: {location: fsn1, usePrivateIP: true}
`

// configured is the CCM's configuration from a file and flags.
func configured(t testing.TB, file string, flags config.Flags) config.Config {
	t.Helper()
	flags["--allocate-node-cidrs"] = "true"
	env := func(name string) string {
		if name == "HCLOUD_TOKEN" && !strings.Contains(file, "metal") {
			return "any"
		}
		return ""
	}
	c, _, err := config.Load(flags, []byte(file), env, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func usualFlags() config.Flags {
	return config.Flags{"--configure-cloud-routes": "true", "--cluster-cidr": "10.244.0.0/20", "--service-cluster-ip-range": "10.96.0.0/16"}
}

// usual is a healthy cluster: count Nodes, each with its server, its podCIDR and its route.
func usual(t testing.TB, count int) *survey.Snapshot {
	t.Helper()
	s := &survey.Snapshot{
		Taken: now(), Parts: survey.Everything, Config: configured(t, usualFile, usualFlags()), ConfigFrom: "a test",
		Network: &hetzner.NetworkDetails{
			ID: 1, Name: "cluster", IPRange: prefix("10.0.0.0/8"), Subnets: []netip.Prefix{prefix("10.0.0.0/16")}, Servers: count,
		},
	}
	for object := range s.Ledger {
		s.Ledger[object] = &corev1.ConfigMap{Data: map[string]string{ipam.MarkKey: ipam.Mark(object)}}
	}
	for i := 1; i <= count; i++ {
		join(s, i)
	}
	return s
}

// join adds the i-th machine in its place.
func join(s *survey.Snapshot, i int) *corev1.Node {
	node := newNode(s, i)
	slices.SortFunc(s.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return node
}

// newNode adds it after all others: names are in their order.
func newNode(s *survey.Snapshot, i int) *corev1.Node {
	name := fmt.Sprintf("node-%04d", i)
	server := cloud.Machine{
		ID: int64(100 + i), Name: name, Type: "cx22", Region: "fsn1", PrivateIP: gateway(i),
		Status: "running", Created: now().Add(-time.Hour),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: at(-50 * time.Minute)},
		Spec: corev1.NodeSpec{
			ProviderID: server.ProviderID(), PodCIDRs: []string{podCIDR(i).String()},
		},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: at(-48 * time.Minute)},
			{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated", LastTransitionTime: at(-49 * time.Minute)},
		}},
	}
	holding := ipam.Holding{
		Node:     ipam.Node{Name: name, UID: string(node.UID), ProviderID: node.Spec.ProviderID},
		Prefixes: []netip.Prefix{podCIDR(i)},
		Pools:    map[netip.Prefix]string{podCIDR(i): "default-ipv4"},
	}
	s.Servers = append(s.Servers, server)
	s.Nodes = append(s.Nodes, node)
	s.Ledger[0].Data[name] = holding.Record()
	s.Network.Routes = append(s.Network.Routes, routes.Route{Dst: podCIDR(i), Via: gateway(i)})
	if s.RouteRecord == nil {
		s.RouteRecord = &corev1.ConfigMap{Data: map[string]string{}}
	}
	maps.Copy(s.RouteRecord.Data,
		routes.Record{s.Network.Routes[len(s.Network.Routes)-1]: true}.Text())
	return node
}

// recordAll records every existing route as written by the cluster.
func recordAll(s *survey.Snapshot) {
	record := routes.Record{}
	for _, r := range s.Network.Routes {
		record[r] = true
	}
	s.RouteRecord = &corev1.ConfigMap{Data: record.Text()}
}

// release records in the ledger that a Node was deleted.
func release(s *survey.Snapshot, name string, since time.Duration) {
	s.Ledger[0].Data[name] += " released=" + now().Add(-since).Format(time.RFC3339)
	s.Nodes = slices.DeleteFunc(s.Nodes, func(n *corev1.Node) bool { return n.Name == name })
}

// shard moves the lines of Nodes to another ConfigMap of the ledger.
func shard(s *survey.Snapshot, object int, names ...string) {
	for _, name := range names {
		s.Ledger[object].Data[name] = s.Ledger[0].Data[name]
		delete(s.Ledger[0].Data, name)
	}
}

func at(d time.Duration) metav1.Time { return metav1.NewTime(now().Add(d)) }

func podCIDR(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24)
}

func gateway(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i + 1)}) }

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// expectTexts compares lists of texts, one a line.
func expectTexts(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// lose removes parts of a Snapshot.
func lose(s *survey.Snapshot, parts survey.Parts, reason string) {
	for p := survey.PartConfig; p <= survey.PartLoadBalancers; p <<= 1 {
		if parts&p != 0 {
			s.Gaps = append(s.Gaps, survey.Gap{Part: p, Reason: reason})
		}
	}
	s.Parts &^= parts
	if parts&survey.PartNetwork != 0 {
		s.Network = nil
	}
	if parts&survey.PartServers != 0 {
		s.Servers = nil
	}
	if parts&survey.PartLedger != 0 {
		clear(s.Ledger[:])
	}
	if parts&survey.PartRouteRecord != 0 {
		s.RouteRecord = nil
	}
	if parts&survey.PartLoadBalancers != 0 {
		s.LoadBalancers = nil
	}
}
