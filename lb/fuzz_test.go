package lb_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

// Parse either refuses random annotations with reasons, or returns a spec that the cloud's
// description allows, and always returns the same result.
func FuzzParse(f *testing.F) {
	rows := lb.Annotations()
	for i := range rows {
		f.Add(uint8(i), "true", uint8(i+3), "10s", uint16(80), uint16(30080), i%2 == 0)
	}
	f.Fuzz(func(
		t *testing.T, one uint8, value string, two uint8, other string, port, nodePort uint16, local bool,
	) {
		svc, d := plain()
		svc.Ports = append(svc.Ports[:1], lb.Port{Number: int(port), Protocol: "TCP", NodePort: int(nodePort)})
		svc.Local, svc.HealthCheckNodePort = local, int(nodePort)
		svc.Annotations = map[string]string{
			rows[int(one)%len(rows)].Name: value,
			rows[int(two)%len(rows)].Name: other,
			lb.HetznerPrefix + value:      other,
		}
		spec, notes, err := lb.Parse(svc, d)
		again, notesAgain, errAgain := lb.Parse(svc, d)
		if !reflect.DeepEqual(spec, again) || !slices.Equal(notes, notesAgain) ||
			!reflect.DeepEqual(err, errAgain) {
			t.Fatal("the same Service was read in two ways")
		}
		var refused *lb.RefusedError
		if err != nil && (!errors.As(err, &refused) || len(refused.Notes) == 0) {
			t.Fatalf("an error without reasons: %v", err)
		}
		if err == nil {
			checkSpec(t, spec)
		}
	})
}

func checkSpec(t *testing.T, s lb.Spec) {
	t.Helper()
	placeless := (s.Location == "") == (s.NetworkZone == "")
	if s.Name == "" || s.Type == "" || placeless != (len(s.Placeless) > 0) || len(s.Listeners) == 0 {
		t.Errorf("incomplete: %+v", s)
	}
	if !s.Public && (s.Network == 0 || !s.UsePrivateIP) {
		t.Errorf("nothing could reach it, or it nothing: %+v", s)
	}
	for _, l := range s.Listeners {
		c := l.Check
		if h := l.HTTP; l.Protocol == "tcp" && h != (lb.HTTP{}) || l.Protocol != "tcp" && (h.CookieName == "" || h.CookieLifetime < 30*time.Second ||
			h.CookieLifetime > 24*time.Hour || h.IdleTimeout < 30*time.Second ||
			h.IdleTimeout > 5*time.Minute) ||
			l.Protocol == "https" && h.Certificates == "" && !s.NeedsCertificates() || l.Protocol != "https" && (h.Redirect || h.Certificates != "") {
			t.Errorf("listener %+v", l)
		}
		tcp := lb.HealthCheck{Protocol: "tcp", Port: c.Port, Interval: c.Interval, Timeout: c.Timeout, Retries: c.Retries}
		if c.Protocol == "tcp" && c != tcp || c.Protocol == "http" && (c.Path == "" || c.StatusCodes == "") || c.Port == 0 ||
			c.Interval < 3*time.Second || c.Interval > time.Minute || c.Timeout < time.Second ||
			c.Timeout > time.Minute ||
			c.Retries < 1 || c.Retries > 5 {
			t.Errorf("a check that the cloud would refuse: %+v", c)
		}
	}
}
