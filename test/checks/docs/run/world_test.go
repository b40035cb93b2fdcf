package run

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
)

// root is the path of the module's folder.
const root = "../../../.."

// machines join the cluster. The documents use the names of two of them; the spare ones may be
// deleted.
var machines = []string{"control-1", "node-1", "spare", "spare-2", "spare-3", "worker-1", "worker-2"}

// world is a cluster like that of the documents' readers.
type world struct {
	*cluster.Cluster
	programs  string          // the folder that is a shell's PATH
	manifests []string        // applied again before each page
	seen      map[string]bool // commands that were run
}

// startWorld starts it. When it returns, all Nodes have podCIDRs and routes, and the shipped
// manifests are applied.
func startWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	ctx := context.WithoutCancel(t.Context())
	w := &world{programs: filepath.Join(dir, "programs"), seen: map[string]bool{}}
	built := t.TempDir()
	if err := cluster.BuildAll(ctx, built); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Manager: filepath.Join(built, "underlay-ccm"), Cloud: hcloudsim.Options{ActionTime: 20 * time.Millisecond},
		ControlPlane: controlplane.Options{
			Dir: filepath.Join(dir, "plane"), Progress: io.Discard,
			// No kubelet listens, and with this the API server reports that at once.
			ExtraAPIServerArgs: []string{"--kubelet-preferred-address-types=ExternalDNS"},
			// The controllers that create pods, and that allow evictions.
			ExtraControllerManagerArgs: []string{"--controllers=deployment-controller,replicaset-controller,daemonset-controller,disruption-controller"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	w.Cluster = c
	if _, err := c.StartManager(ctx, cluster.ManagerOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range machines {
		if err := c.AddMachine(ctx, cluster.Machine{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	w.manifests = []string{
		w.own(t, "ccm/configmap.yaml"), w.own(t, "ccm/deployment.yaml"),
		"testdata/cluster.yaml", root + "/deploy/ccm/podcidr-policy.yaml", root + "/deploy/ccm/kubelet-policy.yaml", root + "/deploy/ccm/poddisruptionbudget.yaml",
		root + "/deploy/agent", root + "/deploy/underlayctl/reader.yaml",
	}
	w.restore(t)
	keepPods(t, c.Client)
	w.install(t, built)
	return w
}

// own writes one of the shipped manifests with the cluster's ranges, and the configuration of its
// running underlay-ccm.
func (w *world) own(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(
		"--cluster-cidr=10.244.0.0/16", "--cluster-cidr="+cluster.PodRanges,
		"--service-cluster-ip-range=10.96.0.0/12", "--service-cluster-ip-range="+cluster.ServiceRange,
	).Replace(string(content))
	if before, _, is := strings.Cut(text, "  config.yaml: |\n"); is {
		text = before + "  config.yaml: |\n    " + strings.ReplaceAll(strings.TrimSpace(w.CloudConfig()), "\n", "\n    ") + "\n"
	}
	path := filepath.Join(w.ControlPlane.Dir(), filepath.Base(name))
	write(t, path, text)
	return path
}

// restore undoes the changes of a page that affect others.
func (w *world) restore(t *testing.T) {
	t.Helper()
	if err := w.ControlPlane.Apply(t.Context(), w.manifests...); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hcloud"}, StringData: map[string]string{"token": cluster.Token}}
	secrets := w.Client.CoreV1().Secrets(metav1.NamespaceSystem)
	_ = secrets.Delete(t.Context(), secret.Name, metav1.DeleteOptions{}) // if it exists
	if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await(t, "Nodes and the Service to be served", w.served)
}

// served: every Node has its podCIDRs and its route, the Service its address, and pods are ready.
func (w *world) served(ctx context.Context) (bool, error) {
	nodes, err := w.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	for i := range nodes.Items {
		c := kube.Condition(&nodes.Items[i], corev1.NodeNetworkUnavailable)
		if c == nil || c.Status != corev1.ConditionFalse || len(nodes.Items[i].Spec.PodCIDRs) != 2 {
			return false, nil
		}
	}
	web, err := w.Client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
	return err == nil && len(web.Status.LoadBalancer.Ingress) > 0, err
}

func (w *world) await(t *testing.T, what string, holds wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true,
		holds); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// install fills the folder that is a shell's PATH. Other programs can't be run.
func (w *world) install(t *testing.T, built string) {
	t.Helper()
	kubeBinary, err := kubebinary.Path(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := w.ControlPlane.Kubeconfig(t.Context(), metav1.NamespaceSystem, "underlay-reader")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.programs, 0o755); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"kubectl": kubeBinary, "hcloud-sim": filepath.Join(built, "hcloud-sim"), "underlay-agent": filepath.Join(built, "underlay-agent")}
	for _, tool := range []string{"cat", "curl", "dirname", "grep", "sort", "timeout", "true", "uniq"} {
		// A missing program is reported by the command that needs it.
		if links[tool], err = exec.LookPath(tool); err != nil {
			delete(links, tool)
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(w.programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	// It may only read the cluster, with whatever credentials kubectl runs.
	script := fmt.Sprintf("#!/bin/sh\nKUBECONFIG=%s exec %s/underlayctl \"$@\"\n", reader, built)
	if err := os.WriteFile(filepath.Join(w.programs, "underlayctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// folder creates the working directory of a page's shell: it contains the parts of the tree that
// commands name.
func (w *world) folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	deploy, err := filepath.Abs(filepath.Join(root, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"deploy": deploy, "bin": w.programs} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := os.ReadFile(w.ControlPlane.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	// the cluster's name with kubeadm
	write(t, filepath.Join(dir, "admin.conf"), strings.ReplaceAll(string(admin), "underlay-test", "kubernetes"))
	write(t, filepath.Join(dir, pasted), cluster.Token+"\n")
	// A response of 400 and above is a failure.
	write(t, filepath.Join(dir, ".curlrc"), "fail-with-body\n")
	return dir
}

// environment is that of a page's shell.
func (w *world) environment(dir string) []string {
	return []string{
		"PATH=" + w.programs, "HOME=" + dir, "KUBECONFIG=" + w.ControlPlane.AdminKubeconfig(),
		"KUBECACHEDIR=" + filepath.Join(w.programs, "cache"), "HCLOUD_TOKEN=" + cluster.Token,
		"KUBE_EDITOR=true", // changes nothing
	}
}

// logs returns the end of underlay-ccm's log.
func (w *world) logs() string {
	content, err := os.ReadFile(filepath.Join(w.ControlPlane.Dir(), "underlay-ccm-1.log"))
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(content, []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-40):], []byte("\n")))
}
