package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/doctor"
	"github.com/underlay-ccm/underlay/internal/survey"
	routescontroller "github.com/underlay-ccm/underlay/routes/controller"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// The whole program with a real control plane, the real underlay-ccm and the simulated cloud: it
// shows the actual state, in a healthy cluster and in one that has drifted, and it writes nothing
// anywhere.
func TestCommandsShowTheCluster(t *testing.T) {
	l := startLab(t)
	balancer := l.service(t, "web")
	t.Run("a healthy cluster", func(t *testing.T) { l.healthy(t, balancer.ID, balancer.Name) })
	t.Run("addresses that nodes hold", func(t *testing.T) { l.addresses(t) })
	t.Run("other ways to call it", func(t *testing.T) { l.otherWays(t) })
	t.Run("what it may not see", func(t *testing.T) { l.unseen(t) })
	t.Run("a live page", func(t *testing.T) { l.live(t) })
	l.manager.Kill()
	t.Run("a cluster that drifted", func(t *testing.T) { l.drifted(t, balancer.ID) })
	t.Run("a server that is gone", func(t *testing.T) { l.serverGone(t) })
	t.Run("it only reads", func(t *testing.T) { l.readsOnly(t) })
}

// The JSON output of commands, as far as it is tested.
type (
	shownNodes struct {
		Nodes []struct {
			Node, Route, NetworkUnavailable, Server, Why string

			PodCIDRs []netip.Prefix
			Via      netip.Addr
		}
		NotSeen []string
	}
	shownDrift struct {
		Drift, Node, Why string
		Destination      netip.Prefix
	}
	shownRoutes struct {
		Routes []struct {
			Destination netip.Prefix
			Class       string
		}
		Budget []struct{ Used, Limit, Free int }
		Drift  []shownDrift
	}
	shownBalancers struct {
		Services []struct{ LoadBalancer, Target, Health string }
		Plan     []struct{ Operation string }
	}
	shownTimeline struct {
		Timeline []struct{ Source, What string }
	}
)

// view decodes a command's JSON output.
func view[V any](t *testing.T, l *lab, args ...string) V {
	t.Helper()
	out := l.run(t, nil, append(args, "-o", "json")...)
	var v V
	if err := json.Unmarshal([]byte(out.stdout), &v); err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return v
}

func (l *lab) healthy(t *testing.T, id int64, name string) {
	p := view[struct {
		Pools []struct{ Used, Capacity, Free, Excluded int }
	}](t, l, "pools").Pools
	if len(p) != 2 || p[0].Used != 3 || p[0].Capacity != 256 || p[1].Used != 3 ||
		p[0].Free+3+p[0].Excluded != 256 {
		t.Errorf("pools: %+v", p)
	}
	n := view[shownNodes](t, l, "nodes")
	if len(n.Nodes) != 3 || len(n.NotSeen) > 0 {
		t.Errorf("nodes: %+v", n)
	}
	for _, row := range n.Nodes {
		if row.Route != survey.RouteStands || row.Via != l.privateIP(t, row.Node) ||
			row.PodCIDRs[0] != l.podCIDR(t, row.Node) ||
			row.Why != "" || row.NetworkUnavailable != "False RouteCreated" {
			t.Errorf("node %+v", row)
		}
	}
	r := view[shownRoutes](t, l, "routes")
	if b := r.Budget[0]; len(r.Routes) != 3 || b.Used != 3 || b.Limit != 100 || b.Free != 97 ||
		len(r.Drift) > 0 {
		t.Errorf("routes: %+v", r)
	}
	b := view[shownBalancers](t, l, "lb")
	if len(b.Services) != 3 || b.Services[0].LoadBalancer != fmt.Sprintf("%s (%d)", name, id) || len(b.Plan) > 0 {
		t.Errorf("lb: %+v", b)
	}
	expectInOrder(t, view[shownTimeline](t, l, "inspect", "node", "worker-1").Timeline,
		"server created", "Node created", "podCIDRs", "NetworkUnavailable=False RouteCreated")
	expectInOrder(t, view[shownTimeline](t, l, "inspect", "service", "default/web").Timeline,
		"Service created", "load balancer created", "condition underlay.dev/Accepted=True")
	l.inspectPod(t)
	d := l.run(t, nil, "doctor", "-o", "json")
	if d.code > 2 || strings.Contains(d.stdout, "route/") {
		t.Errorf("doctor could not do its work, or found trouble with routes: %+v", d)
	}
}

