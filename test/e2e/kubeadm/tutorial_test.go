//go:build linux

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// TestTutorial executes the tutorial on three servers, and later events of such a cluster:
// rollouts, a drain, reboots, a server that is deleted and one that joins.
func TestTutorial(t *testing.T) {
	kubeadm.NeedMachines(t)
	w := startWorld(t)

	w.install()
	w.Deploy(w.Page)
	w.Talk()
	service := w.expose()
	w.Healthy()
	w.Step("%d of the page's commands led here", w.Page.Used())
	if w.Page.Used() > 12 {
		t.Errorf("%d commands to a Service that answers are more than somebody wants to type", w.Page.Used())
	}

	w.connectivity()
	w.rollOut()
	w.drain(service)
	w.rebootWithAgent()
	w.rebootWithoutAgent()
	w.replaceServer()
	w.Healthy()
}

// install creates the cluster.
func (w *world) install() {
	ctx := w.T.Context()
	for _, name := range []string{kubeadm.First, "worker-1", "worker-2"} {
		if _, err := w.Rent(ctx, name); err != nil {
			w.T.Fatal(err)
		}
	}
	w.Step("three servers, ready for kubeadm")
	if err := errors.Join(w.PutInit(ctx), w.PutManifests()); err != nil {
		w.T.Fatal(err)
	}
	w.Follow(kubeadm.First, "kubeadm init")
	w.Step("kubeadm init")
	w.FollowTyping(kubeadm.First, cluster.Token, "kubectl -n kube-system create secret")
	// Helm isn't installed; the manifests that it renders from the chart are applied.
	if _, err := w.Page.Command("helm install underlay deploy/chart --namespace kube-system --values deploy/kubeadm/cloud-dual-stack/values.yaml"); err != nil {
		w.T.Fatal(err)
	}
	w.Kubectl("apply -f underlay.yaml")
	for _, name := range []string{"worker-1", "worker-2"} {
		w.Join(name)
	}
	w.Step("the others have joined")
	w.Follow(kubeadm.First, "kubectl -n kube-system rollout status deployment/underlay-ccm")
	w.AwaitReady(3)
	w.Follow(kubeadm.First, "kubectl -n kube-system rollout status daemonset/underlay-agent")
	w.Step("all Nodes are ready")
	for name, server := range w.Servers {
		var n corev1.Node
		if err := w.Get(ctx, &n, "node "+name); err != nil {
			w.T.Fatal(err)
		}
		want := fmt.Sprintf("Hostname=%s InternalIP=%s InternalIP=%s ExternalIP=%s",
			name, server.Cables.Private, server.Cables.Public.IPv6, server.Cables.Public.IPv4)
		if got := shownAddresses(&n); !sameWords(got, want) {
			w.T.Errorf("Node %s has the addresses %s; want %s", name, got, want)
		}
	}
}

func shownAddresses(n *corev1.Node) string {
	var all []string
	for _, a := range n.Status.Addresses {
		all = append(all, string(a.Type)+"="+a.Address)
	}
	return strings.Join(all, " ")
}

func sameWords(a, b string) bool {
	return slices.Equal(slices.Sorted(slices.Values(strings.Fields(a))),
		slices.Sorted(slices.Values(strings.Fields(b))))
}

// expose creates the load balancer, and sends requests to it from outside.
func (w *world) expose() netip.AddrPort {
	w.Follow(kubeadm.First, "kubectl expose deployment web", "--port=80", "--port=80 --target-port="+fmt.Sprint(kubeadm.EchoPort))
	var at netip.AddrPort
	w.Await("the load balancer to have an address", func(ctx context.Context) error {
		var s corev1.Service
		if err := w.Get(ctx, &s, "service web"); err != nil {
			return err
		}
		for _, in := range s.Status.LoadBalancer.Ingress {
			if a, err := netip.ParseAddr(in.IP); err == nil && a.Is4() {
				at = netip.AddrPortFrom(a, 80)
				return nil
			}
		}
		return fmt.Errorf("its status is %+v", s.Status)
	})
	w.answers(at)
	w.Step("the load balancer answers at %s", at)

	pod := w.AwaitPods(kubeadm.Web, 2)[0]
	w.Await("the Service to answer by its name", func(ctx context.Context) error {
		said, err := w.On(ctx, kubeadm.First, "kubectl exec "+pod.Name+" -- /echo ask tcp web.default.svc.cluster.local:80")
		if err == nil && !strings.HasPrefix(said, "web-") {
			err = fmt.Errorf("somebody else answers: %q", said)
		}
		return err
	})
	w.Step("the Service's name leads to a pod")
	return at
}

