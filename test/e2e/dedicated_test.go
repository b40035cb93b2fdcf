package e2e_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/kubelet"
	"github.com/underlay-ccm/underlay/test/testenv/measured"
)

// robotPassword is searched for where no secret may be.
const robotPassword = "the-password-that-must-never-be-shown-9876543210"

// account is a Robot account, with the files of its credentials.
type account struct {
	*robotsim.Simulator
	config string // the section of --cloud-config
	file   string // contains the password
}

func startRobot(t *testing.T, password string) account {
	t.Helper()
	profile, err := measured.Profile()
	if err != nil {
		t.Fatal(err)
	}
	a := account{Simulator: robotsim.New(robotsim.Options{User: "user", Password: robotPassword}.With(profile.Robot))}
	server := httptest.NewServer(a.Simulator)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	user := filepath.Join(dir, "user")
	a.file = filepath.Join(dir, "password")
	for path, content := range map[string]string{user: "user", a.file: password} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.config = fmt.Sprintf("robot: {endpoint: '%s', userFile: %s, passwordFile: %s}\n", server.URL, user, a.file)
	return a
}

// lists counts the responses of Robot to lists of servers by these statuses.
func (a account) lists(statuses ...int) int {
	n := 0
	for _, r := range a.Requests() {
		if r.Path == "/server" && slices.Contains(statuses, r.Status) {
			n++
		}
	}
	return n
}

// A cloud server and two dedicated ones form a cluster: each Node is described from the API of its
// server's provider. The Node of a dedicated server that is cancelled is deleted, once Robot
// confirms it. If Robot rejects the credentials, or is unreachable, nothing stops and nothing is
// deleted.
func TestDedicatedServersJoinAndLeave(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 50 * time.Millisecond})
	a := startRobot(t, "wrong")
	kubelets := map[string]*kubelet.Kubelet{}
	join := func(name, inside string) {
		kubelets[name] = joinRack(t, c, kubelet.Options{
			Name: name, InternalIPs: []netip.Addr{netip.MustParseAddr(inside)}, ReadyWithPodCIDR: true,
		})
	}
	for i, inside := range []string{"10.1.0.7", "10.1.0.8"} {
		name := fmt.Sprint("bm-", i+1)
		seed := robotsim.ServerSeed{Number: int64(2345 + i), Name: name, Product: "AX41 NVMe", DC: "FSN1-DC14", IPv4: netip.AddrFrom4([4]byte{198, 51, 100, byte(i + 1)})}
		if _, err := a.CreateServer(seed); err != nil {
			t.Fatal(err)
		}
		join(name, inside)
	}
	addMachine(t, c, "node-0")
	m := startManager(t, c, cluster.ManagerOptions{Config: c.CloudConfig() + a.config, Args: []string{"--node-monitor-period=500ms"}})

	eventually(t, 60*time.Second, "Robot refuses the credentials, and the manager works", func(ctx context.Context) (bool, string) {
		status, says := m.Health(ctx)
		refused := a.lists(401, 403) // it is unknown which of the two a failed login gets
		return status == 200 && refused == 1, fmt.Sprintf("%d %s, %d refused", status, says, refused)
	})
	eventually(t, 60*time.Second, "the cloud server is recognized by its name and address", func(ctx context.Context) (bool, string) {
		found := ""
		for _, n := range nodes(ctx, t, c) {
			if n.Name == "node-0" {
				found = n.Spec.ProviderID
				continue
			}
			if n.Spec.ProviderID != "" {
				t.Errorf("%s is %s before it is known which dedicated servers there are", n.Name, n.Spec.ProviderID)
			}
		}
		return strings.HasPrefix(found, "hcloud://"), "node-0 has the provider ID " + strconv.Quote(found)
	})
	if err := os.WriteFile(a.file, []byte(robotPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "all three Nodes are initialized", func(ctx context.Context) (bool, string) {
		var missing []string
		ns := nodes(ctx, t, c)
		for i := range ns {
			n := &ns[i]
			if n.Spec.ProviderID == "" || kube.Tainted(n, "node.cloudprovider.kubernetes.io/uninitialized") || len(kube.InternalIPs(n)) != 1 || !kube.Ready(n) {
				missing = append(missing, fmt.Sprintf("%s: provider %q, taints %v, addresses %v", n.Name, n.Spec.ProviderID, n.Spec.Taints, n.Status.Addresses))
			}
		}
		return len(ns) == 3 && len(missing) == 0, strings.Join(missing, "\n")
	})
	expectNodeDescribed(t, c, "node-0")
	expectDedicated(t, c, "bm-1", "hrobot://2345", "198.51.100.1", "10.1.0.7")
	expectDedicated(t, c, "bm-2", "hrobot://2346", "198.51.100.2", "10.1.0.8")

	a.SetMaintenance(true)
	if err := a.RemoveServer(2345); err != nil {
		t.Fatal(err)
	}
	kubelets["bm-1"].Stop()
	eventually(t, 90*time.Second, "Robot is asked about the Node that isn't ready, and is away", func(ctx context.Context) (bool, string) {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, "bm-1", metav1.GetOptions{})
		if err != nil {
			t.Fatalf("the Node during an outage: %v", err)
		}
		ready := kube.Condition(n, corev1.NodeReady)
		return ready.Status == corev1.ConditionUnknown && a.lists(503) > 0, fmt.Sprintf("%v, %d unanswered", ready, a.lists(503))
	})
	a.SetMaintenance(false)
	eventually(t, 4*time.Minute, "its Node is gone when Robot says so", func(ctx context.Context) (bool, string) {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, "bm-1", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(n.Status.Conditions, err)
	})
	asked := slices.ContainsFunc(a.Requests(), func(r robotsim.Request) bool { return r.Path == "/server/2345" && r.Status == 404 })
	if left := nodes(t.Context(), t, c); len(left) != 2 || !asked {
		t.Errorf("%d Nodes are left, want 2; asked for the server alone: %t", len(left), asked)
	}
	expectSound(t, c)
	expectLogged(t, c)
}

func expectDedicated(t *testing.T, c *cluster.Cluster, name, id, outside, inside string) {
	t.Helper()
	n, err := c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%s %s %s %s %s", n.Spec.ProviderID, n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelTopologyZone],
		n.Labels[corev1.LabelTopologyRegion], n.Labels["instance.hetzner.cloud/provided-by"])
	if want := id + " AX41-NVMe fsn1-dc14 fsn1 robot"; got != want {
		t.Errorf("%s is %q, want %q", name, got, want)
	}
	var has []string
	for _, address := range n.Status.Addresses {
		has = append(has, string(address.Type)+"="+address.Address)
	}
	slices.Sort(has)
	if want := []string{"ExternalIP=" + outside, "Hostname=" + name, "InternalIP=" + inside}; !slices.Equal(has, want) {
		t.Errorf("%s has the addresses %q, want %q", name, has, want)
	}
}

// expectLogged checks in the log that the rejected credentials and the outage were each logged once
// when they began and once when they ended, without the password.
func expectLogged(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(c.ControlPlane.Dir(), "underlay-ccm-1.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"Dedicated servers can't be listed;", "Dedicated servers can be listed again"} {
		if n := strings.Count(string(content), says); n != 2 {
			t.Errorf("the log says %d times %q", n, says)
		}
	}
	if strings.Contains(string(content), robotPassword) {
		t.Error("the log holds the password")
	}
}
