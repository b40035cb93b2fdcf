package hcloudsim

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"
)

// validity is the lifetime of Let's Encrypt's certificates.
const validity = 90 * 24 * time.Hour

// domainName matches a host name with an optional leading wildcard label.
var domainName = regexp.MustCompile(`^(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// readChain parses an uploaded certificate: a chain in which each certificate signs its
// predecessor, and the private key of the first certificate.
func readChain(chain, key string) (*content, []string, error) {
	if strings.TrimSpace(chain) == "" {
		return nil, nil, errInvalid("certificate", "is required for type uploaded")
	}
	if strings.TrimSpace(key) == "" {
		return nil, nil, errInvalid("private_key", "is required for type uploaded")
	}
	var parsed []*x509.Certificate
	for rest := []byte(chain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if len(strings.TrimSpace(string(rest))) > 0 || len(parsed) == 0 {
				return nil, nil, errInvalid("certificate", "is not in PEM format")
			}
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			return nil, nil, errInvalid("certificate", "is no X.509 certificate")
		}
		if n := len(parsed); n > 0 && parsed[n-1].CheckSignatureFrom(c) != nil {
			return nil, nil, errInvalid("certificate", "the chain is not in order: record %d does not certify the one before", n+1)
		}
		parsed = append(parsed, c)
	}
	if block, _ := pem.Decode([]byte(key)); block == nil || !strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return nil, nil, errInvalid("private_key", "is no private key in PEM format")
	}
	if _, err := tls.X509KeyPair([]byte(chain), []byte(key)); err != nil {
		return nil, nil, errInvalid("private_key", "does not belong to the certificate")
	}
	return newContent(chain, key, parsed[0]), domainsOf(parsed[0]), nil
}

func domainsOf(leaf *x509.Certificate) []string {
	if len(leaf.DNSNames) == 0 && leaf.Subject.CommonName != "" {
		return []string{leaf.Subject.CommonName}
	}
	return append([]string{}, leaf.DNSNames...)
}

func newContent(chain, key string, leaf *x509.Certificate) *content {
	sum := sha256.Sum256(leaf.Raw)
	text := strings.ToUpper(hex.EncodeToString(sum[:]))
	var pairs []string
	for i := 0; i < len(text); i += 2 {
		pairs = append(pairs, text[i:i+2])
	}
	return &content{
		chain: chain, key: key, fingerprint: strings.Join(pairs, ":"),
		notBefore: leaf.NotBefore.UTC(), notAfter: leaf.NotAfter.UTC(),
	}
}

// issue generates the content of a managed certificate, which is self-signed.
func issue(domains []string, now time.Time, random *rand.Rand) (*content, error) {
	seed := make([]byte, ed25519.SeedSize)
	for i := range ed25519.SeedSize / 8 {
		binary.BigEndian.PutUint64(seed[8*i:], random.Uint64())
	}
	key := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(random.Int64()),
		Subject:      pkix.Name{CommonName: domains[0]},
		DNSNames:     domains,
		NotBefore:    now.Truncate(time.Second),
		NotAfter:     now.Truncate(time.Second).Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	encoded := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return newContent(encoded("CERTIFICATE", der), encoded("PRIVATE KEY", secret), leaf), nil
}
