// Package kubeadm tests the configurations in deploy/kubeadm with the code of kubeadm, kubelet,
// kube-proxy and kube-controller-manager: their own decoders, defaults, validation and flags, at
// the version of the tests' control plane.
//
// It has tests only, so that the control plane's binary doesn't depend on it.
package kubeadm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmutil "k8s.io/kubernetes/cmd/kubeadm/app/util"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/config"
)

// examples are the folders of deploy/kubeadm, each a cluster.
func examples(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("../../../deploy/kubeadm/*/init.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 4 {
		t.Fatalf("found only %v, there are more", found)
	}
	for i, path := range found {
		found[i] = filepath.Dir(path)
	}
	return found
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// initConfiguration is the configuration of "kubeadm init --config", after its defaults and its
// validation.
func initConfiguration(t *testing.T, folder string) *kubeadmapi.InitConfiguration {
	t.Helper()
	loaded, err := config.BytesToInitConfiguration([]byte(read(t, folder, "init.yaml")), true)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func joinConfiguration(t *testing.T, folder string) *kubeadmapi.JoinConfiguration {
	t.Helper()
	loaded, err := config.BytesToJoinConfiguration([]byte(read(t, folder, "join.yaml")),
		config.LoadOrDefaultConfigurationOptions{SkipCRIDetect: true})
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// As "kubeadm config validate" does it: unknown and repeated keys are errors.
func TestDecodedStrictly(t *testing.T) {
	kinds := map[string][]string{
		"init.yaml": {"ClusterConfiguration", "InitConfiguration", "KubeProxyConfiguration", "KubeletConfiguration"},
		"join.yaml": {"JoinConfiguration"},
	}
	for _, folder := range examples(t) {
		for file, want := range kinds {
			content := []byte(read(t, folder, file))
			if err := config.ValidateConfig(content, false, false); err != nil {
				t.Errorf("%s/%s: %v", folder, file, err)
			}
			documents, err := kubeadmutil.SplitConfigDocuments(content)
			if err != nil {
				t.Errorf("%s/%s: %v", folder, file, err)
			}
			if got := kindsOf(documents); !slices.Equal(got, want) {
				t.Errorf("%s/%s has %v, want %v", folder, file, got, want)
			}
		}
	}
}

func kindsOf(documents map[schema.GroupVersionKind][]byte) []string {
	var kinds []string
	for gvk := range documents {
		kinds = append(kinds, gvk.Kind)
	}
	slices.Sort(kinds)
	return kinds
}

// The strictness that the test above relies on.
func TestMistakesAreRefused(t *testing.T) {
	folder := examples(t)[0]
	for _, c := range []struct{ name, file, old, new string }{
		{"unknown key of kubeadm", "init.yaml", "  podSubnet:", "  podsSubnet:"},
		{"unknown key of a joining node", "join.yaml", "  bootstrapToken:", "  bootstrapTokens:"},
		{"unknown key of kubelet", "init.yaml", "maxPods:", "maximumPods:"},
		{"unknown key of kube-proxy", "init.yaml", "nodePortAddresses:", "nodeportAddresses:"},
		{"repeated key", "init.yaml", "mode: nftables", "mode: nftables\nmode: iptables"},
		{"unknown version", "init.yaml", "kubeadm.k8s.io/v1beta4", "kubeadm.k8s.io/v1beta5"},
		{"arguments as a map, as before v1beta4", "join.yaml", "    - name: cloud-provider\n      value: external\n", "      cloud-provider: external\n"},
	} {
		good := read(t, folder, c.file)
		bad := strings.Replace(good, c.old, c.new, 1)
		if bad == good {
			t.Errorf("%s: %q is not in %s", c.name, c.old, c.file)
			continue
		}
		if err := config.ValidateConfig([]byte(bad), false, false); err == nil {
			t.Errorf("%s: %s is accepted", c.name, c.file)
		}
	}
}

// The version is the one that all of this was tested with.
func TestVersionIsTheTestedOne(t *testing.T) {
	module := read(t, "..", "go.mod")
	for _, folder := range examples(t) {
		version := initConfiguration(t, folder).KubernetesVersion
		if !strings.Contains(module, "k8s.io/kubernetes "+version+"\n") {
			t.Errorf("%s: kubernetesVersion %s is not what test/kube/go.mod requires", folder, version)
		}
	}
}
