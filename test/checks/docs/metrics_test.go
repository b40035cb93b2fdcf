package docs

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics"

	addressagent "github.com/underlay-ccm/underlay/addresses/agent"
	addresscontroller "github.com/underlay-ccm/underlay/addresses/controller"
	"github.com/underlay-ccm/underlay/internal/directory/directorytest"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/robot"
	"github.com/underlay-ccm/underlay/internal/vswitch"
	"github.com/underlay-ccm/underlay/ipam"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	"github.com/underlay-ccm/underlay/lb"
	lbcontroller "github.com/underlay-ccm/underlay/lb/controller"
	"github.com/underlay-ccm/underlay/routes/agent"
	routecontroller "github.com/underlay-ccm/underlay/routes/controller"
)

// metric is one that a program registers.
type metric struct {
	name, kind, help string
	labels           []string
}

// unit is read off the name, as Prometheus' conventions have it.
func (m metric) unit() string {
	switch {
	case strings.HasSuffix(m.name, "_timestamp_seconds"):
		return "seconds since 1970"
	case strings.HasSuffix(m.name, "_seconds"):
		return "seconds"
	case strings.HasPrefix(m.help, "1 while "):
		return "0 or 1"
	default:
		return "number"
	}
}

// collector is a registry that remembers what it was given.
type collector struct {
	registry metrics.KubeRegistry
	metrics  []metric
}

// Register creates the metric, which only then knows its labels.
func (c *collector) Register(r metrics.Registerable) error {
	if c.registry == nil {
		c.registry = metrics.NewKubeRegistry()
	}
	if err := c.registry.Register(r); err != nil {
		return err
	}
	m, err := describe(r)
	c.metrics = append(c.metrics, m)
	return err
}

// CustomRegister creates the metric that a collector computes at each scrape.
func (c *collector) CustomRegister(s metrics.StableCollector) error {
	if c.registry == nil {
		c.registry = metrics.NewKubeRegistry()
	}
	if err := c.registry.CustomRegister(s); err != nil {
		return err
	}
	described := make(chan *prometheus.Desc, 1)
	s.Describe(described)
	parts := description.FindStringSubmatch((<-described).String())
	families, err := c.registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if parts != nil && f.GetName() == parts[1] {
			c.metrics = append(c.metrics, metric{
				name: f.GetName(), kind: strings.ToLower(f.GetType().String()),
				help: strings.TrimPrefix(f.GetHelp(), "[ALPHA] "), labels: strings.Split(parts[2], ","),
			})
			return nil
		}
	}
	return fmt.Errorf("a %T collects nothing that this test can describe", s)
}

// description is how Prometheus' client prints what it knows of a metric; there
// is no other way to its labels.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ".*", constLabels: \{\}, variableLabels: \{([^}]*)\}(, unit: "[^"]*")?\}$`)

func describe(r metrics.Registerable) (metric, error) {
	m := metric{name: r.FQName()}
	switch typed := r.(type) {
	case *metrics.Counter:
		m.kind, m.help = "counter", typed.CounterOpts.Help
	case *metrics.CounterVec:
		m.kind, m.help = "counter", typed.CounterOpts.Help
	case *metrics.Gauge:
		m.kind, m.help = "gauge", typed.GaugeOpts.Help
	case *metrics.GaugeVec:
		m.kind, m.help = "gauge", typed.GaugeOpts.Help
	case *metrics.Histogram:
		m.kind, m.help = "histogram", typed.HistogramOpts.Help
	case *metrics.HistogramVec:
		m.kind, m.help = "histogram", typed.HistogramOpts.Help
	default:
		return m, fmt.Errorf("metric %s is a %T, which this test doesn't know: add it", m.name, r)
	}
	m.help = strings.TrimPrefix(m.help, "[ALPHA] ")
	described := make(chan *prometheus.Desc, 1)
	r.Describe(described)
	parts := description.FindStringSubmatch((<-described).String())
	if parts == nil || parts[1] != m.name {
		return m, fmt.Errorf("metric %s is described in another way than before: adjust the pattern", m.name)
	}
	if parts[2] != "" {
		m.labels = strings.Split(parts[2], ",")
	}
	return m, nil
}

