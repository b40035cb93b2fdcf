package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const alertFile = "deploy/alerts/underlay.yaml"

// alert is a rule of a PrometheusRule.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// prometheusRule is what the Prometheus operator reads.
type prometheusRule struct {
	APIVersion, Kind string
	Metadata         map[string]any
	Spec             struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
}

func alerts(t *testing.T) []alert {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, alertFile))
	if err != nil {
		t.Fatal(err)
	}
	var object prometheusRule
	if err := yaml.UnmarshalStrict(content, &object); err != nil {
		t.Fatal(err)
	}
	if object.APIVersion != "monitoring.coreos.com/v1" || object.Kind != "PrometheusRule" {
		t.Errorf("%s holds a %s of %s", alertFile, object.Kind, object.APIVersion)
	}
	var out []alert
	for _, g := range object.Spec.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// borrowed are the metrics of others that alerts use, and their labels.
func borrowed() []metric {
	return []metric{
		{name: "up", kind: "gauge", labels: []string{"job"}},
		{name: "leader_election_master_status", kind: "gauge", labels: []string{"name"}, help: "cloud-controller-manager"},
	}
}

var (
	// named is a metric in an expression, with its selector if it has one.
	named = regexp.MustCompile(`\b(underlay_[a-z_]+|[a-z]+(?:_[a-z]+)+|up)\b(?:\{([^}]*)\})?`)
	// matched is one label in a selector.
	matched = regexp.MustCompile(`([a-z_]+)(=~|=|!=|!~)"([^"]*)"`)
	// grouped are the labels that an operator names.
	grouped = regexp.MustCompile(`\b(by|on|without|ignoring) \(([^)]*)\)`)
)

// target are labels that Prometheus adds to whatever it reads.
var target = []string{"job", "instance", "pod", "node"}

// problemsOfAlert says what an alert names that there isn't.
func problemsOfAlert(a alert, known []metric) (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	var labels []string
	expr := a.Expr
	for _, part := range grouped.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, strings.Split(strings.ReplaceAll(part[2], " ", ""), ",")...)
	}
	expr = grouped.ReplaceAllString(expr, "")
	allowed := slices.Clone(target)
	for _, use := range named.FindAllStringSubmatch(expr, -1) {
		i := slices.IndexFunc(known, func(m metric) bool { return m.provides(use[1]) })
		if i < 0 {
			wrong("there is no metric %s", use[1])
			continue
		}
		m := known[i]
		allowed = append(allowed, m.labels...)
		for _, label := range matched.FindAllStringSubmatch(use[2], -1) {
			if !slices.Contains(m.labels, label[1]) {
				wrong("%s has no label %s", m.name, label[1])
			}
			if value := label[3]; strings.HasPrefix(m.name, "underlay_") && label[1] != "code" {
				for one := range strings.SplitSeq(value, "|") {
					if !strings.Contains(m.help, one) {
						wrong("the help text of %s knows no %s %q", m.name, label[1], one)
					}
				}
			}
		}
	}
	for _, label := range append(labels, labelsIn(a.Annotations["description"])...) {
		if !slices.Contains(allowed, label) {
			wrong("no metric of the expression has a label %s", label)
		}
	}
	return problems
}

// provides reports whether a metric has a series of that name.
func (m metric) provides(series string) bool {
	if m.kind == "histogram" {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if series == m.name+suffix {
				return true
			}
		}
		return false
	}
	return series == m.name
}

func labelsIn(template string) (labels []string) {
	for _, l := range regexp.MustCompile(`\$labels\.([a-z_]+)`).FindAllStringSubmatch(template, -1) {
		labels = append(labels, l[1])
	}
	return labels
}

// TestAlerts: alerts name only metrics and labels that there are, and tell what a
// person needs. That they fire is tried by the module test/checks/alerts.
func TestAlerts(t *testing.T) {
	known := borrowed()
	for _, s := range metricSources() {
		known = append(known, metricsOf(t, s)...)
	}
	seen := map[string]bool{}
	for _, a := range alerts(t) {
		for _, problem := range append(problemsOfAlert(a, known), incomplete(a)...) {
			t.Errorf("%s: %s", a.Alert, problem)
		}
		if seen[a.Alert] {
			t.Errorf("%s is there twice", a.Alert)
		}
		seen[a.Alert] = true
	}
	for _, page := range runbooks(t) {
		if !seen[page] {
			t.Errorf("docs/runbooks/%s.md: there is no such alert", page)
		}
	}
}

