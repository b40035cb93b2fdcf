//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

const (
	system       = metav1.NamespaceSystem
	agentAccount = "underlay-agent"
	proxyAccount = "kube-proxy"
)

// accounts grants agents and kube-proxies the permissions that they have in a cluster: those of
// deploy/agent, and those that kubeadm grants.
func (f *Lab) accounts(ctx context.Context) error {
	manifests, err := cluster.Manifests(ctx)
	if err != nil {
		return err
	}
	agent := filepath.Join(manifests, "agent")
	err = f.ControlPlane.Apply(ctx, filepath.Join(agent, "rbac.yaml"), filepath.Join(agent, "node-status-policy.yaml"), filepath.Join(agent, "events-policy.yaml"))
	if err != nil {
		return fmt.Errorf("permissions of the agents: %w", err)
	}
	meta := metav1.ObjectMeta{Name: proxyAccount, Namespace: system}
	_, err = f.Client.CoreV1().ServiceAccounts(system).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	_, bound := f.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: proxyAccount},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Name: proxyAccount, Namespace: system},
		},
		RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier",
		},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, bound); err != nil {
		return fmt.Errorf("permissions of kube-proxy: %w", err)
	}
	f.proxyKubeconfig, err = f.ControlPlane.Kubeconfig(ctx, system, proxyAccount)
	return err
}

// credentials writes a kubeconfig with a token like that of the agent's pod on the node: it is
// bound to the Node, and valid until the Node is deleted.
func (m *Machine) credentials(ctx context.Context) error {
	config, err := m.lab.ControlPlane.PodConfig(ctx, system, agentAccount, m.Name)
	if err != nil {
		return fmt.Errorf("credentials of the agent on %s: %w", m.Name, err)
	}
	return controlplane.WriteKubeconfig(m.path("kubeconfig"), config)
}
