package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/doctor"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
	"github.com/underlay-ccm/underlay/test/testenv/snapshots"
)

// view is an output, as a page and as a value for programs.
type view struct {
	page  table.Page
	value any
}

// pageOf returns the view of a Snapshot.
func pageOf(
	t *testing.T, snapshot func(int) (*survey.Snapshot, error),
	of func(*survey.Snapshot) (table.Page, error),
) view {
	t.Helper()
	s, err := snapshot(3)
	if err != nil {
		t.Fatal(err)
	}
	page, err := of(s)
	if err != nil {
		t.Fatal(err)
	}
	return view{page, page.Values()}
}

func someFindings() doctor.Diagnosis {
	return doctor.Diagnosis{Findings: []doctor.Finding{
		{Check: "second-allocator", Severity: doctor.Error, Object: "Pod/kube-system/kube-controller-manager-a", What: "it allocates\ntoo", Remedy: "stop it"},
		{Check: "route-budget", Severity: doctor.Warning, What: "81 of 100", Remedy: "have the limit raised"},
		{Check: "servers", Severity: doctor.Info, What: "not checked", Remedy: "give a token"},
		{Check: "foreign-routes", Severity: doctor.Info, What: "not checked: no flags", Remedy: "look at the routes"},
		{Check: "stale-routes", Severity: doctor.Info, What: "not checked: no flags", Remedy: "look at the gateways"},
	}}
}

// Each page, in each form, equals testdata/*.golden; with UPDATE_GOLDEN=1 those are updated, to be
// reviewed.
func TestPages(t *testing.T) {
	findings := func(d doctor.Diagnosis) view { return view{d.Page(), d} }
	trials := func(v tried) view { return view{v.Page(), v} }
	node := func(s *survey.Snapshot) (table.Page, error) { return survey.InspectNode(s, "worker-2") }
	for name, view := range map[string]view{
		"pools":        pageOf(t, snapshots.Eventful, survey.PoolsOf),
		"nodes":        pageOf(t, snapshots.Eventful, survey.NodesOf),
		"routes":       pageOf(t, snapshots.Eventful, survey.RoutesOf),
		"lb":           pageOf(t, snapshots.Eventful, survey.LoadBalancersOf),
		"addresses":    pageOf(t, snapshots.Addressed, survey.AddressesOf),
		"doctor":       findings(someFindings()),
		"connectivity": trials(someTrials()),
		"inspect":      pageOf(t, snapshots.Eventful, node),
		"healthy":      findings(doctor.Diagnosis{NotSeen: []string{"servers: there is no token"}}),
		"no-faults":    trials(manyOpen()),
		"no-findings":  findings(doctor.Diagnosis{}),
		"no-addresses": pageOf(t, snapshots.Eventful, survey.AddressesOf),
		"no-lb":        pageOf(t, snapshots.Healthy, survey.LoadBalancersOf),
		"no-drift":     pageOf(t, snapshots.Healthy, survey.RoutesOf),
	} {
		for _, form := range []string{"table", "wide", "json", "yaml", "color"} {
			if form == "color" && name != "routes" || strings.HasPrefix(name, "no-") && form != "table" || name == "healthy" && form != "table" {
				continue
			}
			t.Run(name+" "+form, func(t *testing.T) {
				var out, errs bytes.Buffer
				o := options{output: strings.ReplaceAll(form, "color", "table")}
				w := process{stdout: &out, stderr: &errs, terminal: form == "color", getenv: func(string) string { return "" }}
				if err := o.print(w, view.page, view.value); err != nil {
					t.Fatal(err)
				}
				got := out.String() + "--- standard error\n" + errs.String()
				expectGolden(t, filepath.Join("testdata", name+"."+form+".golden"), got)
			})
		}
	}
}

func expectGolden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

func TestColorsAreForTerminalsThatWantThem(t *testing.T) {
	for _, c := range []struct {
		terminal bool
		env      map[string]string
		want     bool
	}{
		{true, nil, true},
		{false, nil, false},
		{true, map[string]string{"NO_COLOR": "1"}, false},
		{true, map[string]string{"TERM": "dumb"}, false},
	} {
		w := process{terminal: c.terminal, getenv: func(name string) string { return c.env[name] }}
		if got := w.colorful(); got != c.want {
			t.Errorf("terminal %t, %v: %t", c.terminal, c.env, got)
		}
	}
}