const runbookURL = "https://github.com/underlay-ccm/underlay/blob/main/docs/runbooks/"

func incomplete(a alert) (problems []string) {
	if !regexp.MustCompile(`^Underlay[A-Z][A-Za-z]+$`).MatchString(a.Alert) {
		problems = append(problems, "the name begins with Underlay")
	}
	if s := a.Labels["severity"]; s != "critical" && s != "warning" {
		problems = append(problems, fmt.Sprintf("severity %q", s))
	}
	if a.For == "" || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
		problems = append(problems, "for, summary or description is missing")
	}
	if a.Annotations["runbook_url"] != runbookURL+a.Alert+".md" {
		problems = append(problems, "runbook_url does not lead to the alert's page")
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/runbooks", a.Alert+".md"))
	if err != nil {
		return append(problems, err.Error())
	}
	for _, section := range []string{"# " + a.Alert, "## What it means", "## What is affected", "## How to look", "## How to mend"} {
		if !strings.Contains("\n"+string(page), "\n"+section+"\n") {
			problems = append(problems, "its page has no section "+section)
		}
	}
	return problems
}

func runbooks(t *testing.T) (names []string) {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(root, "docs/runbooks/Underlay*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		names = append(names, strings.TrimSuffix(filepath.Base(p), ".md"))
	}
	return names
}

const runbooksIntro = `# Runbooks

What to do when an alert of [underlay.yaml](../../deploy/alerts/underlay.yaml) fires. The alerts are a PrometheusRule, which the Prometheus operator reads:

` + "```sh" + `
kubectl apply -f deploy/alerts/underlay.yaml
` + "```" + `

*critical*: something doesn't work now, or new Nodes won't. *warning*: it will not for long, or a single node is concerned. All metrics: [Metrics](../reference/metrics.md).

| alert | severity | fires after | says |
|---|---|---|---|
`

// TestDocumentRunbooks keeps the list of runbooks equal to the alerts.
func TestDocumentRunbooks(t *testing.T) {
	var b strings.Builder
	b.WriteString(generated(alertFile) + runbooksIntro)
	for _, a := range alerts(t) {
		b.WriteString(row(fmt.Sprintf("[%s](%s.md)", a.Alert, a.Alert), a.Labels["severity"], a.For, a.Annotations["summary"]))
	}
	comparePage(t, "runbooks/README.md", b.String())
}

// TestAlertsAreJudged shows that problemsOfAlert finds what is wrong.
func TestAlertsAreJudged(t *testing.T) {
	known := append(borrowed(),
		metric{name: "underlay_a_total", kind: "counter", labels: []string{"outcome"}, help: "By outcome: ok, error."},
		metric{name: "underlay_a_seconds", kind: "histogram", help: "Time."},
	)
	for expr, want := range map[string]int{
		`rate(underlay_a_total{outcome="ok"}[5m]) > 1 and on (instance) up == 1`: 0,
		`sum by (outcome) (rate(underlay_a_total{outcome=~"ok|error"}[5m]))`:     0,
		`rate(underlay_a_seconds_sum[5m])`:                                       0,
		`underlay_b_total > 1`:                                                   1,
		`underlay_a_seconds > 1`:                                                 1,
		`underlay_a_total{verb="ok"} > 1`:                                        1,
		`underlay_a_total{outcome="okay"} > 1`:                                   1,
		`sum by (verb) (underlay_a_total)`:                                       1,
		`absent(leader_election_status)`:                                         1,
	} {
		if problems := problemsOfAlert(alert{Expr: expr}, known); len(problems) != want {
			t.Errorf("%s: problems %q, want %d", expr, problems, want)
		}
	}
	if problems := problemsOfAlert(alert{Expr: "up", Annotations: map[string]string{"description": "{{ $labels.part }}"}}, known); len(problems) != 1 {
		t.Errorf("a label of a description: problems %q", problems)
	}
}
