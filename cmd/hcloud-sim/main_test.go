package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/spf13/pflag"
	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// helpSeed is the seed file in the help.
func helpSeed(t *testing.T) string {
	t.Helper()
	_, rest, found := strings.Cut(help, "<<'EOF'\n")
	text, _, ended := strings.Cut(rest, "  EOF\n")
	if !found || !ended {
		t.Fatal("the help has no seed file any more")
	}
	return strings.ReplaceAll("\n"+text, "\n  ", "\n")
}

// addresses reads the listening addresses of each of names from the program's log.
func addresses(log io.Reader, names ...string) map[string]string {
	found := map[string]string{}
	lines := bufio.NewScanner(log)
	for len(found) < len(names) && lines.Scan() {
		_, address, listening := strings.Cut(lines.Text(), "address=")
		for _, name := range names {
			if listening && strings.Contains(lines.Text(), "for="+name) {
				found[name] = address
			}
		}
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	return found
}

// start runs the program, until the test is over or stop is called.
func start(t *testing.T, args ...string) (api, admin string, stop func() error) {
	t.Helper()
	at, stop := startFor(t, []string{"api", "admin"}, args...)
	return at["api"], at["admin"], stop
}

// startRobot runs the program with the Robot web service.
func startRobot(t *testing.T, args ...string) (api, robot string) {
	t.Helper()
	at, _ := startFor(t, []string{"api", "robot"}, append(args, "--robot-listen=127.0.0.1:0")...)
	return at["api"], at["robot"]
}

// startFor runs the program until it listens for each of names.
func startFor(
	t *testing.T, names []string, args ...string,
) (at map[string]string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	log, diagnostics := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}, args...), io.Discard, diagnostics)
		diagnostics.Close()
		done <- err
	}()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	if at = addresses(log, names...); len(at) < len(names) {
		t.Fatalf("did not start: %v", stop())
	}
	return at, stop
}

func TestServesUntilStopped(t *testing.T) {
	ctx := t.Context()
	api, admin, stop := start(t, "--seed="+write(t, "seed.yaml", helpSeed(t)), "--token-file="+write(t, "token", "secret\n"))
	client := hcloud.NewClient(hcloud.WithToken("secret"), hcloud.WithEndpoint("http://"+api+"/v1"))
	servers, err := client.Server.All(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(servers) != 2 || len(servers[1].PrivateNet) != 1 || servers[1].Labels["role"] != "worker" {
		t.Errorf("servers are %+v, want the two of the seed", servers)
	}
	response, err := http.Get("http://" + admin + "/_sim/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); !bytes.Contains(body, []byte(`"/v1/servers"`)) {
		t.Errorf("request log is %s, want the listing in it", body)
	}

	if err := stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
}

// A simulator starts from the state that another one has saved.
func TestStartsFromAState(t *testing.T) {
	_, admin, _ := start(t, "--seed="+write(t, "seed.yaml", helpSeed(t)))
	saved, err := http.Get("http://" + admin + "/_sim/state")
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Body.Close()
	state, err := io.ReadAll(saved.Body)
	if err != nil {
		t.Fatal(err)
	}
	api, _, _ := start(t, "--state="+write(t, "state.json", string(state)))
	servers, err := hcloud.NewClient(hcloud.WithToken("any"), hcloud.WithEndpoint("http://"+api+"/v1")).Server.All(t.Context())
	if err != nil || len(servers) != 2 {
		t.Errorf("servers are %+v, %v, want the two that were saved", servers, err)
	}
}

func TestRejectsInvalidArguments(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"every error at once": {
			[]string{"--busy-code=maybe", "--route-limit=0", "--quota=server=-2", "--quota=servers=1", "--owned-ip=x", "now"},
			[]string{"--busy-code=maybe", "--route-limit=0", "--quota=server=-2", "--quota=servers", "--owned-ip=x", `argument "now"`},
		},
		"two tokens":          {[]string{"--token=a", "--token-file=b"}, []string{"only one"}},
		"seed and state":      {[]string{"--seed=" + write(t, "s.yaml", ""), "--state=" + write(t, "s.json", "{}")}, []string{"only one"}},
		"broken state":        {[]string{"--state=" + write(t, "s.json", `{"servers": 7}`)}, []string{"--state", "servers"}},
		"empty token file":    {[]string{"--token-file=" + write(t, "token", "\n")}, []string{"no token"}},
		"unknown seed field":  {[]string{"--seed=" + write(t, "s.yaml", "servers: [{name: a, netwrok: b}]")}, []string{"netwrok"}},
		"unknown network":     {[]string{"--seed=" + write(t, "s.yaml", "servers: [{name: a, network: b}]")}, []string{`network "b"`}},
		"impossible network":  {[]string{"--seed=" + write(t, "s.yaml", "networks: [{name: net, ip_range: 10.0.0.0/28}]")}, []string{`"net"`, "ip_range"}},
		"unknown server":      {[]string{"--seed=" + write(t, "s.yaml", "floating_ips: [{name: a, server: b}]")}, []string{`server "b"`}},
		"address out of use":  {[]string{"--listen=127.0.0.1:port"}, []string{"listening for api"}},
		"flag that isn't one": {[]string{"--sed=x"}, []string{"--sed"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), test.args, io.Discard, io.Discard)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not name %q", err, want)
				}
			}
		})
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"--help"}, &out, io.Discard)
	if !errors.Is(err, pflag.ErrHelp) || !strings.Contains(out.String(), "--action-time") {
		t.Errorf("help is %q, %v", out.String(), err)
	}
}

// The page's seed files are valid.
func TestHowToPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/hcloud-sim.md")
	if err != nil {
		t.Fatal(err)
	}
	var seeds []string
	for _, rest := range strings.Split(string(page), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(rest, "```")
		seeds = append(seeds, text)
	}
	if len(seeds) != 2 {
		t.Fatalf("the page has %d seed files, want two", len(seeds))
	}
	cloud, _ := plant(t, seeds[0])
	if n := cloud.Networks(); len(n) != 1 || n[0].ID != 1001 || len(n[0].Servers) != 2 {
		t.Errorf("networks are %+v, want the one that the page's requests name", n)
	}
	_, account := plant(t, seeds[1])
	if !account.Owns(netip.MustParseAddr("203.0.113.2")) || !account.Owns(netip.MustParseAddr("203.0.113.100")) {
		t.Error("the account lacks an address that the page's requests name")
	}
}

// plant starts simulators from a seed file.
func plant(t *testing.T, text string) (*hcloudsim.Simulator, *robotsim.Simulator) {
	t.Helper()
	seed, err := parseSeed([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cloud, account := hcloudsim.New(hcloudsim.Options{}), robotsim.New(robotsim.Options{})
	if err := errors.Join(seed.plant(cloud), seed.Robot.plant(account)); err != nil {
		t.Fatal(err)
	}
	return cloud, account
}
