package controlplane

import (
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// tokenSeconds is the lifetime of a token of Kubeconfig: a day.
const tokenSeconds = 24 * 60 * 60

// AdminConfig is for a client of group system:masters, which has all permissions. Each call returns
// its own copy, without a request limit.
func (c *ControlPlane) AdminConfig() *rest.Config { return rest.CopyConfig(c.admin) }

// AdminKubeconfig is the path of the administrator's kubeconfig.
func (c *ControlPlane) AdminKubeconfig() string {
	return filepath.Join(c.dir, "admin.kubeconfig")
}

// Kubeconfig writes a kubeconfig (mode 0600) with a new token of an existing ServiceAccount, valid
// for a day, and returns its path. RBAC decides on the permissions of that ServiceAccount.
func (c *ControlPlane) Kubeconfig(
	ctx context.Context, namespace, serviceAccount string,
) (string, error) {
	config, err := c.account(ctx, namespace, serviceAccount, authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To[int64](tokenSeconds),
	})
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, fmt.Sprintf("%s.%s.kubeconfig", namespace, serviceAccount))
	return path, WriteKubeconfig(path, config)
}

// PodConfig is for a client with a token like that of a pod of the ServiceAccount on a node: bound
// to the Node, and valid until the Node is deleted.
func (c *ControlPlane) PodConfig(
	ctx context.Context, namespace, serviceAccount, nodeName string,
) (*rest.Config, error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get Node %s for a token that is bound to it: %w", nodeName, err)
	}
	return c.account(ctx, namespace, serviceAccount, authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: node.UID},
	})
}

// account is for a client with a new token of a ServiceAccount.
func (c *ControlPlane) account(
	ctx context.Context, namespace, name string, spec authenticationv1.TokenRequestSpec,
) (*rest.Config, error) {
	granted, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("get a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return &rest.Config{
		Host:            c.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.pem},
		BearerToken:     granted.Status.Token,
	}, nil
}

// KubeletConfig is for a client that acts as the kubelet of one node: the Node authorizer and the
// NodeRestriction admission plugin limit it to that node.
func (c *ControlPlane) KubeletConfig(_ context.Context, nodeName string) (*rest.Config, error) {
	pair, err := c.ca.client("system:node:"+nodeName, "system:nodes")
	if err != nil {
		return nil, fmt.Errorf("identity of node %s: %w", nodeName, err)
	}
	return c.config(pair), nil
}

// WriteKubeconfig writes a kubeconfig (mode 0600) with the credentials of config.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "underlay-test"
	file := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			CertificateAuthorityData: config.CAData,
			InsecureSkipTLSVerify:    config.Insecure,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
	if err := clientcmd.WriteToFile(file, path); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}
