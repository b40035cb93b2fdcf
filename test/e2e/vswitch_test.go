package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/kubelet"
)

// coupledConfig has a pool for dedicated servers inside the vSwitch's subnet.
func coupledConfig(c *cluster.Cluster, vSwitch string) string {
	return c.CloudConfig() + "vswitch: {" + vSwitch + `}
pools:
- {name: default-ipv4, cidr: 10.244.0.0/16}
- {name: default-ipv6, cidr: "fd00:10:244::/56"}
- {name: dedicated, source: vswitch, cidr: 10.1.128.0/17, nodeSelector: node.example/dedicated=true}
`
}

// joinDedicated joins a dedicated server, which no API of the cloud lists.
func joinDedicated(t *testing.T, c *cluster.Cluster, name string, number int, addr string) {
	t.Helper()
	joinRack(t, c, kubelet.Options{
		Name: name, ProviderID: fmt.Sprintf("hrobot://%d", number), InternalIPs: []netip.Addr{netip.MustParseAddr(addr)},
		Labels: map[string]string{"node.example/dedicated": "true"}, ReadyWithPodCIDR: true,
	})
}

// A network that is coupled with a vSwitch, one server of the cloud and two dedicated ones: each
// has a podCIDR of its own kind, and only the cloud's gets a route.
func TestDedicatedServersInsideTheVSwitch(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{})
	expectRefused(t, startManager(t, c, cluster.ManagerOptions{Config: coupledConfig(c, "subnet: 10.1.0.0/16, exposeRoutes: true")}),
		"vswitch.subnet", "10.1.0.0/16", "no subnet of type vswitch", "hcloud network add-subnet")
	request(t, c, fmt.Sprintf("/networks/%d/actions/add_subnet", c.Network.ID),
		`{"type": "vswitch", "vswitch_id": 4321, "network_zone": "eu-central", "ip_range": "10.1.0.0/16"}`)
	eventually(t, 10*time.Second, "the network is coupled", func(context.Context) (bool, string) {
		n, _ := c.Cloud.Network(c.Network.ID)
		return len(n.Subnets) == 2, fmt.Sprint(n.Subnets)
	})
	expectRefused(t, startManager(t, c, cluster.ManagerOptions{Config: coupledConfig(c, "subnet: 10.1.0.0/16")}),
		"vswitch.exposeRoutes", "doesn't expose its routes to the vSwitch", "hcloud network expose-routes-to-vswitch")

	m := startManager(t, c, cluster.ManagerOptions{Config: coupledConfig(c, "subnet: 10.1.0.0/16, exposeRoutes: true")})
	addMachine(t, c, "cloud")
	joinDedicated(t, c, "dedicated-1", 321, "10.1.0.5")
	joinDedicated(t, c, "dedicated-2", 421, "192.0.2.9")
	states := func(want map[string]string) func(context.Context) (bool, string) {
		return func(ctx context.Context) (bool, string) {
			var wrong []string
			for _, n := range nodes(ctx, t, c) {
				if got := network(&n); got != want[n.Name] {
					wrong = append(wrong, n.Name+": "+got)
				}
			}
			return len(wrong) == 0, strings.Join(wrong, ", ")
		}
	}
	eventually(t, 60*time.Second, "the Node with another address is told", states(map[string]string{
		"cloud": "False RouteCreated", "dedicated-1": "False RouteCreated", "dedicated-2": "True NotInVSwitch",
	}))
	eventually(t, 10*time.Second, "one Event says what to do", func(ctx context.Context) (bool, string) {
		got := eventsPerNode(ctx, t, c, "NotInVSwitch")
		return len(got) == 1 && got["dedicated-2"] == 1, fmt.Sprint(got)
	})
	setAddress(t, c, "dedicated-2", "10.1.0.6")
	eventually(t, 30*time.Second, "all are served", states(map[string]string{
		"cloud": "False RouteCreated", "dedicated-1": "False RouteCreated", "dedicated-2": "False RouteCreated",
	}))

	for _, n := range nodes(t.Context(), t, c) {
		want := netip.MustParsePrefix("10.1.128.0/17")
		if n.Name == "cloud" {
			want = netip.MustParsePrefix("10.244.0.0/16")
		}
		got, err := kube.PodCIDRs(&n)
		if err != nil || len(got) != 2 || !want.Contains(got[0].Addr()) || got[1].Addr().Is4() {
			t.Errorf("%s has %v (%v), want one of %s and one of IPv6", n.Name, got, err, want)
		}
	}
	expectSound(t, c)
	if table := routeTable(t, c); len(table) != 1 {
		t.Errorf("routes %v, want that of the cloud's server alone", table)
	}
	expectExposedOnce(t, c)
	if content, err := os.ReadFile(m.Log); err != nil || !oneLineHolds(string(content), []string{"The network exposes its routes to the vSwitch", "cluster"}) {
		t.Errorf("the log doesn't say that the network was changed (%v)", err)
	}
}

