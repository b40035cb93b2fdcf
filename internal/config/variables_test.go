package config

import (
	"strings"
	"testing"
)

func TestUnknownVariablesAreNamed(t *testing.T) {
	const value = "a-value-that-is-nobodys-business"
	for _, c := range []struct {
		name    string
		environ []string
		want    []string // each in the warning of its place
	}{
		{"none", nil, nil},
		{"every setting", knownVariables(), nil},
		{"other programs'", []string{"PATH", "ROBOTS_USER", "KUBERNETES_SERVICE_HOST"}, nil},
		{"empty", []string{"HCLOUD_LOCATON="}, nil},
		{"a missing letter", []string{"HCLOUD_LOAD_BALANCER_LOCATION"}, []string{"HCLOUD_LOAD_BALANCER_LOCATION: is not known and has no effect; did you mean HCLOUD_LOAD_BALANCERS_LOCATION?"}},
		{"letters exchanged", []string{"HCLOUD_NETWROK"}, []string{"did you mean HCLOUD_NETWORK?"}},
		{"of Robot", []string{"ROBOT_PASSWROD", "ROBOT_ENABLE"}, []string{"ROBOT_ENABLE: is not known and has no effect; did you mean ROBOT_ENABLED?", "did you mean ROBOT_PASSWORD?"}},
		{"alike under the other prefix", []string{"HCLOUD_USER", "ROBOT_NETWORK"}, []string{"HCLOUD_USER: is not known and has no effect; unset it", "ROBOT_NETWORK: is not known and has no effect; unset it"}},
		{"alike by their beginning alone", []string{"HCLOUD_ZONE"}, []string{"HCLOUD_ZONE: is not known and has no effect; unset it; docs/reference/configuration.md"}},
		{"several, in order", []string{"HCLOUD_ZONE", "PATH", "HCLOUD_CONTEXT"}, []string{"HCLOUD_CONTEXT:", "HCLOUD_ZONE:"}},
		{
			"of Services",
			[]string{
				"HCLOUD_CSI_SERVICE_HOST", "HCLOUD_CSI_SERVICE_PORT", "HCLOUD_CSI_SERVICE_PORT_METRICS",
				"HCLOUD_CSI_PORT", "HCLOUD_CSI_PORT_9189_TCP", "HCLOUD_CSI_PORT_9189_TCP_ADDR",
			},
			nil,
		},
		{"beside a Service", []string{"HCLOUD_CSI_SERVICE_HOST", "HCLOUD_CSI_PORTS", "HCLOUD_X_PORT"}, []string{"HCLOUD_CSI_PORTS:", "HCLOUD_X_PORT:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			environ := make([]string, len(c.environ))
			for i, name := range c.environ {
				environ[i] = name
				if !strings.Contains(name, "=") {
					environ[i] += "=" + value
				}
			}
			got := UnknownVariables(environ)
			if len(got) != len(c.want) {
				t.Fatalf("%d warnings, want %d: %v", len(got), len(c.want), got)
			}
			for i, w := range got {
				if text := w.String(); !strings.Contains(text, c.want[i]) || strings.Contains(text, value) {
					t.Errorf("got %q, want %q and no value", text, c.want[i])
				}
			}
		})
	}
}

// A later error names the place where the value was set.
func TestWrongNamesThePlace(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup setup
		key   string
		want  string
	}{
		{"in the file", setup{file: "network: net", env: vars{"HCLOUD_TOKEN": tokenText}}, "network", `network "net": is gone; make it`},
		{"in a variable", setup{env: env(nil)}, "network", `HCLOUD_NETWORK "net": is gone; make it`},
		{"on the command line", setup{flags: ipv4Only(), env: env(nil)}, "--cluster-cidr", `--cluster-cidr "net": is gone; make it`},
		{"nowhere", setup{env: env(nil)}, "loadBalancers.type", `loadBalancers.type "net": is gone; make it`},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, _, err := load(t, c.setup)
			if err != nil {
				t.Fatal(err)
			}
			if got := config.Wrong(c.key, "net", "is gone", "make it", nil).Error(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
