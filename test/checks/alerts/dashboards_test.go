package alerts

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// dashboardFile is the checked part of a dashboard. Contributors change it in Grafana, and export
// it from there.
type dashboardFile struct {
	content    []byte
	UID        string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID      int
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr, LegendFormat string }
	}
}

// dashboards reads the files, which are in deploy/chart, because Helm reads no file outside of a
// chart; deploy/dashboards is a link to them.
func dashboards(t *testing.T) (all []dashboardFile) {
	t.Helper()
	paths, err := filepath.Glob("../../../deploy/dashboards/*.json")
	if err != nil || len(paths) < 3 {
		t.Fatalf("there are %q (%v), and were three", paths, err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		d := dashboardFile{content: content}
		if err := json.Unmarshal(content, &d); err != nil || d.UID+".json" != filepath.Base(path) {
			t.Errorf("%s has the UID %q: %v", path, d.UID, err)
		}
		all = append(all, d)
	}
	return all
}

// TestGrafanaReadsDashboards decodes each file by Grafana's own types, strictly except for fields
// with Grafana's defaults.
func TestGrafanaReadsDashboards(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for _, d := range dashboards(t) {
		var read dashboard.Dashboard
		var problems cog.BuildErrors
		if err := read.UnmarshalJSONStrict(d.content); err != nil && !errors.As(err, &problems) {
			t.Fatalf("%s: %v", d.UID, err)
		}
		for _, problem := range problems {
			if problem.Message != "required field is missing from input" {
				t.Errorf("%s: %v", d.UID, problem)
			}
		}
		if err := read.Validate(); err != nil {
			t.Errorf("%s: %v", d.UID, err)
		}
	}
}

// query is a query of a panel, with Grafana's variables replaced.
type query struct{ where, expr, legend string }

func queries(t *testing.T) (all []query) {
	replace := strings.NewReplacer("$__rate_interval", "5m", "$node", "node-1")
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				all = append(all, query{d.UID + ": " + p.Title, replace.Replace(q.Expr), q.LegendFormat})
			}
		}
	}
	if len(all) < 50 {
		t.Errorf("only %d queries found", len(all))
	}
	return all
}

// braces are the labels in a legend.
var braces = regexp.MustCompile(`{{([a-z_]+)}}`)

// TestDashboardsShowTheProgramsMetrics runs each query on recorded metrics of the programs. It must
// return series that have the labels of their legend, each series with a different legend.
func TestDashboardsShowTheProgramsMetrics(t *testing.T) {
	known := scrapes(t)
	engine, now := promqltest.NewTestEngine(t, false, 0,
		promqltest.DefaultMaxSamplesPerQuery), time.Unix(0, 0).Add(minutes*time.Minute)
	store := promqltest.LoadedStorage(t, fmt.Sprintf("load %s\n%s\n", interval, indent(text(recorded(t)))))
	for _, q := range queries(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.expr)
		if err != nil {
			t.Errorf("%s: %v", q.where, err)
			continue
		}
		for _, u := range uses(expr) {
			if s, ok := known[u.selector.Name]; u.selector.Name != "up" && (!ok || s.kind != u.kind) {
				t.Errorf("%s: takes %s for a %s: programs show %q", q.where, u.selector.Name, u.kind, s.kind)
			}
		}
		asked, err := engine.NewInstantQuery(t.Context(), store, nil, q.expr, now)
		if err != nil {
			t.Fatal(err)
		}
		defer asked.Close()
		series, err := asked.Exec(t.Context()).Vector()
		if err != nil || len(series) == 0 {
			t.Errorf("%s: no answer to %s: %v", q.where, q.expr, err)
		}
		named(t, q, series)
	}
}

// named compares the names of series in a panel.
func named(t *testing.T, q query, series promql.Vector) {
	t.Helper()
	seen := map[string]bool{}
	for _, s := range series {
		name := braces.ReplaceAllStringFunc(q.legend, func(label string) string {
			value := s.Metric.Get(strings.Trim(label, "{}"))
			if value == "" {
				t.Errorf("%s: a series %s has no label for %s", q.where, s.Metric, label)
			}
			return value
		})
		if seen[name] {
			t.Errorf("%s: two series are named %q", q.where, name)
		}
		seen[name] = true
	}
}

// chosen matches the source of a variable's values in Grafana.
var chosen = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)

// TestDashboardsChooseNodes: the values of a variable are those of a label of the metric.
func TestDashboardsChooseNodes(t *testing.T) {
	known := scrapes(t)
	for _, d := range dashboards(t) {
		for _, v := range d.Templating.List {
			from := chosen.FindStringSubmatch(v.Definition)
			if v.Type != "query" {
				continue
			}
			if from == nil || known[from[1]].kind == "" || from[2] != v.Name || !slices.Contains(added(), v.Name) {
				t.Errorf("%s: no program shows a label %s by %s", d.UID, v.Name, v.Definition)
			}
			if !strings.Contains(string(d.content), "$"+v.Name) {
				t.Errorf("%s: nothing follows the choice of a %s", d.UID, v.Name)
			}
		}
	}
}

// TestPanelsDontOverlap: each has an ID and its own position.
func TestPanelsDontOverlap(t *testing.T) {
	for _, d := range dashboards(t) {
		taken := map[string]string{}
		for _, p := range d.Panels {
			places := []string{"ID " + strconv.Itoa(p.ID)}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					places = append(places, fmt.Sprintf("column %d, line %d", x, y))
				}
			}
			for _, place := range places {
				if other := taken[place]; other != "" {
					t.Fatalf("%s: %s and %s have %s", d.UID, other, p.Title, place)
				}
				taken[place] = p.Title
			}
			if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W == 0 || p.GridPos.H == 0 {
				t.Errorf("%s: %s is at %+v of 24 columns", d.UID, p.Title, p.GridPos)
			}
		}
	}
}
