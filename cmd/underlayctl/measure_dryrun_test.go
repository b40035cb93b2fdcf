package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// What a run would refuse, a look refuses too, and neither has made anything then.
func TestMeasureLooksAtWhatARunWouldRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"an image":           {[]string{"--image", "nope"}, `no image "nope" for servers of type`},
		"a selector":         {nil, `selector "env!=test"`},
		"a dedicated server": {[]string{"--dedicated", "127.0.0.1", "--dedicated-key", "/nonexistent/key", "--dedicated-interface", "eth0", "--api-only=false"}, "--dedicated-key"},
	} {
		for _, how := range []string{"--dry-run", "--yes"} {
			t.Run(name+" "+how, func(t *testing.T) {
				cloud := newMeasuredCloud(t, hcloudsim.Options{})
				if name == "a selector" {
					selects(t, cloud, "env!=test")
				}
				args := append([]string{"--api-only", "--only", "targets-per-server", how}, c.args...)
				sent := len(cloud.sim.Requests())
				if out, code := cloud.call(t.Context(), args...); code != exitFailed || !strings.Contains(cloud.errs.String(), c.says) {
					t.Errorf("exit code %d, want %d with %q:\n%s%s", code, exitFailed, c.says, out, cloud.errs.String())
				}
				for _, r := range cloud.sim.Requests()[sent:] {
					if hasMade(r) {
						t.Errorf("%s %s was sent", r.Method, r.Path)
					}
				}
			})
		}
	}
}

// A look reads, and nothing else, whatever it finds.
func TestALookReadsAlone(t *testing.T) {
	c := newMeasuredCloud(t, hcloudsim.Options{})
	out, code := c.call(t.Context(), "--api-only", "--dry-run")
	if code != 0 || !strings.Contains(out, "IS MADE") {
		t.Errorf("exit code %d: %s%s", code, out, c.errs.String())
	}
	for _, r := range c.sim.Requests() {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s was sent", r.Method, r.Path)
		}
	}
}

// selects makes a load balancer of somebody else's that chooses servers by their labels.
func selects(t *testing.T, c *measuredCloud, selector string) {
	t.Helper()
	client := hcloud.NewClient(hcloud.WithToken(measureToken), hcloud.WithEndpoint(c.endpoint))
	if _, _, err := client.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "prod", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "nbg1"},
		Targets: []hcloud.LoadBalancerCreateOptsTarget{{Type: hcloud.LoadBalancerTargetTypeLabelSelector, LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: selector}}},
	}); err != nil {
		t.Fatal(err)
	}
}
