//go:build linux

package ha

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
)

// TestUpgrade upgrades a cluster from an older version by the chart, rolls back, and upgrades
// again, while pods exchange packets.
func TestUpgrade(t *testing.T) {
	w := startWorld(t, kubeadm.Tutorial)
	w.installOlder()
	w.deploy()

	w.by(upgrade)
	before := w.handedOut()
	w.unchanged(before, "it was upgraded", func() {
		w.Follow(w.Admin, "helm get values")
		w.Follow(w.Admin, "helm upgrade")
		w.awaitRollouts()
	})
	w.Healthy()
	w.unchanged(before, "it went back to the older version", func() {
		w.Follow(w.Admin, "helm rollback")
		w.awaitRollouts()
	})
	w.unchanged(before, "it was upgraded again", func() {
		w.Follow(w.Admin, "helm upgrade")
		w.awaitRollouts()
	})
	w.Healthy()
}

// installOlder creates the tutorial's cluster with the older version, by its own chart and values.
// Kubernetes itself is installed by today's files.
func (w *world) installOlder() {
	ctx := w.T.Context()
	workers := []string{"worker-1", "worker-2"}
	w.rent(append([]string{kubeadm.First}, workers...)...)
	for name, server := range w.Servers {
		if err := server.Import(ctx, filepath.Join(kubeadm.Packed(), olderImages)); err != nil {
			w.T.Fatal(name, err)
		}
	}
	w.Step("three servers, ready for kubeadm")
	w.putTools(kubeadm.First)
	w.putDeploy(kubeadm.First, filepath.Join(kubeadm.Packed(), olderTree, "deploy"), "/root/older/deploy")
	if err := w.PutInit(ctx); err != nil {
		w.T.Fatal(err)
	}
	w.Follow(kubeadm.First, "kubeadm init")
	w.secret()
	w.Follow(kubeadm.First, "helm install", " deploy/", " older/deploy/", "--set images.registry=", "--set images.tag="+olderTag+" --set images.registry=")
	for _, name := range workers {
		w.Join(name)
	}
	w.awaitRollouts()
	w.AwaitReady(3)
	w.Step("all Nodes are ready, with the older version")
}

// handedOut returns the podCIDRs of nodes, and their records.
func (w *world) handedOut() string {
	w.T.Helper()
	nodes := w.Kubectl(`get nodes -o jsonpath='{range .items[*]}{.metadata.name} {.spec.providerID} {.spec.podCIDRs}{"\n"}{end}'`)
	ledger := w.Kubectl("-n kube-system get configmaps -l app.kubernetes.io/part-of=underlay -o jsonpath='{range .items[*]}{.data}{end}'")
	var routes []string
	for _, r := range w.Lab.Cloud.DataPlane().Networks[0].Routes {
		routes = append(routes, fmt.Sprintf("%s via %s", r.Destination, r.Gateway))
	}
	return fmt.Sprintf("%s\nledger %s\nroutes %s", nodes, ledger, strings.Join(routes, ", "))
}

// unchanged calls do, which must neither lose a packet nor change an assigned podCIDR.
func (w *world) unchanged(before, what string, do func()) {
	w.T.Helper()
	pods := w.images()
	w.Undisturbed(what, do)
	if now := w.handedOut(); now != before {
		w.T.Errorf("before %s there was\n%s\nand now there is\n%s", what, before, now)
	}
	if now := w.images(); now == pods {
		w.T.Errorf("after %s pods run %s, as before", what, now)
	}
}

// images returns the images of Underlay's pods.
func (w *world) images() string {
	return w.Kubectl("-n kube-system get pods -l app.kubernetes.io/part-of=underlay -o jsonpath='{.items[*].spec.containers[*].image}'")
}