func TestDoctorsExitCode(t *testing.T) {
	for name, c := range map[string]struct {
		severities []doctor.Severity
		want       int
	}{
		"nothing":    {nil, 0},
		"only info":  {[]doctor.Severity{doctor.Info}, 0},
		"a warning":  {[]doctor.Severity{doctor.Info, doctor.Warning}, 1},
		"the worst":  {[]doctor.Severity{doctor.Error, doctor.Warning, doctor.Info}, 2},
		"error last": {[]doctor.Severity{doctor.Warning, doctor.Error}, 2},
	} {
		var all []doctor.Finding
		for _, s := range c.severities {
			all = append(all, doctor.Finding{Severity: s})
		}
		if got := severityCode(all); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

type reached struct{ methods []string }

func (r *reached) RoundTrip(request *http.Request) (*http.Response, error) {
	r.methods = append(r.methods, request.Method)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// Only reads pass the last gate.
func TestTheLastGate(t *testing.T) {
	var behind reached
	gate := readOnly{&behind}
	for _, method := range []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete,
	} {
		request, err := http.NewRequestWithContext(t.Context(), method, "https://cloud.example/v1/servers", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := gate.RoundTrip(request)
		if err == nil {
			answer.Body.Close()
		}
		if read := method == http.MethodGet || method == http.MethodHead; read != (err == nil) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if got := strings.Join(behind.methods, " "); got != "GET HEAD" {
		t.Errorf("%s got through", got)
	}
}

// called returns the output and the exit code of the program without a cluster.
func called(t *testing.T, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), process{
		name: name, args: args, stdout: &out, stderr: &errs, getenv: func(string) string { return "" },
		readFile: func(string) ([]byte, error) { return nil, errors.New("no files here") },
	})
	return out.String(), errs.String(), code
}

func TestCalledByEitherName(t *testing.T) {
	for name, want := range map[string]string{"underlayctl": "underlayctl [command]", "kubectl-underlay": "kubectl underlay [command]", "other": "underlayctl [command]"} {
		if out, _, code := called(t, name, "--help"); code != 0 || !strings.Contains(out, "  "+want) {
			t.Errorf("%s: %d, %s", name, code, out)
		}
	}
}

func TestVersion(t *testing.T) {
	if out, _, code := called(t, "underlayctl", "--version"); code != 0 || !strings.HasPrefix(out, "underlayctl v") {
		t.Errorf("%d, %s", code, out)
	}
}

func TestMistakesOfTheCommandLine(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"pools extra", "extra"},
		{"nonsense", "nonsense"},
		{"inspect", "node NAME, service NAMESPACE/NAME, or pod NAMESPACE/NAME"},
		{"inspect node", "accepts 1 arg"},
		{"inspect service web", "write NAMESPACE/NAME"},
		{"nodes --output=xml", "table, wide, json, yaml"},
		{"nodes --manager-flag=cluster-cidr=1", "write it with its dashes"},
		{"nodes --manager-flag=--nonsense=1", "--cluster-cidr"},
		{"nodes --token-file=a --token-secret", "exclude each other"},
		{"nodes --namespace=", "--namespace is empty: name the one in which underlay-ccm is installed"},
		{"nodes --kubeconfig=/nowhere/at/all", "/nowhere/at/all"},
	} {
		out, errs, code := called(t, "underlayctl", strings.Fields(c.args)...)
		if code != 3 || out != "" || !strings.HasPrefix(errs, "error: ") || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %d, %q, %q; want one line with %q", c.args, code, out, errs, c.want)
		}
	}
}

// A snapshot without the configuration or the Nodes is an error, not a healthy cluster.
func TestDoctorThatSawTooLittle(t *testing.T) {
	const both = survey.PartConfig | survey.PartNodes
	for name, c := range map[string]struct {
		seen  survey.Snapshot
		error string // empty: it has enough parts
	}{
		"both":             {survey.Snapshot{Parts: both}, ""},
		"no configuration": {survey.Snapshot{Parts: survey.PartNodes, Gaps: []survey.Gap{{Part: survey.PartConfig, Reason: "give flags"}}}, "configuration can't be seen: give flags"},
		"no Nodes":         {survey.Snapshot{Parts: survey.PartConfig, Gaps: []survey.Gap{{Part: survey.PartNodes, Reason: "no right"}}}, "Nodes can't be seen: no right"},
		"a wrong configuration": {survey.Snapshot{
			Parts: survey.PartNodes, Gaps: []survey.Gap{{Part: survey.PartConfig, Reason: "wrong"}}, ConfigErrors: make(config.Errors, 1),
		}, ""},
	} {
		err := unexamined(&c.seen)
		if (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) {
			t.Errorf("%s: %v, want %q", name, err, c.error)
		}
	}
}
