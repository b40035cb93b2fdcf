//go:build linux

package policy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/directory/directorytest"
	"github.com/underlay-ccm/underlay/internal/netfilter"
	"github.com/underlay-ccm/underlay/policy"
	"github.com/underlay-ccm/underlay/policy/agent"
	"github.com/underlay-ccm/underlay/test/bench/results"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/kuberouter"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

const (
	ours   = "underlay"
	router = "kube-router"
	// stranger is an address that no pod has and no policy allows.
	stranger = "10.1.2.9"
)

// contender enforces NetworkPolicies on node-0.
type contender struct {
	name string
	path
	api *server
	// idle returns when nothing of an earlier change is left to do.
	idle func()
}

// BenchmarkBesideKubeRouter has three times the same node and pods: without NetworkPolicies, with
// the agent's, and with kube-router's firewall. In turns, connections begin over each, and a pod
// starts on another node.
func BenchmarkBesideKubeRouter(b *testing.B) {
	open := newPath(b)
	all := []*contender{underlay(b)}
	if k := kubeRouter(b); k != nil {
		all = append(all, k)
	}
	began := time.Now()
	for _, c := range all {
		c.reach(stranger)
		c.until(b, stranger, false)
		c.until(b, firstAddress(1).String(), true)
		b.Logf("%s enforces after %v", c.name, time.Since(began))
	}
	const ratio, starts = "new connections with policies to those without", "a pod that starts, until its packets pass"
	for turn := 0; b.Loop(); turn++ {
		without, with := compare(b, open, all)
		results.Record(b, results.Figure{Scenario: "no NetworkPolicy", Contender: ours, Quantity: perSecond, Unit: "1/s", Value: without})
		for _, c := range all {
			pod := newPod(fmt.Sprint("new-", turn), namespaceOf(0), 1, 1, fmt.Sprintf("10.1.%d.%d", 3+turn/200, 1+turn%200))
			c.reach(pod.Status.PodIP)
			began := time.Now()
			c.api.add(pods, pod)
			c.until(b, pod.Status.PodIP, true)
			took := time.Since(began)
			b.Logf("%s: %.0f connections/s (%.2f), %v", c.name, with[c], with[c]/without, took)
			results.Record(
				b,
				results.Figure{Scenario: scenario, Contender: c.name, Quantity: perSecond, Unit: "1/s", Value: with[c]},
				results.Figure{
					Scenario: scenario, Contender: c.name, Quantity: ratio, Value: with[c] / without,
				},
				results.Figure{Scenario: scenario, Contender: c.name, Quantity: starts, Unit: "ms", Value: 1000 * took.Seconds()},
			)
		}
	}
	results.Explain(
		b,
		results.Note{Quantity: perSecond, Text: "of TCP from another node's pod, over the node of the pod that accepts them, which tracks connections in all cases: the median of nine turns of 1,000."},
		results.Note{Quantity: ratio, Text: "of the same round."},
		results.Note{Quantity: starts, Text: "a pod of another node, from its event at the API server to the first packet that a policy allows."},
	)
}

// compare returns how many connections begin in a second over the open path and over each
// contender's: medians of short turns, whose order changes, because a machine slows down and
// recovers, and the other contender may do work of its own in one of them.
func compare(
	b *testing.B, open path, all []*contender,
) (without float64, with map[*contender]float64) {
	b.Helper()
	for _, c := range all {
		c.idle()
	}
	rates := map[*contender][]float64{}
	order := append([]*contender{{path: open}}, all...)
	none := order[0]
	for range turns {
		slices.Reverse(order)
		for _, c := range order {
			rates[c] = append(rates[c], connect(b, c.path))
		}
	}
	with = map[*contender]float64{}
	for c, all := range rates {
		slices.Sort(all)
		with[c] = all[turns/2]
	}
	return with[none], with
}

// inSpace is a table of another network namespace.
type inSpace struct {
	space *netns.Space
	table *netfilter.PolicyTable
}

func (t inSpace) Apply(ctx context.Context, want *policy.Ruleset) (changed []string, err error) {
	t.space.Do(func() { changed, err = t.table.Apply(ctx, want) })
	return changed, err
}

func (t inSpace) Watch(ctx context.Context, changed func()) (err error) {
	t.space.Do(func() { err = t.table.Watch(ctx, changed) })
	return err
}

func (t inSpace) Drops(ctx context.Context) (drops map[*policy.Chain]uint64, err error) {
	t.space.Do(func() { drops, err = t.table.Drops(ctx) })
	return drops, err
}

// underlay is the agent's part that enforces NetworkPolicies, in this process.
func underlay(b *testing.B) *contender {
	b.Helper()
	c := &contender{name: ours, path: newPath(b), api: serve(), idle: func() {}}
	client, err := kubernetes.NewForConfig(c.api.at(b, func(f func()) { f() }))
	if err != nil {
		b.Fatal(err)
	}
	nodes := coreinformers.NewNodeInformer(client, 0, nil)
	table := inSpace{space: c.node}
	c.node.Do(func() { table.table, err = netfilter.NewPolicyTable() })
	if err != nil {
		b.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Client: client, Node: own, Nodes: directorytest.Nodes{Self: own, Informer: nodes}, Table: table,
		Registry: metrics.NewKubeRegistry(),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	var running sync.WaitGroup
	b.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() { nodes.RunWithContext(ctx) })
	running.Go(func() { a.Run(ctx) })
	return c
}

// kubeRouter is kube-router's firewall, or nil if something is missing.
func kubeRouter(b *testing.B) *contender {
	b.Helper()
	built, is, err := kuberouter.Built()
	if err != nil {
		b.Fatal(err)
	}
	if !is {
		b.Logf("without kube-router: %s isn't built; run this by make bench-policy", built.Version)
		return nil
	}
	for _, program := range []string{"iptables", "ip6tables", "ipset"} {
		if _, err := exec.LookPath(program); err != nil {
			b.Logf("without kube-router: it takes %s (apt-get install iptables ipset)", program)
			return nil
		}
	}
	c := &contender{name: router, path: newPath(b), api: serve()}
	folder := b.TempDir()
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, c.api.at(b, c.node.Do)); err != nil {
		b.Fatal(err)
	}
	running, err := process.Start(process.Command{
		Name: router, Path: "nsenter", Dir: folder,
		Args: []string{
			"--net=" + c.node.Path(), built.Program(), "--run-firewall=true", "--run-router=false", "--run-service-proxy=false",
			"--kubeconfig=" + kubeconfig, "--hostname-override=" + own, "--enable-ipv6=true", "--service-cluster-ip-range=172.20.0.0/16,fd00:20::/112",
			"--v=1",
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(running.Kill)
	results.Compare(b, results.Version{Program: router, Version: built.Version})
	synced := 0
	c.idle = func() {
		for end := time.Now().Add(10 * time.Minute); ; {
			log, err := os.ReadFile(running.Log)
			if err != nil {
				b.Fatal(err)
			}
			if running.Ended() || time.Now().After(end) {
				b.Fatal(running.Failure(errors.New("has not set its rules")))
			}
			if now := bytes.Count(log, []byte("sync iptables took")); now > synced && now == bytes.Count(log, []byte("Starting sync of iptables")) {
				synced = now
				return
			}
			time.Sleep(10 * time.Millisecond) // it needs the processor
		}
	}
	return c
}
