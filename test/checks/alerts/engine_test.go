package alerts

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

const (
	ruleFile = "../../../deploy/alerts/underlay.yaml"
	// interval is the time between two samples and between two evaluations.
	interval = time.Minute
)

// groupFile writes the groups of a PrometheusRule as a rule file of Prometheus.
func groupFile(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(ruleFile)
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec yaml.Node `yaml:"spec"`
	}
	if err := yaml.Unmarshal(content, &object); err != nil {
		t.Fatal(err)
	}
	groups, err := yaml.Marshal(&object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, groups, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load parses the groups as strictly as Prometheus does, with their rules evaluated on the given
// series.
func load(ctx context.Context, t *testing.T, series string) []*rules.Group {
	t.Helper()
	store := promqltest.LoadedStorage(t, fmt.Sprintf("load %s\n%s\n", interval, indent(series)))
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(engine, store), Appendable: store, Queryable: store,
		Context:    ctx,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger:     promslog.NewNopLogger(), Parser: parser.NewParser(parser.Options{}),
	})
	loaded, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, groupFile(t))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return slices.Collect(maps.Values(loaded))
}

func indent(series string) string {
	var out strings.Builder
	for line := range strings.Lines(series) {
		if strings.TrimSpace(line) != "" {
			out.WriteString("  " + strings.TrimSpace(line) + "\n")
		}
	}
	return out.String()
}

// firing evaluates every rule once a minute and returns the alerts that fire in the end, each as
// "name: description".
func firing(t *testing.T, series string, after time.Duration) []string {
	t.Helper()
	groups := load(t.Context(), t, series)
	end := time.Unix(0, 0).Add(after)
	for at := time.Unix(0, 0); !at.After(end); at = at.Add(interval) {
		for _, g := range groups {
			g.Eval(t.Context(), at)
		}
	}
	var out []string
	for _, g := range groups {
		for _, rule := range g.AlertingRules() {
			if err := rule.LastError(); err != nil {
				t.Errorf("%s: %v", rule.Name(), err)
			}
			for _, alert := range rule.ActiveAlerts() {
				if alert.State == rules.StateFiring {
					out = append(out, rule.Name()+": "+alert.Annotations.Get("description"))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// patience returns the duration of each alert of the rule file before it fires.
func patience(t *testing.T) map[string]time.Duration {
	t.Helper()
	out := map[string]time.Duration{}
	for _, g := range load(t.Context(), t, "up 1") {
		for _, rule := range g.AlertingRules() {
			out[rule.Name()] = rule.HoldDuration()
		}
	}
	return out
}
