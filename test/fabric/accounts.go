//go:build linux

package fabric

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/underlay-ccm/underlay/test/cluster"
)

const (
	system       = metav1.NamespaceSystem
	agentAccount = "underlay-agent"
	proxyAccount = "kube-proxy"
)

// accounts gives agents and kube-proxies the permissions that they have in a
// cluster: those of deploy/agent, and those that kubeadm grants.
func (f *Fabric) accounts(ctx context.Context) error {
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
	_, err = f.Client.CoreV1().ServiceAccounts(system).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	_, bound := f.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: proxyAccount},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: proxyAccount, Namespace: system}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, bound); err != nil {
		return fmt.Errorf("permissions of kube-proxy: %w", err)
	}
	f.proxyKubeconfig, err = f.ControlPlane.Kubeconfig(ctx, system, proxyAccount)
	return err
}

// credentials writes a kubeconfig with a token as the agent's pod on that node
// has it: bound to the Node, and good until that is deleted.
func (m *Machine) credentials(ctx context.Context) error {
	client := m.fabric.Client
	node, err := client.CoreV1().Nodes().Get(ctx, m.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	granted, err := client.CoreV1().ServiceAccounts(system).CreateToken(ctx, agentAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Node", Name: m.Name, UID: node.UID,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("credentials of the agent on %s: %w", m.Name, err)
	}
	admin := m.fabric.ControlPlane.AdminConfig()
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"fabric": {Server: admin.Host, CertificateAuthorityData: admin.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"fabric": {Token: granted.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"fabric": {Cluster: "fabric", AuthInfo: "fabric"}},
		CurrentContext: "fabric",
	}, m.path("kubeconfig"))
}
