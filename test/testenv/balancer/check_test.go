package balancer_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/balancer"
)

// httpServer serves one request of a connection.
func httpServer(reply func(*http.Request) (status int, body string)) func(net.Conn) {
	return func(c net.Conn) {
		request, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		status, body := reply(request)
		_, _ = fmt.Fprintf(c, "HTTP/1.1 %d Status\r\nLocation: /elsewhere\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	}
}

// Each service is checked by its own settings, including all optional ones.
func TestChecks(t *testing.T) {
	t.Parallel()
	type check = hcloud.LoadBalancerCreateOptsServiceHealthCheckHTTP
	always := func(status int) func(net.Conn) {
		return httpServer(func(*http.Request) (int, string) { return status, "body" })
	}
	mute := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	tests := []struct {
		name  string
		reply func(net.Conn) // nil: connections are refused
		http  *check         // nil: TCP
		want  string
		proxy bool // with the PROXY protocol
	}{
		{name: "tcp behind a header", reply: expectsHeader(always(200)), want: "healthy", proxy: true},
		{name: "tcp behind a header that nobody expects", reply: mute, want: "healthy", proxy: true},
		{name: "http behind a header", reply: expectsHeader(always(200)), http: &check{}, want: "healthy", proxy: true},
		{name: "http behind a header that nobody expects", reply: always(200), http: &check{}, want: "unhealthy: unspecified", proxy: true},
		{name: "http without the PROXY protocol", reply: expectsHeader(always(200)), http: &check{}, want: "unhealthy: unspecified"},
		{"tcp", mute, nil, "healthy", false},
		{"tcp, refused", nil, nil, "unhealthy: layer4_no_connection", false},
		{"200", always(200), &check{}, "healthy", false},
		{"302, not followed", always(302), &check{}, "healthy", false},
		{"503", always(503), &check{}, "unhealthy: unexpected_http_status 503", false},
		{"404", always(404), &check{}, "unhealthy: unexpected_http_status 404", false},
		{"503 is wanted", always(503), &check{StatusCodes: []string{"204", "5?3"}}, "healthy", false},
		{"200 is not wanted", always(200), &check{StatusCodes: []string{"204", "5?3"}}, "unhealthy: unexpected_http_status 200", false},
		{"anything is wanted", always(418), &check{StatusCodes: []string{"*"}}, "healthy", false},
		{"http, refused", nil, &check{}, "unhealthy: layer4_no_connection", false},
		{"no HTTP", replying("hello"), &check{}, "unhealthy: unspecified", false},
		{"no response in time", mute, &check{}, "unhealthy: layer7_timeout", false},
		{"path and domain", httpServer(func(r *http.Request) (int, string) {
			if r.Method == "GET" && r.URL.Path == "/healthz" && r.URL.RawQuery == "full=1" && r.Host == "web.example.com" {
				return 200, ""
			}
			return 500, ""
		}), &check{Path: hcloud.Ptr("/healthz?full=1"), Domain: hcloud.Ptr("web.example.com")}, "healthy", false},
		{"other domain", httpServer(func(r *http.Request) (int, string) {
			if r.Host == "web.example.com" {
				return 200, ""
			}
			return 500, ""
		}), &check{}, "unhealthy: unexpected_http_status 500", false},
		{"response", always(200), &check{Response: hcloud.Ptr("od")}, "healthy", false},
		{"other response", always(200), &check{Response: hcloud.Ptr("x")}, "unhealthy: unexpected_http_content", false},
		{"tls", encrypted(t, always(200)), &check{TLS: hcloud.Ptr(true)}, "healthy", false},
		{"tls is missing", always(200), &check{TLS: hcloud.Ptr(true)}, "unhealthy: unspecified", false},
	}
	w := newWorld(t, 0, func(o *hcloudsim.Options) { o.ProxyHeaderInChecks = true })
	a := w.server("a")
	var opts hcloud.LoadBalancerCreateOpts
	for i, test := range tests {
		port := 1000 + i
		if test.reply != nil {
			w.serve(netip.AddrPortFrom(private(a), uint16(port)), test.reply)
		}
		service := tcp(i+1, 30080)
		service.HealthCheck.Port, service.HealthCheck.HTTP = &port, test.http
		service.HealthCheck.Timeout, service.Proxyprotocol = hcloud.Ptr(time.Second), &test.proxy
		if test.http != nil {
			service.HealthCheck.Protocol = hcloud.LoadBalancerServiceProtocolHTTP
		}
		opts.Services = append(opts.Services, service)
	}
	lb := w.balance(opts, a)
	for i, test := range tests {
		name := fmt.Sprintf("a:%d", i+1)
		w.eventually(test.name+" is judged", func() bool { return w.health(lb)[name] != "unknown" })
		if got := w.findings(lb)[name]; got != test.want {
			t.Errorf("%s: the target is %s, want %s", test.name, got, test.want)
		}
	}
}

// expectsHeader serves connections that begin with a PROXY header.
func expectsHeader(reply func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		if _, err := balancer.ReadHeader(r); err == nil {
			reply(behind{c, r})
		}
	}
}

// behind is a connection of which a part has been read.
type behind struct {
	net.Conn
	r io.Reader
}

func (b behind) Read(p []byte) (int, error) { return b.r.Read(p) }

// encrypted serves connections with a self-signed certificate.
func encrypted(t *testing.T, reply func(net.Conn)) func(net.Conn) {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	config := &tls.Config{Certificates: s.TLS.Certificates}
	return func(c net.Conn) {
		encrypted := tls.Server(c, config)
		reply(encrypted)
		_ = encrypted.CloseWrite()
	}
}
