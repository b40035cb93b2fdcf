package lb_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

func portsCase() annotationCase {
	return annotationCase{
		value: `{"443":{"protocol":"http","idleTimeout":60}}`, want: func(s *lb.Spec) {
			http := httpDefaults()
			http.IdleTimeout = seconds(60)
			s.Publish.Proxy = true
			s.Listeners[1].Protocol, s.Listeners[1].HTTP = "http", http
		},
		other: `{"80":{"healthCheck":{"retries":1}}}`, then: func(s *lb.Spec) {
			s.Listeners[0].Check.Retries = 1
		},
		invalid: []string{"443", "[]", `{"443":{}`, `{"443":{}} x`, "null"},
	}
}

// An option that every port has is equivalent to the annotation for all ports.
func TestOptionOfEachPortIsTheAnnotationForAll(t *testing.T) {
	cases := generalCases()
	maps.Copy(cases, checkCases())
	maps.Copy(cases, protocolCases())
	maps.Copy(cases, ownCases())
	for _, option := range lb.PortOptions() {
		t.Run(option.Option, func(t *testing.T) {
			c := cases[option.Name]
			for _, value := range []string{c.value, c.other} {
				svc, d := plain()
				if c.change != nil {
					c.change(&svc)
				}
				svc.Annotations = maps.Clone(c.with)
				if svc.Annotations == nil {
					svc.Annotations = make(map[string]string)
				}
				byAnnotation := svc
				byAnnotation.Annotations = maps.Clone(svc.Annotations)
				byAnnotation.Annotations[option.Name] = value
				svc.Annotations[lb.AnnotationPorts] = portsJSON(t, svc.Ports, option, value)
				got, want := resolved(t, svc, d), resolved(t, byAnnotation, d)
				got.Takeover, want.Takeover = lb.Takeover{}, lb.Takeover{}
				got.PortCertificates, got.Certificates, want.Certificates = nil, nil, nil
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s\n got %+v\nwant %+v", svc.Annotations[lb.AnnotationPorts], got, want)
				}
			}
		})
	}
}

// resolved returns the spec with the ID 70 for the certificate "mine".
func resolved(t *testing.T, svc lb.Service, d lb.Defaults) lb.Spec {
	t.Helper()
	spec, _, notes := parse(t, svc, d).Resolve([]lb.Certificate{{ID: 70, Name: "mine"}})
	if len(notes) > 0 {
		t.Fatal(notes)
	}
	return spec
}

