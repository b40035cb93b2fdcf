//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/addresses"
	addressagent "github.com/underlay-ccm/underlay/addresses/agent"
	"github.com/underlay-ccm/underlay/internal/directory/directorytest"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// holdings is a ledger of these addresses, all with one node.
func holdings(node string, epoch int, all ...string) string {
	var entries []map[string]any
	for _, a := range all {
		entries = append(entries, map[string]any{
			"address": a, "node": node, "epoch": epoch,
			"services": []map[string]any{{"uid": "u-" + a, "namespace": "default", "name": "web"}},
		})
	}
	text, _ := json.Marshal(map[string]any{"version": 1, "addresses": entries})
	return string(text)
}

// neighborhood is this machine with a client on its segment.
type neighborhood struct {
	t      *testing.T
	client *netns.Space
	admin  kubernetes.Interface
}

func newNeighborhood(t *testing.T) *neighborhood {
	t.Helper()
	kerneltest.Need(t)
	n := &neighborhood{t: t, client: netns.New(t)}
	shell(t, "ip", "link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns", n.client.Path())
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "uplink").Run() })
	for _, words := range []string{"address add 10.0.0.1/24 dev uplink", "address add fd00::1/64 dev uplink nodad", "link set uplink up"} {
		shell(t, append([]string{"ip"}, strings.Fields(words)...)...)
	}
	n.client.Run("ip", "address", "add", "10.0.0.9/24", "dev", "eth0")
	n.client.Run("ip", "address", "add", "fd00::9/64", "dev", "eth0", "nodad")
	n.client.Run("ip", "link", "set", "eth0", "up")
	return n
}

// kubeProxy imitates the needed parts: its health check, and the port 80 of a Service, which is
// forwarded to a server on this machine.
func (n *neighborhood) kubeProxy() {
	n.t.Helper()
	health := &http.Server{Addr: "127.0.0.1:10256", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second}
	go func() { _ = health.ListenAndServe() }()
	n.t.Cleanup(func() { _ = health.Close() })
	for _, at := range []string{"10.0.0.1:8080", "[fd00::1]:8080"} {
		listener, err := net.Listen("tcp", at)
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, "hello")
				_ = conn.Close()
			}
		}()
	}
	shell(n.t, "nft", "add table inet proxy; add chain inet proxy in { type nat hook prerouting priority dstnat ; }; "+
		"add rule inet proxy in ip daddr 10.0.0.50 tcp dport 80 dnat ip to 10.0.0.1:8080; "+
		"add rule inet proxy in ip6 daddr fd00::50 tcp dport 80 dnat ip6 to [fd00::1]:8080")
	n.t.Cleanup(func() { _ = exec.Command("nft", "delete", "table", "inet", "proxy").Run() })
}

// query connects as a client without a cached hardware address.
func (n *neighborhood) query(address, port string) error {
	n.t.Helper()
	n.client.Run("ip", "neighbor", "flush", "dev", "eth0")
	var err error
	n.client.Do(func() {
		var conn net.Conn
		if conn, err = net.DialTimeout("tcp", net.JoinHostPort(address, port), 2*time.Second); err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		var text []byte
		if text, err = io.ReadAll(conn); err == nil && string(text) != "hello" {
			err = fmt.Errorf("it said %q", text)
		}
	})
	return err
}

func (n *neighborhood) awaitServed(what string, served bool) {
	n.t.Helper()
	for _, address := range []string{"10.0.0.50", "fd00::50"} {
		await(n.t, fmt.Sprintf("%s: %s is served: %t", what, address, served), func(context.Context) bool {
			return (n.query(address, "80") == nil) == served
		})
	}
}

func (n *neighborhood) ledger(text string) {
	n.t.Helper()
	maps := n.admin.CoreV1().ConfigMaps(addressagent.LedgerNamespace)
	stored := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: addresses.LedgerName},
		Data:       map[string]string{addresses.LedgerKey: text},
	}
	_, err := maps.Update(n.t.Context(), stored, metav1.UpdateOptions{})
	if err != nil {
		_, err = maps.Create(n.t.Context(), stored, metav1.CreateOptions{})
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// awaitReport waits until the Node's report meets a condition.
func (n *neighborhood) awaitReport(what string, says func(addresses.Report) bool) {
	n.t.Helper()
	var last string
	defer func() {
		if n.t.Failed() {
			n.t.Logf("the Node says %s", last)
		}
	}()
	await(n.t, what, func(ctx context.Context) bool {
		node, err := n.admin.CoreV1().Nodes().Get(ctx, "self", metav1.GetOptions{})
		if err != nil {
			return false
		}
		last = node.Annotations[addresses.ReportAnnotation]
		report, err := addresses.ParseReport(last)
		return err == nil && last != "" && says(report)
	})
}

// gauges returns the values of a registry in which names are unique.
func gauges(t *testing.T, r metrics.KubeRegistry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			found[f.GetName()] += m.GetGauge().GetValue()
		}
	}
	return found
}

