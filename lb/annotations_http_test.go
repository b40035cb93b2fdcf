package lb_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

func eachListener(change func(*lb.Listener)) func(*lb.Spec) {
	return func(s *lb.Spec) {
		for i := range s.Listeners {
			change(&s.Listeners[i])
		}
	}
}

func eachHTTP(change func(*lb.HTTP)) func(*lb.Spec) {
	return eachListener(func(l *lb.Listener) { change(&l.HTTP) })
}

// httpDefaults returns the settings of an HTTP listener without annotations.
func httpDefaults() lb.HTTP {
	return lb.HTTP{CookieName: "HCLBSTICKY", CookieLifetime: 5 * time.Minute, IdleTimeout: 50 * time.Second}
}

func certificates(text string, refs ...string) func(*lb.Spec) {
	return func(s *lb.Spec) {
		s.Certificates = refs
		eachHTTP(func(h *lb.HTTP) { h.Certificates = text })(s)
	}
}

func protocolCases() map[string]annotationCase {
	http := map[string]string{hetzner + "protocol": "http"}
	bare := map[string]string{hetzner + "protocol": "https"}
	https := map[string]string{hetzner + "protocol": "https", hetzner + "http-certificates": "7"}
	managed := map[string]string{hetzner + "protocol": "https", hetzner + "certificate-type": "managed", hetzner + "http-managed-certificate-domains": "example.com"}
	return map[string]annotationCase{
		hetzner + "protocol": {
			with:  map[string]string{hetzner + "http-certificates": "7"},
			value: "http", want: func(s *lb.Spec) {
				s.Publish.Proxy = true
				eachListener(func(l *lb.Listener) { l.Protocol, l.HTTP = "http", httpDefaults() })(s)
			},
			other: "https", then: func(s *lb.Spec) {
				s.Publish.Proxy = true
				eachListener(func(l *lb.Listener) { l.Protocol, l.HTTP = "https", httpDefaults() })(s)
				certificates("7", "7")(s)
			},
			invalid: []string{"udp", "HTTP", "grpc"},
		},
		hetzner + "http-sticky-sessions": {
			with: http, value: "true", want: eachHTTP(func(h *lb.HTTP) { h.Sticky = true }),
			other: "false", then: func(*lb.Spec) {}, invalid: []string{"cookie"},
		},
		hetzner + "http-cookie-name": {
			with: http, value: "SERVER", want: eachHTTP(func(h *lb.HTTP) { h.CookieName = "SERVER" }),
			other: "my_cookie-1", then: eachHTTP(func(h *lb.HTTP) { h.CookieName = "my_cookie-1" }),
			invalid: []string{"a b", "a;b", "a=b", strings.Repeat("x", 101)},
		},
		hetzner + "http-cookie-lifetime": {
			with: http, value: "30", want: eachHTTP(func(h *lb.HTTP) { h.CookieLifetime = seconds(30) }),
			other: "24h", then: eachHTTP(func(h *lb.HTTP) { h.CookieLifetime = 24 * time.Hour }),
			invalid: []string{"29", "86401", "1.5s", "day"},
		},
		hetzner + "http-timeout-idle": {
			with: http, value: "30s", want: eachHTTP(func(h *lb.HTTP) { h.IdleTimeout = seconds(30) }),
			other: "300", then: eachHTTP(func(h *lb.HTTP) { h.IdleTimeout = seconds(300) }), invalid: []string{"29", "301", "5 m"},
		},
		hetzner + "http-redirect-http": {
			with: https, change: func(svc *lb.Service) { svc.Ports = svc.Ports[:1] },
			value: "true", want: eachHTTP(func(h *lb.HTTP) { h.Redirect = true }),
			other: "false", then: func(*lb.Spec) {}, invalid: []string{"301"},
		},
		hetzner + "certificate-type": {
			with:  map[string]string{hetzner + "protocol": "https", hetzner + "http-certificates": "7", hetzner + "http-managed-certificate-domains": "example.com"},
			value: "managed", want: func(s *lb.Spec) {
				certificates("")(s)
				s.Managed = &lb.ManagedCertificate{Name: "ccm-managed-certificate-" + s.Owner.UID, Domains: []string{"example.com"}}
			},
			other: "uploaded", then: func(*lb.Spec) {}, invalid: []string{"acme"},
		},
		hetzner + "http-certificates": {
			with: bare, needed: "7", value: "9,8 , 9", want: certificates("8,9", "9", "8", "9"),
			other: "9,mine", then: certificates("", "9", "mine"), invalid: []string{",", "a,,b", strings.Repeat("x", 129), strings.Repeat("1,", 50) + "1"},
		},
		hetzner + "http-managed-certificate-name": {
			with: managed, value: "shop", want: func(s *lb.Spec) { s.Managed.Name = "shop" },
			other: "My shop", then: func(s *lb.Spec) { s.Managed.Name = "My shop" }, invalid: []string{" x", strings.Repeat("x", 129)},
		},
		hetzner + "http-managed-certificate-domains": {
			with: map[string]string{hetzner + "protocol": "https", hetzner + "certificate-type": "managed"}, needed: "example.com",
			value: "www.example.com,example.com", want: func(s *lb.Spec) { s.Managed.Domains = []string{"example.com", "www.example.com"} },
			other: "*.example.com", then: func(s *lb.Spec) { s.Managed.Domains = []string{"*.example.com"} },
			invalid: []string{"localhost", "a b.example", "*", "example.com,,", "www.*.example.com"},
		},
		hetzner + "http-managed-certificate-acme-staging": {
			with: managed, value: "true", want: func(s *lb.Spec) { s.Managed.Staging = true },
			other: "0", then: func(*lb.Spec) {}, invalid: []string{"test"},
		},
		hetzner + "health-check-http-domain": {
			with: map[string]string{hetzner + "health-check-protocol": "http"}, value: "example.com", want: eachCheck(func(h *lb.HealthCheck) { h.Domain = "example.com" }),
			other: "web", then: eachCheck(func(h *lb.HealthCheck) { h.Domain = "web" }), invalid: []string{"a b", "50%", strings.Repeat("x", 129)},
		},
		hetzner + "health-check-http-validate-certificate": {
			with: map[string]string{hetzner + "health-check-protocol": "http"}, value: "true", want: eachCheck(func(h *lb.HealthCheck) { h.TLS = true }),
			other: "false", then: func(*lb.Spec) {}, invalid: []string{"strict"},
		},
		hetzner + "http-status-codes": {
			with: map[string]string{hetzner + "health-check-protocol": "http"}, value: "200", want: eachCheck(func(h *lb.HealthCheck) { h.StatusCodes = "200" }),
			other: "2??, 30?,4*", then: eachCheck(func(h *lb.HealthCheck) { h.StatusCodes = "2??,30?,4*" }),
			invalid: []string{"OK", "2000", "200;301", strings.Repeat("200,", 20) + "200"},
		},
	}
}

