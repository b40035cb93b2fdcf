package measured_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/measured"
)

// Measured times override those that a test's cloud has only because it needs some.
func TestCloudsTakeTheMeasuredTimes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profile.json")
	content := `{"version": 1, "cloud": {"busy": "locked", "rate_limit": 7, "latency_seconds": 0.04, "action_seconds": {"add_route": [2]}}}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	own := hcloudsim.Options{ActionTime: time.Minute, Latency: time.Second, RateLimit: 50}
	about := own
	about.ActionTimes = map[string][]time.Duration{"add_route": {time.Hour}}
	for name, c := range map[string]struct {
		profile       string
		is            hcloudsim.Options
		route         time.Duration
		latency, rest time.Duration
		busy          hcloudsim.Busy
	}{
		"nothing was measured":      {"", own, 0, time.Second, time.Minute, hcloudsim.BusyConflict},
		"a test with any times":     {file, own, 2 * time.Second, 40 * time.Millisecond, time.Minute, hcloudsim.BusyLocked},
		"a test that is about them": {file, about, time.Hour, time.Second, time.Minute, hcloudsim.BusyLocked},
		"a test without times":      {file, hcloudsim.Options{}, 2 * time.Second, 40 * time.Millisecond, 0, hcloudsim.BusyLocked},
	} {
		t.Setenv(measured.Variable, c.profile)
		got, err := measured.Cloud(c.is)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var route time.Duration
		if times := got.ActionTimes["add_route"]; len(times) > 0 {
			route = times[0]
		}
		if route != c.route || got.Latency != c.latency || got.ActionTime != c.rest ||
			got.Busy != c.busy {
			t.Errorf("%s: a route takes %s, a request %s, other actions %s, busy is %v: want %+v", name, route, got.Latency, got.ActionTime, got.Busy, c)
		}
		if c.is.RateLimit != 0 && got.RateLimit != c.is.RateLimit {
			t.Errorf("%s: the limit is %d requests, and the test says %d", name, got.RateLimit, c.is.RateLimit)
		}
	}
}
