package inside

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

const (
	// tries is how often a call is tried whose connection fails. All calls can be repeated.
	tries = 3
	// pause is between two tries.
	pause = 500 * time.Millisecond
	// patience is how long an answer may take, beside what the program is asked to wait for.
	patience = 10 * time.Second
	// largestAnswer is how many bytes of an answer are read.
	largestAnswer = 16 << 20
)

// Dialer makes connections, as [net.Dialer.DialContext] does.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Client asks the program of one server. Its methods can be called at the same time. Their errors
// name the server, and hold neither its address nor its key.
type Client struct {
	credentials Credentials
	at          netip.AddrPort
	http        *http.Client
}

// New makes the client of the program with these credentials, which is asked at this address. A nil
// dial is that of the machine.
func New(c Credentials, at netip.AddrPort, dial Dialer) *Client {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.certificate)
	trust := &tls.Config{RootCAs: pool, ServerName: certifiedName, MinVersion: tls.VersionTLS13}
	return &Client{credentials: c, at: at, http: &http.Client{
		Transport: &http.Transport{
			DialContext:         dial,
			TLSClientConfig:     trust,
			TLSHandshakeTimeout: patience,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     20 * time.Second, // the program's own is longer
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Server is the server's name.
func (c *Client) Server() string { return c.credentials.server }

// Close closes the connections that nobody uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// refusal is what the program says if it doesn't do what it was asked.
type refusal struct {
	Code string `json:"code"` // a word for programs, or empty
	Text string `json:"error"`
}

func (r *refusal) Error() string { return r.Text }

// Is reports whether the refusal is for that reason.
func (r *refusal) Is(reason error) bool {
	return reason == ErrTooLarge && r.Code == "too_large"
}

// ErrTooLarge is why a packet wasn't sent: an interface of the sender has a smaller MTU.
var ErrTooLarge = errors.New("the packet is larger than the interface's MTU")

// ErrForeign is why the program can't be asked: something else answers where it should. What its
// certificate says of itself is nobody's business, and isn't told.
var ErrForeign = errors.New("something else answers there: its certificate is not the program's")

// ask asks the program, again where the connection fails, and reads its answer, which may take
// wait longer than others.
func (c *Client) ask(
	ctx context.Context, call string, question, answer any, wait time.Duration,
) error {
	var err error
	for try := range tries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return c.failed(call, context.Cause(ctx))
			case <-time.After(pause):
			}
		}
		err = c.askOnce(ctx, call, question, answer, wait)
		if final(err) || ctx.Err() != nil {
			break
		}
	}
	return c.failed(call, err)
}

// final reports whether asking again would bring nothing else.
func final(err error) bool {
	refused := (*refusal)(nil)
	return err == nil || errors.As(err, &refused) || errors.Is(err, ErrForeign)
}

// askOnce asks once.
func (c *Client) askOnce(
	ctx context.Context, call string, question, answer any, wait time.Duration,
) error {
	ctx, cancel := context.WithTimeout(ctx, patience+wait)
	defer cancel()
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	to := "https://" + c.at.String() + "/" + call
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.credentials.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if unknown := (*tls.CertificateVerificationError)(nil); errors.As(err, &unknown) {
		return ErrForeign
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, largestAnswer))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		r := &refusal{}
		if json.Unmarshal(text, r) != nil || r.Text == "" {
			r = &refusal{Text: "the program answered with status " + response.Status}
		}
		return r
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return nil
}

// failure is an error without addresses and keys in its text.
type failure struct {
	text  string
	cause error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.cause }

// failed names the server and the call in an error, and takes out where the program is.
func (c *Client) failed(call string, err error) error {
	if err == nil {
		return nil
	}
	inner := err
	if u := (*url.Error)(nil); errors.As(inner, &u) {
		inner = u.Err
	}
	text := inner.Error()
	if op := (*net.OpError)(nil); errors.As(inner, &op) && op.Err != nil {
		text = op.Op + ": " + op.Err.Error() // without the addresses of both ends
	}
	for _, hidden := range []string{c.at.String(), c.at.Addr().String(), c.credentials.key} {
		if hidden != "" {
			text = strings.ReplaceAll(text, hidden, "[redacted]")
		}
	}
	text = fmt.Sprintf("server %s: %s: %s", c.credentials.server, call, text)
	return &failure{text: text, cause: err}
}
