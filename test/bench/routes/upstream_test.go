package routes_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/cloud-provider/controllers/route"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/features"
	_ "k8s.io/controller-manager/pkg/features/register"

	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
	"github.com/underlay-ccm/underlay/test/bench/routes/upstream"
)

// upstreamPeriod is the default of --route-reconciliation-period.
const upstreamPeriod = 10 * time.Second

// upstreamController runs upstream's route controller with the adapter.
func upstreamController(
	t *testing.T, l *simcluster.Cluster,
) func(context.Context, *simcluster.Manager) {
	return func(ctx context.Context, m *simcluster.Manager) {
		nodes := m.Informers.Core().V1().Nodes()
		adapter := &upstream.Routes{
			Table: m.Table, Nodes: nodes.Lister(), Gateways: m.Gateways,
			Ranges: []routes.Range{simcluster.Range()},
		}
		_, pods, err := net.ParseCIDR(simcluster.PodRange)
		if err != nil {
			t.Error(err)
			return
		}
		_, pods6, err := net.ParseCIDR("fd00:10:244::/48")
		if err != nil {
			t.Error(err)
			return
		}
		c, err := route.New(adapter, l.API.Client, nodes, "kubernetes", []*net.IPNet{pods, pods6})
		if err != nil {
			t.Error(err)
			return
		}
		c.Run(ctx, upstreamPeriod, controllers.NewControllerManagerMetrics("upstream"))
	}
}

// A hundred Nodes that join at once, with Underlay's controller and with upstream's, with and
// without its watch gate, over the same client. TestAHundredNodesJoinAtOnce checks Underlay's
// guarantees; this test compares.
func TestComparedWithUpstream(t *testing.T) {
	const count = 100
	results := map[string]joined{}
	order := []string{"underlay", "upstream, polling", "upstream, watching"}
	for _, who := range order {
		t.Run(who, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate,
				features.CloudControllerManagerWatchBasedRoutesReconciliation, who == "upstream, watching")
			synctest.Test(t, func(t *testing.T) {
				var run func(*testing.T, *simcluster.Cluster) func(context.Context, *simcluster.Manager)
				if who != "underlay" {
					run = upstreamController
				}
				results[who] = joinAtOnce(t, count, simcluster.Pace(), simcluster.Options{}, run)
			})
			recordCompared(t, who, results[who])
		})
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "controller\trequests\trefused\tseconds\tfirst Node\tmedian Node\treachable\t")
	for _, who := range order {
		r := results[who]
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t%.1f\t%.1f\t%d\t\n", who, r.spent.All, r.spent.Refused,
			r.took.Seconds(), r.first.Seconds(), r.median.Seconds(), r.reachable)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d Nodes join at once; a request takes 20 ms, an action 200 to 600 ms\n%s", count, table.String())
	ours := results["underlay"]
	for _, who := range order[1:] {
		if theirs := results[who]; ours.first >= theirs.first || ours.median >= theirs.median ||
			ours.spent.All > theirs.spent.All {
			t.Errorf("%s is better than ours: %+v, ours %+v", who, theirs, ours)
		}
	}
}
