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

// prometheusRule is the Prometheus operator's kind.
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

// allMetrics are those of all programs.
func allMetrics(t *testing.T) (all []metric) {
	t.Helper()
	for _, s := range metricSources() {
		all = append(all, metricsOf(t, s)...)
	}
	return all
}

// provided reports whether there is a series of that name; a histogram has three.
func provided(known []metric, series string) bool {
	return slices.ContainsFunc(known, func(m metric) bool {
		suffix, of := strings.CutPrefix(series, m.name)
		parts := []string{"_bucket", "_sum", "_count"}
		return of && (suffix == "" && m.kind != "histogram" || m.kind == "histogram" && slices.Contains(parts, suffix))
	})
}

// TestAlerts: alerts name only existing metrics, and have the texts that a user needs. The module
// test/checks/alerts tests their labels, and that they fire.
func TestAlerts(t *testing.T) {
	known := allMetrics(t)
	seen := map[string]bool{}
	for _, a := range alerts(t) {
		problems := incomplete(a)
		for _, name := range ourMetric.FindAllString(a.Expr, -1) {
			if !provided(known, name) {
				problems = append(problems, "there is no metric "+name)
			}
		}
		if seen[a.Alert] {
			problems = append(problems, "it is there twice")
		}
		seen[a.Alert] = true
		for _, problem := range problems {
			t.Errorf("%s: %s", a.Alert, problem)
		}
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
	for _, section := range []string{"# " + a.Alert, "## Meaning", "## Impact", "## Diagnosis", "## Mitigation"} {
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

A page for each alert of [underlay.yaml](../../deploy/alerts/underlay.yaml), a PrometheusRule of the Prometheus operator:

` + "```sh" + `
kubectl apply -f deploy/alerts/underlay.yaml
` + "```" + `

*critical*: something doesn't work now, or new Nodes won't. *warning*: something may fail soon, or a single node is affected. All metrics: [Metrics](../reference/metrics.md).

| alert | severity | fires after | summary |
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
