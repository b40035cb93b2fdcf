//go:build linux

package kubeadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

const (
	// tick is how often a stream sends a packet.
	tick = 5 * time.Millisecond
	web  = "app=web"
)

// TestTutorial is what a reader of the tutorial does on three servers, and what happens to such a
// cluster later: rollouts, a drain, reboots, a server that is given back and one that joins.
func TestTutorial(t *testing.T) {
	needMachines(t)
	w := startWorld(t)

	w.install()
	w.deploy()
	w.talk()
	service := w.expose()
	w.healthy()
	w.step("%d of the page's commands led here", w.page.Used())
	if w.page.Used() > 12 {
		t.Errorf("%d commands to a Service that answers are more than somebody wants to type", w.page.Used())
	}

	w.rollOut()
	w.drain(service)
	w.rebootWithAgent()
	w.rebootWithoutAgent()
	w.replaceServer()
	w.healthy()
}

// install makes the cluster.
func (w *world) install() {
	ctx := w.t.Context()
	for _, name := range []string{kubeadm.First, "worker-1", "worker-2"} {
		if _, err := w.Rent(ctx, name); err != nil {
			w.t.Fatal(err)
		}
	}
	w.step("three servers, ready for kubeadm")
	if err := errors.Join(w.PutInit(ctx), w.PutManifests()); err != nil {
		w.t.Fatal(err)
	}
	w.follow(kubeadm.First, "kubeadm init")
	w.step("kubeadm init")
	w.feedPage(kubeadm.First, cluster.Token, "kubectl -n kube-system create secret")
	// Helm isn't here; what it makes of the chart is.
	if _, err := w.page.Command("helm install underlay deploy/chart --namespace kube-system --values deploy/kubeadm/cloud-dual-stack/values.yaml"); err != nil {
		w.t.Fatal(err)
	}
	w.kubectl("apply -f underlay.yaml")
	for _, name := range []string{"worker-1", "worker-2"} {
		w.join(name)
	}
	w.step("the others have joined")
	w.follow(kubeadm.First, "kubectl -n kube-system rollout status deployment/underlay-ccm")
	w.awaitReady(3)
	w.follow(kubeadm.First, "kubectl -n kube-system rollout status daemonset/underlay-agent")
	w.step("all Nodes are ready")
}

// deploy runs two pods on the workers, and one beside them that asks.
func (w *world) deploy() {
	w.follow(kubeadm.First, "kubectl create deployment web", "--image=nginx", "--image="+kubeadm.EchoImage)
	// On different nodes, so that traffic crosses the network.
	w.kubectl(`patch deployment web --patch '{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}},"template":{"spec":{"terminationGracePeriodSeconds":1,` +
		`"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"web"}}}]}}}}}}'`)
	w.kubectl("rollout status deployment/web")
	w.awaitPods(web, 2)
	w.step("two pods answer")
}

// talk lets one pod ask another, in both families, by address and by the Service's name, and
// compares the address that the other saw with the pod's own.
func (w *world) talk() {
	w.t.Helper()
	pods := w.awaitPods(web, 2)
	from, to := pods[0], pods[1]
	if len(addresses(to)) != 2 {
		w.t.Fatalf("pod %s has the addresses %v", to.Name, to.Status.PodIPs)
	}
	for i, a := range addresses(to) {
		for _, network := range []string{"tcp", "udp"} {
			answer, err := netlab.Ask(w.t.Context(), w.inside(from), network, netip.AddrPortFrom(a, kubeadm.EchoPort))
			if err != nil || answer.Name != to.Name || answer.Source.Addr() != addresses(from)[i] {
				w.t.Errorf("%s asks %s at %s over %s: %+v, %v; want it to see %s", from.Name, to.Name, a, network, answer, err, addresses(from)[i])
			}
		}
	}
}

