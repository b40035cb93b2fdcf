package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

const measureToken = "s3cret-t0ken-of-the-project"

// measuredCloud is a simulated project, and the means to measure it.
type measuredCloud struct {
	t   *testing.T
	sim *hcloudsim.Simulator
	env map[string]string
}

func newMeasuredCloud(t *testing.T, o hcloudsim.Options) *measuredCloud {
	t.Helper()
	o.Token = measureToken
	sim := hcloudsim.New(o)
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	env := map[string]string{"HCLOUD_TOKEN": measureToken, "HCLOUD_ENDPOINT": server.URL + "/v1"}
	return &measuredCloud{t: t, sim: sim, env: env}
}

// call runs measure, and returns its output with its error, without a table's padding. It fails the
// test if a token is shown.
func (c *measuredCloud) call(ctx context.Context, args ...string) (all string, err error) {
	c.t.Helper()
	var b bytes.Buffer
	cmd := measureCommand(&b, &b, func(name string) string { return c.env[name] })
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	if err != nil {
		b.WriteString(err.Error())
	}
	all = strings.Join(strings.Fields(b.String()), " ")
	for _, a := range args {
		text, _ := os.ReadFile(a)
		b.Write(text)
	}
	if strings.Contains(b.String(), measureToken) {
		c.t.Errorf("the token is shown:\n%s", b.String())
	}
	return all, err
}

// expect runs measure, and expects a text in its output, and whether it fails.
func (c *measuredCloud) expect(prints string, fails bool, args ...string) {
	c.t.Helper()
	all, err := c.call(c.t.Context(), args...)
	if (err != nil) != fails || !strings.Contains(all, prints) {
		c.t.Errorf("%s: fails: %t, want %t, with %q:\n%s", args, err != nil, fails, prints, all)
	}
}

// expectThings fails unless the project has this number of resources.
func (c *measuredCloud) expectThings(want int) {
	c.t.Helper()
	n := len(c.sim.Servers()) + len(c.sim.Networks()) + len(c.sim.LoadBalancers()) +
		len(c.sim.FloatingIPs()) + len(c.sim.PrimaryIPs())
	if n != want {
		c.t.Errorf("in the project are %d things, want %d", n, want)
	}
}

// The profile keeps facts that are not measured, it is written before the deletions, which can take
// long, and no resource remains.
func TestMeasureWritesAProfileAndLeavesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cloud.json")
	var once sync.Once
	c := newMeasuredCloud(t, hcloudsim.Options{
		ActionTime: 300 * time.Millisecond, Busy: hcloudsim.BusyLocked, OneTargetPerServer: true,
		OnRequest: func(r hcloudsim.Request) {
			if r.Method != http.MethodDelete {
				return
			}
			once.Do(func() {
				if p, err := readProfile(file); err != nil || p.Cloud.OneTargetPerServer == nil {
					t.Errorf("deleting began before the profile was there: %v", err)
				}
			})
		},
	})
	known := profile.Profile{
		Version: profile.Version, Location: "nbg1", Network: profile.Network{PrivateMTU: new(1400)},
	}
	if err := writeProfile(file, known); err != nil {
		t.Fatal(err)
	}
	all, err := c.call(
		t.Context(), "--yes", "--only", "busy,targets-per-server,rate-limit", "--profile", file,
	)
	if err != nil {
		t.Fatalf("%v: %s", err, all)
	}
	for _, row := range []string{
		"| busy | conflict | locked | differs |", "| targets-per-server | accepted | refused | differs |",
		"| rate-limit | 3600 an hour | 3600 an hour | as assumed |",
	} {
		if !strings.Contains(all, row) {
			t.Errorf("%q isn't in\n%s", row, all)
		}
	}
	p, err := readProfile(file)
	if err != nil || p.Location != "nbg1" || !strings.HasPrefix(p.Endpoint, "127.0.0.1:") ||
		*p.Cloud.Busy != profile.Locked || p.Cloud.EffectsAtOnce != nil || *p.Network.PrivateMTU != 1400 {
		t.Errorf("profile %+v, %v", p, err)
	}
	c.expectThings(0)
	// A cloud that matches the profile has no differences.
	c.expect("| busy | locked | locked | as assumed |", false,
		"--yes", "--only", "busy", "--profile", file)
	c.expect("was measured in location nbg1", true, "--yes", "--location", "fsn1", "--profile", file)
}