// metricSource is a package that registers metrics, and how to make it do so.
// Without a title it isn't on the page.
type metricSource struct {
	folder, title, about string
	register             func(*collector) error
}

func metricSources() []metricSource {
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	return []metricSource{
		{"ipam/controller", "underlay-ccm: node IPAM", "The replica that leads shows them, if it hands out podCIDRs.", func(c *collector) error {
			pool := ipam.PoolConfig{Name: "a", Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeMask: 24}
			_, err := ipamcontroller.New(ipamcontroller.Config{
				Client: client, Nodes: nodes, Registry: c, Pools: []ipamcontroller.Pool{{PoolConfig: pool}},
			})
			return err
		}},
		{"routes/controller", "underlay-ccm: routes", "The replica that leads shows them, if it writes routes.", func(c *collector) error {
			_, err := routecontroller.New(routecontroller.Config{Client: client, Nodes: nodes, Registry: c})
			return err
		}},
		{"lb/controller", "underlay-ccm: load balancers", "The replica that leads shows them, if load balancers are its work.", func(c *collector) error {
			_, err := lbcontroller.New(lbcontroller.Config{
				Client: client.CoreV1(), Nodes: nodes, Services: factory.Core().V1().Services(),
				Slices: factory.Discovery().V1().EndpointSlices(), Defaults: lb.Defaults{Cluster: "c"}, Registry: c,
			})
			return err
		}},
		{"addresses/controller", "underlay-ccm: addresses that nodes hold", "The replica that leads shows them, if `addresses.pools` are configured.", func(c *collector) error {
			_, err := addresscontroller.New(addresscontroller.Config{
				Client: client, Nodes: nodes, Services: factory.Core().V1().Services(), Slices: factory.Discovery().V1().EndpointSlices(), Registry: c,
			})
			return err
		}},
		{"internal/hetzner", "underlay-ccm: requests to the cloud", "Every replica shows them, with provider `hcloud`. One that does not lead asks only at its start, so its figures are old.", func(c *collector) error {
			_, err := hetzner.New(hetzner.Options{Endpoint: "https://cloud.example/v1", Registry: c})
			return err
		}},
		{"internal/robot", "underlay-ccm: requests to Robot", "Every replica has them where Robot is asked about dedicated servers. One that does not lead asks nothing.", func(c *collector) error {
			_, err := robot.New(robot.Options{Registry: c})
			return err
		}},
		{"internal/vswitch", "underlay-ccm: members of the vSwitch", "The replica that leads shows them, if there is a pool with `source: vswitch` and Robot may be asked.", func(c *collector) error {
			_, err := vswitch.New(vswitch.Config{Nodes: nodes, Registry: c})
			return err
		}},
		{"addresses/agent", "underlay-agent: addresses that it holds", "Every node's agent shows its own, if `addresses.pools` are configured.", func(c *collector) error {
			_, err := addressagent.New(addressagent.Config{Nodes: directorytest.Nodes{Informer: nodes.Informer()}, Registry: c})
			return err
		}},
		{"routes/agent", "underlay-agent", "Every node's agent shows its own.", func(c *collector) error {
			_, err := agent.New(agent.Config{Client: client, Nodes: directorytest.Nodes{Informer: nodes.Informer()}, Registry: c})
			return err
		}},
	}
}

