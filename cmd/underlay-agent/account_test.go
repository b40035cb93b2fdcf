//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

const manifests = "../../deploy/agent"

// agentAccount returns a kubeconfig of the ServiceAccount with a token like that of a pod on the
// node.
func agentAccount(
	t *testing.T, cp *controlplane.ControlPlane, node string,
) (kubeconfig string, client kubernetes.Interface) {
	t.Helper()
	config, err := cp.PodConfig(t.Context(), "kube-system", "underlay-agent", node)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	client, err = kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig, client
}

// ownStatusOnly tests at the API server which writes are allowed for an agent on the Node self.
func ownStatusOnly(t *testing.T, account kubernetes.Interface) {
	patch := func(ctx context.Context, node, text string, subresource ...string) error {
		_, err := account.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(text),
			metav1.PatchOptions{}, subresource...)
		return err
	}
	const condition = `{"status":{"conditions":[{"type":"underlay.dev/PeersReachable","status":"Unknown"}]}}`
	// A policy takes effect some time after it was written.
	await(t, "the policy refuses another Node", func(ctx context.Context) bool {
		err := patch(ctx, "b", condition, "status")
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "the status of its own Node")
	})
	if err := patch(t.Context(), "self", condition, "status"); err != nil {
		t.Errorf("a condition of its own Node: %v", err)
	}
	for what, err := range map[string]error{
		"addresses of its own Node": patch(t.Context(), "self", `{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.99"}]}}`, "status"),
		"labels of its own Node":    patch(t.Context(), "self", `{"metadata":{"labels":{"a":"b"}}}`),
		"the same through status":   patch(t.Context(), "self", `{"metadata":{"labels":{"a":"b"}}}`, "status"),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want forbidden", what, err)
		}
	}
}

// TestDaemonSet compares the manifest with the program and its permissions.
func TestDaemonSet(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(manifests, "daemonset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(content, &set); err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	container := pod.Containers[0]
	command := newCommand()
	sub, args, err := command.Find(container.Args)
	if err != nil || sub.Name() != "run" {
		t.Fatalf("the arguments are those of %q: %v", sub.Name(), err)
	}
	if err := sub.ParseFlags(args); err != nil {
		t.Errorf("the arguments: %v", err)
	}
	security := container.SecurityContext
	if !slices.Equal(security.Capabilities.Add, []corev1.Capability{"NET_ADMIN"}) || !slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("capabilities %+v", security.Capabilities)
	}
	if !*security.ReadOnlyRootFilesystem || *security.AllowPrivilegeEscalation ||
		security.Privileged != nil || !pod.HostNetwork {
		t.Errorf("security %+v, host network %t", security, pod.HostNetwork)
	}
	mounts := map[string]bool{}
	for _, m := range container.VolumeMounts {
		mounts[m.MountPath] = !m.ReadOnly
	}
	for flag, writable := range map[string]bool{"cni-conf-dir": true, "cni-bin-dir": false, "sysctls": true, "state-dir": true} {
		value := strings.Trim(sub.Flags().Lookup(flag).Value.String(), "[]")
		if flag == "sysctls" {
			value += "/net"
		}
		if got, mounted := mounts[value]; !mounted || got != writable {
			t.Errorf("--%s %s: mounted %t, writable %t", flag, value, mounted, got)
		}
	}
	state := sub.Flags().Lookup("state-dir").Value.String()
	at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil && v.HostPath.Path == state
	})
	mount := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == state
	})
	if at < 0 || mount < 0 || container.VolumeMounts[mount].Name != pod.Volumes[at].Name {
		t.Errorf("--state-dir %s is another folder on the host, where the link of the CNI configuration leads", state)
	}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			t.Errorf("the agent is given the Secret %s", v.Secret.SecretName)
		}
	}
}
