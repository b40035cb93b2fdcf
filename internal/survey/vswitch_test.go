package survey_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/vswitch"
	"github.com/underlay-ccm/underlay/routes"
)

// withDedicated is a cluster whose third machine is a dedicated server with pods inside
// the vSwitch's subnet.
func withDedicated(t *testing.T) *survey.Snapshot {
	t.Helper()
	s := usual(t, 3)
	s.Config = configured(t, usualFile+`vswitch: {subnet: 10.1.0.0/16}
pools:
- {name: default-ipv4, cidr: 10.244.0.0/20}
- {name: dedicated, source: vswitch, cidr: 10.1.128.0/17, nodeSelector: dedicated=true}
`, usualFlags())
	subnet := prefix("10.1.0.0/16")
	s.Network.Subnets = append(s.Network.Subnets, subnet)
	s.Network.Coupling = routes.Coupling{Subnets: []netip.Prefix{subnet}, Exposed: true}
	n := s.Nodes[2]
	n.Labels = map[string]string{"dedicated": "true"}
	n.Spec.ProviderID, n.Spec.PodCIDRs = "hrobot://4711", []string{"10.1.128.0/24"}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.0.5"}}
	s.Ledger[0].Data[n.Name] = "uid=" + string(n.UID) + " id=hrobot://4711 10.1.128.0/24@dedicated"
	s.Servers, s.Network.Routes = s.Servers[:2], s.Network.Routes[:2]
	recordAll(s)
	return s
}

func TestADedicatedServerInsideTheVSwitch(t *testing.T) {
	s := withDedicated(t)
	nodes, err := survey.NodesOf(s)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := nodeLine(rows(nodes, "nodes")[2]), "[10.1.128.0/24] IPv4 vswitch; not needed;"; got != want {
		t.Errorf("Node %q, want %q", got, want)
	}
	n := s.Nodes[2]
	for _, status := range []corev1.ConditionStatus{
		corev1.ConditionTrue, corev1.ConditionUnknown, corev1.ConditionFalse,
	} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: vswitch.MemberCondition, Status: status, Message: "what Robot says"})
		nodes, err := survey.NodesOf(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := rows(nodes, "nodes")[2]["WHY"] == "what Robot says", status == corev1.ConditionFalse; got != want {
			t.Errorf("its membership is %s: %q", status, rows(nodes, "nodes")[2]["WHY"])
		}
		n.Status.Conditions = n.Status.Conditions[:len(n.Status.Conditions)-1]
	}
	table, err := survey.RoutesOf(s)
	if err != nil || len(routeLines(table)) != 2 {
		t.Errorf("%v, routes %q; want two, and no drift", err, routeLines(table))
	}
	pools, err := survey.PoolsOf(s)
	if err != nil {
		t.Fatal(err)
	}
	var sources []string
	for _, p := range rows(pools, "pools") {
		sources = append(sources, p["NAME"]+" "+p["SOURCE"])
	}
	if want := []string{"default-ipv4 cidr", "dedicated vswitch"}; !slices.Equal(sources, want) {
		t.Errorf("pools %q, want %q", sources, want)
	}
	if p := rows(pools, "pools")[1]; p["USED"] != "1" || p["EXCLUDED"] != "0" || p["FREE"] != "127" {
		t.Errorf("pool %+v: the subnet that it lies in is no exclusion", p)
	}

	s.Nodes[2].Status.Addresses[0].Address = "192.0.2.5"
	if nodes, err = survey.NodesOf(s); err != nil || !strings.Contains(nodeLine(rows(nodes, "nodes")[2]), "--node-ip") {
		t.Errorf("%v, Node %q; want what to do about its address", err, nodeLine(rows(nodes, "nodes")[2]))
	}
}
