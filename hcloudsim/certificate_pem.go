package hcloudsim

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"
)

// validity is the lifetime of Let's Encrypt's certificates.
const validity = 90 * 24 * time.Hour

// domainName matches a host name with an optional leading wildcard label.
var domainName = regexp.MustCompile(
	`^(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// upload sets the content of a certificate: a chain in which each certificate signs its
// predecessor, and the private key of the first certificate.
func (k *certificate) upload(chain, key string) error {
	if strings.TrimSpace(chain) == "" {
		return errInvalid("certificate", "is required for type uploaded")
	}
	if strings.TrimSpace(key) == "" {
		return errInvalid("private_key", "is required for type uploaded")
	}
	var parsed []*x509.Certificate
	for rest := []byte(chain); len(parsed) == 0 || len(strings.TrimSpace(string(rest))) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return errInvalid("certificate", "is not in PEM format")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			return errInvalid("certificate", "is no X.509 certificate")
		}
		if n := len(parsed); n > 0 && parsed[n-1].CheckSignatureFrom(c) != nil {
			return errInvalid("certificate",
				"the chain is not in order: record %d does not certify the one before", n+1)
		}
		parsed = append(parsed, c)
	}
	block, _ := pem.Decode([]byte(key))
	if block == nil || !strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return errInvalid("private_key", "is no private key in PEM format")
	}
	if _, err := tls.X509KeyPair([]byte(chain), []byte(key)); err != nil {
		return errInvalid("private_key", "does not belong to the certificate")
	}
	leaf := parsed[0]
	k.PEM, k.key = &chain, key
	k.NotValidBefore, k.NotValidAfter = new(leaf.NotBefore.UTC()), new(leaf.NotAfter.UTC())
	k.Fingerprint = new(strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(leaf.Raw)), " ", ":"))
	k.DomainNames = append([]string{}, leaf.DNSNames...)
	if len(leaf.DNSNames) == 0 && leaf.Subject.CommonName != "" {
		k.DomainNames = []string{leaf.Subject.CommonName}
	}
	return nil
}

// issue generates the content of a managed certificate, which is self-signed.
func issue(domains []string, now time.Time, random *rand.Rand) (chain, key string, err error) {
	seed := make([]byte, ed25519.SeedSize)
	for i := range ed25519.SeedSize / 8 {
		binary.BigEndian.PutUint64(seed[8*i:], random.Uint64())
	}
	private := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(random.Int64()),
		Subject:      pkix.Name{CommonName: domains[0]},
		DNSNames:     domains,
		NotBefore:    now.Truncate(time.Second),
		NotAfter:     now.Truncate(time.Second).Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(nil, template, template, private.Public(), private)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	encoded := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return encoded("CERTIFICATE", der), encoded("PRIVATE KEY", secret), nil
}
