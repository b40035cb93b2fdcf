package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

const (
	podRange = "10.244.0.0/16"
	// families is how pods' packets are routed: by the cloud for IPv4, and by servers' own prefixes
	// for IPv6.
	families = `families: {ipv4: cloud, ipv6: native}
pools:
  - {name: private, cidr: ` + podRange + `}
  - {name: own, source: node, nodeMask: 80}
`
)

// proxyConfig is kube-proxy's configuration in the example for kubeadm.
func proxyConfig(ctx context.Context) (*corev1.ConfigMap, error) {
	manifests, err := cluster.Manifests(ctx)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(manifests, "kubeadm", "cloud-dual-stack", "init.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		if strings.Contains(document, "kind: KubeProxyConfiguration") {
			return &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: metav1.NamespaceSystem},
				Data:       map[string]string{"config.conf": document},
			}, nil
		}
	}
	return nil, fmt.Errorf("no configuration of kube-proxy in %s", file)
}

// install adds the objects that a user's cluster has and no test needs: the admission policies of
// deploy/ccm, and those that kubeadm creates for programs that run outside of pods here:
// kube-proxy's configuration, and the pod of kube-controller-manager with its arguments.
func install(ctx context.Context, c *cluster.Cluster) error {
	manifests, err := cluster.Manifests(ctx)
	if err != nil {
		return err
	}
	for _, policy := range []string{"podcidr-policy.yaml", "kubelet-policy.yaml"} {
		if err := c.ControlPlane.Apply(ctx, filepath.Join(manifests, "ccm", policy)); err != nil {
			return fmt.Errorf("admission policies: %w", err)
		}
	}
	proxy, err := proxyConfig(ctx)
	if err != nil {
		return err
	}
	maps := c.Client.CoreV1().ConfigMaps(proxy.Namespace)
	_, noProxy := maps.Create(ctx, proxy, metav1.CreateOptions{})
	const kcm = "kube-controller-manager"
	pods := c.Client.CoreV1().Pods(metav1.NamespaceSystem)
	pod, noPod := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: kcm, Labels: map[string]string{"component": kcm}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: kcm, Image: "registry.k8s.io/" + kcm,
			Command: append([]string{kcm}, c.ControlPlane.ControllerManagerArgs()...),
		}}},
	}, metav1.CreateOptions{})
	if err := errors.Join(noProxy, noPod); err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodRunning
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// readerFlags are flags of underlayctl for values that it would otherwise read from underlay-ccm's
// Deployment, which doesn't exist here.
func readerFlags(c *cluster.Cluster) []string {
	return []string{
		"--kubeconfig=" + c.ControlPlane.AdminKubeconfig(), "--token-file=" + c.TokenFile(),
		"--cloud-config=" + filepath.Join(c.ControlPlane.Dir(), "underlay-ccm-1.yaml"),
		"--manager-flag=--allocate-node-cidrs", "--manager-flag=--cluster-cidr=" + podRange,
		"--manager-flag=--service-cluster-ip-range=" + cluster.ServiceRange,
	}
}

// examine runs underlayctl doctor until all of its checks pass, and returns the line that reports
// this. Temporary findings are waited for until ctx ends.
func examine(ctx context.Context, reader string, c *cluster.Cluster) (string, error) {
	var last error
	for {
		doctor := exec.CommandContext(ctx, reader, append(readerFlags(c), "doctor")...)
		out, err := doctor.CombinedOutput()
		line := strings.TrimSpace(string(out))
		if err == nil && strings.HasSuffix(line, " checks pass.") && !strings.Contains(line, "\n") {
			return line, nil
		}
		if ctx.Err() == nil {
			last = fmt.Errorf("underlayctl doctor (%v):\n%s", err, line)
		}
		select {
		case <-ctx.Done():
			return "", errors.Join(context.Cause(ctx), last)
		case <-time.After(time.Second):
		}
	}
}

// examine is the step in which doctor checks the cluster.
func (d *demo) examine(ctx context.Context) error {
	line, err := examine(ctx, d.reader, d.cluster)
	if err == nil {
		d.print("  " + line + "\n")
	}
	return err
}