func ownCases() map[string]annotationCase {
	return map[string]annotationCase{
		lb.AnnotationPorts: portsCase(),
		lb.AnnotationShared: {
			change: func(svc *lb.Service) { svc.Namespace = "shop" },
			value:  "edge", want: func(s *lb.Spec) { s.Shared = "shop.edge" },
			other: "edge-2", then: func(s *lb.Spec) { s.Shared = "shop.edge-2" }, invalid: []string{"Edge", "a.b", "-", "x-", "edge/x"},
		},
		hetzner + "ipv4-rdns": {
			value: "web.example.com", want: func(s *lb.Spec) { s.IPv4Name = "web.example.com" },
			other: "mail.example.com", then: func(s *lb.Spec) { s.IPv4Name = "mail.example.com" }, invalid: []string{"192.0.2.1", "a_b", "web.example.com."},
		},
		hetzner + "ipv6-rdns": {
			value: "web.example.com", want: func(s *lb.Spec) { s.IPv6Name = "web.example.com" },
			other: "mail.example.com", then: func(s *lb.Spec) { s.IPv6Name = "mail.example.com" }, invalid: []string{"2001:db8::1", "-"},
		},
		lb.AnnotationPrimaryIPv4: {
			value: "web", want: func(s *lb.Spec) { s.PrimaryIPv4.Named = "web" },
			other: "4711", then: func(s *lb.Spec) { s.PrimaryIPv4.Named = "4711" }, invalid: []string{"0", "99999999999999999999", " web", strings.Repeat("x", 129)},
		},
		lb.AnnotationPrimaryIPv6: {
			value: "web", want: func(s *lb.Spec) { s.PrimaryIPv6.Named = "web" },
			other: "4711", then: func(s *lb.Spec) { s.PrimaryIPv6.Named = "4711" }, invalid: []string{"0", "web "},
		},
		hetzner + "private-ipv4": {
			value: "10.0.0.5", want: func(s *lb.Spec) { s.PrivateIP = netip.MustParseAddr("10.0.0.5") },
			other: "192.168.1.1", then: func(s *lb.Spec) { s.PrivateIP = netip.MustParseAddr("192.168.1.1") },
			invalid: []string{"192.0.2.1", "fd00::1", "10.0.0", "10.0.0.0/24"},
		},
		hetzner + "private-subnet-ip-range": {
			value: "10.0.1.0/24", want: func(s *lb.Spec) { s.PrivateRange = netip.MustParsePrefix("10.0.1.0/24") },
			other: "172.16.0.0/12", then: func(s *lb.Spec) { s.PrivateRange = netip.MustParsePrefix("172.16.0.0/12") },
			invalid: []string{"10.0.1.0", "10.0.1.1/24", "fd00::/64", "subnet"},
		},
		lb.OwnPrefix + "ip-mode": {
			value: "Proxy", want: func(s *lb.Spec) { s.Publish.Proxy = true },
			other: "VIP", then: func(*lb.Spec) {}, invalid: []string{"proxy", "DSR"},
		},
		lb.OwnPrefix + "adopt": {
			takeover: true, value: "true", want: func(s *lb.Spec) { s.Takeover.Adopt = true },
			other: "false", then: func(*lb.Spec) {}, invalid: []string{"please"},
		},
		lb.OwnPrefix + "source-ranges-enforced-elsewhere": {
			value: "true", want: func(*lb.Spec) {}, other: "false", then: func(*lb.Spec) {}, invalid: []string{"NetworkPolicy"},
		},
	}
}