// portsJSON returns options that give an annotation's value to each of the ports.
func portsJSON(t *testing.T, ports []lb.Port, option lb.Annotation, text string) string {
	t.Helper()
	var value any = text
	switch option.Type {
	case "boolean":
		value, _ = strconv.ParseBool(text)
	case "integer":
		value = json.Number(text)
	case "list":
		items := []any{}
		for item := range strings.SplitSeq(text, ",") {
			items = append(items, strings.TrimSpace(item))
		}
		value = items
	}
	object := map[string]any{option.Option: value}
	if group, path, nested := strings.Cut(option.Option, "."); nested {
		object = map[string]any{group: map[string]any{path: value}}
	}
	all := make(map[string]any)
	for _, port := range ports {
		all[strconv.Itoa(port.Number)] = object
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// portService returns a Service with ports of several kinds and these options.
func portService(options string, annotations ...string) (lb.Service, lb.Defaults) {
	svc, d := plain()
	svc.Ports = []lb.Port{
		{Name: "http", Number: 80, Protocol: "TCP", NodePort: 30080},
		{Name: "https", Number: 443, Protocol: "TCP", NodePort: 30443},
		{Name: "smtp", Number: 25, Protocol: "TCP", NodePort: 30025},
		{Name: "dns", Number: 53, Protocol: "UDP", NodePort: 30053},
	}
	svc.Annotations = map[string]string{lb.AnnotationPorts: options}
	for i := 0; i < len(annotations); i += 2 {
		svc.Annotations[annotations[i]] = annotations[i+1]
	}
	return svc, d
}

func TestPortsDiffer(t *testing.T) {
	svc, d := portService(`{
		"https": {"protocol":"https","certificates":["mine",8]},
		"25": {"proxyProtocol":true},
		"80": {"healthCheck":{"protocol":"http","port":8081,"path":"/ready","statusCodes":[200,"3??"],"interval":"5s","timeout":4,"tls":true,"domain":"example.com","retries":2}}
	}`)
	spec := resolved(t, svc, d)
	tcp := lb.HealthCheck{Protocol: "tcp", Port: 30025, Interval: seconds(10), Timeout: seconds(15), Retries: 3}
	proxied := lb.HealthCheck{Protocol: "http", Port: 10256, Path: "/healthz", StatusCodes: "2??,3??", Interval: seconds(10), Timeout: seconds(15), Retries: 3}
	https := httpDefaults()
	https.Certificates = "8,70"
	want := []lb.Listener{
		{Port: 25, DestinationPort: 30025, Protocol: "tcp", ProxyProtocol: true, Check: tcp},
		{Port: 80, DestinationPort: 30080, Protocol: "tcp", Check: lb.HealthCheck{
			Protocol: "http", Port: 8081, Path: "/ready", StatusCodes: "200,3??", Domain: "example.com", TLS: true,
			Interval: seconds(5), Timeout: seconds(4), Retries: 2,
		}},
		{Port: 443, DestinationPort: 30443, Protocol: "https", HTTP: https, Check: proxied},
	}
	if !reflect.DeepEqual(spec.Listeners, want) {
		t.Errorf("\n got %+v\nwant %+v", spec.Listeners, want)
	}
	if !spec.Publish.Proxy {
		t.Errorf("pods reach ports past the load balancer that need what it adds: %+v", spec)
	}
}

// The most specific setting wins: a port's option, then the annotation for all ports, then the
// configuration.
func TestOptionOfAPortBeatsAnnotations(t *testing.T) {
	svc, d := portService(`{"80":{"protocol":"tcp"},"25":{"protocol":"tcp","healthCheck":{"mode":"kube-proxy"}},"443":{"certificates":["9"]}}`,
		hetzner+"protocol", "https", hetzner+"http-certificates", "7", hetzner+"health-check-port", "8080", hetzner+"health-check-retries", "5")
	d.HealthCheckRetries = 1
	spec := resolved(t, svc, d)
	var got []string
	for _, l := range spec.Listeners {
		got = append(got, fmt.Sprintf("%d %s %q %s", l.Port, l.Protocol, l.HTTP.Certificates, l.Check))
	}
	want := []string{
		`25 tcp "" http :10256/healthz every 10s, timeout 15s, 5 tries`,
		`80 tcp "" tcp :8080 every 10s, timeout 15s, 5 tries`,
		`443 https "9" http :8080/ every 10s, timeout 15s, 5 tries`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	if len(spec.Certificates) != 0 {
		t.Errorf("certificates %v are asked for, which no port has", spec.Certificates)
	}
}

// A managed certificate is for the https ports without certificates of their own.
func TestManagedCertificateBesideOnesOfPorts(t *testing.T) {
	svc, d := portService(`{"443":{"certificates":["mine"]},"25":{"protocol":"tcp"}}`, hetzner+"protocol", "https",
		hetzner+"certificate-type", "managed", hetzner+"http-managed-certificate-domains", "example.com")
	spec := parse(t, svc, d)
	managed := lb.Certificate{ID: 5, Managed: true, Domains: []string{"example.com"}, Labels: spec.Owner.Labels()}
	got, ops, notes := spec.Resolve([]lb.Certificate{{ID: 70, Name: "mine"}, managed})
	if len(ops)+len(notes) > 0 || got.Listeners[1].HTTP.Certificates != "5" || got.Listeners[2].HTTP.Certificates != "70" {
		t.Errorf("%v %v %+v", ops, notes, got.Listeners)
	}
	if _, ops, _ := spec.Resolve([]lb.Certificate{{ID: 70, Name: "mine"}}); len(ops) != 1 {
		t.Errorf("%v, want the certificate to be obtained", ops)
	}
	// No certificate is obtained while another setting of the Service is invalid.
	if _, ops, notes := spec.Resolve(nil); len(ops) != 0 || len(notes) != 1 || notes[0].Field != lb.AnnotationPorts || notes[0].Value != "mine" {
		t.Errorf("%v %v, want a note about the port's certificate", ops, notes)
	}
}

func TestRedirectOfOnePort(t *testing.T) {
	redirect := `{"443":{"protocol":"https","certificates":["7"],"redirectHTTP":true}}`
	svc, d := portService(redirect)
	if _, _, err := lb.Parse(svc, d); err == nil || !strings.Contains(err.Error(), "port 80, which the Service has too") {
		t.Errorf("beside port 80: %v", err)
	}
	svc.Ports = svc.Ports[1:]
	if spec := parse(t, svc, d); !spec.Listeners[1].HTTP.Redirect || spec.Listeners[0].HTTP.Redirect {
		t.Errorf("%+v", spec.Listeners)
	}
	alone, d := portService(`{"80":{"protocol":"https","certificates":["7"],"redirectHTTP":true}}`)
	if _, _, err := lb.Parse(alone, d); err == nil || !strings.Contains(err.Error(), "port 80 takes port 80") {
		t.Errorf("port 80 itself: %v", err)
	}
	svc.Annotations[lb.AnnotationPorts] = `{"443":{"redirectHTTP":true},"25":{"redirectHTTP":true}}`
	svc.Annotations[hetzner+"protocol"], svc.Annotations[hetzner+"http-certificates"] = "https", "7"
	if _, _, err := lb.Parse(svc, d); err == nil || !strings.Contains(err.Error(), "443, 25") {
		t.Errorf("two redirects: %v", err)
	}
}

// All mistakes are refused at once, with field, value and remedy.
func TestMistakesInOptionsOfPorts(t *testing.T) {
	for options, want := range map[string]string{
		`{"443":{"protocl":"https"}}`:                `underlay.dev/ports 443.protocl="https": no such option: did you mean protocol?`,
		`{"443":{"healthCheck":{"intervall":"5s"}}}`: `underlay.dev/ports 443.healthCheck.intervall="5s": no such option: did you mean healthCheck.interval?`,
		`{"443":{"interval":"5s"}}`:                  `did you mean`,
		`{"8443":{}}`:                                `underlay.dev/ports 8443: the Service has no such port: name one of 80, 443, 25, 53`,
		`{"dns":{}}`:                                 `underlay.dev/ports dns: the cloud's load balancers carry TCP only`,
		`{"443":{},"https":{}}`:                      `underlay.dev/ports https: port 443 is named twice`,
		`{"443":{"protocol":"udp"}}`:                 `underlay.dev/ports 443.protocol="udp": set tcp or http or https, or remove it`,
		`{"443":{"protocol":true}}`:                  `underlay.dev/ports 443.protocol="true": set tcp or http or https`,
		`{"443":{"protocol":null}}`:                  `underlay.dev/ports 443.protocol: set a text`,
		`{"443":{"protocol":""}}`:                    `or leave it out`,
		`{"443":{"healthCheck":{"port":80.5}}}`:      `underlay.dev/ports 443.healthCheck.port="80.5": set a whole number from 1 to 65535`,
		`{"443":{"healthCheck":{"interval":"1s"}}}`:  `443.healthCheck.interval="1s": set whole seconds from 3 to 60`,
		`{"443":{"healthCheck":{"interval":{}}}}`:    `443.healthCheck.interval: set a text, a number`,
		`{"443":{"healthCheck":{"statusCodes":[]}}}`: `or leave it out`,
		`{"443":{"healthCheck":true}}`:               `443.healthCheck="true": no such option: did you mean healthCheck.`,
		`{"443":7}`:                                  `not a JSON object of ports with objects of options`,
		`["443"]`:                                    `not a JSON object of ports with objects of options`,
		`{"443":{}`:                                  `(unexpected EOF)`,
		`{"443":{}}{}`:                               `something follows it`,
		`{443:{}}`:                                   `(invalid character`,

		`{"":{}}`:                                `underlay.dev/ports: the Service has no such port: name one of 80, 443, 25, 53`,
		`{"443":` + strings.Repeat("[", 100_000): `100007 bytes are too long: set at most 32768`,
	} {
		svc, d := portService(options)
		_, _, err := lb.Parse(svc, d)
		var refused *lb.RefusedError
		if !errors.As(err, &refused) || len(refused.Notes) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", options, err, want)
		}
	}
	unnamed, defaults := plain()
	unnamed.Ports = unnamed.Ports[:1]
	unnamed.Annotations = map[string]string{lb.AnnotationPorts: `{"":{}}`}
	if _, _, err := lb.Parse(unnamed, defaults); err == nil {
		t.Error("no name names the port that has none")
	}
	svc, d := portService(`{"443":{"protocol":"udp","healthCheck":{"port":0}},"444":{}}`)
	_, _, err := lb.Parse(svc, d)
	var refused *lb.RefusedError
	if !errors.As(err, &refused) || len(refused.Notes) != 3 {
		t.Errorf("%v, want all three mistakes", err)
	}
}

func FuzzPorts(f *testing.F) {
	for _, seed := range []string{`{"443":{"protocol":"http","healthCheck":{"port":80}}}`, `{"80":[{"a":[1,{}]}]}`, `{`, `{"443":`, `{"443":{"healthCheck":{"statusCodes":[1,"2"]}}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, options string) {
		svc, d := portService(options)
		spec, _, err := lb.Parse(svc, d)
		var refused *lb.RefusedError
		if err != nil && (!errors.As(err, &refused) || len(refused.Notes) == 0) {
			t.Fatalf("an error without reasons: %v", err)
		}
		if err == nil {
			checkSpec(t, spec)
		}
	})
}