// answers waits for a reply to an external host that contains the host's own address.
func (w *world) answers(at netip.AddrPort) {
	w.T.Helper()
	w.Await("the load balancer to answer", func(ctx context.Context) error {
		answer, err := netlab.Ask(ctx, w.Lab.Outside(), "tcp", at)
		if err == nil && !strings.HasPrefix(answer.Name, "web-") {
			return fmt.Errorf("somebody else answers: %+v", answer)
		}
		return err
	})
}

// connectivity runs underlayctl connectivity, which starts pods of its own and reads their results
// from the kubelets: all paths are open, and a port that is then closed on one node is found.
func (w *world) connectivity() {
	ctx := w.T.Context()
	const command = "underlayctl connectivity --kubeconfig /etc/kubernetes/admin.conf --settle 5s 2>&1"
	said, err := w.On(ctx, kubeadm.First, command)
	if err != nil || !strings.Contains(said, "Everything that was tried is open.") {
		w.T.Fatalf("%v\n%s", err, said)
	}
	w.Step("underlayctl connectivity finds everything open")

	const table = "inet spoilt"
	w.Run("worker-2", "nft add table "+table+" && nft 'add chain "+table+" in { type filter hook prerouting priority -300; }' && "+
		"nft 'add rule "+table+" in iifname \"private\" udp dport 8080 drop'")
	said, err = w.On(ctx, kubeadm.First, command+"; echo exit code $?")
	if err != nil || !strings.Contains(said, "exit code 1") || !strings.Contains(said, "Pods of different nodes: closed over IPv4: to worker-2 alone") {
		w.T.Errorf("what is closed on worker-2 is not found: %v\n%s", err, said)
	}
	w.Run("worker-2", "nft delete table "+table)
	w.Await("the namespace of connectivity to be gone", func(ctx context.Context) error {
		left, err := w.On(ctx, kubeadm.First, "kubectl get namespaces --output name")
		if err == nil && strings.Contains(left, "connectivity") {
			err = errors.New(left)
		}
		return err
	})
	w.Step("underlayctl connectivity finds what is closed on worker-2, and leaves nothing")
}

// rollOut replaces every pod of Underlay, and no packet is lost.
func (w *world) rollOut() {
	w.Undisturbed("agent and CCM were replaced", func() {
		w.Kubectl("-n kube-system rollout restart daemonset/underlay-agent deployment/underlay-ccm")
		w.Follow(kubeadm.First, "kubectl -n kube-system rollout status deployment/underlay-ccm")
		w.Follow(kubeadm.First, "kubectl -n kube-system rollout status daemonset/underlay-agent")
	})
}

// drain drains a node, and the load balancer continues with the other.
func (w *world) drain(service netip.AddrPort) {
	w.Kubectl("drain worker-2 --ignore-daemonsets --delete-emptydir-data")
	for range 20 {
		w.answers(service)
	}
	w.Kubectl("uncordon worker-2")
	w.AwaitPods(kubeadm.Web, 2)
	w.Talk()
	w.Step("worker-2 was drained")
}

