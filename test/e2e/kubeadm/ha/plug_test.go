//go:build linux

package ha

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
)

// endpoint replaces the first API server's address by that of the load balancer.
var endpoint = []string{"10.0.0.2:6443", "10.0.0.254:6443"}

// TestSeveralControlPlanes is a cluster with three control-plane nodes, of which one loses its
// power while pods exchange packets, and a node that joins while another one boots.
func TestSeveralControlPlanes(t *testing.T) {
	w := startWorld(t, several)
	w.install()
	w.deploy()
	w.Healthy()
	gone := w.pullPlug()
	w.bringBack(gone)
	w.joinDuringReboot()
	w.Healthy()
}

// install creates the cluster: three control-plane nodes and two workers.
func (w *world) install() {
	ctx := w.T.Context()
	w.rent(kubeadm.First, "control-2", "control-3", "worker-1", "worker-2")
	w.Step("five servers, ready for kubeadm")
	w.balance()

	w.putTools(kubeadm.First)
	if err := w.PutInit(ctx); err != nil {
		w.T.Fatal(err)
	}
	w.Follow(kubeadm.First, "sed -i", "deploy/kubeadm/cloud-dual-stack/*.yaml", "deploy/kubeadm/cloud-dual-stack/*.yaml init.yaml")
	printed := w.Follow(kubeadm.First, "kubeadm init --config")
	w.Step("kubeadm init")
	w.secret()
	w.Follow(kubeadm.First, "helm install")
	w.joinControlPlane("control-2", keyIn(w.T, `--certificate-key (\S+)`, printed))
	// A key that is created later works like the first one.
	w.joinControlPlane("control-3", keyIn(w.T, `(?m)^([0-9a-f]{64})$`, w.Follow(kubeadm.First, "kubeadm init phase upload-certs")))
	w.Step("three control-plane nodes")
	for _, name := range []string{"worker-1", "worker-2"} {
		w.Join(name, endpoint...)
	}
	w.awaitRollouts()
	w.AwaitReady(5)
	w.Step("all Nodes are ready")
}

// balance creates the load balancer of the API servers, before there are any.
func (w *world) balance() {
	w.T.Helper()
	for _, begins := range []string{
		"hcloud load-balancer create", "hcloud load-balancer attach-to-network", "hcloud load-balancer disable-public-interface",
		"hcloud load-balancer add-service", "hcloud load-balancer update-service", "for name in control-1",
	} {
		command, err := w.Page.Command(begins)
		if err != nil {
			w.T.Fatal(err)
		}
		w.hcloud(command)
	}
	w.Step("the load balancer in front of the API servers was made")
}

// keyIn returns the certificate key in kubeadm's output.
func keyIn(t testing.TB, pattern, printed string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(printed)
	if found == nil {
		t.Fatalf("kubeadm prints no key:\n%s", printed)
	}
	return found[1]
}

// joinControlPlane joins a server as a control-plane node, with the page's additions to join.yaml.
func (w *world) joinControlPlane(name, key string) {
	w.T.Helper()
	server := w.Servers[name]
	lines, err := w.Page.Block("yaml", "10.0.0.3", server.Cables.Private.String(), strings.Repeat("0", 64), key)
	if err == nil {
		err = w.PutJoin(w.T.Context(), name, endpoint...)
	}
	if err != nil {
		w.T.Fatal(err)
	}
	w.Type(name, lines, "cat >>join.yaml")
	w.Follow(name, "kubeadm join")
}

// lease returns the holder of the lease for leader election.
func (w *world) lease(ctx context.Context) (server string, since time.Time, err error) {
	var l coordinationv1.Lease
	// The API server of the last response may be the one that was lost.
	if err := w.Get(ctx, &l, "--request-timeout=2s -n kube-system lease cloud-controller-manager"); err != nil {
		return "", time.Time{}, err
	}
	if l.Spec.HolderIdentity == nil || l.Spec.AcquireTime == nil {
		return "", time.Time{}, errors.New("nobody holds it")
	}
	server, _, _ = strings.Cut(*l.Spec.HolderIdentity, "_")
	return server, l.Spec.AcquireTime.Time, nil
}

// pullPlug powers off the machine of the leading replica: another one becomes leader, and
// initializes a node that joins then. Pods don't lose a packet.
func (w *world) pullPlug() (gone string) {
	gone, _, err := w.lease(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	for _, name := range []string{kubeadm.First, "control-2", "control-3"} {
		if name != gone {
			w.Admin = name
		}
	}
	w.rent("worker-3")
	w.Undisturbed("the leader's machine lost its power and a node joined", func() {
		if err := w.Servers[gone].CutPower(w.T.Context()); err != nil {
			w.T.Fatal(err)
		}
		cut := time.Now()
		w.Step("%s, where the leading replica runs, has no power", gone)
		var leads string
		var since time.Time
		w.Await("another replica to lead", func(ctx context.Context) (err error) {
			if leads, since, err = w.lease(ctx); err == nil && leads == gone {
				err = fmt.Errorf("%s does", leads)
			}
			return err
		})
		w.Step("%s leads, %.1f s after that", leads, since.Sub(cut).Seconds())
		if shown := w.Follow(w.Admin, "kubectl -n kube-system get lease"); !strings.Contains(shown, leads+"_") {
			w.T.Errorf("the page's command shows\n%s", shown)
		}

		began := time.Now()
		w.Join("worker-3", endpoint...)
		w.awaitServed("worker-3")
		w.Step("worker-3 is served %.1f s after it began to join", time.Since(began).Seconds())
	})
	return gone
}

// awaitServed waits until a Node can run pods.
func (w *world) awaitServed(name string) {
	w.T.Helper()
	w.Await(name+" to be served", func(ctx context.Context) error {
		var n corev1.Node
		if err := w.Get(ctx, &n, "node "+name); err != nil {
			return err
		}
		return kubeadm.Served(&n)
	})
}

// bringBack powers the machine on again, which rejoins by itself.
func (w *world) bringBack(name string) {
	if err := w.Servers[name].Reboot(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
	w.AwaitReady(6)
	w.awaitRollouts()
	w.Talk()
	w.Step("%s is back", name)
}

// joinDuringReboot joins a node while another one boots.
func (w *world) joinDuringReboot() {
	w.together(
		func(ctx context.Context) error { return w.Servers["worker-1"].Reboot(ctx) },
		func(ctx context.Context) error {
			_, err := w.RentJoined(ctx, "worker-4", endpoint...)
			return err
		},
	)
	w.AwaitReady(7)
	w.AwaitPods(kubeadm.Web, 2)
	w.Talk()
	w.Step("worker-4 has joined while worker-1 was rebooted")
}
