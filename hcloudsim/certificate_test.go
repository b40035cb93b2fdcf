package hcloudsim_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// authority signs certificates, including its own.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{t: t}
	a.pem, a.key = a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	block, _ := pem.Decode([]byte(a.pem))
	var err error
	a.cert, err = x509.ParseCertificate(block.Bytes)
	noError(t, err)
	return a
}

func (a authority) sign(template *x509.Certificate) (string, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(a.t, err)
	template.NotBefore, template.NotAfter = time.Unix(1_800_000_000, 0), time.Unix(1_900_000_000, 0)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	noError(a.t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), key
}

// leaf returns a certificate for a domain, and its key.
func (a authority) leaf(domain string) (chain, key string) {
	chain, private := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{domain},
	})
	der, err := x509.MarshalECPrivateKey(private)
	noError(a.t, err)
	return chain, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func TestUploadedCertificates(t *testing.T) {
	a := newAuthority(t)
	chain, key := a.leaf("example.com")
	_, otherKey := a.leaf("example.com")
	tests := map[string]struct {
		name, kind, chain, key string
		field                  string // the invalid one; "": none
	}{
		"alone":            {"a", "", chain, key, ""},
		"with its issuer":  {"a", "uploaded", chain + a.pem, key, ""},
		"wrong order":      {"a", "", a.pem + chain, key, "certificate"},
		"key of another":   {"a", "", chain, otherKey, "private_key"},
		"no certificate":   {"a", "", "", key, "certificate"},
		"no key":           {"a", "", chain, "", "private_key"},
		"text":             {"a", "", "hello", key, "certificate"},
		"text behind":      {"a", "", chain + "hello", key, "certificate"},
		"key in its place": {"a", "", key, key, "certificate"},
		"cert as key":      {"a", "", chain, chain, "private_key"},
		"no name":          {"", "", chain, key, "name"},
		"no kind":          {"a", "bought", chain, key, "type"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := json.Marshal(map[string]string{"name": test.name, "type": test.kind, "certificate": test.chain, "private_key": test.key})
			if test.kind == "" {
				body, err = json.Marshal(map[string]string{"name": test.name, "certificate": test.chain, "private_key": test.key})
			}
			noError(t, err)
			got := send(t, newSim(hcloudsim.Options{}), "POST", "/v1/certificates", string(body))
			if test.field != "" {
				got.want(t, 422, "invalid_input")
				if got.field() != test.field {
					t.Errorf("answer is about %q, want %q: %s", got.field(), test.field, got.body)
				}
				return
			}
			got.want(t, 201, "")
			made := got.object["certificate"].(map[string]any)
			if made["not_valid_after"] != "2030-03-17T17:46:40Z" || fmt.Sprint(made["domain_names"]) != "[example.com]" ||
				len(made["fingerprint"].(string)) != 95 || made["status"] != nil || got.object["action"] != nil {
				t.Errorf("certificate is %s", got.body)
			}
		})
	}
}

