package inside

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// certifiedName is the name in every certificate: a client trusts one certificate, whatever the
// server's address is.
const certifiedName = "program.underlay.internal"

// certificateLife is how long a certificate is valid. The program itself ends much sooner.
const certificateLife = 7 * 24 * time.Hour

// Credentials are what the program of one server and its client know each other by. They print as
// the server's name alone.
type Credentials struct {
	server      string
	certificate []byte // PEM
	private     []byte // PEM, the certificate's key
	key         string // what a client proves itself by
}

// NewCredentials makes credentials for the program of a server, which is called by this name in
// errors and answers.
func NewCredentials(server string) (Credentials, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Credentials{}, fmt.Errorf("making the key of server %s's program: %w", server, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Credentials{}, fmt.Errorf("making the certificate of server %s's program: %w", server, err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: certifiedName},
		DNSNames:     []string{certifiedName},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	public := private.Public()
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return Credentials{}, fmt.Errorf("making the certificate of server %s's program: %w", server, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return Credentials{}, fmt.Errorf("encoding the key of server %s's program: %w", server, err)
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return Credentials{}, fmt.Errorf("making the key of server %s's client: %w", server, err)
	}
	return Credentials{
		server:      server,
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		private:     pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		key:         hex.EncodeToString(key),
	}, nil
}

// clientFile is what a client needs of credentials, as a file.
type clientFile struct {
	Server      string `json:"server"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// ClientFile is what a client needs, as the content of a file that nobody else may read.
// [ParseClientFile] reads it.
func (c Credentials) ClientFile() []byte {
	file := clientFile{c.server, string(c.certificate), c.key}
	text, _ := json.MarshalIndent(file, "", "  ") // strings alone can't fail
	return append(text, '\n')
}

// ParseClientFile reads what [Credentials.ClientFile] wrote. The result is good for [New], not for
// [UserData]: the key of the certificate isn't in it.
func ParseClientFile(text []byte) (Credentials, error) {
	const remedy = "write it anew with the program"
	var f clientFile
	if err := json.Unmarshal(text, &f); err != nil {
		return Credentials{}, errors.New("this is no key file of the program: " + remedy)
	}
	for _, field := range []struct{ name, value string }{
		{"server", f.Server}, {"certificate", f.Certificate}, {"key", f.Key},
	} {
		if field.value == "" {
			return Credentials{}, fmt.Errorf("the key file has no %q: %s", field.name, remedy)
		}
	}
	c := Credentials{server: f.Server, certificate: []byte(f.Certificate), key: f.Key}
	if !x509.NewCertPool().AppendCertsFromPEM(c.certificate) {
		return Credentials{}, errors.New(`"certificate" in the key file is none: ` + remedy)
	}
	return c, nil
}

// Server is the name of the server.
func (c Credentials) Server() string { return c.server }

// String is the server's name.
func (c Credentials) String() string { return "credentials of " + c.server }

// Format prints what String says, whatever the verb.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// MarshalJSON is what String says, so that nothing else gets into logs and reports.
func (c Credentials) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }
