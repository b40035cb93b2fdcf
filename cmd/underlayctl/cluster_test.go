package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

// lab is a cluster with underlay-ccm, and the program under test with read-only credentials.
type lab struct {
	*cluster.Cluster
	manager    *cluster.Manager
	binary     string
	kubeconfig string // the reader's
}

const reader = "system:serviceaccount:kube-system:underlay-reader"

// startLab starts everything, with three machines, whose Nodes have podCIDRs and routes when it
// returns.
func startLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	ctx := context.WithoutCancel(t.Context())
	manager, err := cluster.BuildManager(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Manager: manager, Cloud: hcloudsim.Options{ActionTime: 20 * time.Millisecond},
		ControlPlane: controlplane.Options{Dir: filepath.Join(dir, "plane"), Progress: io.Discard},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	l := &lab{Cluster: c, binary: buildProgram(t, dir)}
	if err := c.ControlPlane.Apply(t.Context(), "../../deploy/underlayctl/reader.yaml"); err != nil {
		t.Fatal(err)
	}
	if l.kubeconfig, err = c.ControlPlane.Kubeconfig(t.Context(), "kube-system", "underlay-reader"); err != nil {
		t.Fatal(err)
	}
	l.install(t)
	if l.manager, err = c.StartManager(t.Context(), cluster.ManagerOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"control-1", "worker-1", "worker-2"} {
		if err := c.AddMachine(ctx, cluster.Machine{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	l.eventually(t, "three Nodes are served", func(ctx context.Context) (bool, string) {
		list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		served := 0
		for i := range list.Items {
			cond := kube.Condition(&list.Items[i], corev1.NodeNetworkUnavailable)
			if cond != nil && cond.Status == corev1.ConditionFalse && list.Items[i].Spec.ProviderID != "" {
				served++
			}
		}
		return served == 3, fmt.Sprint(served, " are")
	})
	return l
}

func buildProgram(t *testing.T, dir string) string {
	t.Helper()
	binary := filepath.Join(dir, "underlayctl")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building underlayctl: %v\n%s", err, out)
	}
	if err := os.Symlink(binary, filepath.Join(dir, "kubectl-underlay")); err != nil {
		t.Fatal(err)
	}
	return binary
}

// install creates the Deployment and the ConfigMap of deploy/ccm with this cluster's values, as a
// user would; no node runs its pods.
func (l *lab) install(t *testing.T) {
	t.Helper()
	var settings corev1.ConfigMap
	manifest(t, "../../deploy/ccm/configmap.yaml", &settings)
	settings.Data["config.yaml"] = l.CloudConfig()
	if _, err := l.Client.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &settings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	manifest(t, "../../deploy/ccm/deployment.yaml", &d)
	d.Spec.Replicas = ptr.To[int32](0)
	args := d.Spec.Template.Spec.Containers[0].Args
	for i := range args {
		switch {
		case strings.HasPrefix(args[i], "--cluster-cidr="):
			args[i] = "--cluster-cidr=" + cluster.PodRanges
		case strings.HasPrefix(args[i], "--service-cluster-ip-range="):
			args[i] = "--service-cluster-ip-range=" + cluster.ServiceRange
		}
	}
	if _, err := l.Client.AppsV1().Deployments("kube-system").Create(t.Context(), &d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hcloud"}, StringData: map[string]string{"token": cluster.Token}}
	if _, err := l.Client.CoreV1().Secrets("kube-system").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func manifest(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096).Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// outcome is the result of a run of the program.
type outcome struct {
	stdout, stderr string
	code           int
}

// run runs the program as the reader, with the cloud's token unless env sets another.
func (l *lab) run(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	if env == nil {
		env = []string{"HCLOUD_TOKEN=" + cluster.Token}
	}
	return runProgram(t, l.binary, append(env, "KUBECONFIG="+l.kubeconfig), args...)
}

// runProgram runs it without this process' environment.
func runProgram(t *testing.T, binary string, env []string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir()}, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("underlayctl %s: %v", strings.Join(args, " "), err)
	}
	out := outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	t.Logf("underlayctl %s → %d\n%s%s", strings.Join(args, " "), out.code, out.stdout, out.stderr)
	return out
}

func (l *lab) eventually(t *testing.T, what string, holds func(context.Context) (bool, string)) {
	t.Helper()
	last := "nothing was seen"
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			var ok bool
			ok, last = holds(ctx)
			return ok, nil
		})
	if err != nil {
		t.Fatalf("%s: never; %s", what, last)
	}
}

// service creates a Service of type LoadBalancer and waits for its load balancer.
func (l *lab) service(t *testing.T, name string) schema.LoadBalancer {
	t.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	if _, err := l.Client.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.eventually(t, "the Service has an address", func(ctx context.Context) (bool, string) {
		live, err := l.Client.CoreV1().Services("default").Get(ctx, name, metav1.GetOptions{})
		return err == nil && len(live.Status.LoadBalancer.Ingress) > 0, fmt.Sprint(err)
	})
	all := l.Cloud.LoadBalancers()
	if len(all) != 1 {
		t.Fatalf("%d load balancers, want 1", len(all))
	}
	return all[0]
}

// privateIP returns a machine's address in the network.
func (l *lab) privateIP(t *testing.T, name string) netip.Addr {
	t.Helper()
	for _, s := range l.Cloud.Servers() {
		if s.Name == name {
			return netip.MustParseAddr(s.PrivateNet[0].IP)
		}
	}
	t.Fatalf("no server %s", name)
	return netip.Addr{}
}

// podCIDR returns a Node's IPv4 podCIDR.
func (l *lab) podCIDR(t *testing.T, name string) netip.Prefix {
	t.Helper()
	node, err := l.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	prefixes, err := kube.PodCIDRs(node)
	if err != nil || len(prefixes) == 0 || !prefixes[0].Addr().Is4() {
		t.Fatalf("podCIDRs of %s: %v, %v", name, prefixes, err)
	}
	return prefixes[0]
}