// metricsOf are a source's, sorted by name.
func metricsOf(t *testing.T, s metricSource) []metric {
	t.Helper()
	var c collector
	if err := s.register(&c); err != nil {
		t.Fatalf("%s: %v", s.folder, err)
	}
	slices.SortFunc(c.metrics, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return c.metrics
}

const metricsIntro = `# Metrics

What ` + "`underlay-ccm`" + ` serves at ` + "`/metrics`" + ` of its secure port (10258) and ` + "`underlay-agent`" + ` of its port (10266), in the Prometheus format. Both listen on 127.0.0.1 in the manifests; to let Prometheus read them, give a private address as ` + "`--bind-address`" + `. The secure port asks who reads: it takes a token of an account that may ` + "`get`" + ` the URL ` + "`/metrics`" + `.

All are of stability ALPHA: a name may change with a release, and the changelog says so. Both programs show what Kubernetes' libraries count as well, among it ` + "`leader_election_master_status`" + `, ` + "`rest_client_requests_total`" + `, ` + "`workqueue_depth`" + ` and Go's own.

The alerts that rest on them: [underlay.yaml](../../deploy/alerts/underlay.yaml); what to do about each: [runbooks](../runbooks/README.md).
`

// TestDocumentMetrics keeps docs/reference/metrics.md equal to what the programs
// register.
func TestDocumentMetrics(t *testing.T) {
	var b strings.Builder
	b.WriteString(generated("the metrics that the programs register") + metricsIntro)
	for _, source := range metricSources() {
		if source.title == "" {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n", source.title, source.about)
		for _, m := range metricsOf(t, source) {
			labels := make([]string, len(m.labels))
			for i, l := range m.labels {
				labels[i] = code(l)
			}
			b.WriteString(row(code(m.name), m.kind, strings.Join(labels, ", "), m.unit(), m.help))
		}
	}
	comparePage(t, "reference/metrics.md", b.String())
}

// TestMetricNames holds every metric to Prometheus' conventions.
func TestMetricNames(t *testing.T) {
	seen := map[string]bool{}
	for _, source := range metricSources() {
		for _, m := range metricsOf(t, source) {
			for _, problem := range problemsOf(m) {
				t.Errorf("%s: %s", m.name, problem)
			}
			if seen[m.name] {
				t.Errorf("%s: two packages have it", m.name)
			}
			seen[m.name] = true
		}
	}
}

func problemsOf(m metric) (problems []string) {
	wrong := func(is bool, problem string) {
		if is {
			problems = append(problems, problem)
		}
	}
	wrong(!strings.HasPrefix(m.name, "underlay_"), "begins with underlay_, as all do")
	wrong((m.kind == "counter") != strings.HasSuffix(m.name, "_total"), "a counter ends with _total, and nothing else does")
	wrong(m.kind == "histogram" && !strings.HasSuffix(m.name, "_seconds"), "a histogram's name ends with its unit")
	wrong(!strings.HasSuffix(m.help, "."), "the help text is a sentence")
	for _, label := range m.labels {
		wrong(!strings.Contains(m.help, label), "the help text doesn't explain the label "+label)
	}
	return problems
}

// TestMetricNamesAreJudged shows that problemsOf finds something.
func TestMetricNamesAreJudged(t *testing.T) {
	good := metric{name: "underlay_a_writes_total", kind: "counter", help: "Writes by outcome.", labels: []string{"outcome"}}
	for name, m := range map[string]metric{
		"no prefix":           {good.name[1:], good.kind, good.help, good.labels},
		"counter, no _total":  {"underlay_a_writes", good.kind, good.help, good.labels},
		"gauge with _total":   {good.name, "gauge", good.help, good.labels},
		"histogram, no unit":  {"underlay_a_wait", "histogram", good.help, good.labels},
		"no sentence":         {good.name, good.kind, "writes by outcome", good.labels},
		"a label unexplained": {good.name, good.kind, good.help, []string{"verb"}},
	} {
		if len(problemsOf(m)) != 1 {
			t.Errorf("%s: problems %q", name, problemsOf(m))
		}
	}
	if problems := problemsOf(good); len(problems) > 0 {
		t.Errorf("a good one has the problems %q", problems)
	}
}

// TestMetricSources looks for metrics in the source, so that a package which
// begins to have some can't be forgotten above.
func TestMetricSources(t *testing.T) {
	var known []string
	for _, source := range metricSources() {
		known = append(known, source.folder)
	}
	constructor := regexp.MustCompile(`\b(metrics|prometheus|promauto)\.New(Counter|Gauge|Histogram|Summary|TimingHistogram|Desc)`)
	found := map[string]bool{}
	for _, f := range sources(t) {
		if constructor.Match(f.content) {
			found[f.folder] = true
		}
	}
	for folder := range found {
		if !slices.Contains(known, folder) {
			t.Errorf("%s makes metrics; add it to metricSources", folder)
		}
	}
	for _, folder := range known {
		if !found[folder] {
			t.Errorf("%s makes no metrics any more; take it out of metricSources", folder)
		}
	}
}
