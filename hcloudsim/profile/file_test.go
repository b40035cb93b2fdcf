package profile_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// whole has every field, so that none can be forgotten: filled is checked below.
func whole() profile.Profile {
	p := profile.Default()
	p.Measured = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	p.Endpoint = "api.hetzner.cloud"
	p.Location, p.With = "nbg1", "v1.2.3"
	p.Cloud.ActionSeconds = map[string][]float64{"delete_route": {0.5}, "add_route": {0.4, 1.25}}
	p.Cloud.IPv6Source = new("2001:db8::1")
	p.Network.RouteSeconds = []float64{-0.5, 2}
	p.Robot.VSwitchSeconds = []float64{20, 31.5}
	return p
}

func written(t *testing.T, p profile.Profile) string {
	t.Helper()
	var out bytes.Buffer
	if err := profile.Write(&out, p); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A written profile is read again, with any content, and the same profile is always written the
// same way.
func TestWriteAndRead(t *testing.T) {
	for name, p := range map[string]profile.Profile{"default": profile.Default(), "whole": whole(), "nothing": {Version: profile.Version}} {
		text := written(t, p)
		read, err := profile.Read(strings.NewReader(text))
		if err != nil || !reflect.DeepEqual(read, p) {
			t.Errorf("%s: read %+v, %v, want %+v", name, read, err, p)
		}
		if again := written(t, read); again != text {
			t.Errorf("%s: written again as\n%s\nbefore as\n%s", name, again, text)
		}
	}
	if v := reflect.ValueOf(whole()); !filled(v) {
		t.Error("the whole profile lacks a field that there is now")
	}
}

func filled(v reflect.Value) bool {
	if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
		for _, field := range v.Fields() {
			if !filled(field) {
				return false
			}
		}
	}
	return !v.IsZero()
}

// Times are sorted when written and when read, and the given slices are not changed.
func TestTimesAreSorted(t *testing.T) {
	p := whole()
	p.Cloud.ActionSeconds["add_route"] = []float64{3, 1, 2}
	text := written(t, p)
	if given := p.Cloud.ActionSeconds["add_route"]; given[0] != 3 {
		t.Errorf("writing has sorted the caller's times: %v", given)
	}
	unsorted := strings.NewReplacer("-0.5,", "7,", "20,", "90,").Replace(text)
	if unsorted == text {
		t.Fatalf("nothing to put out of order in\n%s", text)
	}
	read, err := profile.Read(strings.NewReader(unsorted))
	if err != nil {
		t.Fatal(err)
	}
	if got := [][]float64{read.Cloud.ActionSeconds["add_route"], read.Network.RouteSeconds, read.Robot.VSwitchSeconds}; !reflect.DeepEqual(got, [][]float64{{1, 2, 3}, {2, 7}, {31.5, 90}}) {
		t.Errorf("times are %v", got)
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{``, []string{"EOF"}},
		{`{"version": 1`, []string{"EOF"}},
		{`busy: locked`, []string{"invalid character", "hcloud-sim measure"}},
		{`[]`, []string{"array"}},
		{`{}`, []string{"version: 0", "must be 1"}},
		{`{"version": 2}`, []string{"version: 2", "must be 1"}},
		{`{"version": 1} {}`, []string{"follows"}},
		{`{"version": 1, "cloud": {"bussy": "locked"}}`, []string{`"bussy"`}},
		{`{"version": 1, "cloud": {"busy": true}}`, []string{"cloud.busy", "bool", "string"}},
		{`{"version": 1, "cloud": {"effects_at_once": "yes"}}`, []string{"cloud.effects_at_once", "bool"}},
		{`{"version": 1, "cloud": {"rate_limit": 3.5}}`, []string{"cloud.rate_limit", "int"}},
		{`{"version": 1, "cloud": {"busy": "maybe"}}`, []string{"cloud.busy", `"maybe"`, "conflict or locked"}},
		{`{"version": 1, "cloud": {"action_seconds": {"Add Route": [1]}}}`, []string{"cloud.action_seconds", `"Add Route"`, "add_route"}},
		{`{"version": 1, "cloud": {"action_seconds": {"add_route": []}}}`, []string{"cloud.action_seconds.add_route", "at least one"}},
		{`{"version": 1, "cloud": {"action_seconds": {"add_route": [1, -1]}}}`, []string{"cloud.action_seconds.add_route", "-1", "from 0 to 3600"}},
		{`{"version": 1, "cloud": {"latency_seconds": 3601}}`, []string{"cloud.latency_seconds", "3601"}},
		{`{"version": 1, "cloud": {"rate_limit": 0}}`, []string{"cloud.rate_limit", "from 1"}},
		{`{"version": 1, "cloud": {"ipv6_source": "192.0.2.1"}}`, []string{"cloud.ipv6_source", "192.0.2.1", "own or an IPv6 address"}},
		{`{"version": 1, "cloud": {"ipv6_source": "2001:db8::1%eth0"}}`, []string{"cloud.ipv6_source"}},
		{`{"version": 1, "network": {"private_mtu": 20}}`, []string{"network.private_mtu", "20", "from 576"}},
		{`{"version": 1, "network": {"public_mtu": 70000}}`, []string{"network.public_mtu"}},
		{`{"version": 1, "network": {"vswitch_mtu": 0}}`, []string{"network.vswitch_mtu"}},
		{`{"version": 1, "network": {"route_seconds": [-4000]}}`, []string{"network.route_seconds", "-4000"}},
		{`{"version": 1, "network": {"proxy_protocol": 3}}`, []string{"network.proxy_protocol", "from 1 to 2"}},
		{`{"version": 1, "network": {"neighbors": -1}}`, []string{"network.neighbors"}},
		{`{"version": 1, "robot": {"vswitch_seconds": [-2]}}`, []string{"robot.vswitch_seconds"}},
		{`{"version": 1, "robot": {"latency_seconds": -2}}`, []string{"robot.latency_seconds"}},
		{`{"version": 7, "cloud": {"busy": "no", "rate_limit": 0}}`, []string{"version", "cloud.busy", "cloud.rate_limit"}},
	}
	for _, test := range tests {
		_, err := profile.Read(strings.NewReader(test.text))
		if err == nil {
			t.Errorf("accepted %s", test.text)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q does not name %q", test.text, err, want)
			}
		}
	}
}

// A profile that Read would reject is not written.
func TestWriteRefusesToo(t *testing.T) {
	var out bytes.Buffer
	p := profile.Default()
	p.Cloud.Busy = new("never")
	if err := profile.Write(&out, p); err == nil || !strings.Contains(err.Error(), "cloud.busy") || out.Len() > 0 {
		t.Errorf("wrote %q, %v", out.String(), err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"version": 1, "cloud": {"busy": "locked", "action_seconds": {"add_route": [1]}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := profile.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		again, err := profile.Read(strings.NewReader(written(t, p)))
		if err != nil || !reflect.DeepEqual(again, p) && written(t, again) != written(t, p) {
			t.Errorf("%s is written as what reads %+v, %v", text, again, err)
		}
	})
}
