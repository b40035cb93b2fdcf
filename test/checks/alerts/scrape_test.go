package alerts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// scraped is a metric as a running program exposes it.
type scraped struct {
	kind   string
	series []map[string]string // their labels
}

// scrapes are the metrics of underlay-ccm and underlay-agent in a healthy cluster, recorded by
// test/e2e/packets, which also fails when they have another form. That cluster has no Robot, and no
// node holds addresses. Metrics of such clusters are in files of their own: as expected by the
// tests of internal/robot and internal/vswitch, and those of addresses/controller and
// addresses/agent.
func scrapes(t *testing.T) map[string]scraped {
	t.Helper()
	files, err := filepath.Glob("testdata/*.prom")
	if err != nil || len(files) != len(targets()) {
		t.Fatalf("recorded are %q (%v), want %d", files, err, len(targets()))
	}
	all := map[string]scraped{}
	for _, file := range files {
		content, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		text := expfmt.NewTextParser(model.UTF8Validation)
		families, err := text.TextToMetricFamilies(content)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for name, family := range families {
			s := scraped{kind: strings.ToLower(family.GetType().String())}
			for _, metric := range family.GetMetric() {
				series := map[string]string{}
				for _, l := range metric.GetLabel() {
					series[l.GetName()] = l.GetValue()
				}
				s.series = append(s.series, series)
			}
			all[name] = s
		}
	}
	return all
}

// targets are the programs that Prometheus would have scraped, by the record's file name.
func targets() map[string]string {
	return map[string]string{"underlay-ccm": leader, "underlay-ccm-robot": leader, "underlay-ccm-addresses": leader, "underlay-agent": agent, "underlay-agent-addresses": agent}
}

// added are the labels that Prometheus adds to scraped series, by the PodMonitors of the chart.
func added() []string { return []string{"job", "instance", "pod", "node"} }

// use is a metric in an expression.
type use struct {
	selector *parser.VectorSelector
	kind     string   // the kind that its functions require
	labels   []string // named by operators around it
}

// uses returns all metrics in an expression.
func uses(expr parser.Expr) (all []use) {
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		u := use{selector: selector, kind: "gauge"}
		for _, around := range path {
			switch around := around.(type) {
			case *parser.Call:
				if slices.Contains([]string{"rate", "increase"}, around.Func.Name) {
					u.kind = "counter"
				}
			case *parser.AggregateExpr:
				u.labels = append(u.labels, around.Grouping...)
			case *parser.BinaryExpr:
				if around.VectorMatching != nil && around.VectorMatching.On {
					u.labels = append(u.labels, around.VectorMatching.MatchingLabels...)
				}
			}
		}
		all = append(all, u)
		return nil
	})
	return all
}

// templated matches the labels in a template.
var templated = regexp.MustCompile(`\$labels\.([a-z_]+)`)

// TestAlertsFindTheirMetrics: each metric of an alert is exposed by a running program, with the
// kind that the expression requires, and with its labels.
func TestAlertsFindTheirMetrics(t *testing.T) {
	known := scrapes(t)
	for _, g := range load(t.Context(), t, "up 1") {
		for _, rule := range g.AlertingRules() {
			found := added()
			var asked []string
			for _, u := range uses(rule.Query()) {
				if u.selector.Name == "up" { // Prometheus' own
					continue
				}
				s, ok := known[u.selector.Name]
				if !ok {
					t.Errorf("%s: no program shows %s", rule.Name(), u.selector.Name)
					continue
				}
				if s.kind != u.kind {
					t.Errorf("%s: %s is a %s, the expression takes a %s", rule.Name(), u.selector.Name, s.kind, u.kind)
				}
				for label := range s.series[0] {
					found = append(found, label)
				}
				asked = append(asked, u.labels...)
				if !slices.ContainsFunc(s.series, func(series map[string]string) bool {
					return matches(u, series)
				}) {
					t.Errorf("%s: no series of %s is one of %s", rule.Name(), u.selector.Name, u.selector)
				}
			}
			for _, label := range templated.FindAllStringSubmatch(rule.Annotations().Get("description"), -1) {
				asked = append(asked, label[1])
			}
			for _, label := range asked {
				if !slices.Contains(found, label) {
					t.Errorf("%s: none of its metrics has a label %s", rule.Name(), label)
				}
			}
		}
	}
}

// matches reports whether an expression selects a series. A counter of failures has no series
// before the first failure: there only the label counts.
func matches(u use, series map[string]string) bool {
	return !slices.ContainsFunc(u.selector.LabelMatchers, func(m *labels.Matcher) bool {
		value, has := series[m.Name]
		switch {
		case m.Name == labels.MetricName:
			return false
		case u.kind == "counter":
			return !has
		default:
			return !m.Matches(value)
		}
	})
}

// recorded are the series of the recorded metrics.
func recorded(t *testing.T) map[string]string {
	t.Helper()
	series := map[string]string{`up{job="kube-system/underlay-agent",` + agent + `}`: fmt.Sprintf("1x%d", minutes)}
	for program, target := range targets() {
		content, err := os.ReadFile(filepath.Join("testdata", program+".prom"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			at := strings.LastIndex(line, " ")
			value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			name, own, _ := strings.Cut(strings.TrimSuffix(line[:at], "}"), "{")
			name = fmt.Sprintf("%s{%s}", name, strings.Trim(own+","+target, ","))
			series[name] = fmt.Sprintf("%sx%d", strconv.FormatFloat(value, 'f', -1, 64), minutes)
		}
	}
	return series
}

// TestAClusterThatWasWell: no alert fires on the recorded metrics.
func TestAClusterThatWasWell(t *testing.T) {
	var fired []string
	for _, alert := range firing(t, text(recorded(t)), minutes*time.Minute) {
		name, _, _ := strings.Cut(alert, ":")
		fired = append(fired, name)
	}
	if len(fired) > 0 {
		t.Errorf("fired: %q", fired)
	}
}
