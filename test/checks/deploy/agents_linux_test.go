package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/kubelet"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// agentsWorkWithWhatTheyAreGiven runs both programs of each rendering for three
// nodes, each in a network of its own: with the pods' arguments, files and
// capabilities, and with tokens of their ServiceAccounts.
func agentsWorkWithWhatTheyAreGiven(t *testing.T, ccm, agent string) {
	if os.Geteuid() != 0 {
		t.Skip("not root: agents change routes, each in a network namespace of its own")
	}
	t.Run("on the cloud", func(t *testing.T) { serveACloud(t, ccm, agent) })
	t.Run("on metal", func(t *testing.T) { serveARack(t, ccm, agent) })
}

// serveACloud lays the network out as the cloud does, where machines reach each
// other through its gateway alone.
func serveACloud(t *testing.T, ccm, agent string) {
	in := install(t, ccmFolder, agentFolder)
	objects := slices.Concat(shipped(t), shippedIn(t, agentFolder))
	in.start(t, ccm, objects)
	network := netns.New(t)
	network.Run("ip", "address", "add", "10.0.0.1/32", "dev", "lo")
	in.listenIn(t, network, objects)

	var agents []*nodeAgent
	for i, name := range []string{"node-1", "node-2", "node-3"} {
		address := fmt.Sprintf("10.0.0.%d", 11+i)
		in.join(t, in.server(t, name, address))
		space, port := netns.New(t), fmt.Sprintf("port%d", i)
		netns.Link(network, port, space, "uplink")
		network.Run("ip", "route", "add", address, "dev", port)
		space.Run("ip", "address", "add", address+"/32", "dev", "uplink")
		space.Run("ip", "route", "add", "10.0.0.1", "dev", "uplink", "scope", "link")
		space.Run("ip", "route", "add", "10.0.0.0/16", "via", "10.0.0.1")
		agents = append(agents, in.startAgent(t, agent, objects, name, space))
	}
	for _, a := range agents {
		in.awaitNode(t, a.name, "in service", inService)
		a.isReady(t, in)
		a.hasMadeANetwork(t, "10.244.0.0/16 via 10.0.0.1 dev uplink")
		in.awaitNode(t, a.name, "able to reach its peers", reaches(corev1.ConditionTrue))
	}
}

// serveARack has machines that are neighbors, and then one that is not.
func serveARack(t *testing.T, ccm, agent string) {
	in := install(t, metalFolder)
	objects := shippedIn(t, metalFolder)
	in.start(t, ccm, objects)
	network := netns.New(t)
	network.Run("ip", "link", "add", "rack", "type", "bridge")
	network.Run("ip", "link", "set", "rack", "up")
	in.listenIn(t, network, objects)
	// After the address of the API server, which is on this segment too.
	network.Run("ip", "route", "add", "192.0.2.0/24", "dev", "rack")

	var agents []*nodeAgent
	for i, name := range []string{"node-1", "node-2", "node-3"} {
		v4, v6 := fmt.Sprintf("192.0.2.%d", 21+i), fmt.Sprintf("2001:db8::%d", 21+i)
		in.joinWith(t, kubelet.Options{Name: name, InternalIPs: []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}})
		space, port := netns.New(t), fmt.Sprintf("port%d", i)
		netns.Link(network, port, space, "uplink")
		network.Run("ip", "link", "set", port, "master", "rack")
		space.Run("ip", "address", "add", v4+"/24", "dev", "uplink")
		space.Run("ip", "address", "add", v6+"/64", "dev", "uplink", "nodad")
		agents = append(agents, in.startAgent(t, agent, objects, name, space))
	}
	for i, a := range agents {
		in.awaitNode(t, a.name, "in service", inService)
		a.isReady(t, in)
		peer := (i + 1) % len(agents)
		node, err := in.admin.CoreV1().Nodes().Get(t.Context(), agents[peer].name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		a.hasMadeANetwork(t,
			fmt.Sprintf("%s via 192.0.2.%d dev uplink", node.Spec.PodCIDRs[0], 21+peer), fmt.Sprintf("%s via 2001:db8::%d dev uplink", node.Spec.PodCIDRs[1], 21+peer))
		in.awaitNode(t, a.name, "able to reach its peers", reaches(corev1.ConditionTrue))
	}

	in.joinWith(t, kubelet.Options{Name: "far", InternalIPs: []netip.Addr{netip.MustParseAddr("198.51.100.7")}})
	for _, a := range agents {
		in.awaitNode(t, a.name, "unable to reach the far one", reaches(corev1.ConditionFalse))
	}
	in.await(t, "an Event of an agent", func(ctx context.Context) (bool, error) {
		events, err := in.admin.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Source.Component == "underlay-agent" }), nil
	})
}

func reaches(want corev1.ConditionStatus) func(*corev1.Node) bool {
	return func(node *corev1.Node) bool {
		c := kube.Condition(node, agent.PeersReachable)
		return c != nil && c.Status == want
	}
}

// listenIn makes the API server answer in a network, where the agents' arguments
// say that it is.
func (in *installation) listenIn(t *testing.T, space *netns.Space, objects []runtime.Object) {
	t.Helper()
	server, err := url.Parse(flagsOf(t, only[*appsv1.DaemonSet](t, objects).Spec.Template.Spec.Containers[0].Args[1:])["--api-server"])
	if err != nil {
		t.Fatal(err)
	}
	space.Run("ip", "address", "add", server.Hostname()+"/32", "dev", "lo")
	var listener net.Listener
	space.Do(func() { listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", server.Host) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	real := strings.TrimPrefix(in.cp.AdminConfig().Host, "https://")
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go join(from, real)
		}
	}()
}

