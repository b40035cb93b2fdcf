//go:build linux

package ha

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/ipam"
	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
)

// TestRemove removes a node from a cluster, and then Underlay from the others. Only the objects
// that the page names remain, until its last commands delete those, too.
func TestRemove(t *testing.T) {
	w := startWorld(t, kubeadm.Tutorial)
	workers := []string{"worker-1", "worker-2", "worker-3"}
	w.rent(append([]string{kubeadm.First}, workers...)...)
	fresh := map[string]string{}
	for name := range w.Servers {
		fresh[name] = w.state(name)
	}
	w.installHead(workers...)
	w.deploy()
	w.Follow(w.Admin, "kubectl expose deployment web", "--port=80", "--port=80 --target-port="+fmt.Sprint(kubeadm.EchoPort))
	w.Await("the load balancer to have three targets", func(context.Context) error { return w.targets(3) })

	w.by(remove)
	w.explain("worker-1")
	w.takeOut("worker-3", fresh["worker-3"])
	w.takeAway(fresh)
}

// installHead creates the tutorial's cluster with the version of this tree.
func (w *world) installHead(workers ...string) {
	w.T.Helper()
	w.putTools(kubeadm.First)
	if err := w.PutInit(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
	w.Follow(kubeadm.First, "kubeadm init")
	w.secret()
	w.Follow(kubeadm.First, "helm install")
	for _, name := range workers {
		w.Join(name)
	}
	w.awaitRollouts()
	w.AwaitReady(1 + len(workers))
	w.Step("all Nodes are ready")
}

// targets expects a number of targets of the only load balancer.
func (w *world) targets(count int) error {
	all := w.Lab.Cloud.DataPlane().LoadBalancers
	if len(all) != 1 || len(all[0].Targets) != count {
		return fmt.Errorf("there are %+v", all)
	}
	return nil
}

// look prints a machine's network state: routes, rules, filters, files, settings.
const look = `
ip -4 route show table all; ip -6 route show table all; ip -4 rule; ip -6 rule
nft list tables
find / -xdev \( -path /root -o -path /var/log -o -path /var/lib/containerd -o -path /var/lib/kubelet \) -prune -o -name '*underlay*' -print
find /run/underlay /etc/cni/net.d -mindepth 1 2>/dev/null
sysctl -a 2>/dev/null --pattern '^net\.ipv[46]\.(ip_forward$|conf\.(all|default|lo|mgmt|private|public)\.)'
`

// theirs match lines of look about the interfaces of running pods, and kube-proxy's tables.
var theirs = []string{"dev veth", "kube-proxy"}

// ofPods match the records of running pods' addresses, which the page lists as remaining.
var ofPods = regexp.MustCompile(`^(/run/underlay/cni|/var/lib/cni/results/underlay-)`)

// linkLocal match addresses that the kernel derives from those of cables, which a boot changes.
var linkLocal = regexp.MustCompile(`fe80::[0-9a-f:]+ff:fe[0-9a-f:]+`)

// state returns the output of look on a machine, sorted, without foreign state.
func (w *world) state(name string) string {
	w.T.Helper()
	var kept []string
	for line := range strings.Lines(w.Run(name, look)) {
		if !ofPods.MatchString(line) &&
			!slices.ContainsFunc(theirs, func(s string) bool { return strings.Contains(line, s) }) {
			kept = append(kept, linkLocal.ReplaceAllString(strings.TrimSpace(line), "fe80::…"))
		}
	}
	slices.Sort(kept)
	return strings.Join(kept, "\n")
}

// used expects state of Underlay on a machine: otherwise a test of its removal proves nothing.
func (w *world) used(name, fresh string) {
	w.T.Helper()
	if w.state(name) == fresh || len(w.routesVia(name)) != 1 {
		w.T.Fatalf("nothing of ours is on %s", name)
	}
}

// asBefore expects that a machine's state is the original one.
func (w *world) asBefore(name, fresh string) {
	w.T.Helper()
	if diff := cmp.Diff(strings.Split(fresh, "\n"), strings.Split(w.state(name), "\n")); diff != "" {
		w.T.Errorf("what is left on %s (-before, +after):\n%s", name, diff)
	}
}

// routesVia returns the network's routes to a server.
func (w *world) routesVia(name string) (found []hcloudsim.RouteSeed) {
	for _, r := range w.Lab.Cloud.DataPlane().Networks[0].Routes {
		if r.Gateway == w.Servers[name].Cables.Private {
			found = append(found, r)
		}
	}
	return found
}

// explain runs the agent's command that prints the changes it would make on its node.
func (w *world) explain(node string) {
	w.T.Helper()
	pod, err := w.Page.Command("pod=$(", "NODE", node)
	if err != nil {
		w.T.Fatal(err)
	}
	check, err := w.Page.Command("kubectl -n kube-system exec $pod")
	if err != nil {
		w.T.Fatal(err)
	}
	if said := w.Run(w.Admin, pod+"\n"+check); !strings.HasPrefix(said, "ACTION") || !strings.Contains(said, "unreachable") {
		w.T.Errorf("the agent of %s tells no routes:\n%s", node, said)
	}
}

// takeOut removes a node, whose machine remains, from the cluster.
func (w *world) takeOut(name, fresh string) {
	w.used(name, fresh)
	w.Follow(w.Admin, "kubectl drain", "NODE", name)
	w.Follow(name, "kubeadm reset")
	w.Follow(name, "rm -f /etc/cni/net.d/")
	if _, err := w.Page.Command("reboot"); err != nil {
		w.T.Fatal(err)
	}
	if err := w.Servers[name].Reboot(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
	w.Follow(w.Admin, "kubectl delete node", "NODE", name)
	w.asBefore(name, fresh)
	w.Await("the cloud to know nothing of "+name, func(context.Context) error {
		if left := w.routesVia(name); len(left) > 0 {
			return fmt.Errorf("it has the routes %v", left)
		}
		return w.targets(2)
	})
	w.AwaitReady(3)
	w.Step("%s is no node any more, and as it was before", name)
}

// takeAway removes everything of Underlay.
func (w *world) takeAway(fresh map[string]string) {
	nodes := []string{kubeadm.First, "worker-1", "worker-2"}
	for _, name := range nodes {
		w.used(name, fresh[name])
	}
	if shown := w.Follow(w.Admin, "kubectl get services --all-namespaces"); !strings.Contains(shown, " web ") {
		w.T.Errorf("the page's command shows\n%s", shown)
	}
	w.Follow(w.Admin, "kubectl delete service")
	if all := w.Lab.Cloud.DataPlane().LoadBalancers; len(all) > 0 {
		w.T.Errorf("the load balancer is still there: %+v", all)
	}
	w.Follow(w.Admin, "kubectl -n kube-system patch daemonset")
	w.Await("every agent to say that nothing is left", func(ctx context.Context) error {
		command, err := w.Page.Command("kubectl -n kube-system logs")
		if err != nil {
			return err
		}
		said, err := w.On(ctx, w.Admin, command)
		if done := strings.Count(said, "nothing of underlay is left on this node"); err == nil && done != 3 {
			err = fmt.Errorf("%d do:\n%s", done, said)
		}
		return err
	})
	w.Step("every agent has taken its things away")
	w.Follow(w.Admin, "helm uninstall")
	w.Await("the agents to be gone", func(ctx context.Context) error {
		if left := w.Kubectl("-n kube-system get pods -l app.kubernetes.io/part-of=underlay -o name"); left != "" {
			return errors.New(left)
		}
		return nil
	})
	for _, name := range nodes {
		w.asBefore(name, fresh[name])
	}
	left := []string{"ConfigMap kube-system underlay-node-ipam", "ConfigMap kube-system underlay-routes", "Lease kube-system cloud-controller-manager", "Secret kube-system hcloud"}
	for shard := 1; shard < ipam.Shards; shard++ {
		left = append(left, fmt.Sprintf("ConfigMap kube-system underlay-node-ipam-%d", shard))
	}
	w.left(left...)
	w.Step("what stays is what the page says")
	w.deleteRest()
}

// deleteRest runs the page's last commands, and expects that no object remains.
func (w *world) deleteRest() {
	w.Follow(w.Admin, "kubectl -n kube-system delete configmap")
	w.left()
	describe, err := w.Page.Command("hcloud network describe")
	if err != nil {
		w.T.Fatal(err)
	}
	w.hcloud(describe)
	for _, name := range []string{kubeadm.First, "worker-1", "worker-2"} {
		found := w.routesVia(name)
		if len(found) != 1 {
			w.T.Errorf("the routes to %s are %v; the page says that they stay", name, found)
			continue
		}
		remove, err := w.Page.Command("hcloud network remove-route", "10.244.0.0/24", found[0].Destination.String(), "10.0.0.2", found[0].Gateway.String())
		if err != nil {
			w.T.Fatal(err)
		}
		w.hcloud(remove)
	}
	if left := w.Lab.Cloud.DataPlane().Networks[0].Routes; len(left) > 0 {
		w.T.Errorf("the network still has the routes %v", left)
	}
	w.Step("nothing is left")
}

// left expects exactly these objects of Underlay in the cluster.
func (w *world) left(want ...string) {
	w.T.Helper()
	out := w.Run(w.Admin, `for kind in $(kubectl api-resources --verbs=list -o name | grep -v -e '^events' -e '^nodes$'); do
		kubectl get $kind --all-namespaces --ignore-not-found --no-headers -o custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name
	done | grep -e underlay -e hcloud -e cloud-controller-manager || true`)
	var found []string
	for line := range strings.Lines(out) {
		found = append(found, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(found)
	slices.Sort(want)
	if found = slices.Compact(found); !slices.Equal(found, want) {
		w.T.Errorf("the cluster has %q, want %q", found, want)
	}
}
