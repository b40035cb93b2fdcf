package survey_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/routes"
)

func nodeLine(r row) string {
	route := strings.TrimSpace(r["ROUTE"] + " " + r["VIA"])
	return strings.TrimSpace(fmt.Sprintf("[%s] %s; %s; %s", r["PODCIDRS"], r["FAMILIES"], route, r["WHY"]))
}

func TestNodes(t *testing.T) {
	const healthy = "[10.244.2.0/24] IPv4 cloud; stands 10.0.0.3;"
	unroute := func(s *survey.Snapshot) {
		s.Network.Routes = slices.DeleteFunc(s.Network.Routes, func(r routes.Route) bool {
			return r.Dst == podCIDR(2)
		})
	}
	condition := func(
		s *survey.Snapshot, kind corev1.NodeConditionType, status corev1.ConditionStatus, message string,
	) {
		s.Nodes[1].Status.Conditions = append(slices.DeleteFunc(s.Nodes[1].Status.Conditions,
			func(c corev1.NodeCondition) bool { return c.Type == kind }),
			corev1.NodeCondition{Type: kind, Status: status, Reason: "Why", Message: message})
	}
	for _, c := range []struct {
		name   string
		change func(*survey.Snapshot)
		want   string // a prefix
	}{
		{"healthy", func(*survey.Snapshot) {}, healthy},
		{"its route is gone", unroute, "[10.244.2.0/24] IPv4 cloud; missing 10.0.0.3; route 10.244.2.0/24 via 10.0.0.3 does not stand yet"},
		{
			"its route leads elsewhere", func(s *survey.Snapshot) {
				s.Network.Routes[1].Via = addr("10.0.9.9")
				recordAll(s)
			},
			"[10.244.2.0/24] IPv4 cloud; stale 10.0.9.9; route 10.244.2.0/24 via 10.0.0.3 does not stand yet",
		},
		{
			"through another address of its server", func(s *survey.Snapshot) {
				s.Servers[1].AliasIPs = append(s.Servers[1].AliasIPs, addr("10.0.9.9"))
				s.Network.Routes[1].Via = addr("10.0.9.9")
			},
			"[10.244.2.0/24] IPv4 cloud; stands 10.0.9.9;",
		},
		{
			"the table is full", func(s *survey.Snapshot) {
				unroute(s)
				s.Config.Routes.Limit = 2
			},
			"[10.244.2.0/24] IPv4 cloud; missing 10.0.0.3; no room in the network's route table",
		},
		{
			"tunnels connect it", func(s *survey.Snapshot) {
				unroute(s)
				s.Config.WireGuard.Mode = config.WireGuardOverflow
				s.Nodes[1].Annotations = map[string]string{
					kube.ReachAnnotation:     string(routes.NoRoom),
					kube.WireGuardAnnotation: `{"keys": [{"publicKey": "` + strings.Repeat("A", 43) + `=", "port": 51820}], "connected": true}`,
				}
			},
			"[10.244.2.0/24] IPv4 cloud; tunnel: no-room;",
		},
		{
			"tunnels connect all Nodes, and not it yet", func(s *survey.Snapshot) {
				s.Config.WireGuard.Mode = config.WireGuardAlways
				s.Config.WireGuard.Phase = routes.RequireTunnels
			},
			"[10.244.2.0/24] IPv4 cloud; tunnel; waiting for WireGuard tunnels",
		},
		{
			"its server is not attached", func(s *survey.Snapshot) {
				unroute(s)
				s.Servers[1].PrivateIP = netip.Addr{}
			},
			"[10.244.2.0/24] IPv4 cloud; missing; server hcloud://102 is not attached to the network; attach it",
		},
		{
			"its server is not attached any more", func(s *survey.Snapshot) { s.Servers[1].PrivateIP = netip.Addr{} },
			"[10.244.2.0/24] IPv4 cloud; stale 10.0.0.3; server hcloud://102 is not attached to the network; attach it",
		},
		{
			"its server is gone", func(s *survey.Snapshot) { s.Servers = slices.Delete(s.Servers, 1, 2) },
			"[10.244.2.0/24] IPv4 cloud; stale 10.0.0.3; no server has the ID 102 of its provider ID; " + unsure,
		},
		{
			"its server is gone, and routes are switched off", func(s *survey.Snapshot) {
				flags := usualFlags()
				flags["--configure-cloud-routes"] = "false"
				s.Config = configured(t, usualFile, flags)
				s.Servers = slices.Delete(s.Servers, 1, 2)
			},
			"[10.244.2.0/24] IPv4 none; not needed; no server has the ID 102 of its provider ID; " + unsure,
		},
		{
			"no podCIDR yet, and why", func(s *survey.Snapshot) {
				s.Nodes[1].Spec.PodCIDRs = nil
				condition(s, "underlay.dev/PodCIDRsAllocated", corev1.ConditionFalse, "the pools are exhausted")
			},
			"[] ; no podCIDR yet; the pools are exhausted",
		},
		{
			"its peers can't be reached", func(s *survey.Snapshot) {
				condition(s, "underlay.dev/PeersReachable", corev1.ConditionFalse, "node-0001 is no neighbor")
			},
			healthy + " node-0001 is no neighbor",
		},
		{
			"a podCIDR of another's", func(s *survey.Snapshot) { s.Nodes[1].Spec.PodCIDRs = []string{podCIDR(1).String()} },
			"[10.244.1.0/24] IPv4 cloud; stale 10.0.0.2; podCIDR 10.244.1.0/24 overlaps 10.244.1.0/24 of node node-0001",
		},
		{
			"IPv6 alone", func(s *survey.Snapshot) { s.Nodes[1].Spec.PodCIDRs = []string{"fd00::/64"} },
			"[fd00::/64] IPv6 none; not needed; Node node-0002 has the podCIDR fd00::/64, which lies in no pool",
		},
		{
			"routes are switched off", func(s *survey.Snapshot) {
				flags := usualFlags()
				flags["--configure-cloud-routes"] = "false"
				s.Config = configured(t, usualFile, flags)
			},
			"[10.244.2.0/24] IPv4 none; not needed;",
		},
		{
			"the nodes route", func(s *survey.Snapshot) {
				s.Config = configured(t, usualFile+"families: {ipv4: node}\n", usualFlags())
			},
			"[10.244.2.0/24] IPv4 node; not needed;",
		},
		{
			"the cloud is not seen", func(s *survey.Snapshot) {
				lose(s, survey.Cloud, "there is no token")
				condition(s, corev1.NodeNetworkUnavailable, corev1.ConditionTrue, "waiting for a podCIDR and its route")
			},
			"[10.244.2.0/24] IPv4 cloud; not seen; waiting for a podCIDR and its route",
		},
		{
			"nothing but Nodes is seen", func(s *survey.Snapshot) {
				lose(s, survey.Everything&^survey.PartNodes, "not allowed")
				s.Config = config.Config{}
			},
			"[10.244.2.0/24] ; not seen;",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := usual(t, 3)
			c.change(s)
			v, err := survey.NodesOf(s)
			if err != nil {
				t.Fatal(err)
			}
			got := nodeLine(rows(v, "nodes")[1])
			exact := strings.HasSuffix(c.want, ";")
			if !strings.HasPrefix(got, c.want) || exact && got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// If servers can't be matched at all, no server counts as missing, and a note gives the reason.
func TestNodesOfAnotherProject(t *testing.T) {
	s := usual(t, 4)
	s.Servers = nil
	v, err := survey.NodesOf(s)
	if err != nil || len(v.NotSeen) != 1 || !strings.Contains(v.NotSeen[0], "check that the token belongs to this cluster's project") {
		t.Fatalf("%v, %q", err, v.NotSeen)
	}
	for _, n := range rows(v, "nodes") {
		if n["ROUTE"] != survey.RouteNotSeen {
			t.Errorf("%s: route %s, want not seen", n["NODE"], n["ROUTE"])
		}
	}
}

// large is a healthy cluster of 5,000 Nodes.
func large(tb testing.TB) *survey.Snapshot {
	const count = 5000
	s := usual(tb, 0)
	flags := usualFlags()
	flags["--cluster-cidr"] = "10.128.0.0/11"
	s.Config = configured(tb, usualFile, flags)
	s.Config.Routes.Limit = count
	for i := range count {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + i>>8), byte(i), 0}), 24)
		n := newNode(s, i)
		n.Spec.PodCIDRs = []string{p.String()}
		s.Ledger[0].Data[n.Name] = fmt.Sprintf("uid=%s id=%s %s@default-ipv4", n.UID, n.Spec.ProviderID, p)
		s.Network.Routes[i].Dst = p
	}
	return s
}

func TestFiveThousandNodes(t *testing.T) {
	s := large(t)
	v, err := survey.NodesOf(s)
	nodes := rows(v, "nodes")
	if err != nil || len(nodes) != 5000 {
		t.Fatalf("%v, %d Nodes", err, len(nodes))
	}
	for _, n := range nodes {
		if n["ROUTE"] != survey.RouteStands || n["WHY"] != "" {
			t.Fatalf("%+v", n)
		}
	}
	if r, err := survey.RoutesOf(s); err != nil || rows(r, "budget")[0]["USED"] != "5000" || len(rows(r, "drift")) > 0 {
		t.Errorf("%v, %+v", err, rows(r, "budget"))
	}
	if p, err := survey.PoolsOf(s); err != nil || rows(p, "pools")[0]["USED"] != "5000" {
		t.Errorf("%v, %+v", err, rows(p, "pools"))
	}
}

func BenchmarkNodes(b *testing.B) {
	s := large(b)
	for b.Loop() {
		if _, err := survey.NodesOf(s); err != nil {
			b.Fatal(err)
		}
	}
}
