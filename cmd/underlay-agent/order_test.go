//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/cni"
	"github.com/underlay-ccm/underlay/internal/directory/directorytest"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
)

// breakableNft puts an nft on the PATH that fails to commit while the returned file exists, and
// otherwise is the real one.
func breakableNft(t *testing.T) (broken string) {
	t.Helper()
	dir := t.TempDir()
	broken = filepath.Join(dir, "broken")
	script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *--check*) ;; *-f*) [ -e %s ] && { echo no room >&2; exit 1; } ;; esac\nexec %s \"$@\"\n",
		broken, strings.TrimSpace(shell(t, "which", "nft")))
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return broken
}

// runsOn runs the agent with the components of the program on this kernel. The API server is an
// in-memory fake.
func runsOn(t *testing.T, o *options) *fake.Clientset {
	t.Helper()
	m, err := o.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.network.Close)
	client := fake.NewClientset()
	pools := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	nodes := informers.NewSharedInformerFactoryWithOptions(client, 0)
	a, err := agent.New(agent.Config{
		Client: client, Kernel: m.network,
		Nodes:    directorytest.Nodes{Self: "self", Informer: nodes.Core().V1().Nodes().Informer()},
		Recorder: record.NewFakeRecorder(100),
		Registry: metrics.NewKubeRegistry(),
		Settings: agent.Settings{
			Self: "self", Modes: routes.Modes{IPv4: routes.ByNodes, IPv6: routes.ByNodes}, Pools: pools, PodRanges: pools,
		},
		Before: edges(m.before), After: edges(m.after), Period: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	nodes.StartWithContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended: %v", err)
		}
		nodes.Shutdown()
	})
	return client
}

// Without a packet filter nothing is forwarded and no pod can start; if it is lost later and can't
// be restored, no further pod starts.
func TestNothingOpensBeforeTheFilter(t *testing.T) {
	kerneltest.NewSegment(t, "uplink", "10.0.0.1/24", "fd00::1/64")
	broken := breakableNft(t)
	breaks := func() {
		t.Helper()
		if err := os.WriteFile(broken, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := machineOptions(t, "")
	forwarding := func() string {
		return shell(t, "cat", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding")
	}
	usable := func() bool {
		_, err := os.ReadFile(filepath.Join(o.cniConfDir, cni.FileName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		return err == nil
	}
	for _, key := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+key, []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	}
	breaks()
	client := runsOn(t, o)
	join(t, client, "self", []string{"10.244.1.0/24", "fd01:1::/64"}, "10.0.0.1", "fd00::1")
	awaitCondition(t, client, agent.PeersReachable, corev1.ConditionFalse)
	awaitCondition(t, client, corev1.NodeNetworkUnavailable, corev1.ConditionTrue)
	if now := forwarding(); now != "0\n0\n" || usable() {
		t.Errorf("without a filter forwarding is %q, and the CNI configuration usable: %t", now, usable())
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, client, corev1.NodeNetworkUnavailable, corev1.ConditionFalse)
	if now := forwarding(); now != "1\n1\n" || !usable() {
		t.Errorf("with a filter forwarding is %q, and the CNI configuration usable: %t", now, usable())
	}

	breaks()
	shell(t, "nft", "delete", "table", "inet", "underlay")
	await(t, "no pod can start", func(context.Context) bool { return !usable() })
	awaitCondition(t, client, agent.PeersReachable, corev1.ConditionFalse)
	if now := forwarding(); now != "1\n1\n" {
		t.Errorf("pods that run are cut off: forwarding is %q", now)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	await(t, "pods can start again", func(context.Context) bool { return usable() })
	awaitCondition(t, client, agent.PeersReachable, corev1.ConditionTrue)
}

// The kernel rejects packets to podCIDRs without a node, instead of using the default route.
func TestPacketsToPodCIDRsWithoutANodeDoNotLeave(t *testing.T) {
	kerneltest.NewSegment(t, "uplink", "10.0.0.1/24", "fd00::1/64")
	shell(t, "ip", "route", "add", "default", "via", "10.0.0.254")
	o := machineOptions(t, "")
	client := runsOn(t, o)
	join(t, client, "b", []string{"10.244.2.0/24"}, "10.0.0.2")
	join(t, client, "self", []string{"10.244.1.0/24"}, "10.0.0.1")
	awaitCondition(t, client, corev1.NodeNetworkUnavailable, corev1.ConditionFalse)
	if out := shell(t, "ip", "route", "get", "10.244.2.7"); !strings.Contains(out, "via 10.0.0.2 dev uplink") {
		t.Errorf("to a peer's pod: %s", out)
	}
	out, err := exec.CommandContext(t.Context(), "ip", "route", "get", "10.244.77.1").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "No route to host") {
		t.Errorf("to nobody's pod: %s (%v)", out, err)
	}
}

// Another program's filter, such as Docker's, that drops forwarded packets is reported in the
// condition, and the node stays ready: its rules may accept pods' packets.
func TestAForeignFilterThatDropsIsReported(t *testing.T) {
	kerneltest.NewSegment(t, "uplink", "10.0.0.1/24", "fd00::1/64")
	o := machineOptions(t, "")
	client := runsOn(t, o)
	join(t, client, "self", []string{"10.244.1.0/24"}, "10.0.0.1")
	reason := func(want, says string) {
		t.Helper()
		await(t, "reason "+want, func(ctx context.Context) bool {
			node, err := client.CoreV1().Nodes().Get(ctx, "self", metav1.GetOptions{})
			if err != nil {
				return false
			}
			c := kube.Condition(node, agent.PeersReachable)
			return c != nil && c.Status == corev1.ConditionTrue && c.Reason == want &&
				strings.Contains(c.Message, says)
		})
	}
	reason("AllPeersReachable", "")
	shell(t, "nft", "add", "table", "ip", "filter")
	shell(t, "nft", "add", "chain", "ip", "filter", "FORWARD", "{ type filter hook forward priority 0; policy drop; }")
	reason(agent.ReasonAtRisk, "chain FORWARD of nftables table ip filter")
	shell(t, "nft", "delete", "table", "ip", "filter")
	reason("AllPeersReachable", "")
}