// Robot reports the state of the members of the vSwitch, and their Nodes get an Event, once,
// whichever manager leads. None of that keeps a Node from its podCIDR, or from being reachable.
func TestMembersOfTheVSwitch(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{})
	const vSwitch = 4321
	request(t, c, fmt.Sprintf("/networks/%d/actions/add_subnet", c.Network.ID),
		fmt.Sprintf(`{"type": "vswitch", "vswitch_id": %d, "network_zone": "eu-central", "ip_range": "10.1.0.0/16"}`, vSwitch))
	eventually(t, 10*time.Second, "the network is coupled", func(context.Context) (bool, string) {
		n, _ := c.Cloud.Network(c.Network.ID)
		return len(n.Subnets) == 2, fmt.Sprint(n.Subnets)
	})
	a := startRobot(t, robotPassword)
	for i := range 4 {
		if _, err := a.CreateServer(robotsim.ServerSeed{Number: int64(321 + i), Name: fmt.Sprint("bm-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.CreateVSwitch(robotsim.VSwitchSeed{ID: vSwitch, Servers: []robotsim.MemberSeed{
		{Number: 321}, {Number: 322, Status: "failed"}, {Number: 323, Status: "in process"},
	}}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		joinDedicated(t, c, fmt.Sprint("bm-", i), 321+i, fmt.Sprint("10.1.0.", 5+i))
	}
	told := func(want ...string) func(context.Context) (bool, string) {
		return func(ctx context.Context) (bool, string) {
			var got []string
			for _, n := range nodes(ctx, t, c) {
				member := "nothing"
				if c := kube.Condition(&n, "underlay.dev/VSwitchMember"); c != nil {
					member = string(c.Status) + " " + c.Reason
				}
				got = append(got, fmt.Sprintf("%s: %s, %s", n.Name, network(&n), member))
			}
			slices.Sort(got)
			return slices.Equal(got, want), strings.Join(got, "\n")
		}
	}
	events := func(ctx context.Context) string {
		return fmt.Sprint(eventsPerNode(ctx, t, c, "VSwitchMemberFailed"), eventsPerNode(ctx, t, c, "VSwitchMemberMissing"), eventsPerNode(ctx, t, c, "VSwitchMemberReady"))
	}
	options := cluster.ManagerOptions{Config: coupledConfig(c, "subnet: 10.1.0.0/16, exposeRoutes: true") + a.config}
	first := startManager(t, c, options)
	eventually(t, 2*time.Minute, "Nodes are told what their servers are in the vSwitch", told(
		"bm-0: False RouteCreated, nothing", "bm-1: False RouteCreated, False VSwitchMemberFailed",
		"bm-2: False RouteCreated, nothing", "bm-3: False RouteCreated, False VSwitchMemberMissing",
	))
	eventually(t, 10*time.Second, "by one Event each", func(ctx context.Context) (bool, string) {
		got := events(ctx)
		return got == "map[bm-1:1] map[bm-3:1] map[]", got
	})

	first.Kill()
	for number, status := range map[int64]string{321: "failed", 324: "ready"} {
		if err := a.SetMember(vSwitch, number, status); err != nil {
			t.Fatal(err)
		}
	}
	startManager(t, c, options)
	eventually(t, time.Minute, "the next manager tells what has changed", told(
		"bm-0: False RouteCreated, False VSwitchMemberFailed", "bm-1: False RouteCreated, False VSwitchMemberFailed",
		"bm-2: False RouteCreated, nothing", "bm-3: False RouteCreated, True VSwitchMemberReady",
	))
	eventually(t, 10*time.Second, "and nothing else", func(ctx context.Context) (bool, string) {
		got := events(ctx)
		return got == "map[bm-0:1 bm-1:1] map[bm-3:1] map[bm-3:1]", got
	})
	expectSound(t, c)
}

// expectRefused waits for a manager to exit with one message.
func expectRefused(t *testing.T, m *cluster.Manager, says ...string) {
	t.Helper()
	eventually(t, 30*time.Second, "the manager ends", func(context.Context) (bool, string) { return m.Ended(), "it runs" })
	content, err := os.ReadFile(m.Log)
	if err != nil || m.ExitCode() != 1 || !oneLineHolds(string(content), says) {
		t.Errorf("exit code %d (%v), want 1 and a line with %q:\n%s", m.ExitCode(), err, says, content)
	}
}

// setAddress gives a Node the internal address of its machine, as its initialization would.
func setAddress(t *testing.T, c *cluster.Cluster, name, addr string) {
	t.Helper()
	patch := fmt.Sprintf(`{"status": {"addresses": [{"type": "InternalIP", "address": %q}]}}`, addr)
	_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

// expectExposedOnce checks that the network exposes its routes to the vSwitch, and that one request
// enabled it.
func expectExposedOnce(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if n, _ := c.Cloud.Network(c.Network.ID); !n.ExposeRoutesToVSwitch {
		t.Error("the network doesn't expose its routes to the vSwitch")
	}
	var puts []string
	for _, r := range c.Cloud.Requests() {
		if r.Method == http.MethodPut {
			puts = append(puts, r.Path)
		}
	}
	if want := []string{fmt.Sprintf("/v1/networks/%d", c.Network.ID)}; !slices.Equal(puts, want) {
		t.Errorf("changes %q, want %q", puts, want)
	}
}