// Nothing is created without --yes, with wrong flags, without a token, and in a project that isn't
// empty.
func TestMeasureMakesNothing(t *testing.T) {
	for args, says := range map[string]string{
		"--yes --only bussy":                            `"bussy" is no fact`,
		"--yes --skip bussy":                            `"bussy" is no fact`,
		"--yes --profile measure.go":                    "--profile measure.go",
		"--yes --endpoint http://192.0.2.1/v1":          "without encryption",
		"--yes --endpoint nowhere":                      "no URL",
		"--yes --endpoint http://127.0.0.1:1":           "refused",
		"--yes":                                         "the project is not empty",
		"--yes --token-file /nonexistent/file":          "--token-file",
		"--yes --endpoint https://[2001:db8::1]/ --yes": "set HCLOUD_TOKEN",
		"nonsense": "unknown command",
	} {
		c := newMeasuredCloud(t, hcloudsim.Options{})
		network := hcloudsim.NetworkSeed{Name: "theirs", IPRange: netip.MustParsePrefix("10.0.0.0/8")}
		if _, err := c.sim.CreateNetwork(network); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(says, "HCLOUD_TOKEN") {
			c.env = nil
		}
		c.expect(says, true, strings.Fields(args)...)
		for _, r := range c.sim.Requests() {
			if r.Method != http.MethodGet {
				t.Errorf("%s: %s %s was sent", args, r.Method, r.Path)
			}
		}
	}
	c := newMeasuredCloud(t, hcloudsim.Options{})
	for _, f := range measure.Facts() {
		c.expect("| "+f.ID+" | "+f.Question+" |", false)
	}
	if all, _ := c.call(t.Context(), "--api-only", "--skip", "busy"); strings.Contains(all, "busy") ||
		strings.Contains(all, "private-mtu") || !strings.Contains(all, "latency") {
		t.Errorf("listed is\n%s", all)
	}
	if n := len(c.sim.Requests()); n > 0 {
		t.Errorf("the list took %d requests", n)
	}
	c.env["HCLOUD_TOKEN"] = "another"
	c.expect("unauthorized", true, "--yes")
}

// A fact that could not be measured is named with its reason.
func TestMeasureNamesUnmeasuredFacts(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{}) // actions take no time
	c.expect("busy: a second change was accepted 10 times", true, "--yes", "--only", "busy,rate-limit")
	c.expectThings(0)
}

// Ctrl-C deletes the created resources and prints the results so far. So does the time limit.
func TestInterruptedMeasureLeavesNothing(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	c := newMeasuredCloud(t, hcloudsim.Options{
		ActionTime: 20 * time.Millisecond,
		OnRequest: func(r hcloudsim.Request) {
			if r.Method == http.MethodPost && r.Path == "/v1/servers" {
				interrupt()
			}
		},
	})
	all, err := c.call(ctx, "--yes", "--api-only")
	if err == nil || !strings.Contains(all, "context canceled") ||
		!strings.Contains(all, "| 3600 an hour | as assumed |") {
		t.Errorf("%v: %s", err, all)
	}
	c.expectThings(0)
	c.expect("the time limit of 500ms is over", true, "--yes", "--time-limit", "500ms")
	c.expectThings(0)
}

// The resources of killed runs are deleted, and nothing else.
func TestCleanDeletesResourcesOfKilledRuns(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	for name, labels := range map[string]map[string]string{
		"theirs": nil, "ours": {measure.Label: ""},
	} {
		if _, err := c.sim.CreateServer(hcloudsim.ServerSeed{Name: name, Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	c.expect("deleting servers/", false, "clean")
	if left := c.sim.Servers(); len(left) != 1 || left[0].Name != "theirs" {
		t.Errorf("left are %v", left)
	}
	c.env["HCLOUD_TOKEN"] = "another"
	c.expect("unauthorized", true, "clean")
}
