package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

// Everything that is wrong with a choice is said before the cloud is asked.
func TestMeasureRefusesWrongFacts(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"nothing":     {[]string{"--only", ""}, "--only names no fact"},
		"only commas": {[]string{"--only", " ,"}, "--only names no fact"},
		"a slip":      {[]string{"--skip", "buzy"}, `--skip names "buzy", which is no fact: did you mean busy?`},
		"no fact":     {[]string{"--only", "everything-else"}, "see underlayctl measure facts"},
		"each of them": {
			[]string{"--only", "buzy,latenzy", "--skip", "rate-limits"},
			`--only names "buzy", which is no fact: did you mean busy?; --only names "latenzy", which is no fact: did you mean latency?; --skip names "rate-limits", which is no fact: did you mean rate-limit?`,
		},
	} {
		c := newMeasuredCloud(t, hcloudsim.Options{})
		_, code := c.call(t.Context(), append(test.args, "--api-only", "--yes")...)
		if said := c.errs.String(); code != exitFailed || !strings.Contains(said, test.want) {
			t.Errorf("%s: exit code %d, %s, want %q", name, code, said, test.want)
		}
		if n := len(c.sim.Requests()); n != 0 {
			t.Errorf("%s: %d requests were sent", name, n)
		}
	}
}

func TestMeasureTakesListsWithSpaces(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	out, code := c.call(t.Context(), "--api-only", "--dry-run", "--only", "busy, latency,,rate-limit", "--skip", " latency, rate-limit", "-o", "json")
	if want := `"facts": [
    "busy"
  ]`; code != 0 || !strings.Contains(out, want) {
		t.Errorf("exit code %d: %s%s", code, out, c.errs.String())
	}
}

// completions are what a shell is offered for the last of the words.
func (c *measuredCloud) completions(words ...string) (names []string) {
	c.t.Helper()
	var out, errs bytes.Buffer
	env := map[string]string{"HCLOUD_TOKEN": measureToken, "HCLOUD_ENDPOINT": c.endpoint}
	if code := run(c.t.Context(), process{
		args: append([]string{"__complete", "measure"}, words...), stdout: &out, stderr: &errs, getenv: func(name string) string { return env[name] },
	}); code != 0 {
		c.t.Fatalf("exit code %d: %s", code, errs.String())
	}
	for line := range strings.Lines(out.String()) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(name, ":") {
			names = append(names, name)
		}
	}
	return names
}

func TestMeasureIsCompleted(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	const run = "20260102-0304-abcdef"
	if _, err := c.sim.CreateServer(hcloudsim.ServerSeed{
		Name: "underlay-measure-" + run + "-server", Labels: map[string]string{project.Label: run},
	}); err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"--only la":         "latency",
		"--only busy,la":    "busy,latency",
		"--only latency,la": "",
		"--skip busy,rate":  "busy,rate-limit",
		"--location f":      "fsn1",
		"clean --run 2026":  run,
		"clean --run x":     "",
	} {
		if got := strings.Join(c.completions(strings.Fields(words)...), " "); got != want {
			t.Errorf("%s: %q, want %q", words, got, want)
		}
	}
	all := c.completions("--only", "")
	for _, f := range measure.Facts() {
		offered := strings.Contains(" "+strings.Join(all, " ")+" ", " "+string(f.ID)+" ")
		if offered != (f.Needs.Impossible == "") {
			t.Errorf("%s: offered %t", f.ID, offered)
		}
	}
	c.endpoint = "http://127.0.0.1:1/v1"
	if got := c.completions("--location", ""); len(got) != 0 {
		t.Errorf("without an API: %q", got)
	}
}

func TestMeasuresHelpNamesItsFlagsAlone(t *testing.T) {
	for _, command := range [][]string{nil, {"clean"}} {
		c := newMeasuredCloud(t, hcloudsim.Options{})
		out, code := c.call(t.Context(), append(command, "--help")...)
		for flag, want := range map[string]bool{
			"--endpoint": true, "--token-file": true, "--token-secret": true, "--kubeconfig": true,
			"--namespace": false, "--cloud-config": false, "--manager-flag": false,
		} {
			if code != 0 || strings.Contains(out, flag+" ") != want {
				t.Errorf("%q: exit code %d, %s named: %t\n%s", command, code, flag, !want, out)
			}
		}
	}
}

func TestMeasureThatMakesNothingHasNoBill(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	out, code := c.call(t.Context(), "--api-only", "--dry-run", "--only", "rate-limit")
	if code != 0 || !strings.Contains(out, "Nothing is made for that, and it costs nothing.\n") || strings.Contains(out, "started hours") || strings.Contains(out, "IS MADE") {
		t.Errorf("exit code %d:\n%s%s", code, out, c.errs.String())
	}
}

// The version goes into profiles, reports and the User-Agent.
func TestMeasuresVersion(t *testing.T) {
	if got := release(); got == "" || strings.ContainsAny(got, "$%()") {
		t.Errorf("version %q", got)
	}
}

func TestMeasureNamesTheEndpointsPath(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	_, code := c.call(t.Context(), "--dry-run", "--endpoint", strings.TrimSuffix(c.endpoint, "/v1"))
	if said := c.errs.String(); code != exitFailed || !strings.Contains(said, "as in https://api.hetzner.cloud/v1") {
		t.Errorf("exit code %d: %s", code, said)
	}
}
