package lb_test

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

func TestParseResolvesEverything(t *testing.T) {
	svc, d := plain()
	got, notes, err := lb.Parse(svc, d)
	if err != nil || len(notes) != 0 {
		t.Fatalf("notes %v, error %v", notes, err)
	}
	check := lb.HealthCheck{
		Protocol: "http", Port: 10256, Path: "/healthz", StatusCodes: "2??,3??",
		Interval: seconds(10), Timeout: seconds(15), Retries: 3,
	}
	want := lb.Spec{
		Owner: lb.Owner{Cluster: "demo", UID: svc.UID}, Name: "a0a1b2c3d00004000800000000000000",
		Type: "lb11", Location: "fsn1", Algorithm: lb.RoundRobin, Public: true, Network: 7,
		Listeners: []lb.Listener{
			{Port: 80, DestinationPort: 30080, Protocol: "tcp", Check: check},
			{Port: 443, DestinationPort: 30443, Protocol: "tcp", Check: check},
		},
		Publish: lb.Publish{IPv6: true, Private: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestDefaultsReachTheSpec(t *testing.T) {
	svc, _ := plain()
	got := parse(t, svc, lb.Defaults{
		Cluster: "demo", Network: 7, NetworkZone: "eu-central", Type: "lb31", Algorithm: lb.LeastConnections,
		UsePrivateIP: true, DisablePrivateIngress: true, DisablePublicNetwork: true,
		UsesProxyProtocol: true, DisableIPv6: true,
		CheckDefaults: lb.CheckDefaults{
			HealthCheck: lb.CheckNodePort, HealthCheckInterval: 5 * time.Second,
			HealthCheckTimeout: 4 * time.Second, HealthCheckRetries: 2,
		},
	})
	if got.NetworkZone != "eu-central" || got.Location != "" || got.Type != "lb31" || got.Algorithm != lb.LeastConnections ||
		!got.UsePrivateIP || got.Public || got.Publish != (lb.Publish{Proxy: true}) {
		t.Errorf("got %+v", got)
	}
	want := lb.HealthCheck{Protocol: "tcp", Port: 30080, Interval: 5 * time.Second, Timeout: 4 * time.Second, Retries: 2}
	if l := got.Listeners[0]; l.Check != want || !l.ProxyProtocol {
		t.Errorf("got %+v, want check %+v and PROXY protocol", l, want)
	}
}

// The traffic policy determines the health check, unless annotations do.
//
//	policy    mode         annotations           check
//	Cluster   kube-proxy   –                     http :10256/healthz
//	Cluster   node-port    –                     tcp  :nodePort
//	Cluster   either       uses-proxyprotocol    tcp  :nodePort
//	Local     either       –                     http :healthCheckNodePort/healthz
//	either    either       protocol and/or port  as written
func TestHealthCheckByTrafficPolicy(t *testing.T) {
	for _, c := range []struct {
		name        string
		local       bool
		proxy       bool
		mode        lb.CheckMode
		annotations map[string]string
		want        string
	}{
		{name: "Cluster", want: "http :10256/healthz"},
		{name: "Cluster by configuration", mode: lb.CheckNodePort, want: "tcp :30080"},
		{name: "Cluster by annotation", annotations: map[string]string{"underlay.dev/health-check": "node-port"}, want: "tcp :30080"},
		{name: "Cluster, annotation beats configuration", mode: lb.CheckNodePort, annotations: map[string]string{"underlay.dev/health-check": "kube-proxy"}, want: "http :10256/healthz"},
		{name: "Local", local: true, want: "http :32000/healthz"},
		{name: "Cluster, PROXY protocol", proxy: true, want: "tcp :30080"},
		{name: "Cluster, PROXY protocol, by annotation", proxy: true, annotations: map[string]string{"underlay.dev/health-check": "kube-proxy"}, want: "http :10256/healthz"},
		{name: "Local, PROXY protocol", proxy: true, local: true, want: "http :32000/healthz"},
		{name: "Local, PROXY protocol, node-port by configuration", proxy: true, local: true, mode: lb.CheckNodePort, want: "http :32000/healthz"},
		{name: "Local, PROXY protocol, by annotation", proxy: true, local: true, annotations: map[string]string{"underlay.dev/health-check": "node-port"}, want: "tcp :30080"},
		{name: "Local is never node-port", local: true, mode: lb.CheckNodePort, want: "http :32000/healthz"},
		{name: "Local, explicit protocol", local: true, annotations: map[string]string{hetzner + "health-check-protocol": "tcp"}, want: "tcp :30080"},
		{name: "Local, explicit port", local: true, annotations: map[string]string{hetzner + "health-check-port": "81"}, want: "tcp :81"},
		{name: "Cluster, explicit path", annotations: map[string]string{hetzner + "health-check-protocol": "http", hetzner + "health-check-http-path": "/up"}, want: "http :30080/up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc, d := plain()
			svc.Annotations, d.HealthCheck, d.UsesProxyProtocol = c.annotations, c.mode, c.proxy
			if svc.Local = c.local; c.local {
				svc.HealthCheckNodePort = 32000
			}
			got := parse(t, svc, d).Listeners[0].Check
			if !strings.HasPrefix(got.String(), c.want+" ") {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if (got.Protocol == "http") != (got.StatusCodes != "") {
				t.Errorf("status codes %q with protocol %s", got.StatusCodes, got.Protocol)
			}
		})
	}
}

func TestSettingsWithoutEffectAreNoted(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		field       string
	}{
		"no address to be seen": {annotations: map[string]string{hetzner + "use-private-ip": "true", hetzner + "disable-public-network": "true", hetzner + "disable-private-ingress": "true"}, field: hetzner + "disable-public-network"},
	} {
		svc, d := plain()
		svc.Annotations = c.annotations
		_, notes, err := lb.Parse(svc, d)
		if err != nil || len(notes) != 1 || notes[0].Field != c.field || notes[0].Grade != lb.Warning {
			t.Errorf("%s: notes %v, error %v, want one warning about %s", name, notes, err, c.field)
		}
	}
}

// With policy Local too, this annotation requests accurate checks after a takeover.
func TestOptingInIsNoMistakeUnderLocal(t *testing.T) {
	svc, d := plain()
	svc.Annotations, svc.Local, svc.HealthCheckNodePort = map[string]string{"underlay.dev/health-check": "kube-proxy"}, true, 32000
	spec, notes, err := lb.Parse(svc, d)
	if err != nil || len(notes) != 0 || spec.Listeners[0].Check.Port != 32000 {
		t.Errorf("%+v, notes %v, error %v", spec.Listeners, notes, err)
	}
}

// create returns the notes for a Service without a load balancer, and the reasons if none can be
// created.
func create(svc lb.Service, d lb.Defaults) ([]lb.Note, error) {
	spec, notes, err := lb.Parse(svc, d)
	if hindrances := spec.Hindrances(); err == nil && len(hindrances) > 0 {
		err = &lb.RefusedError{Notes: hindrances}
	}
	return notes, err
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*lb.Service, *lb.Defaults)
		field  string
		value  string
	}{
		{"source ranges", func(s *lb.Service, _ *lb.Defaults) { s.SourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24"} }, "spec.loadBalancerSourceRanges", "192.0.2.0/24,198.51.100.0/24"},
		{"no node port", func(s *lb.Service, _ *lb.Defaults) { s.Ports[0].NodePort = 0 }, "spec.ports", "443/TCP"},
		{"UDP only", func(s *lb.Service, _ *lb.Defaults) {
			s.Ports = []lb.Port{{Number: 53, Protocol: "UDP", NodePort: 30053}}
		}, "spec.ports", ""},
		{"IPv6 only", func(s *lb.Service, _ *lb.Defaults) { s.IPv6Only = true }, "spec.ipFamilies", "IPv6"},
		{"nowhere to be", func(_ *lb.Service, d *lb.Defaults) { d.Location = "" }, hetzner + "location", ""},
		{"two places", func(s *lb.Service, _ *lb.Defaults) {
			s.Annotations = map[string]string{hetzner + "location": "fsn1", hetzner + "network-zone": "eu-central"}
		}, hetzner + "location", "fsn1"},
		{"private without network", func(s *lb.Service, d *lb.Defaults) {
			d.Network, s.Annotations = 0, map[string]string{hetzner + "use-private-ip": "true"}
		}, hetzner + "use-private-ip", "true"},
		{"neither public nor network", func(s *lb.Service, d *lb.Defaults) {
			d.Network, s.Annotations = 0, map[string]string{hetzner + "disable-public-network": "true"}
		}, hetzner + "disable-public-network", "true"},
		{"public targets without public interface", func(s *lb.Service, _ *lb.Defaults) {
			s.Annotations = map[string]string{hetzner + "disable-public-network": "true"}
		}, hetzner + "disable-public-network", "true"},
		{"Local without health check node port", func(s *lb.Service, _ *lb.Defaults) { s.Local = true }, "spec.healthCheckNodePort", ""},
		{"more ports than the type carries", func(s *lb.Service, _ *lb.Defaults) {
			for i := range 4 {
				s.Ports = append(s.Ports, lb.Port{Number: 8000 + i, Protocol: "TCP", NodePort: 31000 + i})
			}
		}, hetzner + "type", "lb11"},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc, d := plain()
			c.change(&svc, &d)
			_, err := create(svc, d)
			var refused *lb.RefusedError
			if !errors.As(err, &refused) || len(refused.Notes) != 1 {
				t.Fatalf("got %v, want one reason", err)
			}
			if n := refused.Notes[0]; n.Field != c.field || n.Value != c.value || n.Text == "" {
				t.Errorf("got %+v, want field %q, value %q, and a remedy", n, c.field, c.value)
			}
		})
	}
}

