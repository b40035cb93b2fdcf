//go:build linux

package kubeadm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// patience is how long something may take before it counts as something that never happens.
const patience = 3 * time.Minute

// world is a cluster that a test installs.
type world struct {
	*kubeadm.Cluster
	t     *testing.T
	page  *kubeadm.Page
	began time.Time
}

// startWorld makes the cloud, and no server.
func startWorld(t *testing.T) *world {
	t.Helper()
	page, err := kubeadm.ReadPage(t.Context(), kubeadm.Tutorial)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubeadm.Start(t.Context(), kubeadm.Options{Dir: t.TempDir(), Packed: os.Getenv(packed)})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Cluster: c, t: t, page: page, began: time.Now()}
	t.Cleanup(w.end)
	return w
}

// end removes every machine, and shows what a failed test left.
func (w *world) end() {
	if w.t.Failed() {
		w.dump()
	}
	if err := w.Stop(); err != nil {
		w.t.Error(err)
	}
}

// dump logs what somebody would look at first.
func (w *world) dump() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 30*time.Second)
	defer cancel()
	for _, look := range []string{
		"kubectl get nodes -o wide", "kubectl get pods -A -o wide", "kubectl get events -A --sort-by=.lastTimestamp | tail -40",
		"kubectl -n kube-system logs deployment/underlay-ccm --tail=30", "underlayctl doctor",
	} {
		if w.Servers[kubeadm.First] != nil {
			out, err := w.On(ctx, kubeadm.First, look)
			w.t.Logf("%s\n%s (%v)", look, out, err)
		}
	}
	for name, s := range w.Servers {
		w.t.Logf("%s:\n%s", name, s.Logs())
	}
}

// step says how far the test is.
func (w *world) step(format string, args ...any) {
	w.t.Logf("%5.1f s  %s", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// on runs a command in a shell of a server and returns what it printed.
func (w *world) on(name, command string) string {
	w.t.Helper()
	return w.feed(name, "", command)
}

// feed is on with something typed.
func (w *world) feed(name, typed, command string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	began := time.Now()
	out, err := w.Feed(ctx, name, typed, command)
	if err != nil {
		w.t.Fatalf("%s# %s\n%s\n%v", name, command, out, err)
	}
	if took := time.Since(began); took > 2*time.Second {
		w.step("%.1f s for %s", took.Seconds(), command)
	}
	return out
}

// follow is on with a command of the page, in which each text is replaced by the next.
func (w *world) follow(name, begins string, instead ...string) {
	w.t.Helper()
	w.feedPage(name, "", begins, instead...)
}

// feedPage is follow with something typed.
func (w *world) feedPage(name, typed, begins string, instead ...string) {
	w.t.Helper()
	command, err := w.page.Command(begins, instead...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.feed(name, typed, command)
}

// kubectl runs kubectl on the control-plane node.
func (w *world) kubectl(args string) string {
	w.t.Helper()
	return w.on(kubeadm.First, "kubectl "+args)
}

// await waits until something holds that is shown by what it returns when it doesn't.
func (w *world) await(what string, holds func(context.Context) error) {
	w.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.t.Context(), 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		// The last look before the time is over says why, not that it is.
		if err := holds(ctx); ctx.Err() == nil {
			last = err
		}
		return last == nil, nil
	})
	if err := cmp.Or(last, err); err != nil {
		w.t.Fatalf("waiting for %s: %v", what, err)
	}
}

// get reads objects into a value of the API's.
func (w *world) get(ctx context.Context, into any, what string) error {
	out, err := w.On(ctx, kubeadm.First, "kubectl get -o json "+what)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return json.Unmarshal([]byte(out), into)
}

// nodes are the cluster's Nodes.
func (w *world) nodes(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	err := w.get(ctx, &list, "nodes")
	return list.Items, err
}

// awaitReady waits until so many Nodes are there, and all are ready, with podCIDRs of both
// families and their routes.
func (w *world) awaitReady(count int) {
	w.t.Helper()
	w.await(fmt.Sprintf("%d ready Nodes", count), func(ctx context.Context) error {
		nodes, err := w.nodes(ctx)
		if err != nil {
			return err
		}
		if len(nodes) != count {
			return fmt.Errorf("there are %d", len(nodes))
		}
		for _, n := range nodes {
			switch {
			case len(n.Spec.PodCIDRs) != 2:
				return fmt.Errorf("%s has the podCIDRs %v", n.Name, n.Spec.PodCIDRs)
			case condition(n, corev1.NodeReady) != corev1.ConditionTrue, condition(n, corev1.NodeNetworkUnavailable) != corev1.ConditionFalse:
				return fmt.Errorf("%s has the conditions %+v", n.Name, n.Status.Conditions)
			}
		}
		return nil
	})
}

func condition(n corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

// pods are those with a label that are not about to go.
func (w *world) pods(ctx context.Context, label string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := w.get(ctx, &list, "pods -l "+label); err != nil {
		return nil, err
	}
	var found []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			found = append(found, p)
		}
	}
	return found, nil
}

// awaitPods waits until the pods with a label are so many and ready, on different nodes, and
// returns them.
func (w *world) awaitPods(label string, count int) (pods []corev1.Pod) {
	w.t.Helper()
	w.await(fmt.Sprintf("%d pods %s", count, label), func(ctx context.Context) (err error) {
		if pods, err = w.pods(ctx, label); err != nil {
			return err
		}
		ready, where := 0, map[string]bool{}
		for _, p := range pods {
			where[p.Spec.NodeName] = true
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		if ready != count || len(pods) != count || len(where) != count {
			return fmt.Errorf("%d are there, %d are ready, on the nodes %v", len(pods), ready, where)
		}
		return nil
	})
	return pods
}

// addresses are a pod's, IPv4 first.
func addresses(p corev1.Pod) (found []netip.Addr) {
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			found = append(found, a)
		}
	}
	return found
}

// inside opens the network namespace of a pod, which is found by its address.
func (w *world) inside(p corev1.Pod) *netns.Namespace {
	w.t.Helper()
	folder := filepath.Join(w.Servers[p.Spec.NodeName].Root(), "run/netns")
	files, err := os.ReadDir(folder)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range files {
		ns, err := netns.At(filepath.Join(folder, f.Name()))
		if err != nil {
			continue // it has just gone
		}
		if out, err := ns.Run(w.t.Context(), "ip", "-4", "-oneline", "address", "show"); err == nil && strings.Contains(out, " "+p.Status.PodIP+"/") {
			w.t.Cleanup(ns.Close)
			return ns
		}
		ns.Close()
	}
	w.t.Fatalf("no network namespace on %s has the address %s of pod %s", p.Spec.NodeName, p.Status.PodIP, p.Name)
	return nil
}

// join lets a server join, by the page's command and the example's file.
func (w *world) join(name string) {
	w.t.Helper()
	if err := w.PutJoin(w.t.Context(), name); err != nil {
		w.t.Fatal(err)
	}
	w.follow(name, "kubeadm join")
}
