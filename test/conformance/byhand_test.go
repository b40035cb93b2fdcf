package conformance_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// newCertificate makes what a person would upload.
func newCertificate(t *testing.T, domain string) (chain, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: domain}, DNSNames: []string{domain},
		NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", encoded)
}

// byHand sends the requests of testdata/requests.txt: what each answers with
// names things for those below it.
func (d *driver) byHand() {
	script, err := os.ReadFile("testdata/requests.txt")
	d.must(err)
	chain, key := newCertificate(d.T, "example.org")
	known := strings.NewReplacer("$chain", jsonText(chain), "$key", jsonText(key), "$public_key", publicKey)
	names := map[string]string{}
	for number, line := range strings.Split(known.Replace(string(script)), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if fault, isFault := strings.CutPrefix(line, "FAIL "); isFault {
			d.must(d.i.sim.Inject(hcloudsim.Fault{Match: fault, FailAction: "ca_dns_validation_failed"}))
			continue
		}
		for name, id := range names {
			line = strings.ReplaceAll(line, "{"+name+"}", id)
		}
		parts := strings.Split(line, " => ")
		line = parts[0]
		method, rest, _ := strings.Cut(line, " ")
		path, body, _ := strings.Cut(rest, " ")
		status, reply := d.send(method, path, body)
		if status >= 300 {
			d.Fatalf("testdata/requests.txt:%d: %s %s %s: %d %s", number+1, method, path, body, status, reply)
		}
		for _, wanted := range parts[1:] {
			path, name, _ := strings.Cut(wanted, " ")
			names[name] = valueAt(d.T, reply, path)
		}
	}
}

func (d *driver) send(method, path, body string) (status int, reply []byte) {
	r, err := http.NewRequestWithContext(d.Context(), method, endpoint+path, strings.NewReader(body))
	d.must(err)
	r.Header.Set("Authorization", "Bearer token")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := (&http.Client{Transport: d.i}).Do(r)
	d.must(err)
	defer response.Body.Close()
	reply, err = io.ReadAll(response.Body)
	d.must(err)
	return response.StatusCode, reply
}

// valueAt reads an ID or a text from a reply.
func valueAt(t *testing.T, reply []byte, path string) string {
	t.Helper()
	for key := range strings.SplitSeq(path, ".") {
		if key == "0" {
			var elements []json.RawMessage
			if err := json.Unmarshal(reply, &elements); err != nil || len(elements) == 0 {
				t.Fatalf("%s of %s: %v", path, reply, err)
			}
			reply = elements[0]
			continue
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(reply, &object); err != nil {
			t.Fatalf("%s of %s: %v", path, reply, err)
		}
		reply = object[key]
	}
	return strings.Trim(string(reply), `"`)
}

// jsonText is a text as it stands between the quotes of JSON.
func jsonText(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", `\n`)
}
