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
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

const measureToken, robotPassword = "s3cret-t0ken-of-the-project", "robots-password"

// measuredCloud is a simulated project, and how it is measured.
type measuredCloud struct {
	t    *testing.T
	sim  *hcloudsim.Simulator
	env  map[string]string
	in   string
	asks bool
	errs lockedBuffer
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

// call runs measure. Whatever it says or writes holds no secret.
func (c *measuredCloud) call(ctx context.Context, args ...string) (out string, err error) {
	c.t.Helper()
	var b bytes.Buffer
	cmd := measureCommand(terminal{
		in: strings.NewReader(c.in), out: &b, err: &c.errs, asks: c.asks, getenv: func(name string) string { return c.env[name] },
	})
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	all := b.String() + c.errs.String()
	if err != nil {
		all += err.Error()
	}
	for _, a := range args {
		text, _ := os.ReadFile(a)
		all += string(text)
	}
	for _, secret := range []string{measureToken, robotPassword} {
		if strings.Contains(all, secret) {
			c.t.Errorf("a secret is shown:\n%s", all)
		}
	}
	return b.String(), err
}

// expect runs measure, which must say something, and fail if it is an error.
func (c *measuredCloud) expect(says string, fails bool, args ...string) {
	c.t.Helper()
	out, err := c.call(c.t.Context(), args...)
	said := out + c.errs.String()
	if err != nil {
		said += err.Error()
	}
	if (err != nil) != fails || !strings.Contains(said, says) {
		c.t.Errorf("%s: fails: %t, want %t, with %q:\n%s", args, err != nil, fails, says, said)
	}
}

// expectThings fails unless so many things are in the project.
func (c *measuredCloud) expectThings(want int) {
	c.t.Helper()
	n := len(c.sim.Servers()) + len(c.sim.Networks()) + len(c.sim.LoadBalancers()) + len(c.sim.FloatingIPs()) + len(c.sim.PrimaryIPs())
	if n != want {
		c.t.Errorf("in the project are %d things, want %d; said was:\n%s", n, want, c.errs.String())
	}
}

// expectNothingMade fails if a request was sent that changes something.
func (c *measuredCloud) expectNothingMade() {
	c.t.Helper()
	for _, r := range c.sim.Requests() {
		if r.Method != http.MethodGet {
			c.t.Errorf("%s %s was sent", r.Method, r.Path)
		}
	}
}

// lockedBuffer is written by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// What was known and isn't asked for stays in the profile; the file is there before anything is
// removed, which can take long; and nothing is left.
func TestMeasureWritesAProfileAndLeavesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cloud.json")
	var once sync.Once
	c := newMeasuredCloud(t, hcloudsim.Options{
		ActionTime: 300 * time.Millisecond, Busy: hcloudsim.BusyLocked, OneTargetPerServer: true,
		OnRequest: func(r hcloudsim.Request) {
			if r.Method == http.MethodDelete {
				once.Do(func() {
					if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "rate_limit") {
						t.Errorf("removing began before the profile was there: %v, %s", err, text)
					}
				})
			}
		},
	})
	var before bytes.Buffer
	known := profile.Profile{Version: profile.Version, Location: "nbg1", Network: profile.Network{PrivateMTU: new(1400)}}
	if err := profile.Write(&before, known); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, before.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := c.call(t.Context(), "--api-only", "--yes", "--only", "busy, targets-per-server,rate-limit", "--profile", file)
	if err != nil {
		t.Fatalf("%v: %s", err, c.errs.String())
	}
	for _, row := range []string{
		"| busy | conflict | locked | differs |", "| targets-per-server | taken | refused | differs |",
		"| rate-limit | 3600 an hour | 3600 an hour | as assumed |",
	} {
		if !strings.Contains(oneLine(out), row) {
			t.Errorf("%q isn't in\n%s", row, out)
		}
	}
	p, err := readProfile(file)
	if err != nil {
		t.Fatal(err)
	}
	if p.Location != "nbg1" || !strings.HasPrefix(p.Endpoint, "127.0.0.1:") || *p.Cloud.Busy != profile.Locked || p.Cloud.EffectsAtOnce != nil || *p.Network.PrivateMTU != 1400 {
		t.Errorf("profile %+v", p)
	}
	c.expectThings(0)
	// A cloud that is as the profile says doesn't differ.
	c.expect("1 fact: 1 as assumed.", false, "--api-only", "--yes", "--only", "busy", "--profile", file)
	c.expect("was measured in location nbg1", true, "--api-only", "--yes", "--location", "fsn1", "--profile", file)
}

func TestMeasureMakesNothing(t *testing.T) {
	for name, ask := range map[string]struct {
		asks  bool
		in    string
		args  string
		fails bool
		says  string
	}{
		"nobody to ask":     {fails: true, says: "--yes"},
		"no":                {asks: true, in: "n\n", fails: true, says: "Make this? [y/N]"},
		"nothing":           {asks: true, in: "\n", fails: true, says: "not yes"},
		"the end":           {asks: true, fails: true, says: "not yes"},
		"a look":            {args: "--dry-run", says: "For that are made, and removed at the end: 2 servers, 2 networks, 3 load balancers"},
		"a simulator":       {args: "--dry-run --api-only=false", says: "add --api-only"},
		"a typo":            {args: "--yes --only bussy", fails: true, says: `"bussy"`},
		"not to be written": {args: "--yes --profile /nonexistent/file", fails: true, says: "--profile"},
		"a short time":      {args: "--time-limit 5s", fails: true, says: "--time-limit 5s: it must be between 1m"},
		"no address":        {args: "--dedicated me", fails: true, says: `--dedicated "me" is no address`},
		"key alone":         {args: "--dedicated 192.0.2.1 --dedicated-key k", fails: true, says: "go together"},
		"no encryption":     {args: "--endpoint http://192.0.2.1/v1", fails: true, says: "without encryption"},
		"no URL":            {args: "--endpoint nowhere", fails: true, says: "no URL"},
		"no path":           {args: "--endpoint http://127.0.0.1:1", fails: true, says: "asking the API"},
		"no profile":        {args: "--profile measure.go", fails: true, says: "--profile measure.go"},
		"the facts":         {args: "facts --api-only=false", fails: true, says: "unknown flag"},
		"nonsense":          {args: "nonsense", fails: true, says: "unknown command"},
		"an empty project":  {args: "clean --yes", says: "Nothing of measure is left."},
	} {
		t.Run(name, func(t *testing.T) {
			c := newMeasuredCloud(t, hcloudsim.Options{})
			c.asks, c.in = ask.asks, ask.in
			args := strings.Fields(ask.args)
			if len(args) == 0 || strings.HasPrefix(args[0], "-") {
				args = append([]string{"--api-only"}, args...)
			}
			c.expect(ask.says, ask.fails, args...)
			c.expectNothingMade()
		})
	}
}