// Settings that the cloud would reject are refused before a request.
func TestProtocolRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		with  map[string]string
		field string
	}{
		"https without a certificate":             {map[string]string{hetzner + "protocol": "https"}, "http-certificates"},
		"managed without domains":                 {map[string]string{hetzner + "protocol": "https", hetzner + "certificate-type": "managed"}, "http-managed-certificate-domains"},
		"more certificates than the type carries": {map[string]string{hetzner + "protocol": "https", hetzner + "http-certificates": "1,2,3,4,5,6,7,8,9,10,11"}, "http-certificates"},
		"two redirects":                           {map[string]string{hetzner + "protocol": "https", hetzner + "http-certificates": "7", hetzner + "http-redirect-http": "true"}, "http-redirect-http"},
		"an address outside its subnet": {
			map[string]string{hetzner + "private-ipv4": "10.0.0.5", hetzner + "private-subnet-ip-range": "10.0.1.0/24"}, "private-ipv4",
		},
	} {
		svc, d := plain()
		svc.Annotations = c.with
		_, err := create(svc, d)
		if err == nil || !strings.Contains(err.Error(), hetzner+c.field) {
			t.Errorf("%s: %v, want it refused for %s", name, err, c.field)
		}
	}
}

// With http and https, annotations of the check configure an HTTP check of the node port.
func TestChecksOfHTTPListeners(t *testing.T) {
	for want, with := range map[string]map[string]string{
		"http :10256/healthz": {},
		"http :30080/up":      {hetzner + "health-check-http-path": "/up"},
		"http :8080/":         {hetzner + "health-check-port": "8080"},
		"tcp :30080":          {hetzner + "health-check-protocol": "tcp"},
	} {
		svc, d := plain()
		svc.Annotations = with
		with[hetzner+"protocol"] = "http"
		if got := parse(t, svc, d).Listeners[0].Check.String(); !strings.HasPrefix(got, want+" ") {
			t.Errorf("%v: %s, want %s", with, got, want)
		}
	}
	svc, d := plain()
	svc.Annotations = map[string]string{hetzner + "health-check-protocol": "https"}
	if got := parse(t, svc, d).Listeners[0].Check; got.Protocol != "http" || !got.TLS || got.Port != 30080 {
		t.Errorf("https: %+v, want http over TLS on the node port", got)
	}
}

// Source ranges are a promise: no load balancer is created before the user confirms that they are
// enforced elsewhere.
func TestSourceRangesEnforcedElsewhere(t *testing.T) {
	svc, d := plain()
	svc.SourceRanges = []string{"192.0.2.0/24"}
	if _, err := create(svc, d); err == nil || !strings.Contains(err.Error(), "underlay.dev/source-ranges-enforced-elsewhere") {
		t.Errorf("got %v, want a refusal that names the way out", err)
	}
	svc.Annotations = map[string]string{"underlay.dev/source-ranges-enforced-elsewhere": "false"}
	if _, err := create(svc, d); err == nil {
		t.Error("false is taken for a confirmation")
	}
	svc.Annotations["underlay.dev/source-ranges-enforced-elsewhere"] = "true"
	if notes, err := create(svc, d); err != nil || len(notes) != 0 {
		t.Errorf("confirmed: notes %v, error %v", notes, err)
	}
}
