//go:build linux

package netlab

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// Ports of a machine's programs.
const (
	AgentPort = 10266 // health and metrics, on loopback
	ProxyPort = 10256 // kube-proxy's health, on every address
)

// readyWithin is how long a machine may take to be ready for pods.
const readyWithin = 3 * time.Minute

// within runs a program in the machine's namespace. Signals reach the program itself, because
// nsenter executes it in its own process.
func (m *Machine) within(name, path string, args ...string) (*process.Process, error) {
	return m.enter(process.Command{Name: name, Path: path, Args: args})
}

func (m *Machine) enter(c process.Command) (*process.Process, error) {
	c.Args = append([]string{"--net=" + m.Namespace.Path(), "--", c.Path}, c.Args...)
	c.Name, c.Path, c.Dir = c.Name+"-"+m.Name, "nsenter", m.lab.options.Dir
	return process.Start(c)
}

// Start runs a further program on the machine, which ends with it. Its log has the names of both.
func (m *Machine) Start(c process.Command) (*process.Process, error) {
	p, err := m.enter(c)
	if err == nil {
		m.others = append(m.others, p)
	}
	return p, err
}

// StartAgent starts underlay-agent run, as its DaemonSet does. The arguments override the usual
// ones. It fails if an agent already runs.
func (m *Machine) StartAgent(ctx context.Context, args ...string) error {
	if m.agent != nil && !m.agent.Ended() {
		return fmt.Errorf("agent on %s: it runs", m.Name)
	}
	if err := m.credentials(ctx); err != nil {
		return err
	}
	if err := os.WriteFile(m.path("config.yaml"), []byte(m.lab.config()), 0o600); err != nil {
		return err
	}
	if m.lab.options.WireGuard != "" {
		if err := m.startTunnels(ctx); err != nil {
			return err
		}
	}
	return m.RestartAgent(args...)
}

// RestartAgent is StartAgent by a kubelet that can't reach the API server: with the existing
// credentials and configuration.
func (m *Machine) RestartAgent(args ...string) (err error) {
	start := m.within
	if m.lab.options.WireGuard != "" {
		start = m.withTunnels
	}
	m.agent, err = start("underlay-agent", m.lab.options.Agent, slices.Concat([]string{"run", "-v=1"}, m.agentFlags(), args)...)
	return err
}

func (m *Machine) agentFlags() []string {
	return append(m.hostFlags(),
		"--config="+m.path("config.yaml"), "--cluster-cidr="+m.lab.podRanges(), "--node-name="+m.Name, "--kubeconfig="+m.path("kubeconfig"))
}

func (m *Machine) hostFlags() []string {
	return []string{"--cni-conf-dir=" + m.ConfigDir(), "--cni-bin-dir=" + m.lab.options.Plugins, "--state-dir=" + m.path("run"), "--key-dir=" + m.path("keys")}
}

// ConfigDir is the folder of the machine's CNI configuration.
func (m *Machine) ConfigDir() string { return m.path("net.d") }

// KillAgent ends the agent as a crash does.
func (m *Machine) KillAgent() { m.agent.Kill() }

// StopAgent ends the agent as an upgrade does, and waits for it.
func (m *Machine) StopAgent(ctx context.Context) error {
	if err := m.agent.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-m.agent.Done():
		return nil
	case <-ctx.Done():
		return m.agent.Failure(context.Cause(ctx))
	}
}

// Cleanup runs underlay-agent cleanup and returns its output.
func (m *Machine) Cleanup(ctx context.Context) (string, error) {
	return m.Namespace.Run(ctx, m.lab.options.Agent, append([]string{"cleanup"}, m.hostFlags()...)...)
}

// Agent returns status and body of a page of the agent's port, such as /readyz; the status is 0 if
// no program listens.
func (m *Machine) Agent(ctx context.Context, page string) (status int, body string) {
	return m.get(ctx, fmt.Sprintf("http://127.0.0.1:%d%s", AgentPort, page))
}

func (m *Machine) get(ctx context.Context, url string) (status int, body string) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return m.Namespace.Dial(ctx, network, address)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(content)
}

