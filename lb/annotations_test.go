package lb_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

const hetzner = lb.HetznerPrefix

// plain returns a Service without special wishes, and defaults that suffice for it.
func plain() (lb.Service, lb.Defaults) {
	return lb.Service{
			UID:   "0a1b2c3d-0000-4000-8000-000000000001",
			Ports: []lb.Port{{Number: 443, Protocol: "TCP", NodePort: 30443}, {Number: 80, Protocol: "TCP", NodePort: 30080}},
		},
		lb.Defaults{Cluster: "demo", Network: 7, Location: "fsn1"}
}

func parse(t *testing.T, svc lb.Service, d lb.Defaults) lb.Spec {
	t.Helper()
	spec, _, err := lb.Parse(svc, d)
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return spec
}

// annotationCase tests one annotation: a value and its effect, another valid value, and one that is
// refused. Removing the annotation must restore the former spec.
type annotationCase struct {
	with    map[string]string // other annotations that the case needs
	change  func(*lb.Service) // further changes that the case needs
	value   string
	want    func(*lb.Spec)
	other   string
	then    func(*lb.Spec)
	invalid []string
	// needed is a value that makes a Service valid which is refused without the annotation.
	needed string
	// takeover is true if the annotation is about takeovers.
	takeover bool
}

func eachCheck(change func(*lb.HealthCheck)) func(*lb.Spec) {
	return func(s *lb.Spec) {
		for i := range s.Listeners {
			change(&s.Listeners[i].Check)
		}
	}
}

