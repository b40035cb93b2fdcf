package docs

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
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
	policyagent "github.com/underlay-ccm/underlay/policy/agent"
	"github.com/underlay-ccm/underlay/routes/agent"
	routecontroller "github.com/underlay-ccm/underlay/routes/controller"
)

// metric is a metric that a program registers.
type metric struct {
	name, kind, help string
	labels           []string
}

// unit is derived from the name, by Prometheus' conventions.
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

// collector is a registry that records the registered metrics.
type collector struct{ metrics []metric }

// Register creates the metric, which has its labels only then.
func (c *collector) Register(r metrics.Registerable) error {
	kind := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", r), "*metrics."), "Vec"))
	return c.describe(r, kind, metrics.NewKubeRegistry().Register(r))
}

// CustomRegister creates the metric that a collector computes at each scrape: a gauge.
func (c *collector) CustomRegister(s metrics.StableCollector) error {
	return c.describe(s, "gauge", metrics.NewKubeRegistry().CustomRegister(s))
}

// description parses the text that Prometheus' client prints for a metric; there is no other access
// to its labels.
var description = regexp.MustCompile(
	`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"), .*constLabels: \{\}, variableLabels: \{([^}]*)\}`)

func (c *collector) describe(
	r interface{ Describe(chan<- *prometheus.Desc) }, kind string, err error,
) error {
	if err != nil {
		return err
	}
	described := make(chan *prometheus.Desc, 1)
	r.Describe(described)
	said := (<-described).String()
	parts := description.FindStringSubmatch(said)
	if parts == nil {
		return fmt.Errorf("a metric is described in another way than before, adjust the pattern: %s", said)
	}
	help, err := strconv.Unquote(parts[2])
	labels := strings.FieldsFunc(parts[3], func(r rune) bool { return r == ',' })
	c.metrics = append(c.metrics, metric{parts[1], kind, strings.TrimPrefix(help, "[ALPHA] "), labels})
	return err
}

// metricSource is a package that registers metrics, with a function that makes it do so.
type metricSource struct {
	folder, title, about string
	register             func(*collector) error
}

func metricSources() []metricSource {
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	return []metricSource{
		{"ipam/controller", "underlay-ccm: node IPAM", "Served by the leader, if it allocates podCIDRs.", func(c *collector) error {
			pool := ipam.PoolConfig{Name: "a", Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeMask: 24}
			_, err := ipamcontroller.New(ipamcontroller.Config{
				Client: client, Nodes: nodes, Registry: c, Pools: []ipamcontroller.Pool{{PoolConfig: pool}},
			})
			return err
		}},
		{"routes/controller", "underlay-ccm: routes", "Served by the leader, if it writes routes.", func(c *collector) error {
			_, err := routecontroller.New(routecontroller.Config{Client: client, Nodes: nodes, Registry: c})
			return err
		}},
		{"lb/controller", "underlay-ccm: load balancers", "Served by the leader, if it manages load balancers.", func(c *collector) error {
			_, err := lbcontroller.New(lbcontroller.Config{
				Client: client.CoreV1(), Nodes: nodes, Services: factory.Core().V1().Services(),
				Slices: factory.Discovery().V1().EndpointSlices(), Defaults: lb.Defaults{Cluster: "c"}, Registry: c,
			})
			return err
		}},
		{"addresses/controller", "underlay-ccm: addresses that nodes hold", "Served by the leader, if `addresses.pools` are configured.", func(c *collector) error {
			_, err := addresscontroller.New(addresscontroller.Config{
				Client: client, Nodes: nodes, Services: factory.Core().V1().Services(),
				Slices: factory.Discovery().V1().EndpointSlices(), Registry: c,
			})
			return err
		}},
		{"internal/hetzner", "underlay-ccm: requests to the cloud", "Served by every replica with provider `hcloud`. Replicas that don't lead send requests only at their start, so their values are old.", func(c *collector) error {
			_, err := hetzner.New(hetzner.Options{Endpoint: "https://cloud.example/v1", Registry: c})
			return err
		}},
		{"internal/robot", "underlay-ccm: requests to Robot", "Served by every replica, if Robot is used for dedicated servers. Replicas that don't lead send no requests.", func(c *collector) error {
			_, err := robot.New(robot.Options{Registry: c})
			return err
		}},
		{"internal/vswitch", "underlay-ccm: members of the vSwitch", "Served by the leader, if there is a pool with `source: vswitch` and Robot is used.", func(c *collector) error {
			_, err := vswitch.New(vswitch.Config{Nodes: nodes, Registry: c})
			return err
		}},
		{"policy/agent", "underlay-agent: NetworkPolicies", "Served by every node's agent, unless `networkPolicy` is `off`.", func(c *collector) error {
			_, err := policyagent.New(policyagent.Config{
				Client: client, Nodes: directorytest.Nodes{Informer: nodes.Informer()}, Registry: c,
			})
			return err
		}},
		{"addresses/agent", "underlay-agent: addresses that it holds", "Served by every node's agent, if `addresses.pools` are configured.", func(c *collector) error {
			_, err := addressagent.New(addressagent.Config{
				Nodes: directorytest.Nodes{Informer: nodes.Informer()}, Registry: c,
			})
			return err
		}},
		{"routes/agent", "underlay-agent", "Served by every node's agent.", func(c *collector) error {
			_, err := agent.New(agent.Config{
				Client: client, Nodes: directorytest.Nodes{Informer: nodes.Informer()}, Registry: c,
			})
			return err
		}},
	}
}

