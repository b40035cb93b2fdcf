package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// A mistake that would break traffic ends the process with one clear message.
func TestMistakesAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{})
	for _, m := range []struct {
		name    string
		options cluster.ManagerOptions
		want    []string // all in one line
	}{
		{"wrong token", cluster.ManagerOptions{Token: "wrong-token"}, []string{"token", "rejected", "put in a valid API token"}},
		{"wrong network", with("network: cluster", "network: nowhere"), []string{"network", "nowhere", "no such network"}},
		{"no such location", with("location: fsn1", "location: fsn9"), []string{"loadBalancers.location", "fsn9", "no such location", "use one of fsn1, nbg1"}},
		{"no such type", with("location: fsn1", "location: fsn1\n  type: lb12"), []string{"loadBalancers.type", "lb12", "use one of lb11, lb21"}},
		{"unknown key", with("network: cluster", "netwrok: cluster"), []string{"netwrok", "network"}},
		{"pods in a subnet", cluster.ManagerOptions{Args: []string{"--cluster-cidr=10.0.0.0/16"}}, []string{"--cluster-cidr", "10.0.0.0/16", "subnet"}},
		{"pods in the service range", cluster.ManagerOptions{Args: []string{"--cluster-cidr=10.96.0.0/16"}}, []string{"--cluster-cidr", "10.96.0.0/16", "service range"}},
		{"impossible mask", cluster.ManagerOptions{Args: []string{"--node-cidr-mask-size-ipv4=12"}}, []string{"--node-cidr-mask-size-ipv4", "12", "from 16 to"}},
		{"no such endpoint", with("/v1\n", "/v2\n"), []string{"endpoint", "/v2", "/v1"}},
	} {
		t.Run(m.name, func(t *testing.T) {
			options := m.options
			if edit, ok := strings.CutPrefix(options.Config, "edit:"); ok {
				from, to, _ := strings.Cut(edit, "=>")
				options.Config = strings.Replace(c.CloudConfig(), from, to, 1)
			}
			p := startManager(t, c, options)
			select {
			case <-p.Done():
			case <-time.After(30 * time.Second):
				p.Kill()
				t.Fatal("it keeps running")
			}
			if p.ExitCode() != 1 {
				t.Errorf("exit code %d, want 1", p.ExitCode())
			}
			content, err := os.ReadFile(p.Log)
			if err != nil {
				t.Fatal(err)
			}
			if !oneLineHolds(string(content), m.want) {
				t.Errorf("no line holds all of %q:\n%s", m.want, content)
			}
			if strings.Contains(string(content), "wrong-token") {
				t.Error("the wrong token is shown")
			}
			if strings.Contains(string(content), "goroutine ") {
				t.Errorf("it panicked:\n%s", content)
			}
		})
	}
}

// Mistakes that can be found without requests are reported at once, each in one line, and never
// with the value of a variable.
func TestMistakesOfAnInvocation(t *testing.T) {
	t.Parallel()
	const secret = "a-value-that-is-nobodys-business"
	for _, c := range []struct {
		name string
		args []string
		env  string // a variable's name
		code int
		want string // the only line with its beginning
	}{
		{"its version", []string{"--version"}, "", 0, "underlay-ccm v"},
		{"no such kubeconfig", []string{"--kubeconfig=/nowhere"}, "", 1, `--kubeconfig "/nowhere": can't be used: stat /nowhere: no such file or directory; name a file`},
		{"no kubeconfig", nil, "", 1, "--kubeconfig: none is given, and there is no ServiceAccount of a pod instead: "},
		{"and no token", []string{"--kubeconfig=/nowhere"}, "", 1, "HCLOUD_TOKEN: no token is given; put a token of the project into HCLOUD_TOKEN"},
		{"a variable mistyped", []string{"--kubeconfig=/nowhere"}, "HCLOUD_LOAD_BALANCER_LOCATION", 1, "warning: HCLOUD_LOAD_BALANCER_LOCATION: is not known and has no effect; did you mean HCLOUD_LOAD_BALANCERS_LOCATION?"},
		{"another's variable", []string{"--kubeconfig=/nowhere"}, "HCLOUD_SERVER_CACHE_MODE", 1, "warning: HCLOUD_SERVER_CACHE_MODE: is not known and has no effect; unset it"},
		{"what upstream refuses", []string{"--controllers=nonsense", "--kubeconfig=KUBECONFIG"}, "HCLOUD_TOKEN", 1, `"nonsense" is not in the list of known controllers`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			kubeconfig := t.TempDir() + "/kubeconfig"
			content := `{"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a"}}], "clusters": [{"name": "a", "cluster": {"server": "https://192.0.2.1"}}]}`
			if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			program := exec.CommandContext(ctx, manager)
			for _, arg := range c.args {
				program.Args = append(program.Args, strings.Replace(arg, "KUBECONFIG", kubeconfig, 1))
			}
			program.Env = []string{"NAME=" + secret}
			if c.env != "" {
				program.Env = append(program.Env, c.env+"="+secret)
			}
			out, err := program.CombinedOutput()
			if program.ProcessState == nil {
				t.Fatal(err)
			}
			if code := program.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			lines := 0
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(line, c.want) {
					lines++
				}
			}
			if lines != 1 || strings.Contains(string(out), secret) {
				t.Errorf("%d lines begin with %q, want 1, and no value:\n%s", lines, c.want, out)
			}
		})
	}
}

// with is the usual configuration with one piece of text replaced.
func with(from, to string) cluster.ManagerOptions {
	return cluster.ManagerOptions{Config: "edit:" + from + "=>" + to}
}

func oneLineHolds(text string, all []string) bool {
lines:
	for line := range strings.Lines(text) {
		for _, want := range all {
			if !strings.Contains(line, want) {
				continue lines
			}
		}
		return true
	}
	return false
}

// While the cloud is unreachable the manager keeps trying, isn't ready, and reports why; it starts
// to work when the cloud is reachable again.
func TestAnUnreachableCloudIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{})
	if err := c.Cloud.Inject(hcloudsim.Fault{Times: -1, Status: 503, Code: "unavailable"}); err != nil {
		t.Fatal(err)
	}
	m := startManager(t, c, cluster.ManagerOptions{})
	eventually(t, 90*time.Second, "it isn't ready and logs why", func(ctx context.Context) (bool, string) {
		status, _ := m.Health(ctx)
		content, err := os.ReadFile(m.Log)
		return err == nil && status != 200 && oneLineHolds(string(content), []string{"The cloud can't be reached", c.CloudURL}), fmt.Sprint(status, " ", string(content))
	})
	if m.Ended() {
		t.Fatal("it gave up")
	}
	c.Cloud.ClearFaults()
	addMachine(t, c, "node-0")
	eventually(t, 90*time.Second, "it serves when the cloud is back", allServed(t, c, 1))
	if status, says := m.Health(t.Context()); status != 200 {
		t.Errorf("health: %d %s", status, says)
	}
	if _, has := routeTable(t, c)[netip.MustParsePrefix("10.244.0.0/24")]; !has {
		t.Errorf("routes %v, want one to the first podCIDR", routeTable(t, c))
	}
}
