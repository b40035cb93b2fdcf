//go:build linux

package agent_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

const (
	manyNodes = 5000
	restFor   = time.Minute
	port      = 10266
)

// BenchmarkWeight runs the program among 5,000 Nodes of a real API server, each
// as large as a kubelet makes them, and reports its memory and what it costs
// while nothing happens.
func BenchmarkWeight(b *testing.B) {
	kerneltest.Need(b)
	cable(b)
	k := open(b)
	binary := filepath.Join(b.TempDir(), "underlay-agent")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", binary, "./cmd/underlay-agent")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building the agent: %v: %s", err, out)
	}
	cp := controlplane.StartT(b, controlplane.Options{WithoutControllerManager: true, Progress: io.Discard})
	populate(b, cp)
	for b.Loop() {
		weigh(b, cp, binary)
		complete(b, k, 2*manyNodes)
		clear(b, k)
	}
}

// populate creates the Nodes.
func populate(b *testing.B, cp *controlplane.ControlPlane) {
	b.Helper()
	config := cp.AdminConfig()
	config.QPS, config.Burst = -1, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	failed := make(chan error, manyNodes)
	workqueue.ParallelizeUntil(b.Context(), 16, manyNodes, func(i int) {
		n := full(i)
		created, err := client.CoreV1().Nodes().Create(b.Context(), n, metav1.CreateOptions{})
		if err == nil {
			n.ObjectMeta = created.ObjectMeta
			_, err = client.CoreV1().Nodes().UpdateStatus(b.Context(), n, metav1.UpdateOptions{})
		}
		if err != nil {
			failed <- err
		}
	})
	if len(failed) > 0 {
		b.Fatalf("%d Nodes could not be created: %v", len(failed), <-failed)
	}
}

// full is a Node with all that a kubelet reports, some 12 kB.
func full(i int) *corev1.Node {
	n := node(i)
	n.UID = ""
	n.Labels, n.Annotations = map[string]string{}, map[string]string{}
	for l := range 20 {
		n.Labels[fmt.Sprintf("example.com/label-%d", l)] = n.Name
		n.Annotations[fmt.Sprintf("example.com/annotation-%d", l)] = strings.Repeat(n.Name+" ", 4)
	}
	for image := range 50 {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: 1 << 20, Names: []string{
			fmt.Sprintf("registry.example/project/image-%d@sha256:%064d", image, i), fmt.Sprintf("registry.example/project/image-%d:v1.%d", image, i),
		}})
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "Benchmark", Message: "as a kubelet says it"})
	}
	return n
}

// weigh runs the program from its start until it has been at rest.
func weigh(b *testing.B, cp *controlplane.ControlPlane, binary string) {
	b.Helper()
	dir := b.TempDir()
	config := filepath.Join(dir, "config.yaml")
	write(b, config, 0o600, "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nfamilies: {ipv4: node, ipv6: node}\n")
	for _, plugin := range []string{"ptp", "host-local", "portmap"} {
		write(b, filepath.Join(dir, "bin", plugin), 0o755, "#!/bin/sh\n")
	}
	if err := os.MkdirAll(filepath.Join(dir, "net.d"), 0o755); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(binary, "run", "--config="+config, "--node-name="+own, "--kubeconfig="+cp.AdminKubeconfig(), "--port="+strconv.Itoa(port),
		"--cni-conf-dir="+filepath.Join(dir, "net.d"), "--cni-bin-dir="+filepath.Join(dir, "bin"), "--state-dir="+filepath.Join(dir, "run"))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	err = wait.PollUntilContextTimeout(b.Context(), 10*time.Millisecond, limit, true, func(context.Context) (bool, error) {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", port))
		if err != nil {
			return false, nil
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		b.Fatalf("not ready: %v\n%s", err, said)
	}
	ready := time.Since(began)
	used := processorTime(b, cmd.Process.Pid)
	// What it costs while nothing happens is only known after a while of that.
	time.Sleep(restFor)
	rest := processorTime(b, cmd.Process.Pid) - used
	rss, peak := memory(b, cmd.Process.Pid, "VmRSS"), memory(b, cmd.Process.Pid, "VmHWM")
	anon := memory(b, cmd.Process.Pid, "RssAnon")
	recordWeight(b, map[string]float64{
		inMemory: float64(rss) / 1024, ownMemory: float64(anon) / 1024, peakMemory: float64(peak) / 1024,
		untilReady: ready.Seconds(), atRest: 100 * rest.Seconds() / restFor.Seconds(),
	})
	b.ReportMetric(float64(rss)/1024, "RSS-MiB")
	b.ReportMetric(float64(anon)/1024, "anon-MiB")
	b.ReportMetric(float64(peak)/1024, "peak-MiB")
	b.ReportMetric(100*rest.Seconds()/restFor.Seconds(), "rest-%-of-a-core")
	fmt.Printf("\n  %d Nodes: ready after %s, %d MiB resident (%d MiB of them its own, peak %d MiB), at rest %.2f %% of a core\n",
		manyNodes, ready.Round(time.Millisecond), rss/1024, anon/1024, peak/1024, 100*rest.Seconds()/restFor.Seconds())
}

func write(b *testing.B, path string, mode os.FileMode, content string) {
	b.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		b.Fatal(err)
	}
}

// memory reads a line of /proc/<pid>/status, in KiB.
func memory(b *testing.B, pid int, line string) int {
	b.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(content), line+":")
	fields := strings.Fields(rest)
	n, err := strconv.Atoi(fields[0])
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// processorTime is what a process has used, in ticks of a hundredth of a second
// (proc_pid_stat(5), fields 14 and 15).
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(content), ") ")
	fields := strings.Fields(rest)
	var ticks time.Duration
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}
