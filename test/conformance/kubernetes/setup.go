//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/image"
	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
)

// specImages is the name of the archive with the images that specs pull.
const specImages = "specs.tar"

// patience is how long an installation may take.
const patience = 15 * time.Minute

// setup is a kind of cluster.
type setup struct {
	name    string
	example string // its folder below deploy/kubeadm
	what    string
	metal   bool
	// families reports whether specs run for each choice of families.
	families bool
	// filter chooses specs by their labels.
	// https://onsi.github.io/ginkgo/#spec-labels
	filter string
}

// The names of the set-ups.
const (
	cloud     = "cloud-dual-stack"
	metal     = "metal-dual-stack"
	addresses = "metal-addresses"
)

func setups() []setup {
	const (
		conformance = "sig-network && (Conformance || Feature: containsAny "
		both        = "IPv6DualStack, NetworkPolicy"
		others      = "(Feature: isEmpty && FeatureGate: isEmpty && !Serial && !Disruptive)"
	)
	return []setup{
		{
			name: cloud, example: cloud, what: "Three servers of the simulated cloud in one network, IPv6 from each server's own /64",
			filter: conformance + "{LoadBalancer, " + both + "})",
		},
		{
			name: metal, example: metal, metal: true, what: "Three machines on one segment, with kernel routes between them",
			filter: conformance + "{" + both + "} || " + others + ") && !(Feature: containsAny LoadBalancer)",
		},
		{
			name: addresses, example: metal, metal: true, families: true,
			what: "Three machines on one segment, which hold addresses of Services. Every spec runs three times: with its Services as they are, " +
				"which have IPv4, and with those that a MutatingAdmissionPolicy gives IPv6 or both families",
			filter: "sig-network && Feature: containsAny LoadBalancer",
		},
	}
}

// names are the machines'.
func names() []string { return []string{kubeadm.First, "worker-1", "worker-2"} }

// pack makes the folder with all images, and builds what runs the specs.
func pack(ctx context.Context) (folder string, err error) {
	images, err := specsImages(ctx)
	if err != nil {
		return "", err
	}
	if folder, err = kubeadm.Pack(ctx, os.Stderr); err != nil {
		return "", err
	}
	if err := image.Archive(filepath.Join(folder, specImages), images); err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	return folder, nil
}

// specsImages are those that specs pull.
func specsImages(ctx context.Context) (map[string]image.Image, error) {
	var programs image.SpecPrograms
	var err error
	if programs.Agnhost, err = kubebinary.Agnhost(ctx, os.Stderr); err != nil {
		return nil, err
	}
	if programs.AgnhostSource, err = kubebinary.AgnhostSource(ctx); err != nil {
		return nil, err
	}
	if programs.OutOfWindow, err = kubebinary.OutOfWindow(ctx, os.Stderr); err != nil {
		return nil, err
	}
	machines, err := machine.Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	programs.CoreDNS = machines.Path("image/coredns")
	specs, err := kubebinary.Specs(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	names, err := imageNames(ctx, specs)
	if err != nil {
		return nil, err
	}
	return image.Specs(ctx, programs, names)
}

// install makes a cluster of three machines that have what specs pull.
func (s setup) install(ctx context.Context, c *kubeadm.Cluster, images string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the installation took longer than %s", patience))
	defer cancel()
	for _, name := range names() {
		m, err := c.Rent(ctx, name)
		if err != nil {
			return err
		}
		if err := m.Import(ctx, filepath.Join(images, specImages)); err != nil {
			return err
		}
	}
	if err := errors.Join(c.PutInit(ctx), c.PutManifests()); err != nil {
		return err
	}
	if err := onFirst(ctx, c, "kubeadm init --config init.yaml", "kubectl apply -f underlay.yaml"); err != nil {
		return err
	}
	if !s.metal {
		if _, err := c.Feed(ctx, kubeadm.First, cluster.Token, "kubectl -n kube-system create secret generic hcloud --from-file=token=/dev/stdin"); err != nil {
			return err
		}
	}
	for _, name := range names()[1:] {
		if err := c.PutJoin(ctx, name); err != nil {
			return err
		}
		if _, err := c.On(ctx, name, "kubeadm join --config join.yaml"); err != nil {
			return err
		}
	}
	err := onFirst(ctx, c,
		"kubectl wait --for=condition=Ready node --all --timeout=5m",
		"kubectl -n kube-system rollout status daemonset/underlay-agent --timeout=5m",
		"kubectl -n kube-system rollout status deployment/coredns --timeout=5m",
	)
	if err != nil || !s.families {
		return err
	}
	return setFamilies(ctx, c)
}

// onFirst runs commands on the first server.
func onFirst(ctx context.Context, c *kubeadm.Cluster, commands ...string) error {
	for _, command := range commands {
		if _, err := c.On(ctx, kubeadm.First, command); err != nil {
			return err
		}
	}
	return nil
}
