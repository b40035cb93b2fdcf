package scale_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

// metal is the configuration of machines without a cloud, whose routes are in their kernels: no
// cloud's route table has room for so many.
const metal = "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nprovider: metal\n"

// election are the settings of leader election.
type election struct{ lease, renew, retry time.Duration }

func (e election) args() []string {
	return []string{
		fmt.Sprint("--leader-elect-lease-duration=", e.lease),
		fmt.Sprint("--leader-elect-renew-deadline=", e.renew),
		fmt.Sprint("--leader-elect-retry-period=", e.retry),
	}
}

// field is the cluster of all measurements.
type field struct {
	*cluster.Cluster
	admin   *kubernetes.Clientset
	metrics *http.Client // authenticates with the administrator's certificate
	watch   *watcher
	ranges  string // --cluster-cidr
	numbers int    // machines created so far

	managers []*cluster.Manager
}

func startField(ctx context.Context, tb testing.TB, ranges string) *field {
	tb.Helper()
	binary, err := cluster.BuildManager(ctx, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Manager: binary,
		ControlPlane: controlplane.Options{
			Progress: io.Discard, WithoutControllerManager: true,
			// Every write of a Node keeps another copy of it until etcd compacts.
			ExtraEtcdArgs: []string{"--quota-backend-bytes=8000000000"},
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Stop)
	config := c.ControlPlane.AdminConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	insecure := rest.CopyConfig(config)
	// A manager's certificate is self-signed.
	insecure.Insecure, insecure.CAData, insecure.CAFile = true, nil, ""
	metrics, err := rest.HTTPClientFor(insecure)
	if err != nil {
		tb.Fatal(err)
	}
	return &field{
		Cluster: c, admin: admin, metrics: metrics, ranges: ranges, watch: startWatching(ctx, tb, admin),
	}
}

// manager returns the options of a manager with further configuration and arguments.
func (f *field) manager(config string, args ...string) cluster.ManagerOptions {
	return cluster.ManagerOptions{
		Config: metal + config,
		Args:   append([]string{f.ranges, "--node-cidr-mask-size-ipv4=24", "--node-cidr-mask-size-ipv6=64"}, args...),
	}
}

// start starts a manager as it is deployed.
func (f *field) start(
	ctx context.Context, tb testing.TB, e election, config string, args ...string,
) *cluster.Manager {
	tb.Helper()
	m, err := f.StartManager(ctx, f.manager(config, append(e.args(), args...)...))
	if err != nil {
		tb.Fatal(err)
	}
	f.managers = append(f.managers, m)
	return m
}

// stopManagers kills all running managers.
func (f *field) stopManagers() {
	for _, m := range f.managers {
		m.Kill()
	}
	f.managers = nil
}

// waits returns when a manager is ready to take over, like one that has been a standby for long: it
// has observed that another holds the lease, and has filled its caches, after which it is nearly
// idle.
func (f *field) waits(ctx context.Context, tb testing.TB, m *cluster.Manager) {
	tb.Helper()
	f.until(ctx, tb, m.Name+" waits for the lease", func(ctx context.Context) bool {
		_, known := f.metric(ctx, m, leading)
		return known
	})
	const idle, most = 2 * time.Second, 0.2 // seconds of a processor
	for used := cpu(tb, m.PID()); ; {
		f.rest(ctx, tb, idle)
		now := cpu(tb, m.PID())
		if now-used < most {
			return
		}
		used = now
	}
}

// restart starts another manager for each that has exited, as its Deployment does. They exit only
// when they lose their lease, for example because of lost requests on a busy machine.
func (f *field) restart(tb testing.TB, start func()) {
	tb.Helper()
	for _, m := range slices.Clone(f.managers) {
		if !m.Ended() {
			continue
		}
		if err := m.Failure(m.Died()); !strings.Contains(err.Error(), "leaderelection lost") {
			tb.Error(err)
		}
		f.managers = slices.DeleteFunc(f.managers, func(other *cluster.Manager) bool {
			return other == m
		})
		start()
	}
}

// leader returns the leading manager, after restarts of those that have exited.
func (f *field) leader(ctx context.Context, tb testing.TB, start func()) (found *cluster.Manager) {
	tb.Helper()
	f.until(ctx, tb, "one manager leads", func(ctx context.Context) bool {
		f.restart(tb, start)
		for _, m := range f.managers {
			if is, _ := f.metric(ctx, m, leading); is == 1 && !m.Ended() {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

// leaseName is the lease that managers elect their leader with.
const leaseName = "cloud-controller-manager"

// leading is 1 for the manager that has the lease.
const leading = `leader_election_master_status{name="cloud-controller-manager"}`

// metric reads a value, if a manager exposes it.
func (f *field) metric(
	ctx context.Context, m *cluster.Manager, name string,
) (value float64, known bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL+"/metrics", nil)
	if err != nil {
		return 0, false
	}
	answer, err := f.metrics.Do(request)
	if err != nil {
		return 0, false
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(body)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			value, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
			return value, err == nil
		}
	}
	return 0, false
}

// acquired is when the current leader got the lease.
func (f *field) acquired(ctx context.Context, tb testing.TB) time.Time {
	tb.Helper()
	lease, err := f.admin.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, leaseName,
		metav1.GetOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return lease.Spec.AcquireTime.Time
}

// until polls until a condition holds.
func (f *field) until(
	ctx context.Context, tb testing.TB, what string, holds func(context.Context) bool,
) {
	tb.Helper()
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true,
		func(ctx context.Context) (bool, error) { return holds(ctx), nil })
	if err != nil {
		tb.Fatalf("%s: %v", what, context.Cause(ctx))
	}
}

// rest waits without causing events.
func (f *field) rest(ctx context.Context, tb testing.TB, d time.Duration) {
	tb.Helper()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		tb.Fatal(context.Cause(ctx))
	}
}

// join creates a new machine's Node.
func (f *field) join(ctx context.Context, tb testing.TB, name string) *served {
	tb.Helper()
	number := f.numbers
	f.numbers++
	s := f.watch.expect(name)
	if _, err := f.register(ctx, machine(name, number)); err != nil {
		tb.Fatal(err)
	}
	return s
}

// kubelets report the status of every Node once in five minutes, one after the other, until the
// returned function is called.
func (f *field) kubelets(ctx context.Context, tb testing.TB, nodes int) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(reportEvery / time.Duration(nodes))
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i = (i + 1) % nodes {
			if err := f.report(ctx, nodeName(i)); err != nil && ctx.Err() == nil {
				tb.Errorf("reporting a Node's status: %v", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// served waits until a Node has its podCIDRs. The manager that was started last must keep running.
func (f *field) served(ctx context.Context, tb testing.TB, s *served) {
	tb.Helper()
	last := f.managers[len(f.managers)-1]
	select {
	case <-s.served:
	case <-last.Done():
		tb.Fatal(last.Failure(last.Died()))
	case <-ctx.Done():
		tb.Fatalf("a Node has no podCIDRs: %v", last.Failure(context.Cause(ctx)))
	}
}

// remove deletes a Node.
func (f *field) remove(ctx context.Context, tb testing.TB, n *corev1.Node) {
	tb.Helper()
	f.watch.leaves(n.UID)
	err := f.admin.CoreV1().Nodes().Delete(ctx, n.Name,
		*metav1.NewPreconditionDeleteOptions(string(n.UID)))
	if err != nil {
		tb.Fatal(err)
	}
}

// resident reads a line of Linux' account of a process's memory, in MiB.
func resident(tb testing.TB, pid int, line string) float64 {
	tb.Helper()
	for text := range strings.Lines(account(tb, pid, "status")) {
		if value, ok := strings.CutPrefix(text, line+":"); ok {
			return number(tb, strings.TrimSuffix(strings.TrimSpace(value), " kB")) / 1024
		}
	}
	tb.Fatalf("no %s in the process's status", line)
	return 0
}

// cpu is the processor time of a process in seconds. The name in parentheses may contain spaces;
// the 12th and 13th fields after it are user and system time in hundredths of a second, see
// proc(5).
func cpu(tb testing.TB, pid int) float64 {
	tb.Helper()
	stat := account(tb, pid, "stat")
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	return (number(tb, fields[11]) + number(tb, fields[12])) / 100
}

func account(tb testing.TB, pid int, file string) string {
	tb.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		tb.Fatal(err)
	}
	return string(content)
}

func number(tb testing.TB, text string) float64 {
	tb.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

func longest(all []time.Duration) time.Duration { return slices.Max(all) }