func TestAllReasonsAtOnce(t *testing.T) {
	svc, d := plain()
	svc.SourceRanges = []string{"192.0.2.0/24"}
	svc.Annotations = map[string]string{hetzner + "type": "LB", hetzner + "health-check-retries": "9", hetzner + "use-private-ip": "ja"}
	d.Location = ""
	_, _, err := lb.Parse(svc, d)
	var refused *lb.RefusedError
	if !errors.As(err, &refused) || len(refused.Notes) != 5 {
		t.Fatalf("got %v, want five reasons", err)
	}
	for _, n := range refused.Notes {
		if !strings.Contains(err.Error(), n.Field) || !strings.Contains(err.Error(), n.Text) {
			t.Errorf("the error lacks %s", n)
		}
	}
}

func TestPartsThatCannotBeServed(t *testing.T) {
	svc, d := plain()
	svc.Ports = append(svc.Ports, lb.Port{Number: 443, Protocol: "UDP", NodePort: 30443}, lb.Port{Number: 9, Protocol: "SCTP"})
	svc.ClientIPAffinity, svc.LoadBalancerIP = true, "192.0.2.1"
	spec, notes, err := lb.Parse(svc, d)
	if err != nil {
		t.Fatal(err)
	}
	if len(spec.Listeners) != 2 {
		t.Errorf("%d listeners", len(spec.Listeners))
	}
	var fields []string
	for _, n := range notes {
		fields = append(fields, n.Field)
		if n.Grade != lb.Error || n.Reason != lb.ReasonUnsupported {
			t.Errorf("got %+v", n)
		}
	}
	if want := []string{"spec.sessionAffinity", "spec.loadBalancerIP", "spec.ports", "spec.ports"}; !slices.Equal(fields, want) {
		t.Errorf("notes on %v, want %v", fields, want)
	}
}