func onNodePort(s *lb.Spec, check lb.HealthCheck) {
	for i := range s.Listeners {
		check.Port = s.Listeners[i].DestinationPort
		s.Listeners[i].Check = check
	}
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func generalCases() map[string]annotationCase {
	private := map[string]string{hetzner + "use-private-ip": "true"}
	return map[string]annotationCase{
		hetzner + "name": {
			value: "web", want: func(s *lb.Spec) { s.Name = "web" },
			other: "My Web Balancer", then: func(s *lb.Spec) { s.Name = "My Web Balancer" },
			invalid: []string{" web", "web ", strings.Repeat("x", 129)},
		},
		hetzner + "type": {
			value: "lb21", want: func(s *lb.Spec) { s.Type = "lb21" },
			other: "lb99", then: func(s *lb.Spec) { s.Type = "lb99" },
			invalid: []string{"LB 11"},
		},
		hetzner + "location": {
			value: "nbg1", want: func(s *lb.Spec) { s.Location = "nbg1" },
			other: "hel1", then: func(s *lb.Spec) { s.Location = "hel1" },
			invalid: []string{"Falkenstein", "fsn1 nbg1"},
		},
		hetzner + "network-zone": {
			value: "us-east", want: func(s *lb.Spec) { s.Location, s.NetworkZone = "", "us-east" },
			other: "eu-central", then: func(s *lb.Spec) { s.Location, s.NetworkZone = "", "eu-central" },
			invalid: []string{"EU"},
		},
		hetzner + "algorithm-type": {
			value: "least_connections", want: func(s *lb.Spec) { s.Algorithm = lb.LeastConnections },
			other: "round_robin", then: func(*lb.Spec) {},
			invalid: []string{"random", "ROUND_ROBIN"},
		},
		hetzner + "uses-proxyprotocol": {
			value: "true", want: func(s *lb.Spec) {
				s.Publish.Proxy = true
				for i := range s.Listeners {
					s.Listeners[i].ProxyProtocol = true
					s.Listeners[i].Check = lb.HealthCheck{
						Protocol: "tcp", Port: s.Listeners[i].DestinationPort, Interval: seconds(10), Timeout: seconds(15), Retries: 3,
					}
				}
			},
			other: "false", then: func(*lb.Spec) {}, invalid: []string{"yes", "2"},
		},
		hetzner + "hostname": {
			value: "lb.example.com", want: func(s *lb.Spec) { s.Publish.Hostname = "lb.example.com" },
			other: "other.example.com", then: func(s *lb.Spec) { s.Publish.Hostname = "other.example.com" },
			invalid: []string{"192.0.2.1", "2001:db8::1", "LB.example.com", "-a.example", "a..b", strings.Repeat("a", 64)},
		},
		hetzner + "node-selector": {
			value: "role=edge", want: func(s *lb.Spec) { s.NodeSelector = "role=edge" },
			other: "role in (edge, web)", then: func(s *lb.Spec) { s.NodeSelector = "role in (edge, web)" },
		},
		lb.AnnotationTargets: { // its effect has its own test, TestParseWithPodsAsTargets
			value: "pods", want: func(*lb.Spec) {},
			other: "nodes", then: func(*lb.Spec) {}, invalid: []string{"pod", "endpoints"},
		},
		hetzner + "use-private-ip": {
			value: "true", want: func(s *lb.Spec) { s.UsePrivateIP = true },
			other: "false", then: func(*lb.Spec) {}, invalid: []string{"maybe"},
		},
		hetzner + "disable-private-ingress": {
			value: "true", want: func(s *lb.Spec) { s.Publish.Private = false },
			other: "0", then: func(*lb.Spec) {}, invalid: []string{"off"},
		},
		hetzner + "disable-public-network": {
			with: private, value: "true", want: func(s *lb.Spec) { s.Public = false },
			other: "false", then: func(*lb.Spec) {}, invalid: []string{"on"},
		},
		hetzner + "ipv6-disabled": {
			value: "1", want: func(s *lb.Spec) { s.Publish.IPv6 = false },
			other: "false", then: func(*lb.Spec) {}, invalid: []string{"no"},
		},
	}
}

func checkCases() map[string]annotationCase {
	tcp := lb.HealthCheck{Protocol: "tcp", Interval: seconds(10), Timeout: seconds(15), Retries: 3}
	http := tcp
	http.Protocol, http.Path, http.StatusCodes = "http", "/", lb.DefaultStatusCodes
	requested := map[string]string{hetzner + "health-check-protocol": "http"}
	return map[string]annotationCase{
		lb.OwnPrefix + "health-check": {
			value: "node-port", want: func(s *lb.Spec) { onNodePort(s, tcp) },
			other: "kube-proxy", then: func(*lb.Spec) {}, invalid: []string{"tcp", "none"},
		},
		hetzner + "health-check-protocol": {
			value: "tcp", want: func(s *lb.Spec) { onNodePort(s, tcp) },
			other: "http", then: func(s *lb.Spec) { onNodePort(s, http) }, invalid: []string{"HTTP", "icmp"},
		},
		hetzner + "health-check-port": {
			value: "8080", want: eachCheck(func(h *lb.HealthCheck) { *h = tcp; h.Port = 8080 }),
			other: "65535", then: eachCheck(func(h *lb.HealthCheck) { *h = tcp; h.Port = 65535 }),
			invalid: []string{"0", "65536", "http", "-1"},
		},
		hetzner + "health-check-interval": {
			value: "3", want: eachCheck(func(h *lb.HealthCheck) { h.Interval = seconds(3) }),
			other: "1m", then: eachCheck(func(h *lb.HealthCheck) { h.Interval = seconds(60) }),
			invalid: []string{"2", "61", "61s", "3.5s", "10 s", "-3", "99999999999999999999"},
		},
		hetzner + "health-check-timeout": {
			value: "1s", want: eachCheck(func(h *lb.HealthCheck) { h.Timeout = seconds(1) }),
			other: "60", then: eachCheck(func(h *lb.HealthCheck) { h.Timeout = seconds(60) }),
			invalid: []string{"0", "61", "500ms"},
		},
		hetzner + "health-check-retries": {
			value: "1", want: eachCheck(func(h *lb.HealthCheck) { h.Retries = 1 }),
			other: "5", then: eachCheck(func(h *lb.HealthCheck) { h.Retries = 5 }), invalid: []string{"0", "6", "3s"},
		},
		hetzner + "health-check-http-path": {
			with: requested, value: "/live", want: eachCheck(func(h *lb.HealthCheck) { h.Path = "/live" }),
			other: "/a/b?c=d", then: eachCheck(func(h *lb.HealthCheck) { h.Path = "/a/b?c=d" }),
			invalid: []string{"live", "/a b", "/" + strings.Repeat("x", 256)},
		},
	}
}

func TestEveryAnnotation(t *testing.T) {
	cases := generalCases()
	maps.Copy(cases, checkCases())
	maps.Copy(cases, protocolCases())
	maps.Copy(cases, ownCases())
	for _, row := range lb.Annotations() {
		t.Run(row.Name, func(t *testing.T) {
			c, ok := cases[row.Name]
			if !ok {
				t.Fatal("an annotation without a test case")
			}
			checkAnnotation(t, row.Name, c)
		})
	}
}

func checkAnnotation(t *testing.T, name string, c annotationCase) {
	svc, d := plain()
	if c.change != nil {
		c.change(&svc)
	}
	svc.Annotations = maps.Clone(c.with)
	if c.needed != "" {
		if _, _, err := lb.Parse(svc, d); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without it: %v, want a refusal that names it", err)
		}
		c.with = maps.Clone(c.with)
		c.with[name] = c.needed
		svc.Annotations = maps.Clone(c.with)
	}
	without := parse(t, svc, d)
	// try returns the spec with the annotation set, and the one without it, for the caller to
	// change.
	try := func(value string) (got, want lb.Spec) {
		svc.Annotations = maps.Clone(c.with)
		want = parse(t, svc, d)
		if svc.Annotations == nil {
			svc.Annotations = map[string]string{}
		}
		svc.Annotations[name] = value
		return parse(t, svc, d), want
	}

	set, want := try(c.value)
	c.want(&want)
	if !c.takeover { // settings that matter only at a takeover have their own tests
		set.Takeover = want.Takeover
	}
	if !reflect.DeepEqual(set, want) {
		t.Errorf("set to %q:\n got %+v\nwant %+v", c.value, set, want)
	}
	changed, want := try(c.other)
	c.then(&want)
	changed.Takeover = want.Takeover
	if !reflect.DeepEqual(changed, want) {
		t.Errorf("changed to %q:\n got %+v\nwant %+v", c.other, changed, want)
	}
	if removed, _ := try(c.needed); !reflect.DeepEqual(removed, without) {
		t.Errorf("emptied:\n got %+v\nwant %+v", removed, without)
	}
	for _, value := range c.invalid {
		svc.Annotations[name] = value
		spec, _, err := lb.Parse(svc, d)
		var refused *lb.RefusedError
		if !errors.As(err, &refused) || len(refused.Notes) != 1 {
			t.Errorf("%q: got %v, want one reason to refuse it", value, err)
			continue
		}
		if n := refused.Notes[0]; n.Field != name || n.Value != value || n.Text == "" || n.Reason != lb.ReasonInvalid {
			t.Errorf("%q: the reason does not name field, value and remedy: %+v", value, n)
		}
		if !reflect.DeepEqual(spec, lb.Spec{}) {
			t.Errorf("%q: a refused Service has a spec: %+v", value, spec)
		}
	}
}

