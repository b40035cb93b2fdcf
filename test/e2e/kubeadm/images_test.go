//go:build linux

package kubeadm

import (
	"archive/tar"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/underlay-ccm/underlay/test/testenv/dockerfile"
	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
)

// The archives contain the files that the Dockerfile lists, and the images that kubeadm pulls.
func TestImages(t *testing.T) {
	kubeadm.NeedMachines(t)
	stages, err := dockerfile.Read(tree + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string][]string{
		"ccm": {"/etc/ssl/certs/ca-certificates.crt", "/underlay-ccm"},
		// Without nft's libraries, which are this machine's.
		"agent": {"/opt/cni/bin/host-local", "/opt/cni/bin/portmap", "/opt/cni/bin/ptp", "/underlay-agent", "/usr/sbin/nft"},
	} {
		stage := stages[target]
		name, err := kubeadm.ImageOf(target)
		if err != nil {
			t.Fatal(err)
		}
		config, files := unpack(t, "underlay.tar", name)
		if entrypoint, err := stage.Entrypoint(); err != nil ||
			!slices.Equal(config.Entrypoint, entrypoint) {
			t.Errorf("%s: entry point %q, want %q (%v)", target, config.Entrypoint, entrypoint, err)
		}
		if user := stage.Last("USER"); config.User != user || user == "" {
			t.Errorf("%s: user %q, want %q", target, config.User, user)
		}
		if labels := stage.All("LABEL"); len(config.Labels) != len(labels) {
			t.Errorf("%s: labels %v, want %v", target, config.Labels, labels)
		}
		files = slices.DeleteFunc(files, func(f string) bool { return strings.HasPrefix(f, "/lib") })
		if !slices.Equal(files, want) {
			t.Errorf("%s: it holds %v, want %v", target, files, want)
		}
	}
	for name, want := range map[string]string{"pause:3.10.2": "/pause", "coredns/coredns:v1.14.6": "/coredns", "kube-apiserver:v1.37.1": "/usr/local/bin/kube-apiserver"} {
		if config, _ := unpack(t, "kubernetes.tar", "registry.k8s.io/"+name); !slices.Equal(config.Entrypoint, []string{want}) {
			t.Errorf("%s: entry point %q, want %q", name, config.Entrypoint, want)
		}
	}
}

// unpack returns an image's configuration and the names of its files.
func unpack(t *testing.T, archive, full string) (v1.Config, []string) {
	t.Helper()
	tag, err := name.NewTag(full)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := tarball.ImageFromPath(filepath.Join(kubeadm.Packed(), archive), &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := packed.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	content := mutate.Extract(packed)
	defer content.Close()
	var files []string
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(files)
			return config.Config, files
		}
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, "/"+header.Name)
	}
}