func TestManagedCertificates(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		create := func(name string) hcloud.CertificateCreateResult {
			t.Helper()
			made, _, err := w.c.Certificate.CreateCertificate(t.Context(), hcloud.CertificateCreateOpts{
				Name: name, Type: hcloud.CertificateTypeManaged, DomainNames: []string{"*.example.com", "example.com"},
			})
			noError(t, err)
			return made
		}
		issuance := func(k *hcloud.Certificate, want hcloud.CertificateStatusType) *hcloud.Certificate {
			t.Helper()
			now, _, err := w.c.Certificate.GetByID(t.Context(), k.ID)
			noError(t, err)
			if now.Status.Issuance != want || (now.Certificate != "") != (want == hcloud.CertificateStatusTypeCompleted) {
				t.Errorf("certificate is %+v, %+v, want it %s", now, now.Status, want)
			}
			return now
		}
		made := create("good")
		issuance(made.Certificate, hcloud.CertificateStatusTypePending)
		noError(t, w.c.Action.WaitFor(t.Context(), made.Action))
		now := issuance(made.Certificate, hcloud.CertificateStatusTypeCompleted)
		if got := now.NotValidAfter.Sub(now.NotValidBefore); got != 90*24*time.Hour || !slices.Equal(now.DomainNames, []string{"*.example.com", "example.com"}) {
			t.Errorf("certificate is valid for %v, %v", now.DomainNames, got)
		}
		_, _, err := w.c.Certificate.RetryIssuance(t.Context(), made.Certificate)
		wantCode(t, err, "unsupported_error")

		noError(t, w.sim.Inject(hcloudsim.Fault{Match: "POST /certificates", FailAction: "ca_dns_validation_failed"}))
		made = create("bad")
		var failure hcloud.ActionError
		if err := w.c.Action.WaitFor(t.Context(), made.Action); !errors.As(err, &failure) || failure.Code != "ca_dns_validation_failed" {
			t.Errorf("action ends with %v", err)
		}
		if now := issuance(made.Certificate, hcloud.CertificateStatusTypeFailed); now.Status.Error.Code != "ca_dns_validation_failed" {
			t.Errorf("status is %+v", now.Status)
		}
		retry, _, err := w.c.Certificate.RetryIssuance(t.Context(), made.Certificate)
		noError(t, err)
		noError(t, w.c.Action.WaitFor(t.Context(), retry))
		issuance(made.Certificate, hcloud.CertificateStatusTypeCompleted)
		send(t, w.sim, "POST", "/v1/certificates", `{"name": "x", "type": "managed"}`).want(t, 422, "invalid_input")
		send(t, w.sim, "POST", "/v1/certificates", `{"name": "x", "type": "managed", "domain_names": ["-"]}`).want(t, 422, "invalid_input")
	})
}

func TestServicesWithCertificates(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	lb := createWhole(t, c, nil).LoadBalancer
	path := fmt.Sprintf("/v1/load_balancers/%d/actions/", lb.ID)
	var ids []int64
	for i := range 11 {
		made, _, err := c.Certificate.CreateCertificate(t.Context(), hcloud.CertificateCreateOpts{
			Name: fmt.Sprint("c", i), Type: hcloud.CertificateTypeManaged, DomainNames: []string{"example.com"},
		})
		noError(t, err)
		ids = append(ids, made.Certificate.ID)
	}
	list := func(ids []int64) string {
		text, err := json.Marshal(ids)
		noError(t, err)
		return string(text)
	}
	send(t, sim, "POST", path+"add_service", `{"protocol": "https", "http": {"certificates": [7]}}`).want(t, 404, "not_found")
	send(t, sim, "POST", path+"add_service", `{"protocol": "http", "listen_port": 81, "http": {"certificates": `+list(ids[:1])+`}}`).want(t, 422, "invalid_input")
	send(t, sim, "POST", path+"add_service", `{"protocol": "https", "http": {"certificates": `+list(ids)+`}}`).want(t, 403, "resource_limit_exceeded")
	send(t, sim, "POST", path+"add_service", `{"protocol": "https", "http": {"certificates": `+list(ids[:10])+`}}`).want(t, 201, "")
	send(t, sim, "POST", path+"update_service", `{"listen_port": 443, "http": {"certificates": `+list(ids[1:])+`}}`).want(t, 201, "")
	send(t, sim, "DELETE", fmt.Sprintf("/v1/certificates/%d", ids[1]), "").want(t, 422, "resource_in_use")
	send(t, sim, "DELETE", fmt.Sprintf("/v1/certificates/%d", ids[0]), "").want(t, 204, "")
	used, _, err := c.Certificate.GetByID(t.Context(), ids[1])
	noError(t, err)
	if len(used.UsedBy) != 1 || used.UsedBy[0].ID != lb.ID ||
		used.UsedBy[0].Type != hcloud.CertificateUsedByRefTypeLoadBalancer {
		t.Errorf("certificate is used by %+v", used.UsedBy)
	}
	send(t, sim, "POST", path+"change_type", `{"load_balancer_type": "lb21"}`).want(t, 201, "")
}
