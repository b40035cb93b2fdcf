package controlplane

import (
	"fmt"
	"net/netip"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// writeFiles creates the authorities and writes the files of the programs. The private keys of the
// authorities remain in memory.
func (c *ControlPlane) writeFiles() error {
	var err error
	if c.ca, err = newAuthority("underlay-test"); err != nil {
		return err
	}
	if err := writeSecret(c.dir, "ca.crt", c.ca.pem); err != nil {
		return err
	}
	if err := c.writeServing(); err != nil {
		return err
	}
	if err := c.writeFrontProxy(); err != nil {
		return err
	}
	if err := writeSecret(c.dir, "audit-policy.yaml", []byte(auditPolicy)); err != nil {
		return err
	}
	return c.writeClients()
}

func (c *ControlPlane) writeServing() error {
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	addresses := []netip.Addr{c.port.address().Addr()}
	for _, prefix := range c.options.ServiceCIDRs {
		addresses = append(addresses, prefix.Addr().Next()) // of the Service "kubernetes"
	}
	serving, err := c.ca.server(names, addresses)
	if err != nil {
		return err
	}
	if err := serving.write(c.dir, "apiserver"); err != nil {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	private, err := encodeKey(key)
	if err != nil {
		return err
	}
	return writeSecret(c.dir, "service-account.key", private)
}

// writeFrontProxy creates the second authority of every cluster, which authenticates the API server
// to extension API servers, and nothing else.
func (c *ControlPlane) writeFrontProxy() error {
	ca, err := newAuthority("underlay-test-front-proxy")
	if err != nil {
		return err
	}
	if err := writeSecret(c.dir, "front-proxy-ca.crt", ca.pem); err != nil {
		return err
	}
	client, err := ca.client("front-proxy-client")
	if err != nil {
		return err
	}
	return client.write(c.dir, "front-proxy-client")
}

func (c *ControlPlane) writeClients() error {
	manager, err := c.ca.client("system:kube-controller-manager")
	if err != nil {
		return err
	}
	if err := WriteKubeconfig(filepath.Join(c.dir, "controller-manager.kubeconfig"), c.config(manager)); err != nil {
		return err
	}
	admin, err := c.ca.client("underlay-test-admin", "system:masters")
	if err != nil {
		return err
	}
	c.admin = c.config(admin)
	if err := WriteKubeconfig(c.AdminKubeconfig(), c.admin); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.admin); err != nil {
		return fmt.Errorf("make the administrator's client: %w", err)
	}
	return nil
}

// config is for a client with a certificate. It has no request limit of its own, because tests
// measure the server and the code under test.
func (c *ControlPlane) config(pair keyPair) *rest.Config {
	return &rest.Config{
		Host: c.URL(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.ca.pem,
			CertData: pair.certificate,
			KeyData:  pair.key,
		},
		QPS: -1,
	}
}
