package deploy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/kubelet"
)

const (
	projectToken = "a-token-of-the-project"
	patience     = 3 * time.Minute
)

// metricsReader may read metrics, and nobody else of the test's accounts.
const metricsReader = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: metrics-reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics-reader}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-reader}
subjects: [{kind: ServiceAccount, name: metrics-reader, namespace: default}]
`

// installation is a cluster with the manifests, and a cloud with its servers.
type installation struct {
	cp      *controlplane.ControlPlane
	admin   kubernetes.Interface
	sim     *hcloudsim.Simulator
	cloud   string // the API's endpoint
	network int64
	secure  string // address of the program's secure port
	died    chan error
}

// worksWithWhatItIsGiven runs the program with the Deployment's arguments, the
// mounted files and the ServiceAccount's token through the life of a node and a
// Service.
func worksWithWhatItIsGiven(t *testing.T, program string) {
	in := install(t, ccmFolder)
	in.start(t, program, shipped(t))
	in.await(t, "the health check", func(ctx context.Context) (bool, error) {
		code, _, err := in.get(ctx, "/healthz", "")
		return err == nil && code == http.StatusOK, nil
	})

	stays, off, gone := in.server(t, "node-1", "10.0.0.2"), in.server(t, "node-2", "10.0.0.3"), in.server(t, "node-3", "10.0.0.4")
	in.join(t, stays)
	silent := []*kubelet.Kubelet{in.join(t, off), in.join(t, gone)}
	for _, m := range []machine{stays, off, gone} {
		in.awaitNode(t, m.name, "in service", inService)
	}
	in.serviceGetsItsAddress(t)
	in.metricsAreForReaders(t)

	for _, k := range silent {
		k.Stop()
	}
	in.powerOff(t, off.id)
	if err := in.sim.DeleteServer(gone.id); err != nil {
		t.Fatal(err)
	}
	in.awaitNode(t, off.name, "tainted as shut down", func(node *corev1.Node) bool {
		return hasTaint(node, "node.cloudprovider.kubernetes.io/shutdown")
	})
	in.await(t, "the Node of the deleted server to go", func(ctx context.Context) (bool, error) {
		_, err := in.admin.CoreV1().Nodes().Get(ctx, gone.name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

// install applies manifests, for a cloud with a network and no server yet.
func install(t *testing.T, manifests ...string) *installation {
	t.Helper()
	cp := controlplane.StartT(t, controlplane.Options{})
	reader := filepath.Join(t.TempDir(), "metrics-reader.yaml")
	write(t, reader, metricsReader)
	if err := cp.Apply(t.Context(), append(manifests, reader)...); err != nil {
		t.Fatal(err)
	}
	admin, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	sim := hcloudsim.New(hcloudsim.Options{Token: projectToken})
	network, err := sim.CreateNetwork(hcloudsim.NetworkSeed{Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	cloud := httptest.NewServer(sim)
	t.Cleanup(cloud.Close)
	return &installation{
		cp: cp, admin: admin, sim: sim, cloud: cloud.URL + "/v1", network: network.ID,
		secure: freeAddress(t), died: make(chan error, 1),
	}
}

// start runs the container's command. What differs from the container: where
// files are mounted, the port, and that the API server and the token come from a
// kubeconfig instead of the files and variables of a pod.
func (in *installation) start(t *testing.T, program string, objects []runtime.Object) {
	t.Helper()
	pod := only[*appsv1.Deployment](t, objects).Spec.Template.Spec
	root := t.TempDir()
	rebase := rebased(pod.Containers[0], root)
	for name, content := range mounted(t, pod, objects, projectToken) {
		write(t, root+name, rebase.Replace(content))
	}
	var args []string
	for _, arg := range pod.Containers[0].Args {
		args = append(args, rebase.Replace(arg))
	}
	kubeconfig, err := in.cp.Kubeconfig(t.Context(), "kube-system", "underlay-ccm")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(in.secure)
	if err != nil {
		t.Fatal(err)
	}
	args = append(args, "--secure-port="+port, "--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)

	cmd := exec.Command(program, args...)
	if strings.Contains(only[*corev1.ConfigMap](t, objects).Data["config.yaml"], "provider: hcloud") {
		cmd.Env = []string{"HCLOUD_ENDPOINT=" + in.cloud}
	} else {
		cmd.Env = []string{"PATH="} // an empty list would be the test's own
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "underlay-ccm.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		in.died <- cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL) // it may have ended, which awaits have noticed
		<-ended
		log.Close()
		if content, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("underlay-ccm %s:\n%s", strings.Join(args, " "), content)
		}
	})
}

// rebased moves the paths where a container finds what is mounted below a root.
func rebased(container corev1.Container, root string) *strings.Replacer {
	var moved []string
	for _, mount := range container.VolumeMounts {
		moved = append(moved, mount.MountPath, root+mount.MountPath)
	}
	return strings.NewReplacer(moved...)
}

// await polls until the condition holds, or the program has died, or patience is
// at its end.
func (in *installation) await(t *testing.T, what string, holds wait.ConditionWithContextFunc) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-in.died:
			return false, fmt.Errorf("the program ended: %w", err)
		default:
			return holds(ctx)
		}
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

func (in *installation) awaitNode(t *testing.T, name, what string, holds func(*corev1.Node) bool) {
	t.Helper()
	in.await(t, fmt.Sprintf("node %s to be %s", name, what), func(ctx context.Context) (bool, error) {
		node, err := in.admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && holds(node), nil
	})
}

// inService: the node has got everything that a cloud controller manager gives.
func inService(node *corev1.Node) bool {
	reachable := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionFalse
	})
	return reachable && node.Spec.ProviderID != "" && len(node.Spec.PodCIDRs) > 0 &&
		!hasTaint(node, "node.cloudprovider.kubernetes.io/uninitialized")
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// machine is a server in the network.
type machine struct {
	name    string
	id      int64
	address netip.Addr
}

func (in *installation) server(t *testing.T, name, address string) machine {
	t.Helper()
	ip := netip.MustParseAddr(address)
	made, err := in.sim.CreateServer(hcloudsim.ServerSeed{Name: name, Network: in.network, PrivateIP: ip})
	if err != nil {
		t.Fatal(err)
	}
	return machine{name, made.ID, ip}
}

func (in *installation) join(t *testing.T, m machine) *kubelet.Kubelet {
	t.Helper()
	return in.joinWith(t, kubelet.Options{Name: m.name, InternalIPs: []netip.Addr{m.address}})
}

func (in *installation) joinWith(t *testing.T, o kubelet.Options) *kubelet.Kubelet {
	t.Helper()
	identity, err := in.cp.KubeletConfig(t.Context(), o.Name)
	if err != nil {
		t.Fatal(err)
	}
	// Not t.Context(): Stop ends it.
	joined, err := kubelet.Join(context.WithoutCancel(t.Context()), identity, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(joined.Stop)
	return joined
}

// powerOff is done through the API, as a person would.
func (in *installation) powerOff(t *testing.T, id int64) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("%s/servers/%d/actions/poweroff", in.cloud, id), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+projectToken)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("powering off server %d: %s", id, response.Status)
	}
}

func (in *installation) serviceGetsItsAddress(t *testing.T) {
	t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeLoadBalancer,
			Selector: map[string]string{"app": "web"},
			Ports:    []corev1.ServicePort{{Port: 80}},
		},
	}
	if _, err := in.admin.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	in.await(t, "the Service's address", func(ctx context.Context) (bool, error) {
		service, err := in.admin.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
		return err == nil && len(service.Status.LoadBalancer.Ingress) > 0, nil
	})
	if err := in.admin.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	in.await(t, "the deleted Service to go", func(ctx context.Context) (bool, error) {
		_, err := in.admin.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

// metricsAreForReaders proves that the program can ask the API server who reads
// and whether they may.
func (in *installation) metricsAreForReaders(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		who, token string
		want       int
	}{
		{"somebody without a token", "", http.StatusForbidden},
		{"somebody with an invalid token", "nonsense", http.StatusUnauthorized},
		{"an account that may not", accountConfig(t, in.cp, "default", "default").BearerToken, http.StatusForbidden},
		{"an account that may", accountConfig(t, in.cp, "default", "metrics-reader").BearerToken, http.StatusOK},
	} {
		code, body, err := in.get(t.Context(), "/metrics", c.token)
		if err != nil || code != c.want {
			t.Errorf("%s reads the metrics: status %d, error %v, want %d", c.who, code, err, c.want)
		}
		if shown := strings.Contains(body, "underlay_"); shown != (c.want == http.StatusOK) {
			t.Errorf("%s sees metrics of ours: %t", c.who, shown)
		}
	}
}

// get asks the secure port, whose certificate the program made for itself.
func (in *installation) get(ctx context.Context, path, token string) (int, string, error) {
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+in.secure+path, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// freeAddress is one of loopback that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
