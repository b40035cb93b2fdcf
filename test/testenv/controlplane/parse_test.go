package controlplane

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseAudit(t *testing.T) {
	const whole = `{"verb":"patch","stageTimestamp":"2026-01-02T03:04:05.678901Z","user":{"username":"u"},"userAgent":"a",` +
		`"objectRef":{"resource":"nodes","name":"n1","subresource":"status"},"responseStatus":{"code":200}}` + "\n"
	tests := map[string]struct {
		log  string
		want []string
		err  string
	}{
		"nothing yet":                 {log: ""},
		"one":                         {log: whole, want: []string{"u patch nodes/status n1 200"}},
		"the second is still written": {log: whole + `{"verb":"pa`, want: []string{"u patch nodes/status n1 200"}},
		"damaged":                     {log: whole + "{\n", err: "after 1 events"},
		"a request without an object": {log: `{"verb":"create","user":{"username":"u"}}` + "\n", want: []string{"u create   0"}},
		"a path": {
			log:  `{"verb":"get","requestURI":"/healthz?verbose","user":{"username":"u"},"responseStatus":{"code":200}}` + "\n",
			want: []string{"u get  /healthz 200"},
		},
		"forbidden by roles": {
			log: `{"verb":"get","objectRef":{"resource":"secrets","namespace":"x","name":"y"},"user":{"username":"u"},"responseStatus":{"code":403},` +
				`"annotations":{"authorization.k8s.io/decision":"forbid"}}` + "\n",
			want: []string{"u get secrets x/y 403, which no role grants"},
		},
		"forbidden by admission": {
			log: `{"verb":"patch","objectRef":{"resource":"nodes","name":"y"},"user":{"username":"u"},"responseStatus":{"code":403},` +
				`"annotations":{"authorization.k8s.io/decision":"allow"}}` + "\n",
			want: []string{"u patch nodes y 403"},
		},
		"in a namespace and a group": {
			log:  `{"verb":"update","objectRef":{"resource":"leases","apiGroup":"coordination.k8s.io","namespace":"x","name":"y"},"user":{"username":"u"}}` + "\n",
			want: []string{"u update leases.coordination.k8s.io x/y 0"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			events, err := parseAudit([]byte(test.log))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q in it", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, event := range events {
				got = append(got, event.String())
			}
			if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestReadManifests(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: second}\n")
	write(t, dir, "a.yaml", "# only a comment\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: first}\n")
	write(t, dir, "c.txt", "not YAML: [")
	objects, err := readManifests([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range objects {
		got = append(got, object.GetName())
	}
	if strings.Join(got, " ") != "second first" {
		t.Errorf("order %v, want the Namespace first", got)
	}
	if _, err := readManifests([]string{t.TempDir()}); err == nil {
		t.Error("an empty folder was accepted")
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	prefix := netip.MustParsePrefix
	for name, ranges := range map[string][]netip.Prefix{
		"three":     {prefix("10.0.0.0/16"), prefix("10.1.0.0/16"), prefix("fd00::/112")},
		"host bits": {prefix("10.0.0.1/16")},
		"none":      {{}},
	} {
		_, err := Options{ServiceCIDRs: ranges}.complete()
		if err == nil || !strings.Contains(err.Error(), "ServiceCIDRs") {
			t.Errorf("%s: error %v, want one that names the field", name, err)
		}
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
