//go:build linux

package kubeadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// Web is the label of the pods that Deploy creates.
const Web = "app=web"

// Every is the interval of a stream's packets.
const Every = 5 * time.Millisecond

// Deploy runs two pods with an echo, on different nodes, by the tutorial's command.
func (w *TestCluster) Deploy(tutorial *Page) {
	w.T.Helper()
	create, err := tutorial.Command("kubectl create deployment web", "--image=nginx", "--image="+EchoImage)
	if err != nil {
		w.T.Fatal(err)
	}
	w.Run(w.Admin, create)
	// On different nodes, so that traffic crosses the network.
	w.Kubectl(`patch deployment web --patch '{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}},"template":{"spec":{"terminationGracePeriodSeconds":1,` +
		`"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"web"}}}]}}}}}}'`)
	w.Kubectl("rollout status deployment/web")
	w.AwaitPods(Web, 2)
	w.Step("two pods answer")
}

// Talk sends requests from one pod to another, in both families, by address and by the Service's
// name, and compares the source that the other observed with the pod's own address.
func (w *TestCluster) Talk() {
	w.T.Helper()
	pods := w.AwaitPods(Web, 2)
	from, to := &pods[0], &pods[1]
	if len(Addresses(to)) != 2 {
		w.T.Fatalf("pod %s has the addresses %v", to.Name, to.Status.PodIPs)
	}
	for i, a := range Addresses(to) {
		for _, network := range []string{"tcp", "udp"} {
			reply, err := netlab.Ask(w.T.Context(), w.Inside(from), network, netip.AddrPortFrom(a, EchoPort))
			if err != nil || reply.Name != to.Name || reply.Source.Addr() != Addresses(from)[i] {
				w.T.Errorf("%s asks %s at %s over %s: %+v, %v; want it to see %s", from.Name, to.Name, a, network, reply, err, Addresses(from)[i])
			}
		}
	}
}

// Undisturbed calls do while the two pods exchange packets in both families, and expects that none
// is lost.
func (w *TestCluster) Undisturbed(what string, do func()) {
	w.T.Helper()
	pods := w.AwaitPods(Web, 2)
	from := w.Inside(&pods[0])
	var streams []*netlab.Stream
	for _, a := range Addresses(&pods[1]) {
		s, err := netlab.StartStream(w.T.Context(), from, netip.AddrPortFrom(a, EchoPort), Every)
		if err != nil {
			w.T.Fatal(err)
		}
		streams = append(streams, s)
	}
	do()
	sent := 0
	for _, s := range streams {
		got := s.Stop()
		if got.Lost > 0 || got.Repeated > 0 || got.Sent == 0 {
			w.T.Errorf("while %s: %+v", what, got)
		}
		sent += got.Sent
	}
	w.Step("%d packets were sent while %s", sent, what)
}

// Healthy expects no finding except that the simulated cloud has no TLS.
func (w *TestCluster) Healthy() {
	w.T.Helper()
	look, err := w.Page.Command("underlayctl doctor")
	if err != nil {
		w.T.Fatal(err)
	}
	w.Await("underlayctl doctor to find nothing", func(ctx context.Context) error {
		// Its exit status reports whether there are findings.
		out, failed := w.On(ctx, w.Admin, look+" -o json")
		var output struct {
			Findings []struct{ Check, Object, What string }
		}
		if err := json.Unmarshal([]byte(out), &output); err != nil {
			return errors.Join(err, failed)
		}
		for _, f := range output.Findings {
			if f.Check != "configuration" || f.Object != "endpoint" {
				return fmt.Errorf("%+v", f)
			}
		}
		return nil
	})
	w.Step("underlayctl doctor finds nothing")
}
