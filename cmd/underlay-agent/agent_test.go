//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/directory/directorytest"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

// patience limits waits.
const patience = 2 * time.Minute

// shell runs a program and returns its output.
func shell(t *testing.T, words ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", words, err, out)
	}
	return string(out)
}

func await(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			return done(ctx), nil
		})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// machineOptions are the flags of a machine, in a namespace of the test's own.
func machineOptions(t *testing.T, kubeconfig string) *options {
	t.Helper()
	dir := t.TempDir()
	o := defaults()
	o.cniConfDir, o.stateDir, o.cniBinDirs = filepath.Join(dir, "net.d"), filepath.Join(dir, "run"), []string{filepath.Join(dir, "bin")}
	for _, folder := range []string{o.cniConfDir, o.stateDir, o.cniBinDirs[0]} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, plugin := range []string{"ptp", "host-local", "portmap"} {
		if err := os.WriteFile(filepath.Join(o.cniBinDirs[0], plugin), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o.config = filepath.Join(dir, "config.yaml")
	content := "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nfamilies: {ipv4: node, ipv6: node}\ntokenFile: /nowhere/token\n"
	if err := os.WriteFile(o.config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	o.nodeName, o.kubeconfig = "self", kubeconfig
	o.period = time.Hour // repairs must be triggered by events
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.port = listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return o
}

func join(
	t *testing.T, client kubernetes.Interface, name string, podCIDRs []string, addresses ...string,
) {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDR: podCIDRs[0], PodCIDRs: podCIDRs},
	}
	created, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		created.Status.Addresses = append(created.Status.Addresses, corev1.NodeAddress{
			Type: corev1.NodeInternalIP, Address: a,
		})
	}
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), created,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// started runs the agent until stop is called.
func started(t *testing.T, o *options, r promauto.Registry) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o, r) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run ended: %v", err)
		}
	}
	return stop
}

func query(o *options, path string) (int, string) {
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", o.port, path))
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

// TestLifeOfAnAgent runs the program on a real kernel, against a real API server
// with the shipped roles and policy, from its start to cleanup.
func TestLifeOfAnAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane, whose programs take minutes to build the first time")
	}
	segment := kerneltest.NewSegment(t, "uplink", "10.0.0.1/24", "fd00::1/64")
	segment.Far("10.0.0.2/24")
	cp := controlplane.StartT(t, controlplane.Options{WithoutControllerManager: true})
	for _, file := range []string{"../ccm/directory.yaml", "rbac.yaml", "node-status-policy.yaml", "events-policy.yaml"} {
		if err := cp.Apply(t.Context(), filepath.Join(manifests, file)); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	directorytest.Publish(t, admin)
	join(t, admin, "self", []string{"10.244.1.0/24", "fd01:1::/64"}, "10.0.0.1", "fd00::1")
	join(t, admin, "b", []string{"10.244.2.0/24", "fd01:2::/64"}, "10.0.0.2", "fd00::2")
	kubeconfig, account := agentAccount(t, cp, "self")
	t.Run("the policy", func(t *testing.T) { ownStatusOnly(t, account) })

	o := machineOptions(t, kubeconfig)
	forwarding := shell(t, "cat", "/proc/sys/net/ipv4/ip_forward")
	stop := started(t, o, registry{})
	await(t, "ready", func(context.Context) bool { code, _ := query(o, "/readyz"); return code == http.StatusOK })
	for _, route := range []string{"10.244.2.0/24 via 10.0.0.2 dev uplink", "unreachable 10.244.1.0/24", "fd01:2::/64 via fd00::2 dev uplink", "unreachable fd01:1::/64"} {
		if !strings.Contains(routesOf(t), route) {
			t.Errorf("%s is not among\n%s", route, routesOf(t))
		}
	}
	for kind, want := range map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeNetworkUnavailable: corev1.ConditionFalse, agent.PeersReachable: corev1.ConditionTrue,
	} {
		awaitCondition(t, admin, kind, want)
	}
	t.Run("put back", func(t *testing.T) {
		shell(t, "ip", "route", "flush", "proto", "201")
		await(t, "the route is back", func(context.Context) bool { return strings.Contains(routesOf(t), "10.244.2.0/24 via") })
		shell(t, "nft", "flush", "ruleset")
		await(t, "the packet filter is back", func(context.Context) bool { return strings.Contains(shell(t, "nft", "list", "ruleset"), "underlay") })
	})
	t.Run("metrics", func(t *testing.T) {
		_, page := query(o, "/metrics")
		for _, want := range []string{`underlay_agent_routes{state="standing"} 4`, `underlay_agent_repairs_total{part="routes"}`} {
			if !strings.Contains(page, want) {
				t.Errorf("/metrics has no %s", want)
			}
		}
	})
	t.Run("a Node that comes and goes", func(t *testing.T) {
		join(t, admin, "c", []string{"10.244.3.0/24"}, "10.0.0.3")
		await(t, "its route stands", func(context.Context) bool { return strings.Contains(routesOf(t), "10.244.3.0/24 via 10.0.0.3") })
		if err := admin.CoreV1().Nodes().Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await(t, "its route is gone", func(context.Context) bool { return !strings.Contains(routesOf(t), "10.244.3.0/24") })
	})
	t.Run("link down and up", func(t *testing.T) { flap(t, admin, segment) })
	stop()
	if !strings.Contains(routesOf(t), "10.244.2.0/24 via 10.0.0.2") {
		t.Errorf("stopping took routes away:\n%s", routesOf(t))
	}
	t.Run("check", func(t *testing.T) { checked(t, o) })
	t.Run("cleanup", func(t *testing.T) {
		var out bytes.Buffer
		if err := cleanup(t.Context(), o, &out); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(o.cniConfDir)
		if rules := shell(t, "nft", "list", "ruleset"); strings.Contains(routesOf(t), "201") || strings.Contains(rules, "underlay") || err != nil || len(left) > 0 {
			t.Errorf("left: %s\n%s\n%v, %v\nit said:\n%s", routesOf(t), rules, left, err, &out)
		}
		if now := shell(t, "cat", "/proc/sys/net/ipv4/ip_forward"); now != forwarding {
			t.Errorf("ip_forward is %s, was %s", now, forwarding)
		}
		out.Reset()
		if err := cleanup(t.Context(), o, &out); err != nil || out.String() != "nothing of underlay is left on this node\n" {
			t.Errorf("again: %v, %s", err, &out)
		}
	})
	t.Run("in a cloud's network", func(t *testing.T) { behindAGateway(t, kubeconfig, segment) })
}