// A project with anything in it is refused, with what it has.
func TestMeasureRefusesAProjectThatIsNotEmpty(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	if _, err := c.sim.CreateNetwork(hcloudsim.NetworkSeed{Name: "theirs", IPRange: netip.MustParsePrefix("10.0.0.0/8")}); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"--yes", "--dry-run"} {
		c.expect("isn't empty", true, "--api-only", how)
		c.expect("network theirs (ID ", true, "--api-only", how)
	}
	c.expectNothingMade()
}

func TestMeasureNeedsAToken(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	c.env = map[string]string{}
	c.expect("set HCLOUD_TOKEN", true, "--dry-run")
	c.env = map[string]string{"HCLOUD_TOKEN": "another", "HCLOUD_ENDPOINT": newMeasuredCloud(t, hcloudsim.Options{}).env["HCLOUD_ENDPOINT"]}
	c.expect("refuses the token", true, "--dry-run")
}

// The last line says what was planned and not found out.
func TestTheLastLineNamesWhatWasNotFoundOut(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	_, err := c.call(t.Context(), "--api-only", "--yes", "--only", "busy,rate-limit") // actions take no time
	if err == nil || err.Error() != "not found out: busy: the causes are above" {
		t.Error(err)
	}
	c.expectThings(0)
}

// Ctrl-C removes what was made; what was seen until then is shown.
func TestInterruptedMeasureLeavesNothing(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	c := newMeasuredCloud(t, hcloudsim.Options{ActionTime: 20 * time.Millisecond, OnRequest: func(r hcloudsim.Request) {
		if r.Method == http.MethodPost && r.Path == "/v1/servers" {
			interrupt()
		}
	}})
	c.asks, c.in = true, "yes\n"
	out, err := c.call(ctx, "--api-only")
	if err == nil || !strings.Contains(err.Error(), "it was interrupted") || !strings.Contains(c.errs.String(), "Nothing is left in the project") {
		t.Errorf("%v: %s", err, c.errs.String())
	}
	if !strings.Contains(out, "interrupted before") || !strings.Contains(out, "3600 an hour") {
		t.Errorf("printed was\n%s", out)
	}
	c.expectThings(0)
}

// What killed runs left in the project and at Robot is shown and removed, and nothing else; a wrong
// password is tried once.
func TestCleanRemovesWhatRunsLeft(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	leave := func() {
		for name, labels := range map[string]map[string]string{
			"theirs": nil, "by-label": {project.Label: ""}, "underlay-measure-by-name": nil, "underlay-measure-server-0": {project.Label: ""},
		} {
			if _, err := c.sim.CreateServer(hcloudsim.ServerSeed{Name: name, Labels: labels}); err != nil && name == "underlay-measure-server-0" {
				t.Fatal(err)
			}
		}
	}
	leave()
	account := robotsim.New(robotsim.Options{User: "robot", Password: robotPassword})
	web := httptest.NewServer(account)
	t.Cleanup(web.Close)
	for vlan, name := range map[int]string{4091: "underlay-measure-20261124-0930-aaaaaa", 4090: "underlay-measure-20261124-0930-bbbbbb", 4000: "theirs"} {
		if _, err := account.CreateVSwitch(robotsim.VSwitchSeed{Name: name, VLAN: vlan}); err != nil {
			t.Fatal(err)
		}
	}
	c.expect("agree with --yes", true, "clean")
	c.env["ROBOT_USER"], c.env["ROBOT_PASSWORD"] = "robot", "another"
	c.expect("refuses the user and the password", true, "clean", "--yes", "--robot-endpoint", web.URL)
	if n := len(account.Requests()); n != 1 || len(c.sim.Servers()) != 3 {
		t.Errorf("%d requests to Robot; %d servers are left", n, len(c.sim.Servers()))
	}
	leave()
	c.env["ROBOT_PASSWORD"] = robotPassword
	c.expect("Nothing of measure is left.", false, "clean", "--yes", "--robot-endpoint", web.URL)
	for _, s := range c.sim.Servers() {
		if s.Name == "underlay-measure-server-0" {
			t.Error("what a run has left is there")
		}
	}
	if left := string(account.Snapshot()); len(c.sim.Servers()) != 3 || strings.Contains(left, "underlay-measure") || !strings.Contains(left, "theirs") {
		t.Errorf("%d servers are left, and at Robot\n%s", len(c.sim.Servers()), left)
	}
}

func TestFactsAreListed(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	c.expect("2 servers, 1 network", false, "facts")
	for _, f := range measure.Facts() {
		c.expect(string(f.ID)+" ", false, "facts")
	}
}