// inspectPod inspects a pod that is isolated by a policy.
func (l *lab) inspectPod(t *testing.T) {
	pods, policies := l.Client.CoreV1().Pods("default"), l.Client.NetworkingV1().NetworkPolicies("default")
	created, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "closed", Labels: map[string]string{"app": "closed"}},
		Spec: corev1.PodSpec{
			NodeName: "worker-1", AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "c", Image: "c"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address := l.podCIDR(t, "worker-1").Addr().Next().Next().String()
	created.Status.PodIP, created.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	_, err = pods.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	_, createErr := policies.Create(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "closed"}}, metav1.CreateOptions{})
	if err := errors.Join(err, createErr); err != nil {
		t.Fatal(err)
	}
	v := view[struct {
		Policies []struct{ Direction, Policy string }
		Lines    []string
	}](t, l, "inspect", "pod", "default/closed", "--from", "192.0.2.1", "--port", "80")
	if len(v.Policies) != 2 || v.Policies[0].Policy != "default/closed" || len(v.Lines) != 1 || !strings.HasPrefix(v.Lines[0], "denied: ") {
		t.Errorf("inspect pod: %+v", v)
	}
	err = errors.Join(policies.Delete(t.Context(), "closed", metav1.DeleteOptions{}),
		pods.Delete(t.Context(), "closed", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	if err != nil {
		t.Fatal(err)
	}
}

// addresses stores a ledger and a report in the form of the controller and an agent, neither of
// which runs here.
func (l *lab) addresses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	pool := "addresses:\n  pools:\n    - {name: routed, ranges: [198.51.100.0/28], mover: bgp}\n" +
		"  bgp: {asn: 64512, peers: [{name: edge, address: 203.0.113.1, asn: 64500}]}\n"
	if err := os.WriteFile(file, []byte(l.CloudConfig()+pool), 0o600); err != nil {
		t.Fatal(err)
	}
	maps := l.Client.CoreV1().ConfigMaps("kube-system")
	stored := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: addresses.LedgerName},
		Data: map[string]string{
			addresses.LedgerKey: `{"version":1,"groups":[["worker-1"]],"addresses":[{"address":"198.51.100.1","group":0,"services":[{"uid":"u","namespace":"shop","name":"edge"}]}]}`,
		},
	}
	if _, err := maps.Create(t.Context(), stored, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	report := `{"metadata":{"annotations":{"underlay.dev/addresses":"{\"held\":[{\"address\":\"198.51.100.1\"}]}"}}}`
	if _, err := l.Client.CoreV1().Nodes().Patch(t.Context(), "worker-1", types.MergePatchType, []byte(report), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	v := view[struct {
		Addresses []struct{ State, Pool string }
		Pools     []struct{ Used int }
		NotSeen   []string
	}](t, l, "addresses", "--cloud-config="+file)
	if len(v.NotSeen) > 0 || len(v.Addresses) != 1 || v.Addresses[0].State != survey.AddressHeld || v.Addresses[0].Pool != "routed" || len(v.Pools) != 1 || v.Pools[0].Used != 1 {
		t.Errorf("addresses: %+v", v)
	}
	for _, f := range view[struct{ Findings []doctor.Finding }](t, l, "doctor", "--cloud-config="+file).Findings {
		if strings.HasPrefix(f.Object, "address/") {
			t.Errorf("doctor: %+v", f)
		}
	}
	report = `{"metadata":{"annotations":{"underlay.dev/addresses":null}}}`
	_, err := l.Client.CoreV1().Nodes().Patch(t.Context(), "worker-1", types.MergePatchType, []byte(report), metav1.PatchOptions{}, "status")
	if err := errors.Join(err, maps.Delete(t.Context(), addresses.LedgerName,
		metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	if out := l.run(t, nil, "addresses"); out.code != 0 || !strings.Contains(out.stderr, "no pool of addresses is configured") {
		t.Errorf("without pools: %+v", out)
	}
}

// expectInOrder expects entries of the timeline, each after the previous one.
func expectInOrder(t *testing.T, timeline []struct{ Source, What string }, want ...string) {
	t.Helper()
	var lines []string
	for _, e := range timeline {
		lines = append(lines, e.Source+" "+e.What)
	}
	rest := lines
	for _, w := range want {
		i := slices.IndexFunc(rest, func(line string) bool { return strings.Contains(line, w) })
		if i < 0 {
			t.Errorf("no %q, or too early, in\n%s", w, strings.Join(lines, "\n"))
			return
		}
		rest = rest[i+1:]
	}
}

func (l *lab) otherWays(t *testing.T) {
	plugin := filepath.Join(filepath.Dir(l.binary), "kubectl-underlay")
	if out := runProgram(t, plugin, nil, "--help"); !strings.Contains(out.stdout, "kubectl underlay [command]") || out.code != 0 {
		t.Errorf("as a plugin: %+v", out)
	}
	if out := runProgram(t, l.binary, nil, "--help"); !strings.Contains(out.stdout, "underlayctl [command]") {
		t.Errorf("by its own name: %+v", out)
	}
	t.Setenv("PATH", filepath.Dir(plugin)+":"+os.Getenv("PATH"))
	if out, err := l.ControlPlane.Kubectl(t.Context(), "underlay", "nodes"); err != nil || !strings.Contains(out, "worker-2") {
		t.Errorf("kubectl underlay: %v\n%s", err, out)
	}
	if out := runProgram(t, l.binary, nil, "completion", "bash"); !strings.Contains(out.stdout, "underlayctl") || out.code != 0 {
		t.Errorf("completion: %+v", out)
	}
	// The file and flags instead of the cluster's configuration, and a token file.
	file := filepath.Join(t.TempDir(), "config.yaml")
	token := filepath.Join(t.TempDir(), "token")
	for path, content := range map[string]string{file: l.CloudConfig() + "exclude: [10.244.128.0/17]\n", token: cluster.Token + "\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := l.run(t, []string{"HCLOUD_TOKEN_FILE=" + token}, "pools", "-o", "json", "--cloud-config="+file, "--manager-flag=--node-cidr-mask-size-ipv4=25")
	var v struct {
		Pools []struct {
			Mask     string
			Excluded int
		}
		NotSeen []string
	}
	if err := json.Unmarshal([]byte(out.stdout), &v); err != nil || v.Pools[0].Mask != "/25" || v.Pools[0].Excluded < 256 || len(v.NotSeen) > 0 {
		t.Errorf("file and flags: %v, %+v", err, v)
	}
	admin := runProgram(t, l.binary, []string{"KUBECONFIG=" + l.ControlPlane.AdminKubeconfig()}, "nodes", "--token-secret")
	if admin.code != 0 || admin.stderr != "" || strings.Count(admin.stdout, "stands") != 3 {
		t.Errorf("with the cluster's token: %+v", admin)
	}
	if out := l.run(t, nil, "nodes"); strings.Contains(out.stdout, "\x1b") || strings.Contains(out.stdout+out.stderr, cluster.Token) {
		t.Errorf("colors outside a terminal, or the token, in %q", out.stdout)
	}
}

func (l *lab) unseen(t *testing.T) {
	const noToken = "there is no token for the cloud"
	for _, command := range []string{"nodes", "lb", "pools"} {
		out := l.run(t, []string{}, command)
		if out.code != 0 || !strings.Contains(out.stderr, "not seen: ") || !strings.Contains(out.stderr, noToken) {
			t.Errorf("%s without a token: %+v", command, out)
		}
	}
	for _, c := range []struct {
		name string
		env  []string
		args []string
		want string
	}{
		{"no token at all", []string{}, []string{"routes"}, noToken},
		{"a wrong token", []string{"HCLOUD_TOKEN=another"}, []string{"routes"}, "the cloud refuses the token"},
		{"a Secret without the right to read it", []string{}, []string{"nodes", "--token-secret"}, `verb "get" on "secrets"`},
		{"no such Node", nil, []string{"inspect", "node", "worker-9"}, "Node worker-9"},
		{"no such Service", nil, []string{"inspect", "service", "default/none"}, "Service default/none"},
		{"no Service's name", nil, []string{"inspect", "service", "web"}, "NAMESPACE/NAME"},
		{"no such output", nil, []string{"nodes", "-o", "xml"}, "table, wide, json, yaml"},
		{"no such context", nil, []string{"nodes", "--context", "other"}, "--context"},
		{"no such flag of the manager", nil, []string{"nodes", "--manager-flag=--cluster-cidrs=1"}, "--cluster-cidr"},
	} {
		out := l.run(t, c.env, c.args...)
		if out.code != 3 || !strings.HasPrefix(out.stderr, "error: ") || !strings.Contains(out.stderr, c.want) || strings.Count(out.stderr, "\n") != 1 {
			t.Errorf("%s: %+v, want one line with %q", c.name, out, c.want)
		}
	}
	l.unseenAPI(t)
}

// unseenAPI tests API servers that can't be read.
func (l *lab) unseenAPI(t *testing.T) {
	if out := runProgram(t, l.binary, nil, "nodes"); out.code != 3 || !strings.Contains(out.stderr, "there is no kubeconfig") {
		t.Errorf("no kubeconfig: %+v", out)
	}
	content, err := os.ReadFile(l.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(l.ControlPlane.URL(), "https://")
	for name, c := range map[string]struct{ config, want string }{
		"nobody listens": {strings.ReplaceAll(string(content), address, "127.0.0.1:1"), "the API server doesn't respond"},
		"bad token":      {strings.ReplaceAll(string(content), "token: ", "token: x"), "the API server refuses the credentials"},
	} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		out := runProgram(t, l.binary, nil, "nodes", "--kubeconfig", path)
		if out.code != 3 || !strings.Contains(out.stderr, c.want) || strings.Count(out.stderr, "\n") != 1 {
			t.Errorf("%s: %+v, want one line with %q", name, out, c.want)
		}
	}
	deaf, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path,
		[]byte(strings.ReplaceAll(string(content), address, deaf.Addr().String())), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := runProgram(t, l.binary, nil, "nodes", "--kubeconfig", path, "--timeout=1s"); out.code != 3 || !strings.Contains(out.stderr, "no response within 1s: raise --timeout") {
		t.Errorf("an API server that says nothing: %+v", out)
	}
	// The default ServiceAccount has no permissions.
	noRegistry, err := l.ControlPlane.Kubeconfig(t.Context(), "default", "default")
	if err != nil {
		t.Fatal(err)
	}
	out := runProgram(t, l.binary, nil, "nodes", "--kubeconfig", noRegistry)
	if out.code != 3 || !strings.Contains(out.stderr, `verb "list" on "nodes"`) {
		t.Errorf("without rights: %+v", out)
	}
}

// drifted changes the cloud while the CCM doesn't run.
func (l *lab) drifted(t *testing.T, balancer int64) {
	stranger, err := l.Cloud.CreateServer(hcloudsim.ServerSeed{Name: "stranger", Network: l.Network.ID})
	if err != nil {
		t.Fatal(err)
	}
	strangerIP := netip.MustParseAddr(stranger.PrivateNet[0].IP)
	lost := l.podCIDR(t, "worker-1")
	if err := l.Cloud.DeleteRoute(l.Network.ID, lost); err != nil {
		t.Fatal(err)
	}
	for dst, via := range map[string]netip.Addr{
		"10.244.99.0/24": netip.MustParseAddr("10.0.77.77"), // no member's
		"10.244.98.0/24": strangerIP,
		"10.66.0.0/16":   strangerIP,
	} {
		if err := l.Cloud.AddRoute(l.Network.ID, hcloudsim.RouteSeed{
			Destination: netip.MustParsePrefix(dst), Gateway: via,
		}); err != nil {
			t.Fatal(err)
		}
	}
	// One that this cluster has written, and that no Node needs any more.
	patch := []byte(`{"data":{"10.244.99.0_24":"10.0.77.77"}}`)
	if _, err := l.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Patch(t.Context(),
		routescontroller.RecordName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	server := l.serverID(t, "worker-2")
	if err := l.Cloud.SetTargetHealth(balancer, hcloudsim.TargetID{Server: server}, 0,
		hcloudsim.HealthUnhealthy); err != nil {
		t.Fatal(err)
	}
	r := view[shownRoutes](t, l, "routes")
	classes := map[string]string{}
	for _, row := range r.Routes {
		classes[row.Destination.String()] = row.Class
	}
	want := map[string]string{
		"10.244.99.0/24": survey.Stale, "10.244.98.0/24": survey.Ambiguous, "10.66.0.0/16": survey.Foreign,
		l.podCIDR(t, "control-1").String(): survey.Ours, l.podCIDR(t, "worker-2").String(): survey.Ours,
	}
	for dst, class := range want {
		if classes[dst] != class {
			t.Errorf("route %s is %q, want %q", dst, classes[dst], class)
		}
	}
	if d := r.Drift; len(d) != 2 || d[0].Drift != "missing" || d[0].Destination != lost || d[0].Node != "worker-1" ||
		d[1].Drift != "extra" || d[1].Destination.String() != "10.244.99.0/24" || len(classes) != len(want) {
		t.Errorf("drift: %+v of %v", r.Drift, classes)
	}
	for _, row := range view[shownNodes](t, l, "nodes").Nodes {
		missing := row.Route == survey.RouteMissing && row.Why != ""
		if missing != (row.Node == "worker-1") {
			t.Errorf("node %+v", row)
		}
	}
	for _, target := range view[shownBalancers](t, l, "lb").Services {
		if (target.Health == "unhealthy") != strings.HasPrefix(target.Target, "worker-2") {
			t.Errorf("target %+v", target)
		}
	}
	l.run(t, nil, "routes")
	l.run(t, nil, "lb", "-o", "wide")
	l.run(t, nil, "inspect", "node", "worker-1")
	l.run(t, nil, "inspect", "service", "default/web", "-o", "yaml")
	if out := l.run(t, nil, "doctor"); out.code == 0 || out.code > 2 || !strings.Contains(out.stdout, "route/10.244.99.0/24") || !strings.Contains(out.stdout, "route/10.244.98.0/24") {
		t.Errorf("doctor found nothing of it: %+v", out)
	}
}

// serverGone deletes a server while no CCM runs, so that its Node remains.
func (l *lab) serverGone(t *testing.T) {
	const name, why = "worker-2", "no server has the ID "
	dst := l.podCIDR(t, name)
	if err := l.DeleteServer(name); err != nil {
		t.Fatal(err)
	}
	// First: after some minutes the remaining Node would be a finding.
	for _, f := range view[struct{ Findings []doctor.Finding }](t, l, "doctor").Findings {
		if f.Object == "Node/"+name && f.Severity != doctor.Info || f.Object == "route/"+dst.String() {
			t.Errorf("nobody has to do anything: %+v", f)
		}
	}
	r := view[shownRoutes](t, l, "routes")
	for _, row := range r.Routes {
		if row.Destination == dst && row.Class != survey.Stale {
			t.Errorf("its route is %+v", row)
		}
	}
	for _, row := range view[shownNodes](t, l, "nodes").Nodes {
		if row.Node == name && (row.Route != survey.RouteStale || row.Server != "does not exist" || !strings.HasPrefix(row.Why, why)) {
			t.Errorf("node %+v", row)
		}
	}
	b := view[shownBalancers](t, l, "lb")
	if len(b.Plan) > 0 || len(b.Services) != 2 {
		t.Errorf("load balancer %+v", b)
	}
	l.run(t, nil, "nodes")
	l.run(t, nil, "routes")
	l.run(t, nil, "lb")
	l.run(t, nil, "doctor")
	l.run(t, nil, "inspect", "node", name)
}

func (l *lab) serverID(t *testing.T, name string) int64 {
	t.Helper()
	for _, s := range l.Cloud.Servers() {
		if s.Name == name {
			return s.ID
		}
	}
	t.Fatalf("no server %s", name)
	return 0
}

// readsOnly checks both logs for all requests of the program in this test.
func (l *lab) readsOnly(t *testing.T) {
	sent := 0
	for _, r := range l.Cloud.Requests() {
		if !strings.HasPrefix(r.UserAgent, "underlayctl/") {
			continue
		}
		sent++
		if r.Method != "GET" {
			t.Errorf("the cloud was sent %s %s", r.Method, r.Path)
		}
	}
	if sent == 0 {
		t.Error("the cloud was sent nothing, so nothing is proved")
	}
	events, err := l.ControlPlane.Audit()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.User == reader || strings.HasPrefix(e.UserAgent, "underlayctl/") {
			t.Errorf("the API server was sent %s", e)
		}
	}
}
