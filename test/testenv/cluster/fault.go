package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/underlay-ccm/underlay/test/testenv/faultproxy"
)

// StartProxy starts a fault-injecting proxy in front of the API server. Programs use it by
// --master: it presents the API server's own certificate, which is valid for every port of
// loopback.
func (c *Cluster) StartProxy() (*faultproxy.Proxy, error) {
	dir := c.ControlPlane.Dir()
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "apiserver.crt"), filepath.Join(dir, "apiserver.key"))
	if err != nil {
		return nil, fmt.Errorf("certificate of the faulting proxy: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("authority behind the faulting proxy: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("authority behind the faulting proxy: no certificate in ca.crt")
	}
	return faultproxy.Start(faultproxy.Options{
		Upstream: c.ControlPlane.URL(), Roots: roots, Certificate: certificate,
	})
}
