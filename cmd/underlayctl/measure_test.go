package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

const measureToken = "s3cret-t0ken-of-the-project"

// measuredCloud is a simulated project with a server of somebody else's, and how it is measured.
type measuredCloud struct {
	t        *testing.T
	sim      *hcloudsim.Simulator
	endpoint string
	stdin    string
	asks     bool
	again    chan struct{}
	errs     lockedBuffer
}

func newMeasuredCloud(t *testing.T, o hcloudsim.Options) *measuredCloud {
	t.Helper()
	o.Token = measureToken
	sim := hcloudsim.New(o)
	if _, err := sim.CreateServer(hcloudsim.ServerSeed{Name: "theirs"}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	return &measuredCloud{t: t, sim: sim, endpoint: server.URL + "/v1", again: make(chan struct{})}
}

// call runs the program.
func (c *measuredCloud) call(ctx context.Context, args ...string) (stdout string, code int) {
	c.t.Helper()
	var out bytes.Buffer
	env := map[string]string{"HCLOUD_TOKEN": measureToken, "HCLOUD_ENDPOINT": c.endpoint}
	code = run(ctx, process{
		name: "underlayctl", args: append([]string{"measure"}, args...), stdout: &out, stderr: &c.errs, stdin: strings.NewReader(c.stdin), asks: c.asks,
		again: c.again, readFile: os.ReadFile, getenv: func(name string) string { return env[name] },
	})
	for _, text := range []string{out.String(), c.errs.String()} {
		if strings.Contains(text, measureToken) {
			c.t.Errorf("the token is shown:\n%s", text)
		}
	}
	return out.String(), code
}

// expectUntouched fails if anything but somebody else's server is there.
func (c *measuredCloud) expectUntouched() {
	c.t.Helper()
	servers := c.sim.Servers()
	if n := len(servers) + len(c.sim.Networks()) + len(c.sim.LoadBalancers()) + len(c.sim.FloatingIPs()); n != 1 || servers[0].Name != "theirs" {
		c.t.Errorf("in the project are %d things, want somebody else's server alone; said was:\n%s", n, c.errs.String())
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

// hasMade reports whether something was made.
func hasMade(r hcloudsim.Request) bool {
	return r.Method == http.MethodPost && r.Status == http.StatusCreated
}

func TestMeasureWritesAProfileAndAReportAndLeavesNothing(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{ActionTime: 300 * time.Millisecond, Busy: hcloudsim.BusyLocked, OneTargetPerServer: true})
	folder := t.TempDir()
	file, report := filepath.Join(folder, "cloud.json"), filepath.Join(folder, "report.md")
	out, code := c.call(t.Context(), "--api-only", "--yes", "--only", "busy,targets-per-server,rate-limit", "--profile", file, "--report", report, "-o", "json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, c.errs.String())
	}
	var view resultView
	if err := json.Unmarshal([]byte(out), &view); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := map[string]string{}
	for _, r := range view.Rows {
		got[string(r.Fact)] = r.Seen + ", " + string(r.Verdict)
	}
	for fact, want := range map[string]string{"busy": "locked, differs", "targets-per-server": "refused, differs", "rate-limit": "3600 an hour, as assumed"} {
		if got[fact] != want {
			t.Errorf("%s: %q, want %q", fact, got[fact], want)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if p.Location != "nbg1" || !strings.HasPrefix(p.Endpoint, "127.0.0.1:") || p.Cloud.Busy == nil || *p.Cloud.Busy != profile.Locked || p.Cloud.EffectsAtOnce != nil {
		t.Errorf("profile %s", text)
	}
	markdown, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(markdown), "| `busy` |") || strings.Contains(string(markdown), measureToken) {
		t.Errorf("report:\n%s", markdown)
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 2 {
		t.Errorf("in the folder are %v, want the two files", entries)
	}
	c.expectUntouched()
}

// Once there is a profile, a cloud that is as it says doesn't differ, and what isn't asked stays.
func TestMeasureComparesWithTheProfileThatIsThere(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{ActionTime: 300 * time.Millisecond, Busy: hcloudsim.BusyLocked})
	file := filepath.Join(t.TempDir(), "cloud.json")
	var before bytes.Buffer
	if err := profile.Write(&before, profile.Profile{Version: profile.Version, Location: "nbg1", Cloud: profile.Cloud{Busy: new(profile.Locked), RateLimit: new(7200)}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, before.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := c.call(t.Context(), "--api-only", "--yes", "--only", "busy", "--profile", file)
	if code != 0 || !strings.Contains(out, "1 fact: 1 as assumed.") {
		t.Errorf("exit code %d:\n%s%s", code, out, c.errs.String())
	}
	text, _ := os.ReadFile(file)
	if !strings.Contains(string(text), "7200") {
		t.Errorf("what was known before is gone:\n%s", text)
	}
	if _, code := c.call(t.Context(), "--api-only", "--yes", "--location", "fsn1", "--profile", file); code != exitFailed {
		t.Errorf("a profile of another location: exit code %d", code)
	}
}

func TestMeasureMakesNothingWithoutConsent(t *testing.T) {
	for name, ask := range map[string]struct {
		asks  bool
		stdin string
		args  []string
		code  int
		says  string
	}{
		"nobody to ask": {code: exitFailed, says: "--yes"},
		"no":            {asks: true, stdin: "n\n", code: exitFailed, says: "Make this? [y/N]"},
		"nothing":       {asks: true, stdin: "\n", code: exitFailed, says: "not yes"},
		"the end":       {asks: true, code: exitFailed, says: "not yes"},
		"a look":        {args: []string{"--dry-run", "--yes"}},
		"a simulator":   {args: []string{"--api-only=false"}, code: exitFailed, says: "add --api-only"},
		"no money":      {args: []string{"--yes", "--max-cost", "0", "--only", "subnet-in-use"}, code: exitFailed, says: "--max-cost"},
		"a typo":        {args: []string{"--yes", "--only", "bussy"}, code: exitFailed, says: `"bussy"`},
		"no such type":  {args: []string{"--yes", "--server-type", "huge"}, code: exitFailed, says: "choose one of"},
		"nowhere":       {args: []string{"--yes", "--profile", "/nonexistent/file"}, code: exitFailed, says: "--profile"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newMeasuredCloud(t, hcloudsim.Options{})
			c.asks, c.stdin = ask.asks, ask.stdin
			out, code := c.call(t.Context(), append([]string{"--api-only"}, ask.args...)...)
			if code != ask.code || !strings.Contains(c.errs.String(), ask.says) {
				t.Errorf("exit code %d, want %d with %q:\n%s%s", code, ask.code, ask.says, out, c.errs.String())
			}
			for _, r := range c.sim.Requests() {
				if hasMade(r) {
					t.Errorf("%s %s was sent", r.Method, r.Path)
				}
			}
		})
	}
}

// The files are there before anything is removed: removing can take long, or never end.
func TestWhatWasFoundOutIsWrittenBeforeRemoving(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cloud.json")
	var removing, written atomic.Bool
	c := newMeasuredCloud(t, hcloudsim.Options{OnRequest: func(r hcloudsim.Request) {
		if r.Method == http.MethodDelete && removing.CompareAndSwap(false, true) {
			text, err := os.ReadFile(file)
			written.Store(err == nil && strings.Contains(string(text), "rate_limit"))
		}
	}})
	if out, code := c.call(t.Context(), "--api-only", "--yes", "--only", "removed-twice,rate-limit", "--profile", file); code != 0 || !written.Load() {
		t.Errorf("exit code %d, removing began: %t, the profile was there: %t\n%s%s", code, removing.Load(), written.Load(), out, c.errs.String())
	}
}

// All that was planned is found out, or the exit code is 3 and the last line says what is missing.
func TestTheLastLineNamesWhatWasNotFoundOut(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	_, code := c.call(t.Context(), "--api-only", "--yes", "--only", "busy,rate-limit") // actions take no time
	if said := c.errs.String(); code != exitFailed || !strings.HasSuffix(said, "\nerror: not found out: busy: the causes are above\n") {
		t.Errorf("exit code %d: %s", code, said)
	}
	c.expectUntouched()
}

func TestMeasureAsks(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	c.asks, c.stdin = true, "yes\n"
	if out, code := c.call(t.Context(), "--api-only", "--only", "removed-twice"); code != 0 || !strings.Contains(out, "1 as assumed") {
		t.Errorf("exit code %d: %s%s", code, out, c.errs.String())
	}
	c.expectUntouched()
}

// Ctrl-C once removes what was made; what was seen until then is shown.
func TestInterruptedMeasureLeavesNothing(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	c := newMeasuredCloud(t, hcloudsim.Options{ActionTime: 20 * time.Millisecond, OnRequest: func(r hcloudsim.Request) {
		if hasMade(r) && r.Path == "/v1/servers" {
			interrupt()
		}
	}})
	out, code := c.call(ctx, "--api-only", "--yes")
	if said := c.errs.String(); code != exitFailed || !strings.Contains(said, "measure clean --run") || !strings.Contains(said, "it was interrupted") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if !strings.Contains(out, "interrupted before") || !strings.Contains(out, "3600 an hour") {
		t.Errorf("printed was\n%s", out)
	}
	c.expectUntouched()
}

// Ctrl-C twice ends at once; clean removes what is left, by its label alone.
func TestCleanRemovesWhatAKilledMeasureLeft(t *testing.T) {
	var killed atomic.Bool
	ctx, interrupt := context.WithCancel(t.Context())
	again := make(chan struct{})
	c := newMeasuredCloud(t, hcloudsim.Options{ActionTime: 20 * time.Millisecond, OnRequest: func(r hcloudsim.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/load_balancers") && !killed.Swap(true) {
			interrupt()
			close(again)
		}
	}})
	// A killed program says nothing more: what still runs of it here has a way of its own to the
	// cloud, that is cut off for good.
	way := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if killed.Load() {
			panic(http.ErrAbortHandler)
		}
		c.sim.ServeHTTP(w, r)
	}))
	defer way.Close()
	doomed := &measuredCloud{t: t, sim: c.sim, endpoint: way.URL + "/v1", again: again}
	endpoint := "--endpoint=" + doomed.endpoint
	_, code := doomed.call(ctx, "--api-only", "--yes", endpoint)
	way.Close()
	said := strings.TrimSpace(doomed.errs.String())
	if code != exitFailed || !strings.Contains(said, "ended before everything was removed: run underlayctl measure clean --run ") || !strings.HasSuffix(said, " "+endpoint) {
		t.Errorf("exit code %d: %s", code, said)
	}
	if len(c.sim.LoadBalancers()) == 0 {
		t.Fatal("nothing was left: the run was not killed in its midst")
	}
	if out, code := c.call(t.Context(), "clean"); code != exitFailed || out != "" {
		t.Errorf("clean doesn't ask: exit code %d, %s", code, out)
	}
	out, code := c.call(t.Context(), "clean", "--yes", "--run", "another")
	if code != 0 || len(c.sim.LoadBalancers()) == 0 {
		t.Errorf("clean --run removes another run's things: exit code %d, %s", code, out)
	}
	if want := "Nothing of run another is left in the project. 1 other run has something there: see underlayctl measure clean.\n"; out != want {
		t.Errorf("printed was %q, want %q", out, want)
	}
	// Nobody has named it: it may be at work, as its age goes.
	c.errs.b.Reset()
	if _, code := c.call(t.Context(), "clean", "--yes"); code != exitFailed || len(c.sim.LoadBalancers()) == 0 || !strings.Contains(c.errs.String(), "may be at work") {
		t.Errorf("clean --yes removes what may be at work: exit code %d, %s", code, c.errs.String())
	}
	_, run, _ := strings.Cut(said, "--run ")
	run, _, _ = strings.Cut(run, " ")
	look, _ := c.call(t.Context(), "--api-only", "--dry-run")
	if want := "Run " + run + " ("; !strings.Contains(look, want) || !strings.Contains(look, "may be at work") {
		t.Errorf("the plan doesn't say %q:\n%s", want, look)
	}
	for range 2 {
		if out, code := c.call(t.Context(), "clean", "--yes", "--run", run); code != 0 || out != "Nothing of run "+run+" is left in the project.\n" {
			t.Errorf("exit code %d, %s%s", code, out, c.errs.String())
		}
		c.expectUntouched()
	}
}

func TestMeasuresFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--max-cost much": `--max-cost: "much" is no amount of money`,
		"--time-limit 5s": "--time-limit 5s: it must be between 1m",
		"--location=":     "--location is empty",
		"--dedicated me":  `--dedicated "me" is no address`,
		"--dedicated-key k --dedicated-interface i":                                  "without --dedicated",
		"--dedicated 192.0.2.1 --dedicated-key k":                                    "go together",
		"--dedicated 192.0.2.1 --dedicated-key k --dedicated-interface i --api-only": "exclude each other",
		"--endpoint http://192.0.2.1/v1":                                             "without encryption",
		"--endpoint nowhere":                                                         "no URL",
		"--location= --max-cost=x":                                                   "; --location is empty",
		"-o csv":                                                                     "--output",
		"--profile testdata/measure.json.golden":                                     "--profile testdata/measure.json.golden",
		"clean --dedicated 192.0.2.1":                                                "unknown flag",
		"facts --profile /nonexistent":                                               "--profile",
		"nonsense":                                                                   "unknown command",
	} {
		c := newMeasuredCloud(t, hcloudsim.Options{})
		_, code := c.call(t.Context(), strings.Fields(args)...)
		if code != exitFailed || !strings.Contains(c.errs.String(), want) {
			t.Errorf("%s: exit code %d, %s, want %q", args, code, c.errs.String(), want)
		}
	}
}

