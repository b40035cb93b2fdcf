package cluster_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/measured"
)

// A cluster's cloud has the measured behavior, except for the options that the test sets.
func TestCloudsBehaveAsMeasured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profile.json")
	use := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(measured.Variable, file)
	}
	use(`{"version": 1, "cloud": {"busy": "locked", "action_seconds": {"add_route": [0]}}}`)
	c, err := cluster.StartCloud(t.Context(), hcloudsim.Options{ActionTimes: map[string][]time.Duration{"add_route": {time.Hour}}}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	client := hcloud.NewClient(hcloud.WithToken(cluster.Token), hcloud.WithEndpoint(c.CloudURL),
		hcloud.WithRetryOpts(hcloud.RetryOpts{}))
	add := func(third byte) error {
		_, _, err := client.Network.AddRoute(t.Context(), &hcloud.Network{ID: c.Network.ID},
			hcloud.NetworkAddRouteOpts{Route: hcloud.NetworkRoute{
				Destination: &net.IPNet{IP: net.IPv4(10, 244, third, 0), Mask: net.CIDRMask(24, 32)},
				Gateway:     net.IPv4(10, 0, 0, 2),
			}})
		return err
	}
	if err := add(0); err != nil {
		t.Fatal(err)
	}
	if err := add(1); !hcloud.IsError(err, hcloud.ErrorCodeLocked) {
		t.Errorf("a change meanwhile is answered %v; want it locked, as measured, for the hour that the test says", err)
	}

	use(`{"version": 1, "cloud": {"busy": "maybe"}}`)
	if _, err := cluster.StartCloud(t.Context(), hcloudsim.Options{}, "127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "cloud.busy") {
		t.Errorf("with a broken profile the cloud starts: %v", err)
	}
}
