package alerts

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"

	"github.com/underlay-ccm/underlay/test/checks/alerts/dashboards"
)

var update = flag.Bool("update", false, "write the dashboards anew instead of comparing them")

// folder has the dashboards; in deploy/chart, because Helm reads no file outside of a chart.
// deploy/dashboards leads there.
const folder = "../../../deploy/dashboards"

// TestDashboardFiles holds the files to their description.
func TestDashboardFiles(t *testing.T) {
	var want []string
	for _, d := range dashboards.All() {
		content, err := d.File()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, d.UID+".json")
		want = append(want, path)
		if *update {
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s differs from its description (%v); run \"make generate\"", path, err)
		}
	}
	slices.Sort(want)
	if found, err := filepath.Glob(folder + "/*"); err != nil || !slices.Equal(found, want) {
		t.Errorf("there are %q (%v), described are %q", found, err, want)
	}
}

// TestGrafanaReadsDashboards decodes each file by Grafana's own types, which leave out a key that
// they don't know, and refuse a value of another type.
func TestGrafanaReadsDashboards(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for _, d := range dashboards.All() {
		content, err := d.File()
		if err != nil {
			t.Fatal(err)
		}
		var read dashboard.Dashboard
		if err := json.Unmarshal(content, &read); err != nil {
			t.Fatalf("%s: %v", d.UID, err)
		}
		if err := read.Validate(); err != nil {
			t.Errorf("%s: %v", d.UID, err)
		}
		again, err := json.Marshal(read)
		if err != nil {
			t.Fatal(err)
		}
		var ours, theirs any
		if err := json.Unmarshal(content, &ours); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &theirs); err != nil {
			t.Fatal(err)
		}
		for _, difference := range lost(d.UID, ours, theirs) {
			t.Error(difference)
		}
	}
}

// lost is what of one value of JSON another doesn't have. Keys without content may be left out.
func lost(at string, ours, theirs any) (all []string) {
	switch ours := ours.(type) {
	case map[string]any:
		other, _ := theirs.(map[string]any)
		for key, value := range ours {
			all = append(all, lost(at+"."+key, value, other[key])...)
		}
	case []any:
		other, _ := theirs.([]any)
		for i, value := range ours {
			if i >= len(other) {
				return append(all, fmt.Sprintf("%s[%d]: Grafana has no such thing", at, i))
			}
			all = append(all, lost(fmt.Sprintf("%s[%d]", at, i), value, other[i])...)
		}
	case nil:
	default:
		if ours != theirs {
			all = append(all, fmt.Sprintf("%s: %v is %v to Grafana", at, ours, theirs))
		}
	}
	return all
}

// query is one of a panel, with what Grafana replaces in it.
type query struct{ where, expr, legend string }

func queries() (all []query) {
	replace := strings.NewReplacer("$__rate_interval", "5m", "$node", "node-1")
	for _, d := range dashboards.All() {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				for _, q := range p.Queries {
					all = append(all, query{d.UID + ": " + p.Title, replace.Replace(q.Expr), q.Legend})
				}
			}
		}
	}
	return all
}

// braces are the labels in a legend.
var braces = regexp.MustCompile(`{{([a-z_]+)}}`)

// TestDashboardsShowWhatProgramsShow runs each query on what programs really showed. It has to
// answer, by series that have the labels of their legend, and each by another one.
func TestDashboardsShowWhatProgramsShow(t *testing.T) {
	known := scrapes(t)
	engine, now := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery), time.Unix(0, 0).Add(minutes*time.Minute)
	store := promqltest.LoadedStorage(t, fmt.Sprintf("load %s\n%s\n", interval, indent(text(recorded(t)))))
	for _, q := range queries() {
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

// TestDashboardsChooseNodes: the values to choose among are those of a label of the metric.
func TestDashboardsChooseNodes(t *testing.T) {
	known := scrapes(t)
	for _, d := range dashboards.All() {
		for _, v := range d.Variables {
			if _, ok := known[v.Metric]; !ok || !slices.Contains(added(), v.Name) {
				t.Errorf("%s: no program shows %s with a label %s", d.UID, v.Metric, v.Name)
			}
			content, err := d.File()
			if err != nil || !strings.Contains(string(content), "$"+v.Name) {
				t.Errorf("%s: nothing follows the choice of a %s: %v", d.UID, v.Name, err)
			}
		}
	}
}

// TestPanelsDontOverlap: each has an ID and a place of its own.
func TestPanelsDontOverlap(t *testing.T) {
	for _, d := range dashboards.All() {
		content, err := d.File()
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Panels []struct {
				ID      int
				Title   string
				GridPos struct{ X, Y, W, H int }
			}
		}
		if err := json.Unmarshal(content, &file); err != nil {
			t.Fatal(err)
		}
		taken := map[string]string{}
		for _, p := range file.Panels {
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
