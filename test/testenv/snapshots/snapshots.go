package snapshots

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
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

// Now is the time of every Snapshot.
func Now() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) metav1.Time { return metav1.NewTime(Now().Add(-d)) }

// Parts are the parts of every Snapshot; the workloads and setup of kube-system are not among them.
const Parts = survey.Everything &^ (survey.PartWorkloads | survey.PartSetup)

const file = `apiVersion: underlay.dev/v1alpha1
kind: CloudConfig
network: cluster
families: {ipv6: node}
loadBalancers: {location: fsn1, usePrivateIP: true}
`

// configuration has pools with room for a few more than count Nodes.
func configuration(count int) (config.Config, error) {
	room := bits.Len(uint(count + 6))
	flags := config.Flags{
		"--allocate-node-cidrs": "true", "--configure-cloud-routes": "true", "--cluster-name": "kubernetes",
		"--cluster-cidr":             fmt.Sprintf("10.240.0.0/%d,fd00:10:244::/%d", 24-room, 64-room),
		"--service-cluster-ip-range": "10.96.0.0/16,fd00:96::/112",
	}
	env := func(name string) string { return map[string]string{"HCLOUD_TOKEN": "any"}[name] }
	c, _, err := config.Load(flags, []byte(file), env, nil)
	c.Routes.Limit = max(100, count+count/10)
	return c, err
}

// Healthy is a cluster of count Nodes, at most 2,000, each with its server, its podCIDRs and its
// route.
func Healthy(count int) (*survey.Snapshot, error) {
	c, err := configuration(count)
	if err != nil {
		return nil, fmt.Errorf("the configuration of the snapshot: %w", err)
	}
	s := &survey.Snapshot{
		Taken: Now(), Parts: Parts, Config: c, ConfigFrom: "a test", Namespace: "kube-system",
		Network: &hetzner.NetworkDetails{
			ID: 1, Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8"),
			Subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, Servers: count,
		},
		RouteRecord: &corev1.ConfigMap{Data: map[string]string{}},
	}
	for object := range s.Ledger {
		s.Ledger[object] = &corev1.ConfigMap{Data: map[string]string{ipam.MarkKey: ipam.Mark(object)}}
	}
	for i := 1; i <= count; i++ {
		join(s, i)
	}
	slices.SortFunc(s.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return s, nil
}

// NodeName is the name of the i-th Node, from 1: control-1, control-2 and control-3 if there are
// more than three, and workers.
func NodeName(i, count int) string {
	planes := 1
	if count > 3 {
		planes = 3
	}
	if i <= planes {
		return fmt.Sprintf("control-%d", i)
	}
	return fmt.Sprintf("worker-%d", i-planes)
}

// PodCIDR is the IPv4 podCIDR of the i-th Node.
func PodCIDR(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(240 + i>>8), byte(i), 0}), 24)
}

// Gateway is the i-th Node's address in the network.
func Gateway(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i + 1)}) }

func podCIDR6(i int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%x::/64", i))
}

func join(s *survey.Snapshot, i int) {
	name := NodeName(i, s.Network.Servers)
	server := cloud.Machine{
		ID: int64(100 + i), Name: name, Type: "cx22", Region: []string{"fsn1", "nbg1", "hel1"}[i%3], PrivateIP: Gateway(i),
		Status: "running", Created: ago(time.Hour).Time,
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: ago(50 * time.Minute), Labels: map[string]string{}},
		Spec: corev1.NodeSpec{
			ProviderID: server.ProviderID(), PodCIDRs: []string{PodCIDR(i).String(), podCIDR6(i).String()},
		},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: Gateway(i).String()}},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: ago(48 * time.Minute)},
				{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated", LastTransitionTime: ago(49 * time.Minute)},
				{Type: "underlay.dev/PeersReachable", Status: corev1.ConditionTrue, Reason: "AllPeersReachable", LastTransitionTime: ago(48 * time.Minute)},
			},
		},
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	if name[0] == 'c' {
		node.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	s.Ledger[0].Data[name] = holding(node, time.Time{}).Record()
	s.Servers = append(s.Servers, server)
	s.Nodes = append(s.Nodes, node)
	route(s, routes.Route{Dst: PodCIDR(i), Via: Gateway(i)}, true)
}

func holding(n *corev1.Node, released time.Time) ipam.Holding {
	h := ipam.Holding{
		Node:  ipam.Node{Name: n.Name, UID: string(n.UID), ProviderID: n.Spec.ProviderID},
		Pools: map[netip.Prefix]string{}, Released: released,
	}
	for i, text := range n.Spec.PodCIDRs {
		p := netip.MustParsePrefix(text)
		h.Prefixes = append(h.Prefixes, p)
		h.Pools[p] = []string{"default-ipv4", "default-ipv6"}[i]
	}
	return h
}

// route adds an existing route, recorded as the cluster's own or not.
func route(s *survey.Snapshot, r routes.Route, recorded bool) {
	s.Network.Routes = append(s.Network.Routes, r)
	if recorded {
		maps.Copy(s.RouteRecord.Data, routes.Record{r: true}.Text())
	}
}