// doors are the ranges of a Node that are routed to it from outside.
func (w *world) doors(name string) (ranges []netip.Prefix) {
	w.T.Helper()
	nodes, err := w.Nodes(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	for _, n := range nodes {
		for _, text := range n.Spec.PodCIDRs {
			if r, err := netip.ParsePrefix(text); err == nil && n.Name == name && r.Addr().Is6() {
				ranges = append(ranges, r)
			}
		}
	}
	if len(ranges) == 0 {
		w.T.Fatalf("Node %s has no IPv6 range", name)
	}
	return ranges
}

// closed calls do while an external host sends packets to the pods of a node, and expects no reply.
func (w *world) closed(name string, do func()) {
	w.T.Helper()
	k, err := knock(w.T.Context(), w.Lab.Outside(), kubeadm.EchoPort, w.doors(name)...)
	if err != nil {
		w.T.Fatal(err)
	}
	do()
	sent, answered := k.stop()
	if len(answered) > 0 || sent == 0 {
		w.T.Errorf("somebody outside sent %d packets to pods of %s, and was answered: %v", sent, name, answered)
	}
	w.Step("%d packets from outside to pods of %s, none answered", sent, name)
}

// reboot powers a server off and on.
func (w *world) reboot(name string) {
	w.T.Helper()
	if err := w.Servers[name].Reboot(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
}

// rebootWithAgent is a normal reboot: pods are restarted, and no external host ever reaches one.
func (w *world) rebootWithAgent() {
	w.open("worker-1")
	w.closed("worker-1", func() {
		before := w.restarts("worker-1")
		w.reboot("worker-1")
		w.Await("worker-1's pods to run anew", func(ctx context.Context) error {
			if now := w.restartsNow(ctx, "worker-1"); now == before {
				return fmt.Errorf("they have restarted %q times, as before", now)
			}
			return nil
		})
		w.AwaitReady(3)
		w.AwaitPods(kubeadm.Web, 2)
		w.Talk()
	})
	w.Step("worker-1 was rebooted")
}

// open expects that a pod of another node gets a reply from the same ranges.
func (w *world) open(name string) {
	w.T.Helper()
	for _, p := range w.AwaitPods(kubeadm.Web, 2) {
		if p.Spec.NodeName == name {
			continue
		}
		k, err := knock(w.T.Context(), w.Inside(&p), kubeadm.EchoPort, w.doors(name)...)
		if err != nil {
			w.T.Fatal(err)
		}
		w.Await("a pod to be answered", func(context.Context) error {
			if !k.replied() {
				return errors.New("nobody answers")
			}
			return nil
		})
		k.stop()
	}
}

// restarts lists a node's pods of web, with their numbers of restarts.
func (w *world) restarts(name string) string { return w.restartsNow(w.T.Context(), name) }

func (w *world) restartsNow(ctx context.Context, name string) string {
	pods, err := w.Pods(ctx, kubeadm.Web)
	if err != nil {
		return err.Error()
	}
	var said []string
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if p.Spec.NodeName == name {
				said = append(said, fmt.Sprintf("%s %d", p.Name, c.RestartCount))
			}
		}
	}
	return strings.Join(said, ", ")
}

// rebootWithoutAgent reboots a node on which no agent runs any more: without its packet filter no
// pod starts, until there is an agent again.
func (w *world) rebootWithoutAgent() {
	w.Kubectl("-n kube-system delete daemonset underlay-agent --wait")
	w.closed("worker-1", func() {
		w.reboot("worker-1")
		w.Await("worker-1's kubelet to wait for the network", func(ctx context.Context) error {
			nodes, err := w.Nodes(ctx)
			if err != nil {
				return err
			}
			for _, n := range nodes {
				for _, c := range n.Status.Conditions {
					if n.Name == "worker-1" && c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "cni plugin not initialized") {
						return nil
					}
				}
			}
			return fmt.Errorf("it doesn't say so")
		})
		w.Kubectl("apply -f underlay.yaml")
		w.AwaitReady(3)
		w.AwaitPods(kubeadm.Web, 2)
		w.Talk()
	})
	w.Step("worker-1 was rebooted without an agent")
}

// replaceServer deletes a server, and creates another one that joins by its user data.
func (w *world) replaceServer() {
	if err := w.Return(w.T.Context(), "worker-2"); err != nil {
		w.T.Fatal(err)
	}
	w.AwaitReady(2)
	w.Step("worker-2's server was deleted, and its Node is gone")
	if _, err := w.RentJoined(w.T.Context(), "worker-3"); err != nil {
		w.T.Fatal(err)
	}
	w.AwaitReady(3)
	w.AwaitPods(kubeadm.Web, 2)
	w.Talk()
	w.Step("worker-3 has joined")
}
