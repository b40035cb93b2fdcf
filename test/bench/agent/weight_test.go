//go:build linux

package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/underlay-ccm/underlay/internal/directory/directorytest"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

const (
	manyNodes = 5000
	settleFor = 20 * time.Second
	restFor   = time.Minute
	slice     = 5 * time.Second
	port      = 10266
)

// BenchmarkWeight runs the program with 5,000 Nodes of a real API server, each as large as a
// kubelet makes it, and reports its memory and its idle cost.
func BenchmarkWeight(b *testing.B) {
	kerneltest.Need(b)
	cable(b)
	k := open(b)
	binary := build(b)
	cp := controlplane.StartT(b, controlplane.Options{
		WithoutControllerManager: true, Progress: io.Discard,
	})
	directorytest.Publish(b, populate(b, cp))
	for b.Loop() {
		weigh(b, scene{"a real API server", manyNodes, cp.AdminKubeconfig(), nil}, binary)
		complete(b, k, 2*manyNodes)
		clear(b, k)
	}
}

// BenchmarkHeartbeats runs the program with 15,000 generated Nodes, whose kubelets report an
// unchanged state every five minutes, and whose machines reply to ARP. That must not trigger a
// reconcile. Nodes are received one by one or, as from an API server without watch-lists, all at
// once.
func BenchmarkHeartbeats(b *testing.B) {
	kerneltest.Need(b)
	cable(b)
	neighbors(b)
	k := open(b)
	binary := build(b)
	for _, c := range []struct {
		name      string
		watchList bool
	}{{"a watch-list", true}, {"a list", false}} {
		b.Run(c.name, func(b *testing.B) {
			api := startNodes(b, nodeCount, c.watchList)
			for b.Loop() {
				weigh(b, scene{c.name, nodeCount, api.kubeconfig, api}, binary)
				complete(b, k, 2*nodeCount)
				clear(b, k)
			}
		})
	}
}

func build(b *testing.B) (binary string) {
	b.Helper()
	binary = filepath.Join(b.TempDir(), "underlay-agent")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", binary, "./cmd/underlay-agent")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building the agent: %v: %s", err, out)
	}
	return binary
}

// neighbors fills the kernel's neighbor table with all peers, as if they had replied.
func neighbors(b *testing.B) {
	b.Helper()
	var lines bytes.Buffer
	for i := 1; i < nodeCount; i++ {
		for _, ipv4 := range []bool{true, false} {
			fmt.Fprintf(&lines, "neigh add %s lladdr 02:00:00:00:%02x:%02x dev uplink nud permanent\n", nodeAddress(i, ipv4), byte(i>>8), byte(i))
		}
	}
	file := filepath.Join(b.TempDir(), "neighbors")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	if out, err := exec.CommandContext(b.Context(), "ip", "-batch", file).CombinedOutput(); err != nil {
		b.Fatalf("ip -batch: %v: %s", err, out)
	}
}

// populate creates the Nodes.
func populate(b *testing.B, cp *controlplane.ControlPlane) kubernetes.Interface {
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
	if err := cp.Apply(b.Context(), "../../../deploy/ccm/directory.yaml"); err != nil {
		b.Fatal(err)
	}
	return client
}

// scene is the environment of the program. Without an api no heartbeats are sent.
type scene struct {
	name       string
	nodes      int
	kubeconfig string
	api        *remoteNodes
}

// weigh runs the program from its start until it has been idle for a while.
func weigh(b *testing.B, s scene, binary string) {
	b.Helper()
	dir := b.TempDir()
	config := filepath.Join(dir, "config.yaml")
	settings := "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nfamilies: {ipv4: node, ipv6: node}\n"
	if s.api != nil {
		settings += "networkPolicy: \"off\"\n" // the generated API has Nodes alone
	}
	write(b, config, 0o600, settings)
	for _, plugin := range []string{"ptp", "host-local", "portmap"} {
		write(b, filepath.Join(dir, "bin", plugin), 0o755, "#!/bin/sh\n")
	}
	if err := os.MkdirAll(filepath.Join(dir, "net.d"), 0o755); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(binary, "run", "--config="+config, "--node-name="+own, "--kubeconfig="+s.kubeconfig, "--port="+strconv.Itoa(port),
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
	err = wait.PollUntilContextTimeout(b.Context(), 10*time.Millisecond, limit, true,
		func(context.Context) (bool, error) {
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
	started := memory(b, cmd.Process.Pid, "VmHWM")
	if s.api != nil { // the effects of the start have ended then
		s.api.heartbeats(b, s.nodes, settleFor)
	}
	used, passes := processorTime(b, cmd.Process.Pid), passesNow(b)
	beats := 0
	var calm []time.Duration // processor time of each slice
	if s.api == nil {
		// The idle cost needs a while without events.
		time.Sleep(restFor)
	} else {
		for since := time.Now(); time.Since(since) < restFor; {
			before := processorTime(b, cmd.Process.Pid)
			beats += s.api.heartbeats(b, s.nodes, slice)
			calm = append(calm, processorTime(b, cmd.Process.Pid)-before)
		}
	}
	rest := processorTime(b, cmd.Process.Pid) - used
	if more := passesNow(b) - passes; s.api != nil && more > passesAtRest {
		b.Errorf("%d heartbeats led to %d passes, want none beside at most %d of the minute", beats, more, passesAtRest)
	}
	scenario := fmt.Sprintf("The program among %s Nodes, each of some %d kB, from %s", thousands(s.nodes), len(encoded(full(1)))/1000, s.name)
	if s.api != nil {
		scenario += ", of which 50 report each second"
	}
	fmt.Printf("\n  %s:\n", scenario)
	figures := map[string]float64{
		untilReady:  ready.Seconds(),
		inMemory:    float64(memory(b, cmd.Process.Pid, "VmRSS")) / 1024,
		ownMemory:   float64(memory(b, cmd.Process.Pid, "RssAnon")) / 1024,
		startMemory: float64(started) / 1024,
		peakMemory:  float64(memory(b, cmd.Process.Pid, "VmHWM")) / 1024,
		atRest:      100 * rest.Seconds() / restFor.Seconds(),
	}
	if len(calm) > 0 {
		slices.Sort(calm)
		figures[watching] = 100 * calm[len(calm)/2].Seconds() / slice.Seconds()
	}
	recordWeight(b, scenario, figures)
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

// passesAtRest are the periodic reconciles while idle.
const passesAtRest = 2

// passesNow is the number of reconciles so far.
func passesNow(b *testing.B) (n int) {
	b.Helper()
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(name, "underlay_agent_passes_total{") {
			count, err := strconv.Atoi(value)
			if err != nil {
				b.Fatal(err)
			}
			n += count
		}
	}
	return n
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

// processorTime is the processor time of a process, in ticks of a hundredth of a second
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