// behindAGateway configures the network like a cloud's, where no machine is a neighbor of another,
// and expects one route for all pods.
func behindAGateway(t *testing.T, kubeconfig string, segment *kerneltest.Segment) {
	segment.Withdraw("10.0.0.1/24")
	segment.Address("10.0.0.1/32")
	shell(t, "ip", "route", "add", "10.0.0.254", "dev", "uplink", "scope", "link")
	shell(t, "ip", "route", "add", "10.0.0.0/16", "via", "10.0.0.254", "dev", "uplink")
	o := machineOptions(t, kubeconfig)
	content := "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nnetwork: cluster\n"
	if err := os.WriteFile(o.config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	o.clusterCIDR = "10.244.0.0/16"
	stop := started(t, o, metrics.NewKubeRegistry())
	await(t, "ready", func(context.Context) bool { code, _ := query(o, "/readyz"); return code == http.StatusOK })
	stop()
	ours := strings.TrimSpace(shell(t, "ip", "-4", "route", "show", "proto", "201"))
	want := "10.244.0.0/16 via 10.0.0.254 dev uplink metric 201"
	if lines := strings.Split(ours, "\n"); len(lines) != 2 || !strings.HasPrefix(lines[0], want) || !strings.HasPrefix(lines[1], "unreachable 10.244.1.0/24") {
		t.Errorf("routes are\n%s\nwant %s, and the own podCIDR refused", ours, want)
	}
	if err := cleanup(t.Context(), o, io.Discard); err != nil {
		t.Error(err)
	}
}

func awaitCondition(
	t *testing.T, client kubernetes.Interface, kind corev1.NodeConditionType,
	want corev1.ConditionStatus,
) {
	t.Helper()
	await(t, fmt.Sprintf("condition %s is %s", kind, want), func(ctx context.Context) bool {
		node, err := client.CoreV1().Nodes().Get(ctx, "self", metav1.GetOptions{})
		if err != nil {
			return false
		}
		c := kube.Condition(node, kind)
		return c != nil && c.Status == want
	})
}

// flap switches the uplink off and on: the peers are reported in between, and routes of both
// families are restored by events alone.
func flap(t *testing.T, client kubernetes.Interface, segment *kerneltest.Segment) {
	segment.Down()
	awaitCondition(t, client, agent.PeersReachable, corev1.ConditionFalse)
	await(t, "an Event names the peer", func(ctx context.Context) bool {
		events, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Reason == "PeersUnreachable" && e.InvolvedObject.Name == "self" && strings.Contains(e.Message, "b: InternalIP 10.0.0.2")
		})
	})
	segment.Up()
	segment.Address("fd00::1/64") // the kernel drops IPv6 addresses with the link
	await(t, "routes of both families are back", func(context.Context) bool {
		now := routesOf(t)
		return strings.Contains(now, "10.244.2.0/24 via 10.0.0.2") && strings.Contains(now, "fd01:2::/64 via fd00::2")
	})
	awaitCondition(t, client, agent.PeersReachable, corev1.ConditionTrue)
}

func routesOf(t *testing.T) string {
	t.Helper()
	return shell(t, "ip", "route") + shell(t, "ip", "-6", "route")
}

// checked expects that the state after run has no difference, and that a difference is printed and
// not repaired.
func checked(t *testing.T, o *options) {
	var out bytes.Buffer
	if err := check(t.Context(), o, &out); err != nil {
		t.Errorf("%v:\n%s", err, &out)
	}
	for _, want := range []string{"stands  10.244.2.0/24", "netfilter: as it should be", "cni: as it should be", "sysctl: as it should be"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it doesn't say %q:\n%s", want, &out)
		}
	}
	shell(t, "ip", "route", "del", "10.244.2.0/24")
	out.Reset()
	if err := check(t.Context(), o, &out); err != nil || !strings.Contains(out.String(), "add     10.244.2.0/24") {
		t.Errorf("%v:\n%s", err, &out)
	}
	if strings.Contains(routesOf(t), "10.244.2.0/24") {
		t.Error("check made the route")
	}
}
