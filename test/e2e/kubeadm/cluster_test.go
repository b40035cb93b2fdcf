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
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// patience is how long something may take before it counts as something that never happens.
const patience = 3 * time.Minute

// server is a rented server on which a machine runs.
type server struct {
	*machine.Machine
	cables *netlab.Machine
}

// world is a cluster that kubeadm made on servers of the simulated cloud.
type world struct {
	t       *testing.T
	lab     *netlab.Lab
	dir     string
	servers map[string]*server
	began   time.Time
}

// startWorld makes the cloud, and no server.
func startWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	lab, err := netlab.Start(context.WithoutCancel(t.Context()), netlab.Options{CloudOnly: true, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lab.Stop)
	w := &world{t: t, lab: lab, dir: dir, servers: map[string]*server{}, began: time.Now()}
	t.Cleanup(w.end)
	return w
}

// end removes every machine, and shows what a failed test left.
func (w *world) end() {
	if w.t.Failed() {
		w.dump()
	}
	for name, s := range w.servers {
		if err := s.Remove(); err != nil {
			w.t.Errorf("removing machine %s: %v", name, err)
		}
	}
}

// dump logs what somebody would look at first.
func (w *world) dump() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 30*time.Second)
	defer cancel()
	for _, look := range []string{
		"kubectl get nodes -o wide", "kubectl get pods -A -o wide", "kubectl get events -A --sort-by=.lastTimestamp | tail -40",
		"kubectl -n kube-system logs deployment/underlay-ccm --tail=30", "underlayctl doctor --token-secret",
	} {
		if s := w.servers["control-1"]; s != nil {
			out, err := s.Run(ctx, "bash", "-c", "export KUBECONFIG=/etc/kubernetes/admin.conf; "+look)
			w.t.Logf("%s\n%s (%v)", look, out, err)
		}
	}
	for name, s := range w.servers {
		w.t.Logf("%s:\n%s", name, s.Logs())
	}
}

// step says how far the test is.
func (w *world) step(format string, args ...any) {
	w.t.Logf("%5.1f s  %s", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// rent makes a server and lets it boot for the first time, with cloud-init's work done by its user
// data, in which each text is replaced by the next.
func (w *world) rent(name string, instead ...string) *server {
	w.t.Helper()
	ctx := w.t.Context()
	cables, err := w.lab.Rent(ctx, name)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := newMachine(ctx, name, filepath.Join(w.dir, "root-"+name), cables.Namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &server{m, cables}
	w.servers[name] = s
	if err := s.Boot(ctx); err != nil {
		w.t.Fatal(err)
	}
	if err := initialize(ctx, m, instead...); err != nil {
		w.t.Fatalf("cloud-init on %s: %v", name, err)
	}
	for _, archive := range archives(w.t) {
		if err := s.Import(ctx, archive); err != nil {
			w.t.Fatal(err)
		}
	}
	return s
}

// reboot pulls the plug and switches the machine on again.
func (w *world) reboot(s *server) {
	w.t.Helper()
	if err := s.PullPlug(); err != nil {
		w.t.Fatal(err)
	}
	if err := s.cables.Renew(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	s.SetNetwork(s.cables.Namespace)
	if err := s.Boot(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
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
	out, err := w.servers[name].Feed(ctx, strings.NewReader(typed), "bash", "-c", environment+command)
	if err != nil {
		w.t.Fatalf("%s# %s\n%s\n%v", name, command, out, err)
	}
	if took := time.Since(began); took > 2*time.Second {
		w.step("%.1f s for %s", took.Seconds(), command)
	}
	return out
}

// environment is that of somebody who works on a server as root.
const environment = "export KUBECONFIG=/etc/kubernetes/admin.conf HOME=/root HCLOUD_TOKEN=" + cluster.Token + "; cd /root; "

// kubectl runs kubectl on the control-plane node.
func (w *world) kubectl(args string) string {
	w.t.Helper()
	return w.on("control-1", "kubectl "+args)
}

// write puts a file on a server.
func (w *world) write(name, path, content string) {
	w.t.Helper()
	if err := w.servers[name].WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
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
	out, err := w.servers["control-1"].Run(ctx, "bash", "-c", environment+"kubectl get -o json "+what)
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
	folder := filepath.Join(w.servers[p.Spec.NodeName].Root(), "run/netns")
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

var joining = regexp.MustCompile(`--token (\S+) +--discovery-token-ca-cert-hash (\S+)`)

// secret is the token and the hash with which servers join.
func (w *world) secret() (token, hash string) {
	w.t.Helper()
	printed := w.on("control-1", "kubeadm token create --print-join-command")
	found := joining.FindStringSubmatch(printed)
	if found == nil {
		w.t.Fatal("no token in what kubeadm prints: " + printed)
	}
	return found[1], found[2]
}

// The examples' own.
const noToken = "abcdef.0123456789abcdef"

var noHash = "sha256:" + strings.Repeat("0", 64)

// join lets a server join, by the page's command and the example's file.
func (w *world) join(p *page, s *server) {
	w.t.Helper()
	token, hash := w.secret()
	w.write(s.cables.Name, "/root/join.yaml", edited(w.t, "kubeadm/cloud-dual-stack/join.yaml",
		noToken, token, noHash, hash, "10.0.0.3,2001:db8:0:2::1", fmt.Sprintf("%s,%s", s.cables.Private, s.cables.Public.IPv6)))
	w.on(s.cables.Name, p.command(w.t, "kubeadm join"))
}

// rentToJoin makes a server that joins by itself, by its user data. Until its images are there its
// pods wait.
func (w *world) rentToJoin(name string) {
	w.t.Helper()
	token, hash := w.secret()
	// The script compares with the token of the example as well.
	w.rent(name, "token: "+noToken+"\n", "token: "+token+"\n", noHash, hash, "dual_stack=no\n", "dual_stack=yes\n")
}
