package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// other is a cloud with all values different from the simulator's defaults.
const other = `{
	"version": 1,
	"cloud": {
		"busy": "locked", "effects_at_once": true, "action_seconds": {"add_route": [0.5, 2]}, "latency_seconds": 0.01,
		"rate_limit": 7200, "refuse_reassign": true, "one_target_per_server": true,
		"proxy_header_in_checks": true, "serve_unjudged": true, "ipv6_source": "2001:db8::9"
	},
	"network": {"private_mtu": 1400},
	"robot": {"forbidden_login": true, "processing": true, "vswitch_seconds": [20, 30], "latency_seconds": 0.2}
}`

// The simulator has the behavior of its profile, and a flag overrides it, also with the default
// value.
func TestProfile(t *testing.T) {
	file := "--profile=" + write(t, "profile.json", other)
	c, err := parseFlags([]string{file}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o, robot := c.options, c.robot.options
	if o.Busy != hcloudsim.BusyLocked || !o.EffectsAtOnce || len(o.ActionTimes["add_route"]) != 2 || o.Latency != 10*time.Millisecond ||
		o.RateLimit != 7200 || !o.RefuseReassign || !o.OneTargetPerServer ||
		!o.ProxyHeaderInChecks || !o.ServeUnjudged || o.IPv6Source != netip.MustParseAddr("2001:db8::9") {
		t.Errorf("options are %+v", o)
	}
	if !robot.ForbiddenLogin || !robot.Processing || len(robot.VSwitchTimes) != 2 ||
		robot.Latency != 200*time.Millisecond {
		t.Errorf("options of Robot are %+v", robot)
	}

	c, err = parseFlags([]string{
		"--busy-code=conflict", "--effects-at-once=false", file, "--action-time=0", "--latency=0", "--rate-limit=3600",
		"--refuse-reassign=false", "--one-target-per-server=false",
		"--proxy-header-in-checks=false", "--serve-unjudged=false",
		"--ipv6-source=", "--robot-forbidden-login=false", "--robot-processing=false", "--robot-vswitch-time=0", "--owned-ip=192.0.2.7",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o, robot = c.options, c.robot.options
	if o.Busy != hcloudsim.BusyConflict || o.EffectsAtOnce || o.ActionTimes != nil || o.Latency != 0 ||
		o.RateLimit != 3600 || o.RefuseReassign || o.OneTargetPerServer ||
		o.ProxyHeaderInChecks || o.ServeUnjudged || o.IPv6Source.IsValid() || len(o.OwnedIPs) != 1 {
		t.Errorf("options are %+v, want what the flags say", o)
	}
	if robot.ForbiddenLogin || robot.Processing || robot.VSwitchTimes != nil || robot.Latency != 0 {
		t.Errorf("options of Robot are %+v, want what the flags say", robot)
	}
}

// A default profile changes nothing.
func TestDefaultProfile(t *testing.T) {
	var text bytes.Buffer
	if err := profile.Write(&text, profile.Default()); err != nil {
		t.Fatal(err)
	}
	with, err := parseFlags([]string{"--profile=" + write(t, "profile.json", text.String())}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	without, err := parseFlags(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if with.options.RateLimit != without.options.RateLimit ||
		with.options.Busy != without.options.Busy || with.options.ActionTimes != nil ||
		with.options.Latency != 0 {
		t.Errorf("options are %+v, want %+v", with.options, without.options)
	}
}

func TestServesAMeasuredCloud(t *testing.T) {
	api, _, _ := start(t, "--seed="+write(t, "seed.yaml", helpSeed(t)), "--profile="+write(t, "profile.json", other))
	client := hcloud.NewClient(hcloud.WithToken("any"), hcloud.WithEndpoint("http://"+api+"/v1"), hcloud.WithRetryOpts(hcloud.RetryOpts{}))
	route := func(destination string) error {
		_, ipRange, err := net.ParseCIDR(destination)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = client.Network.AddRoute(t.Context(), &hcloud.Network{ID: 1001},
			hcloud.NetworkAddRouteOpts{
				Route: hcloud.NetworkRoute{Destination: ipRange, Gateway: []byte{10, 0, 0, 2}},
			})
		return err
	}
	if err := route("10.244.0.0/24"); err != nil {
		t.Fatal(err)
	}
	if err := route("10.244.1.0/24"); !hcloud.IsError(err, hcloud.ErrorCodeLocked) {
		t.Errorf("a second change is answered %v, want locked, as the cloud was measured", err)
	}
}

func TestRefusesABrokenProfile(t *testing.T) {
	for content, want := range map[string][]string{
		`{"version": 1, "cloud": {"busy": "maybe"}}`: {"--profile", "profile.json", "cloud.busy", "maybe", "conflict or locked"},
		`{"version": 2}`:               {"version"},
		`{"version": 1, "clouds": {}}`: {"clouds"},
	} {
		_, err := parseFlags([]string{"--profile=" + write(t, "profile.json", content), "--route-limit=0"}, io.Discard)
		if err == nil {
			t.Errorf("accepted %s", content)
			continue
		}
		for _, text := range append(want, "--route-limit=0") {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("error %q does not name %q", err, text)
			}
		}
	}
	if _, err := parseFlags([]string{"--profile=/nowhere"}, io.Discard); err == nil || !strings.Contains(err.Error(), "--profile") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// The log contains the origin of a profile, as far as the profile has it.
func TestLogsTheProfilesOrigin(t *testing.T) {
	for content, want := range map[string]string{
		`{"version": 1}`: "[profile F]",
		`{"version": 1, "measured": "2026-11-25T12:00:00Z", "endpoint": "127.0.0.1:8470", "location": "nbg1"}`: "[profile F measured 2026-11-25 12:00:00 +0000 UTC endpoint 127.0.0.1:8470 location nbg1]",
	} {
		file := write(t, "profile.json", content)
		c, err := parseFlags([]string{"--profile=" + file}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(fmt.Sprint(c.origin()), file, "F"); got != want {
			t.Errorf("%s: the log says %s, want %s", content, got, want)
		}
	}
}
