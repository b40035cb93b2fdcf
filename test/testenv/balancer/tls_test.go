package balancer_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/ipnet"
)

// A service of protocol https selects its certificate, uploaded or managed, by the client's server
// name, and sends targets the decrypted data.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	a := w.server("a")
	w.serve(netip.AddrPortFrom(private(a), 30080), httpServer(func(r *http.Request) (int, string) {
		return http.StatusOK, "a serves " + r.URL.Path
	}))
	uploaded := w.upload("own.example.com")
	issued, _, err := w.cloud.Certificate.CreateCertificate(t.Context(), hcloud.CertificateCreateOpts{
		Name: "managed", Type: hcloud.CertificateTypeManaged, DomainNames: []string{"issued.example.com"},
	})
	noError(t, err)
	managed := issued.Certificate
	w.eventually("the managed certificate is issued", func() bool {
		managed, _, err = w.cloud.Certificate.GetByID(t.Context(), managed.ID)
		noError(t, err)
		return managed.Certificate != ""
	})
	service := tcp(443, 30080)
	service.Protocol = hcloud.LoadBalancerServiceProtocolHTTPS
	service.HTTP = &hcloud.LoadBalancerCreateOptsServiceHTTP{
		Certificates: []*hcloud.Certificate{uploaded, managed},
	}
	lb := w.balance(hcloud.LoadBalancerCreateOpts{
		Services: []hcloud.LoadBalancerCreateOptsService{service},
	}, a)
	w.healthy(lb, "a:443")
	at := ipnet.Addr(lb.PublicNet.IPv4.IP)
	for name, certificate := range map[string]*hcloud.Certificate{
		"own.example.com": uploaded, "issued.example.com": managed,
	} {
		if got := w.get("https://"+name+"/x", at, certificate); got != "a serves /x" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// upload creates a self-signed certificate for a name.
func (w *world) upload(name string) *hcloud.Certificate {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(w.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	noError(w.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	noError(w.t, err)
	encoded := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	made, _, err := w.cloud.Certificate.Create(w.t.Context(), hcloud.CertificateCreateOpts{
		Name: name, Type: hcloud.CertificateTypeUploaded,
		Certificate: encoded("CERTIFICATE", der), PrivateKey: encoded("PRIVATE KEY", secret),
	})
	noError(w.t, err)
	return made
}

// get requests a URL at an address of a load balancer, and trusts one certificate only.
func (w *world) get(url string, at netip.Addr, trusted *hcloud.Certificate) string {
	w.t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(trusted.Certificate)) {
		w.t.Fatalf("no certificate: %q", trusted.Certificate)
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.net.Dial(ctx, netip.Addr{}, netip.AddrPortFrom(at, 443))
		},
	}}
	reply, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	noError(w.t, err)
	return string(body)
}