func TestMeasureNeedsAToken(t *testing.T) {
	var errs bytes.Buffer
	code := run(t.Context(), process{
		args: []string{"measure", "--dry-run"}, stdout: &errs, stderr: &errs, getenv: func(string) string { return "" }, readFile: os.ReadFile,
	})
	if code != exitFailed || !strings.Contains(errs.String(), "set HCLOUD_TOKEN") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// A small budget is told, and not waited for until nobody knows why.
func TestMeasureTellsOfASmallBudget(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{RateLimit: 10})
	began := time.Now()
	_, code := c.call(t.Context(), "--api-only", "--dry-run")
	if said := c.errs.String(); code != exitFailed || !strings.Contains(said, "of 10 requests are left, and half is for others") || time.Since(began) > 30*time.Second {
		t.Errorf("exit code %d after %s: %s", code, time.Since(began), said)
	}
}

// A simulator may need no token; one that does says so, and not that a token is wrong.
func TestMeasureNeedsATokenOfASimulatorToo(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	empty := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--dry-run": "there is no token for the cloud: set HCLOUD_TOKEN", "clean": "there is no token for the cloud: set HCLOUD_TOKEN",
		"--token-file " + empty: "with permission to read and write",
	} {
		var errs bytes.Buffer
		code := run(t.Context(), process{
			args: append([]string{"measure", "--endpoint", c.endpoint}, strings.Fields(args)...), stdout: &errs, stderr: &errs,
			getenv: func(string) string { return "" }, readFile: os.ReadFile,
		})
		if code != exitFailed || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "refuses") || strings.Contains(errs.String(), "is enough") {
			t.Errorf("%s: exit code %d: %s", args, code, errs.String())
		}
	}
}

func TestFactsAreListed(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	out, code := c.call(t.Context(), "facts")
	if code != 0 || !strings.Contains(out, "busy ") || !strings.Contains(out, "2 servers, network") || !strings.Contains(out, "too much:") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