// Ranges that admit all clients need no enforcement by a load balancer.
func TestSourceRangesForEverybody(t *testing.T) {
	for _, c := range []struct {
		ranges []string
		open   bool
	}{
		{nil, true},
		{[]string{"0.0.0.0/0"}, true},
		{[]string{"0.0.0.0/0", " ::/0"}, true},
		{[]string{"192.0.2.0/24", "0.0.0.0/0"}, true},
		{[]string{"192.0.2.0/24"}, false},
		{[]string{"0.0.0.0/0", "2001:db8::/32"}, false},
		{[]string{"0.0.0.0/0", "everybody"}, false},
		{[]string{"0.0.0.0"}, false},
	} {
		svc, d := plain()
		svc.SourceRanges = c.ranges
		if notes, err := create(svc, d); (err == nil) != c.open || len(notes) != 0 {
			t.Errorf("%q: notes %v, error %v; want open %t", c.ranges, notes, err, c.open)
		}
	}
}

// A condition holds at most 32,768 bytes; a longer one can't be written at all.
func TestNotesAreOfReadableLength(t *testing.T) {
	svc, d := plain()
	long := strings.Repeat("ß", 100_000)
	svc.Annotations = map[string]string{hetzner + "type": long}
	for i := range 500 {
		svc.Annotations[hetzner+"mistake-"+strconv.Itoa(i)] = long
	}
	_, notes, err := lb.Parse(svc, d)
	if err == nil || len(notes) != 500 {
		t.Fatalf("%d notes, error %v", len(notes), err)
	}
	for _, text := range []string{err.Error(), notes[0].String(), lb.Note{Text: long}.String()} {
		if len(text) > 1200 || !strings.Contains(text, "ß…") {
			t.Errorf("%d bytes: %s", len(text), text[:min(len(text), 100)])
		}
	}
	all := lb.Join(notes)
	if len(all) > 10_000 || !strings.Contains(all, notes[3].String()) || !strings.HasSuffix(all, " more") {
		t.Errorf("%d bytes for %d notes: …%s", len(all), len(notes), all[len(all)-20:])
	}
}