// expose makes the load balancer, and asks it from outside.
func (w *world) expose() netip.AddrPort {
	w.follow(kubeadm.First, "kubectl expose deployment web", "--port=80", "--port=80 --target-port="+fmt.Sprint(kubeadm.EchoPort))
	var at netip.AddrPort
	w.await("the load balancer to have an address", func(ctx context.Context) error {
		var s corev1.Service
		if err := w.get(ctx, &s, "service web"); err != nil {
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
	w.step("the load balancer answers at %s", at)

	pod := w.awaitPods(web, 2)[0]
	w.await("the Service to answer by its name", func(ctx context.Context) error {
		said, err := w.On(ctx, kubeadm.First, "kubectl exec "+pod.Name+" -- /echo ask tcp web.default.svc.cluster.local:80")
		if err == nil && !strings.HasPrefix(said, "web-") {
			err = fmt.Errorf("somebody else answers: %q", said)
		}
		return err
	})
	w.step("the Service's name leads to a pod")
	return at
}

// answers waits until somebody outside is answered, from the address that he has.
func (w *world) answers(at netip.AddrPort) {
	w.t.Helper()
	w.await("the load balancer to answer", func(ctx context.Context) error {
		answer, err := netlab.Ask(ctx, w.Lab.Outside(), "tcp", at)
		if err == nil && !strings.HasPrefix(answer.Name, "web-") {
			return fmt.Errorf("somebody else answers: %+v", answer)
		}
		return err
	})
}

// healthy expects that nothing is wrong with the cluster but that the simulated cloud has no TLS.
func (w *world) healthy() {
	w.t.Helper()
	look, err := w.page.Command("underlayctl doctor")
	if err != nil {
		w.t.Fatal(err)
	}
	w.await("underlayctl doctor to find nothing", func(ctx context.Context) error {
		// Its exit status says whether it found anything.
		out, failed := w.On(ctx, kubeadm.First, look+" -o json")
		var said struct {
			Findings []struct{ Check, Object, What string }
		}
		if err := json.Unmarshal([]byte(out), &said); err != nil {
			return errors.Join(err, failed)
		}
		for _, f := range said.Findings {
			if f.Check != "configuration" || f.Object != "endpoint" {
				return fmt.Errorf("%+v", f)
			}
		}
		return nil
	})
	w.step("underlayctl doctor finds nothing")
}

// rollOut replaces every pod of ours, and no packet is lost.
func (w *world) rollOut() {
	pods := w.awaitPods(web, 2)
	from := w.inside(pods[0])
	var streams []*netlab.Stream
	for _, a := range addresses(pods[1]) {
		s, err := netlab.StartStream(w.t.Context(), from, netip.AddrPortFrom(a, kubeadm.EchoPort), tick)
		if err != nil {
			w.t.Fatal(err)
		}
		streams = append(streams, s)
	}
	w.kubectl("-n kube-system rollout restart daemonset/underlay-agent deployment/underlay-ccm")
	w.follow(kubeadm.First, "kubectl -n kube-system rollout status deployment/underlay-ccm")
	w.follow(kubeadm.First, "kubectl -n kube-system rollout status daemonset/underlay-agent")
	for _, s := range streams {
		if got := s.Stop(); got.Lost > 0 || got.Repeated > 0 || got.Sent == 0 {
			w.t.Errorf("while everything of ours was replaced: %+v", got)
		}
	}
	w.step("agent and CCM were replaced")
}

// drain takes the pods off a node, and the load balancer goes on by the other.
func (w *world) drain(service netip.AddrPort) {
	w.kubectl("drain worker-2 --ignore-daemonsets --delete-emptydir-data")
	for range 20 {
		w.answers(service)
	}
	w.kubectl("uncordon worker-2")
	w.awaitPods(web, 2)
	w.talk()
	w.step("worker-2 was drained")
}

// doors are the ranges of a Node that somebody outside can send packets to.
func (w *world) doors(name string) (ranges []netip.Prefix) {
	w.t.Helper()
	nodes, err := w.nodes(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range nodes {
		for _, text := range n.Spec.PodCIDRs {
			if r, err := netip.ParsePrefix(text); err == nil && n.Name == name && r.Addr().Is6() {
				ranges = append(ranges, r)
			}
		}
	}
	if len(ranges) == 0 {
		w.t.Fatalf("Node %s has no IPv6 range", name)
	}
	return ranges
}

// closed does something while somebody outside knocks at the pods of a node, and expects that
// nobody answers.
func (w *world) closed(name string, do func()) {
	w.t.Helper()
	k, err := knock(w.t.Context(), w.Lab.Outside(), kubeadm.EchoPort, w.doors(name)...)
	if err != nil {
		w.t.Fatal(err)
	}
	do()
	sent, answered := k.stop()
	if len(answered) > 0 || sent == 0 {
		w.t.Errorf("somebody outside sent %d packets to pods of %s, and was answered: %v", sent, name, answered)
	}
	w.step("%d packets from outside to pods of %s, none answered", sent, name)
}

// reboot pulls a server's plug and switches it on again.
func (w *world) reboot(name string) {
	w.t.Helper()
	if err := w.Servers[name].Reboot(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// rebootWithAgent is a reboot as it should be: pods come back, and nobody outside ever reaches one.
func (w *world) rebootWithAgent() {
	w.open("worker-1")
	w.closed("worker-1", func() {
		before := w.restarts("worker-1")
		w.reboot("worker-1")
		w.await("worker-1's pods to run anew", func(ctx context.Context) error {
			if now := w.restartsNow(ctx, "worker-1"); now == before {
				return fmt.Errorf("they have restarted %q times, as before", now)
			}
			return nil
		})
		w.awaitReady(3)
		w.awaitPods(web, 2)
		w.talk()
	})
	w.step("worker-1 was rebooted")
}

// open expects that a pod of another node, who knocks at the same doors, is answered.
func (w *world) open(name string) {
	w.t.Helper()
	for _, p := range w.awaitPods(web, 2) {
		if p.Spec.NodeName == name {
			continue
		}
		k, err := knock(w.t.Context(), w.inside(p), kubeadm.EchoPort, w.doors(name)...)
		if err != nil {
			w.t.Fatal(err)
		}
		w.await("a pod to be answered", func(context.Context) error {
			if !k.heard() {
				return errors.New("nobody answers")
			}
			return nil
		})
		k.stop()
	}
}

// restarts tells a node's pods of web, and how often they were started.
func (w *world) restarts(name string) string { return w.restartsNow(w.t.Context(), name) }

func (w *world) restartsNow(ctx context.Context, name string) string {
	pods, err := w.pods(ctx, web)
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

// rebootWithoutAgent is a reboot of a node on which no agent runs any more: without its packet
// filter there is no pod either, until there is an agent again.
func (w *world) rebootWithoutAgent() {
	w.kubectl("-n kube-system delete daemonset underlay-agent --wait")
	w.closed("worker-1", func() {
		w.reboot("worker-1")
		w.await("worker-1's kubelet to wait for the network", func(ctx context.Context) error {
			nodes, err := w.nodes(ctx)
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
		w.kubectl("apply -f underlay.yaml")
		w.awaitReady(3)
		w.awaitPods(web, 2)
		w.talk()
	})
	w.step("worker-1 was rebooted without an agent")
}

// replaceServer gives a server back, and lets another one join by its user data.
func (w *world) replaceServer() {
	if err := w.Return(w.t.Context(), "worker-2"); err != nil {
		w.t.Fatal(err)
	}
	w.awaitReady(2)
	w.step("worker-2's server was deleted, and its Node is gone")
	if _, err := w.RentJoined(w.t.Context(), "worker-3"); err != nil {
		w.t.Fatal(err)
	}
	w.awaitReady(3)
	w.awaitPods(web, 2)
	w.talk()
	w.step("worker-3 has joined")
}
