//go:build linux

// Package ha tests later events of clusters by the pages about them: the loss of one of several
// control-plane nodes, upgrades, reboots, and the removal. It takes some ten minutes and is no part
// of "make test"; "make kubeadm-ha" runs it.
package ha

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// The pages that the tests follow.
const (
	several = "docs/how-to/several-control-planes.md"
	upgrade = "docs/how-to/upgrade.md"
	remove  = "docs/how-to/remove.md"
)

// helm is the variable with the path of the program helm, which "make kubeadm-ha" builds.
const helm = "UNDERLAY_HELM"

func TestMain(m *testing.M) { os.Exit(kubeadm.RunTests(m, packOlder)) }

// world is a cluster that a test installs.
type world struct{ *kubeadm.TestCluster }

// startWorld starts the cloud for a test that follows a page, without servers.
func startWorld(t *testing.T, page string) *world {
	t.Helper()
	kubeadm.NeedMachines(t)
	if os.Getenv(helm) == "" {
		t.Fatalf("%s names no program: run this by make kubeadm-ha", helm)
	}
	// The machines use this host's programs.
	if _, err := exec.LookPath("hcloud"); err != nil {
		t.Fatalf("%v: install Debian's package hcloud-cli", err)
	}
	return &world{kubeadm.StartT(t, page, kubeadm.Options{Dir: t.TempDir(), Packed: kubeadm.Packed()})}
}

// by switches the test to another page.
func (w *world) by(page string) {
	w.T.Helper()
	p, err := kubeadm.ReadPage(w.T.Context(), page)
	if err != nil {
		w.T.Fatal(err)
	}
	w.Page = p
}

// rent creates servers, ready for kubeadm.
func (w *world) rent(names ...string) {
	w.T.Helper()
	for _, name := range names {
		if _, err := w.Rent(w.T.Context(), name); err != nil {
			w.T.Fatal(err)
		}
	}
}

// putTools gives a server its administrator's tools: helm, and the folder deploy of a source tree,
// with the simulated cloud's endpoint in the values.
func (w *world) putTools(name string) {
	w.T.Helper()
	program, err := os.ReadFile(os.Getenv(helm))
	if err == nil {
		err = w.Servers[name].WriteFile("/usr/local/bin/helm", program, 0o755)
	}
	if err != nil {
		w.T.Fatal(err)
	}
	deploy, err := cluster.Manifests(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	w.putDeploy(name, deploy, "/root/deploy")
}

// putDeploy copies a folder deploy to a server.
func (w *world) putDeploy(name, deploy, to string) {
	w.T.Helper()
	if err := os.CopyFS(filepath.Join(w.Servers[name].Root(), to), os.DirFS(deploy)); err != nil {
		w.T.Fatal(err)
	}
	w.Run(name, fmt.Sprintf(`sed -i 's|^  network: cluster$|&\n  endpoint: http://%s/v1|' %s/kubeadm/cloud-dual-stack/values.yaml`, netlab.CloudAddress, to))
}

// secret stores the cloud's token in the cluster, by the page's command.
func (w *world) secret() {
	w.T.Helper()
	w.FollowTyping(w.Admin, cluster.Token, "kubectl -n kube-system create secret")
}

// hcloud runs a command of the program hcloud with the simulated cloud's endpoint.
func (w *world) hcloud(command string) {
	w.T.Helper()
	w.Run(w.Admin, "export HCLOUD_ENDPOINT=http://"+netlab.CloudAddress+"/v1; "+command)
}

// awaitRollouts waits for the page's rollouts to end.
func (w *world) awaitRollouts() {
	w.T.Helper()
	w.Follow(w.Admin, "kubectl -n kube-system rollout status deployment/underlay-ccm")
	w.Follow(w.Admin, "kubectl -n kube-system rollout status daemonset/underlay-agent")
}

// deploy runs two pods on different workers.
func (w *world) deploy() {
	w.T.Helper()
	tutorial, err := kubeadm.ReadPage(w.T.Context(), kubeadm.Tutorial)
	if err != nil {
		w.T.Fatal(err)
	}
	w.Deploy(tutorial)
	w.Talk()
}

// together calls functions concurrently and waits for all. Each error ends the test.
func (w *world) together(do ...func(context.Context) error) {
	w.T.Helper()
	failed := make(chan error)
	for _, f := range do {
		go func() { failed <- f(w.T.Context()) }()
	}
	for range do {
		if err := <-failed; err != nil {
			w.T.Error(err)
		}
	}
	if w.T.Failed() {
		w.T.FailNow()
	}
}