func TestUnknownAnnotations(t *testing.T) {
	for name, near := range map[string]string{
		"use-private-ips":       "use-private-ip",
		"healthcheck-port":      "health-check-port",
		"locaton":               "location",
		"Type":                  "type",
		"uses-proxy-protocol":   "uses-proxyprotocol",
		"disable-publicnetwork": "disable-public-network",
	} {
		svc, d := plain()
		svc.Annotations = map[string]string{hetzner + name: "x"}
		_, notes, err := lb.Parse(svc, d)
		if err != nil || len(notes) != 1 || notes[0].Grade != lb.Warning ||
			notes[0].Reason != lb.ReasonUnknown {
			t.Errorf("%s: notes %v, error %v, want one warning", name, notes, err)
			continue
		}
		if !strings.Contains(notes[0].Text, hetzner+near+"?") {
			t.Errorf("%s: %q does not suggest %s", name, notes[0].Text, near)
		}
	}

	svc, d := plain()
	svc.Annotations = map[string]string{"loadbalancer.hetzner.cloud/type": "lb21"}
	if _, notes, err := lb.Parse(svc, d); err != nil || len(notes) != 1 || !strings.Contains(notes[0].Text, hetzner+"type?") {
		t.Errorf("a slip in the prefix: notes %v, error %v", notes, err)
	}
	svc.Annotations = map[string]string{"underlay.dev/adpot": "true"}
	if _, notes, err := lb.Parse(svc, d); err != nil || len(notes) != 1 || !strings.Contains(notes[0].Text, "underlay.dev/adopt?") {
		t.Errorf("a slip below our own prefix: notes %v, error %v", notes, err)
	}
	svc.Annotations = map[string]string{
		hetzner + "id": "1", hetzner + "ipv4": "192.0.2.1", hetzner + "ipv6": "2001:db8::1",
		"example.com/type": "lb21", "underlay.dev/something": "of another part",
	}
	if _, notes, err := lb.Parse(svc, d); err != nil || len(notes) != 0 {
		t.Errorf("reserved and foreign names: notes %v, error %v, want none", notes, err)
	}
}

func TestAnnotationNamesAreUnique(t *testing.T) {
	var names []string
	for _, row := range lb.Annotations() {
		names = append(names, row.Name)
	}
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Errorf("%d rows have %d names", len(names), len(unique))
	}
}