// join copies between a connection and a new one to an address, until either
// ends.
func join(from net.Conn, address string) {
	defer from.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	ended := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(to, from); ended <- struct{}{} }()
	go func() { _, _ = io.Copy(from, to); ended <- struct{}{} }()
	<-ended
}

// nodeAgent is an agent that runs, on a node's network.
type nodeAgent struct {
	*process.Process
	name, root string
	space      *netns.Space
	container  corev1.Container
}

// startAgent runs the container's command with the container's capabilities. What
// differs from the container: where files are mounted, and that token and
// certificate come from a kubeconfig instead of the files of a pod.
func (in *installation) startAgent(t *testing.T, program string, objects []runtime.Object, name string, space *netns.Space) *nodeAgent {
	t.Helper()
	pod := only[*appsv1.DaemonSet](t, objects).Spec.Template.Spec
	a := &nodeAgent{name: name, root: t.TempDir(), space: space, container: pod.Containers[0]}
	for _, mount := range a.container.VolumeMounts {
		if err := os.MkdirAll(a.root+mount.MountPath, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	rebase := rebased(a.container, a.root)
	for name, content := range mounted(t, pod, objects, projectToken) {
		if strings.Contains(content, projectToken) {
			t.Errorf("the agent is given the cloud's token in %s", name)
		}
		write(t, a.root+name, content)
	}
	for _, plugin := range []string{"ptp", "host-local", "portmap"} {
		write(t, filepath.Join(a.root, "host/opt/cni/bin", plugin), "#!/bin/sh\n")
		if err := os.Chmod(filepath.Join(a.root, "host/opt/cni/bin", plugin), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--net=" + space.Path(), "setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all" + added(a.container), program}
	for _, arg := range a.container.Args {
		// The kernel's settings are those of the network that a process is in.
		args = append(args, strings.Replace(rebase.Replace(arg), "=/host/proc/sys", "=/proc/sys", 1))
	}
	args = append(args, "--state-dir="+a.root+"/run/underlay", "--kubeconfig="+in.tokenOf(t, a))
	started, err := process.Start(process.Command{
		Name: "underlay-agent-" + name, Path: "nsenter", Args: args, Dir: a.root, Env: []string{"NODE_NAME=" + name},
	})
	if err != nil {
		t.Fatal(err)
	}
	a.Process = started
	t.Cleanup(func() {
		a.Kill()
		if content, err := os.ReadFile(a.Log); t.Failed() && err == nil {
			t.Logf("%s:\n%s", strings.Join(args, " "), content)
		}
	})
	return a
}

// added are a container's capabilities as setpriv has them.
func added(container corev1.Container) string {
	var all string
	for _, capability := range container.SecurityContext.Capabilities.Add {
		all += ",+" + strings.ToLower(string(capability))
	}
	return all
}

// tokenOf writes a kubeconfig with a token as a pod on the node has it. Its server
// is that of the arguments, which this API server's certificate doesn't have.
func (in *installation) tokenOf(t *testing.T, a *nodeAgent) string {
	t.Helper()
	config, err := in.cp.PodConfig(t.Context(), "kube-system", "underlay-agent", a.name)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(a.root, "kubeconfig")
	config.Host, config.TLSClientConfig = "", rest.TLSClientConfig{Insecure: true}
	if err := controlplane.WriteKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	return path
}

// isReady asks as the kubelet does, by both probes.
func (a *nodeAgent) isReady(t *testing.T, in *installation) {
	t.Helper()
	for _, probe := range []*corev1.Probe{a.container.ReadinessProbe, a.container.LivenessProbe} {
		port := a.container.Ports[0]
		if probe.HTTPGet.Port.StrVal != port.Name {
			t.Fatalf("a probe asks port %s", probe.HTTPGet.Port.String())
		}
		host := net.JoinHostPort(probe.HTTPGet.Host, fmt.Sprint(port.ContainerPort))
		in.await(t, a.name+" to answer "+probe.HTTPGet.Path, func(ctx context.Context) (bool, error) {
			if a.Ended() {
				return false, a.Failure(errors.New("no longer runs"))
			}
			return a.ask(ctx, "http://"+host+probe.HTTPGet.Path) == http.StatusOK, nil
		})
	}
}

// ask asks in the node's network, and returns the status, 0 if nobody answers.
func (a *nodeAgent) ask(ctx context.Context, address string) int {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			a.space.Do(func() { c, err = new(net.Dialer).DialContext(ctx, network, address) })
			return c, err
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// hasMadeANetwork looks for what the agent makes with the one capability that it
// has: routes, packet filter, kernel settings and the CNI configuration.
func (a *nodeAgent) hasMadeANetwork(t *testing.T, routes ...string) {
	t.Helper()
	table := a.space.Run("ip", "route") + a.space.Run("ip", "-6", "route")
	for _, route := range routes {
		if !strings.Contains(table, route) {
			t.Errorf("%s: no route %s among\n%s", a.name, route, table)
		}
	}
	if tables := a.space.Run("nft", "list", "tables"); !strings.Contains(tables, "underlay") {
		t.Errorf("%s: no table of ours: %s", a.name, tables)
	}
	if forwards := a.space.Run("cat", "/proc/sys/net/ipv4/ip_forward"); strings.TrimSpace(forwards) != "1" {
		t.Errorf("%s: ip_forward is %s", a.name, forwards)
	}
	if _, err := os.Stat(filepath.Join(a.root, "host/etc/cni/net.d/05-underlay.conflist")); err != nil {
		t.Errorf("%s: %v", a.name, err)
	}
}
