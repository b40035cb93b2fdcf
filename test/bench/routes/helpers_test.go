package routes_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
)

// foreignRoute is a route outside of every pod range.
func foreignRoute(i int) hcloudsim.RouteSeed {
	return hcloudsim.RouteSeed{
		Destination: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i), 0}), 24),
		Gateway:     netip.MustParseAddr("10.0.255.1"),
	}
}

// administrator is a client that shares nothing with the managers'.
func administrator(l *simcluster.Cluster) *hcloud.Client {
	return hcloud.NewClient(hcloud.WithEndpoint("http://cloud.test/v1"), hcloud.WithToken(simcluster.Token),
		hcloud.WithHTTPClient(&http.Client{Transport: l.Sim.Transport()}))
}

func serverNamed(l *simcluster.Cluster, name string) (int64, bool) {
	for _, server := range l.Sim.Servers() {
		if server.Name == name {
			return server.ID, true
		}
	}
	return 0, false
}

// expectMetrics compares gauges underlay_route_table_*.
func expectMetrics(t *testing.T, m *simcluster.Manager, want map[string]float64) {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if name, ok := strings.CutPrefix(f.GetName(), "underlay_route_table_"); ok {
			got[name] = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	for name, value := range want {
		if is, there := got[name]; !there || is != value {
			t.Errorf("underlay_route_table_%s is %v (there: %v), want %v; all: %s", name, is, there, value, fmt.Sprint(got))
		}
	}
}
