//go:build linux

package packets

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// overTLS reaches a pod by a Service whose load balancer obtains a certificate and terminates TLS
// with it.
func overTLS(t *testing.T, f *netlab.Lab) {
	const host = "www.example.com"
	pod := runPods(t, f, map[string]string{"app": "sealed"}, [2]string{"sealed", "one"})[0]
	serveWeb(t, pod, false)
	s := publish(t, f, "sealed", "sealed", corev1.ServiceExternalTrafficPolicyLocal, map[string]string{
		"load-balancer.hetzner.cloud/protocol":                         "https",
		"load-balancer.hetzner.cloud/certificate-type":                 "managed",
		"load-balancer.hetzner.cloud/http-managed-certificate-domains": host,
	})
	s.awaitHealth(t, "one healthy, three unhealthy, two unhealthy")
	pairs := f.Cloud.KeyPairs(s.balancer, frontage)
	if len(pairs) != 1 {
		t.Fatalf("the load balancer has %d certificates, want one", len(pairs))
	}
	roots := x509.NewCertPool()
	roots.AddCert(pairs[0].Leaf)
	for _, address := range []netip.Addr{s.ipv4, s.ipv6} {
		got, err := requestOverTLS(t.Context(), f, address, &tls.Config{RootCAs: roots, ServerName: host})
		if err != nil || !strings.HasPrefix(got, "sealed ") {
			t.Errorf("asking %s gives %q (%v), want the pod", address, got, err)
		}
	}
}

// requestOverTLS returns the reply of an echo behind TLS at an address.
func requestOverTLS(
	ctx context.Context, f *netlab.Lab, to netip.Addr, config *tls.Config,
) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askedWithin)
	defer cancel()
	plain, err := f.Outside().Dial(ctx, "tcp", netip.AddrPortFrom(to, frontage).String())
	if err != nil {
		return "", err
	}
	c := tls.Client(plain, config)
	defer c.Close()
	if err := c.HandshakeContext(ctx); err != nil {
		return "", fmt.Errorf("asking %s: %w", to, err)
	}
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return "", err
	}
	line, err := io.ReadAll(c)
	return string(line), err
}