// without runs the agent with a configuration without pools: it reports the Services of the
// addresses and is not ready, so that a rollout of that file stops here.
func (n *neighborhood) without(t *testing.T, o *options, content string) {
	head, _, _ := strings.Cut(content, "addresses:")
	if err := os.WriteFile(o.config, []byte(head), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := started(t, o, metrics.NewKubeRegistry())
	await(t, "it is not ready for the sake of the Service", func(context.Context) bool {
		_, body := query(o, "/readyz")
		return strings.Contains(body, "no pool has 10.0.0.50, which the Service default/web uses")
	})
	stop()
	if err := os.WriteFile(o.config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAddressesOfAnAgent runs the program with the shipped roles and policy: a client on the
// segment reaches the addresses that the ledger assigns, also after a restart without an API
// server; ports of no Service are rejected; and ARP for a removed address is no longer answered.
func TestAddressesOfAnAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane, whose programs take minutes to build the first time")
	}
	n := newNeighborhood(t)
	cp := controlplane.StartT(t, controlplane.Options{WithoutControllerManager: true})
	for _, file := range []string{"../ccm/directory.yaml", "rbac.yaml", "node-status-policy.yaml", "events-policy.yaml"} {
		if err := cp.Apply(t.Context(), filepath.Join(manifests, file)); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if n.admin, err = kubernetes.NewForConfig(cp.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	directorytest.Publish(t, n.admin)
	join(t, n.admin, "self", []string{"10.244.1.0/24", "fd01:1::/64"}, "10.0.0.1", "fd00::1")
	join(t, n.admin, "b", []string{"10.244.2.0/24", "fd01:2::/64"}, "10.0.0.2", "fd00::2")
	kubeconfig, _ := agentAccount(t, cp, "self")
	o := machineOptions(t, kubeconfig)
	content := "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nprovider: metal\nfamilies: {ipv6: node}\n" +
		"addresses: {pools: [{name: segment, ranges: [10.0.0.48/28, fd00::50/124]}]}\n"
	if err := os.WriteFile(o.config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	o.clusterCIDR = "10.244.0.0/16,fd01::/48"
	n.ledger(holdings("self", 1, "10.0.0.50", "fd00::50"))
	shown := metrics.NewKubeRegistry() // the program's registry is used by another test
	stop := started(t, o, shown)
	n.awaitReport("a kube-proxy that isn't there is told", func(r addresses.Report) bool { return r.Unfit != "" && len(r.Held) == 2 })
	n.kubeProxy()
	n.awaitReport("a healthy one too", func(r addresses.Report) bool { return r.Unfit == "" && len(r.Held) == 2 && len(r.Refused) == 0 })
	n.awaitServed("held", true)
	for _, address := range []string{"10.0.0.50", "fd00::50"} {
		await(t, "a port that no Service has is refused", func(context.Context) bool {
			return errors.Is(n.query(address, "81"), syscall.ECONNREFUSED)
		})
		if response, err := http.Get("http://" + net.JoinHostPort(strings.ReplaceAll(address, "50", "1"), "10267") + "/healthz"); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("the agent is not alive to other nodes: %v, %v", response, err)
		}
	}
	if got := gauges(t, shown); got["underlay_agent_address_held"] != 2 || got["underlay_agent_address_doubt"] != 0 {
		t.Errorf("metrics: %v", got)
	}
	var out bytes.Buffer
	if err := check(t.Context(), o, &out); !strings.Contains(out.String(), "netfilter: as it should be") {
		t.Errorf("check: %v\n%s", err, &out)
	}
	stop()
	if n.query("10.0.0.50", "80") == nil {
		t.Error("who answers while no agent runs?")
	}

	t.Run("without the API server", func(t *testing.T) {
		away := *o
		away.apiServer = "https://10.0.0.1:1" // no server listens there
		stop := started(t, &away, metrics.NewKubeRegistry())
		n.awaitServed("held since before the restart", true)
		stop()
	})
	stop = started(t, o, metrics.NewKubeRegistry())
	n.awaitReport("held again", func(r addresses.Report) bool { return len(r.Held) == 2 })
	stop()
	t.Run("without the pools", func(t *testing.T) { n.without(t, o, content) })
	stop = started(t, o, metrics.NewKubeRegistry())
	n.awaitServed("held with the pools again", true)
	n.ledger(holdings("b", 2, "10.0.0.50", "fd00::50"))
	n.awaitReport("given up", func(r addresses.Report) bool { return len(r.Held) == 0 })
	n.awaitServed("given up", false)
	stop()
	if err := cleanup(t.Context(), o, io.Discard); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(o.stateDir); err != nil || len(left) > 0 {
		t.Errorf("left in the folder for state: %v, %v", left, err)
	}
}