// metricsOf returns those of a source, sorted by name.
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

` + "`underlay-ccm`" + ` serves these metrics at ` + "`/metrics`" + ` of its secure port (10258), ` + "`underlay-agent`" + ` of its port (10266), in the Prometheus format. Both listen on 127.0.0.1 in the manifests; to let Prometheus scrape them, set ` + "`--bind-address`" + ` to a private address. The secure port requires a token of an account that may ` + "`get`" + ` the URL ` + "`/metrics`" + `.

All are of stability ALPHA: a release may change a name, which the changelog reports. Both programs also serve the metrics of Kubernetes' libraries, among them ` + "`leader_election_master_status`" + `, ` + "`rest_client_requests_total`" + `, ` + "`workqueue_depth`" + ` and Go's own.

The alerts that use them are in [underlay.yaml](../../deploy/alerts/underlay.yaml), with a [runbook](../runbooks/README.md) for each.
`

// TestDocumentMetrics keeps docs/reference/metrics.md equal to the metrics that the programs
// register.
func TestDocumentMetrics(t *testing.T) {
	var b strings.Builder
	b.WriteString(generated("the metrics that the programs register") + metricsIntro)
	for _, source := range metricSources() {
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

// TestMetricNames checks every metric by Prometheus' conventions, with Prometheus' own linter.
func TestMetricNames(t *testing.T) {
	var families []*dto.MetricFamily
	for _, source := range metricSources() {
		for _, m := range metricsOf(t, source) {
			kind := dto.MetricType(dto.MetricType_value[strings.ToUpper(m.kind)])
			families = append(families, &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: &kind})
			if !strings.HasPrefix(m.name, "underlay_") || !strings.HasSuffix(m.help, ".") ||
				m.kind == "histogram" && !strings.HasSuffix(m.name, "_seconds") {
				t.Errorf("%s: want underlay_…, a histogram in seconds and a sentence as help: %s", m.name, m.help)
			}
			for _, label := range m.labels {
				if !strings.Contains(m.help, label) {
					t.Errorf("%s: the help text doesn't explain the label %s", m.name, label)
				}
			}
		}
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int {
		return strings.Compare(a.GetName(), b.GetName())
	})
	for i := range families[1:] {
		if families[i].GetName() == families[i+1].GetName() {
			t.Errorf("%s: two packages have it", families[i].GetName())
		}
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if err != nil || len(families) < 50 {
		t.Errorf("%d metrics: %v", len(families), err)
	}
}

// TestMetricSources searches the source for metrics, so that a new package with some can't be
// forgotten above.
func TestMetricSources(t *testing.T) {
	var known []string
	for _, source := range metricSources() {
		known = append(known, source.folder)
	}
	slices.Sort(known)
	if found := slices.Sorted(maps.Keys(facts(t).metrics)); !slices.Equal(found, known) {
		t.Errorf("metrics are made in %q, and metricSources has %q", found, known)
	}
}
