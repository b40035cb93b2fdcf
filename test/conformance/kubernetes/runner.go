//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// specWithin is more than any spec needs that waits for nothing in vain.
const specWithin = 30 * time.Minute

// runner runs specs on a cluster.
type runner struct {
	program    string
	kubectl    string
	kubeconfig string
	dir        string // for reports
	logs       string // for what specs say
	focus      *regexp.Regexp
	width      int
	from       *netns.Namespace // the host outside, where they run
	client     kubernetes.Interface

	mu   sync.Mutex
	done int
	all  int
}

func newRunner(ctx context.Context, c *kubeadm.Cluster, dir string, o options) (*runner, error) {
	r := &runner{dir: dir, logs: o.logs, focus: o.focus, width: o.width, from: c.Lab.Outside()}
	var err error
	if r.program, err = kubebinary.Specs(ctx, os.Stderr); err != nil {
		return nil, err
	}
	kube, err := kubebinary.Path(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	r.kubectl = filepath.Join(dir, "kubectl")
	if err := os.Symlink(kube, r.kubectl); err != nil {
		return nil, err
	}
	if r.logs == "" {
		r.logs = dir
	}
	return r, r.connect(c)
}

// connect writes a kubeconfig for the host outside, which reaches the first server at its public
// address, for which the API server has no certificate.
func (r *runner) connect(c *kubeadm.Cluster) error {
	first := c.Servers[kubeadm.First]
	content, err := first.ReadFile("/etc/kubernetes/admin.conf")
	if err != nil {
		return err
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return fmt.Errorf("admin.conf of %s: %w", kubeadm.First, err)
	}
	for _, cluster := range config.Clusters {
		host, port, err := net.SplitHostPort(strings.TrimPrefix(cluster.Server, "https://"))
		if err != nil {
			return fmt.Errorf("admin.conf of %s: %w", kubeadm.First, err)
		}
		cluster.TLSServerName = host
		cluster.Server = "https://" + net.JoinHostPort(first.Cables.Public.IPv4.String(), port)
	}
	r.kubeconfig = filepath.Join(r.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, r.kubeconfig); err != nil {
		return err
	}
	access, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		return err
	}
	access.Dial = r.from.Dial
	access.WarningHandler = rest.NoWarnings{}
	r.client, err = kubernetes.NewForConfig(access)
	return err
}

// runAll runs specs, so many at a time, and then those that run alone. Those of load balancers,
// some of which take ten minutes, come first. The results are in the specs' order.
func (r *runner) runAll(ctx context.Context, specs []spec) ([]result, error) {
	r.all = len(specs)
	results := make([]result, len(specs))
	together, inner := errgroup.WithContext(ctx)
	together.SetLimit(r.width)
	for _, early := range []bool{true, false} {
		for i, s := range specs {
			if !s.alone() && s.is(labelLoadBalancer) == early {
				together.Go(func() (err error) {
					results[i], err = r.run(inner, i, s)
					return err
				})
			}
		}
	}
	if err := together.Wait(); err != nil {
		return nil, err
	}
	for i, s := range specs {
		if s.alone() {
			var err error
			if results[i], err = r.run(ctx, i, s); err != nil {
				return nil, err
			}
		}
	}
	return results, nil
}

// run runs one spec. That it fails is no error.
func (r *runner) run(ctx context.Context, number int, s spec) (result, error) {
	began := time.Now()
	id := fmt.Sprintf("spec-%d", number)
	if s.Families != "" {
		id += "-" + s.Families
	}
	if what := lacking(s); what != "" {
		found := result{Spec: s, State: skipped, Reason: what}
		r.report(found, id, 0)
		return found, nil
	}
	log, err := os.Create(filepath.Join(r.logs, id+".log"))
	if err != nil {
		return result{}, err
	}
	defer log.Close()
	cmd := r.command(ctx, id, s, log)
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	refusal := r.watch(ctx, id, s, cmd.Process)
	ended := cmd.Wait()
	output := refusal()
	if ctx.Err() != nil {
		return result{}, context.Cause(ctx)
	}
	report, err := readReport(filepath.Join(r.dir, id+".json"))
	if err != nil {
		return result{}, errors.Join(fmt.Errorf("%s: %w", s.Name, err), ended)
	}
	found := report.resultOf(s)
	if output != "" {
		found = result{Spec: s, State: refused, Reason: output}
	}
	r.report(found, id, time.Since(began))
	return found, nil
}

// command is upstream's program with one spec.
func (r *runner) command(ctx context.Context, id string, s spec, log io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", "--net="+r.from.Path(), "--", r.program,
		"--run-id="+id, "--provider=skeleton", "--kubeconfig="+r.kubeconfig, "--kubectl-path="+r.kubectl, "--e2e-output-dir="+r.dir,
		"--ginkgo.focus="+exactly(s), "--ginkgo.json-report="+filepath.Join(r.dir, id+".json"),
		"--ginkgo.silence-skips", "--ginkgo.no-color", "--ginkgo.v", "--ginkgo.timeout="+specWithin.String())
	cmd.Stdout, cmd.Stderr = log, log
	// A terminal's Ctrl-C is ours; the program ends with us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// report shows how far it is.
func (r *runner) report(found result, id string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	fmt.Printf("  %3d/%d %-7s %4.0f s  %s: %s\n", r.done, r.all, found.State, took.Seconds(), id, found.Spec.title())
	if found.State != passed {
		first := slices.Collect(strings.Lines(found.Reason))
		fmt.Printf("%24s%s\n", "", strings.TrimSpace(strings.Join(first[:min(len(first), 3)], " ")))
	}
}
