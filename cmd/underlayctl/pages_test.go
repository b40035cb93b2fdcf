package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/doctor"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
)

func pfx(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func ip(text string) netip.Addr { return netip.MustParseAddr(text) }

func somePools() survey.PoolsView {
	room := 240
	return survey.PoolsView{
		Pools: []survey.PoolRow{
			{Name: "default-ipv4", CIDR: pfx("10.244.0.0/16"), Source: "cidr", Mask: 24, State: "active", Capacity: 256, Free: 240, Used: 12, Quarantined: 1, Foreign: 1, Excluded: 2},
			{Name: "old", CIDR: pfx("10.50.0.0/24"), Source: "cidr", Mask: 26, State: "draining", Capacity: 4, Used: 4},
			{Name: "full", CIDR: pfx("10.60.0.0/24"), Source: "vswitch", Mask: 26, State: "active", Capacity: 4, Used: 4},
			{Name: "own", Source: "node", Mask: 80, State: "active", Unlimited: true, Used: 12},
		},
		Room: &room, Notes: []string{"Node a has a podCIDR\nof its own"}, NotSeen: []string{"servers: there is no token"},
	}
}

func someNodes() survey.NodesView {
	created := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	return survey.NodesView{Nodes: []survey.NodeRow{
		{
			Name: "control-1", PodCIDRs: []netip.Prefix{pfx("10.244.0.0/24"), pfx("fd00:10:244::/64")},
			Route: survey.RouteState{Via: ip("10.0.0.2"), State: survey.RouteStands}, Families: map[string]string{"IPv4": "cloud", "IPv6": "node"},
			NetworkUnavailable: &survey.ConditionRow{Status: "False", Reason: "RouteCreated"}, PeersReachable: &survey.ConditionRow{Status: "True"},
			ProviderID: "hcloud://7", Server: "control-1 (running)", Created: created, Age: 2 * time.Hour,
		},
		{
			Name: "a-worker-with-a-long-name", PodCIDRs: []netip.Prefix{}, Route: survey.RouteState{State: survey.RouteNoPodCIDR},
			NetworkUnavailable: &survey.ConditionRow{Status: "True", Reason: "NoRouteCreated"},
			PodCIDRsAllocated:  &survey.ConditionRow{Status: "False", Reason: "PoolExhausted"},
			Why:                []string{"the pools are exhausted: add one", "its peers are far"}, Created: created, Age: 3 * time.Minute,
		},
	}, Gone: []survey.GoneRow{{
		Name: "worker-9", UID: "uid-9", PodCIDRs: []netip.Prefix{pfx("10.244.9.0/24")}, Released: created, Free: created.Add(time.Hour),
	}}}
}

func someRoutes() survey.RoutesView {
	return survey.RoutesView{
		Network: &survey.NetworkRow{ID: 1, Name: "cluster", Range: pfx("10.0.0.0/8"), Servers: 3},
		Budget:  &survey.BudgetRow{Limit: 5, Reserve: 1, Used: 4, Free: 0, Full: 1},
		Routes: []survey.RouteRow{
			{Destination: pfx("10.66.0.0/16"), Gateway: ip("10.0.9.9"), Class: survey.Foreign},
			{Destination: pfx("10.244.0.0/24"), Gateway: ip("10.0.0.2"), Node: "control-1", Server: "control-1", Class: survey.Ours},
			{Destination: pfx("10.244.1.0/24"), Gateway: ip("10.0.0.8"), Server: "stranger", Class: survey.Ambiguous},
			{Destination: pfx("10.244.2.0/24"), Gateway: ip("10.0.0.3"), Node: "worker-2 (gone)", Class: survey.Stale},
		},
		Drift: survey.Drift{
			Missing: []survey.DriftRow{{Destination: pfx("10.244.3.0/24"), Node: "worker-3", Why: "its server is not attached"}},
			Extra:   []survey.DriftRow{{Destination: pfx("10.244.2.0/24"), Gateway: ip("10.0.0.3"), Why: "no Node wants it"}},
		},
		Notes: []string{"5 of the 5 routes are used"},
	}
}

func someBalancers() survey.LoadBalancersView {
	return survey.LoadBalancersView{
		Services: []survey.BalancerRow{
			{
				Service: "default/web", ID: 7, Name: "web", Type: "lb11", Location: "fsn1", Addresses: []netip.Addr{ip("192.0.2.7"), ip("10.0.0.200")},
				Listeners: []survey.ListenerRow{
					{Port: 80, DestinationPort: 30080, Protocol: "tcp", Check: "http :10256/healthz", Targets: []survey.TargetRow{
						{Node: "worker-1", Server: 1, Private: true, Health: "healthy"},
						{Node: "worker-2", Server: 2, Private: true, Health: "unhealthy", Cause: "HTTP status 503"},
						{Server: 999, Health: "unknown"},
					}},
					{Port: 443, DestinationPort: 30443, Protocol: "tcp", Check: "tcp :30443"},
				},
				Plan: []string{"remove server 999"}, Notes: []string{"a note"},
			},
			{Service: "shop/api", Published: []string{"192.0.2.9"}},
			{
				Service: "shop/mail", ID: 9, Name: "edge", Type: "lb11", Location: "fsn1", Addresses: []netip.Addr{ip("192.0.2.10")},
				Shared: "shop.edge", SharedBy: []string{"shop/mail", "shop/shell"},
				Listeners: []survey.ListenerRow{{Port: 25, DestinationPort: 30025, Protocol: "tcp", Check: "tcp :30025"}},
			},
		},
		Orphans: []survey.BalancerRow{{ID: 8, Name: "left", Type: "lb11", Location: "fsn1", Notes: []string{"no Service has it"}}},
	}
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

func someTimeline() survey.Inspection {
	when := time.Date(2026, 11, 22, 10, 0, 0, 123, time.FixedZone("elsewhere", 3600))
	return survey.Inspection{
		Object: "Node/worker-1", Facts: []survey.Fact{{Name: "podCIDRs", Value: "10.244.1.0/24"}, {Name: "why", Value: "its route is missing"}},
		Timeline: []survey.Entry{{Time: when, Source: "Node", What: "created"}, {Time: when.Add(time.Second), Source: "Event", What: "RouteTableFull: no room", Bad: true}},
	}
}

// Each page, in each form, equals testdata/*.golden; with UPDATE_GOLDEN=1 those are updated, to be
// reviewed.
func TestPages(t *testing.T) {
	for name, view := range map[string]table.Shown{
		"pools":        somePools(),
		"nodes":        someNodes(),
		"routes":       someRoutes(),
		"lb":           someBalancers(),
		"addresses":    someAddresses(),
		"doctor":       someFindings(),
		"connectivity": someTrials(),
		"inspect":      someTimeline(),
		"healthy":      doctor.Diagnosis{NotSeen: []string{"servers: there is no token"}},
		"no-plan":      survey.LoadBalancersView{Services: []survey.BalancerRow{{Service: "shop/api", ID: 9, Name: "api"}}},
		"no-faults":    manyOpen(),
		"no-findings":  doctor.Diagnosis{},
		"no-nodes":     survey.NodesView{},
		"no-addresses": noAddresses(),
		"no-lb":        survey.LoadBalancersView{},
		"no-routes":    survey.RoutesView{Notes: []string{"the provider is metal"}},
	} {
		for _, form := range []string{"table", "wide", "json", "yaml", "color"} {
			if form == "color" && name != "routes" || strings.HasPrefix(name, "no-") && form != "table" || name == "healthy" && form != "table" {
				continue
			}
			t.Run(name+" "+form, func(t *testing.T) {
				var out, errs bytes.Buffer
				o := options{output: strings.ReplaceAll(form, "color", "table")}
				w := process{stdout: &out, stderr: &errs, terminal: form == "color", getenv: func(string) string { return "" }}
				if err := o.print(w, view); err != nil {
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
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
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
	if out, _, code := called(t, "underlayctl", "version"); code != 0 || !strings.HasPrefix(out, "underlayctl v") {
		t.Errorf("%d, %s", code, out)
	}
	word, _, _ := called(t, "underlayctl", "version")
	if out, _, code := called(t, "underlayctl", "--version"); code != 0 || out != word {
		t.Errorf("--version: %d %q, want %q", code, out, word)
	}
	if out, _, code := called(t, "underlayctl", "version", "-o", "json"); code != 0 || !strings.Contains(out, `"gitVersion"`) {
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