// AwaitReady waits until the machine can run pods: its Node is initialized, has podCIDRs and a
// network, and its programs are ready.
func (m *Machine) AwaitReady(ctx context.Context) error {
	last := "nothing was seen"
	err := wait.PollUntilContextTimeout(ctx, pollEvery, readyWithin, true,
		func(ctx context.Context) (bool, error) {
			if missing := m.missing(ctx); ctx.Err() == nil {
				last = missing
			}
			return last == "", m.dead()
		})
	if err != nil {
		return fmt.Errorf("machine %s is not ready: %w: %s", m.Name, err, last)
	}
	return nil
}

// dead returns an error if a program that the machine needs to become ready has ended.
func (m *Machine) dead() error {
	m.lab.mu.Lock()
	manager := m.lab.Manager.Process
	m.lab.mu.Unlock()
	for _, p := range []*process.Process{manager, m.agent, m.proxy} {
		if p != nil && p.Ended() {
			return p.Failure(p.Died())
		}
	}
	return nil
}

// missing describes why the machine is not ready.
func (m *Machine) missing(ctx context.Context) string {
	node, err := m.lab.Client.CoreV1().Nodes().Get(ctx, m.Name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	network := kube.Condition(node, corev1.NodeNetworkUnavailable)
	switch {
	case len(node.Spec.PodCIDRs) < m.lab.families():
		return fmt.Sprintf("its podCIDRs are %v", node.Spec.PodCIDRs)
	case node.Spec.ProviderID == "":
		return "no provider ID"
	case network == nil || network.Status != corev1.ConditionFalse:
		return fmt.Sprintf("NetworkUnavailable is %+v", network)
	}
	if m.agent != nil {
		if status, reports := m.Agent(ctx, "/readyz"); status != http.StatusOK {
			return fmt.Sprintf("its agent answers %d %s", status, reports)
		}
	}
	if m.proxy != nil {
		if status, reports := m.get(ctx, fmt.Sprintf("http://127.0.0.1:%d/healthz", ProxyPort)); status != http.StatusOK {
			return fmt.Sprintf("its kube-proxy answers %d %s", status, reports)
		}
	}
	return ""
}

// StartProxy starts kube-proxy, with NodePorts on the machine's addresses only.
func (m *Machine) StartProxy(ctx context.Context) error {
	binary, err := kubebinary.Path(ctx, m.lab.options.Progress)
	if err != nil {
		return err
	}
	file := m.path("kube-proxy.yaml")
	if err := os.WriteFile(file, []byte(m.proxyConfig(m.lab.proxyKubeconfig)), 0o600); err != nil {
		return err
	}
	m.proxy, err = m.within("kube-proxy", binary, "kube-proxy", "--config="+file, "-v=0")
	return err
}

// KillProxy ends kube-proxy as a crash does. Its rules remain in the kernel.
func (m *Machine) KillProxy() { m.proxy.Kill() }

// RestartProxy acts as a kubelet after kube-proxy has ended, which it does when its Node gets other
// addresses.
func (m *Machine) RestartProxy(ctx context.Context) error {
	m.proxy.Kill()
	return m.StartProxy(ctx)
}

func (m *Machine) proxyConfig(kubeconfig string) string {
	var addresses []string
	for _, a := range m.Addresses() {
		addresses = append(addresses, fmt.Sprintf("%s/%d", a, a.BitLen()))
	}
	if len(m.NodePortAddresses) > 0 {
		addresses = nil
		for _, p := range m.NodePortAddresses {
			addresses = append(addresses, p.String())
		}
	}
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
%s
nodePortAddresses: ["%s"]
healthzBindAddress: "0.0.0.0:%d"
metricsBindAddress: "127.0.0.1:10249"
nftables: {minSyncPeriod: 100ms}
# The size of the connection table is not a namespace's to choose.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, m.Name, kubeconfig, cmp.Or(m.DetectLocal, "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: veth}"), strings.Join(addresses, `", "`), ProxyPort)
}

// Logs returns the last lines of the logs of all programs of a lab in the folder, for a test that
// failed, also while it started the lab.
func Logs(dir string, lines int) string {
	var out strings.Builder
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil || filepath.Base(file) == "audit.log" { // too long to show causes
			continue
		}
		all := strings.Split(strings.TrimSpace(string(content)), "\n")
		fmt.Fprintf(&out, "--- %s\n%s\n", filepath.Base(file), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return out.String()
}
