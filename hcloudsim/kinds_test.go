package hcloudsim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// TestVolumes follows the requests of the CSI driver's controller.
func TestVolumes(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		ctx := t.Context()
		opts := hcloud.VolumeCreateOpts{
			Name: "pvc-1", Size: 10, Location: &hcloud.Location{Name: "fsn1"}, Labels: map[string]string{"pvc": "data"},
		}
		made, _, err := w.c.Volume.Create(ctx, opts)
		noError(t, err)
		if v := made.Volume; v.Status != hcloud.VolumeStatusCreating || !strings.HasSuffix(v.LinuxDevice, fmt.Sprint("_", v.ID)) || v.Location.Name != "fsn1" {
			t.Errorf("new volume is %+v", v)
		}
		noError(t, w.c.Action.WaitFor(ctx, made.Action))
		_, _, err = w.c.Volume.Create(ctx, opts)
		wantCode(t, err, "uniqueness_error")

		v := made.Volume
		attach, _, err := w.c.Volume.Attach(ctx, v, w.a)
		noError(t, err)
		_, _, err = w.c.Volume.Attach(ctx, v, w.b)
		wantCode(t, err, "conflict")
		if at := w.attached(t, v); at != 0 {
			t.Errorf("attached to %d before the action ended", at)
		}
		noError(t, w.c.Action.WaitFor(ctx, attach))
		s, _, err := w.c.Server.GetByID(ctx, w.a.ID)
		noError(t, err)
		if at := w.attached(t, v); at != w.a.ID || len(s.Volumes) != 1 || s.Volumes[0].ID != v.ID {
			t.Errorf("volume is attached to %d, and the server has %v", at, s.Volumes)
		}
		_, _, err = w.c.Volume.Attach(ctx, v, w.b)
		wantCode(t, err, "volume_already_attached")
		_, err = w.c.Volume.Delete(ctx, v)
		wantCode(t, err, "service_error")

		resize, _, err := w.c.Volume.Resize(ctx, v, 20)
		noError(t, err)
		noError(t, w.c.Action.WaitFor(ctx, resize))
		_, _, err = w.c.Volume.Resize(ctx, v, 20)
		wantCode(t, err, "invalid_input")
		noError(t, w.sim.DeleteServer(w.a.ID))
		v, _, err = w.c.Volume.GetByID(ctx, v.ID)
		noError(t, err)
		if v.Server != nil || v.Size != 20 {
			t.Errorf("without its server, the volume is %+v", v)
		}
		_, err = w.c.Volume.Delete(ctx, v)
		noError(t, err)
	})
}

func (w world) attached(t *testing.T, v *hcloud.Volume) int64 {
	t.Helper()
	v, _, err := w.c.Volume.GetByID(t.Context(), v.ID)
	noError(t, err)
	if v.Server == nil {
		return 0
	}
	return v.Server.ID
}

func TestLimitsPerServer(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
	tests := []struct {
		path, body string
		most       int
		status     int
		code       string
	}{
		{"/v1/volumes", `{"name": "v%d", "size": 10, "server": %d}`, 16, 422, "limit_exceeded_error"},
		{"/v1/firewalls", `{"name": "f%d", "apply_to": [{"type": "server", "server": {"id": %d}}]}`, 5, 403, "resource_limit_exceeded"},
	}
	for _, test := range tests {
		for i := range test.most {
			send(t, sim, "POST", test.path, fmt.Sprintf(test.body, i, s.ID)).want(t, 201, "")
		}
		send(t, sim, "POST", test.path, fmt.Sprintf(test.body, test.most, s.ID)).want(t, test.status, test.code)
	}
}

func TestPlacementGroups(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	made, _, err := c.PlacementGroup.Create(t.Context(), hcloud.PlacementGroupCreateOpts{Name: "g", Type: hcloud.PlacementGroupTypeSpread})
	noError(t, err)
	group := made.PlacementGroup
	create := func(i int) error {
		_, _, err := c.Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: fmt.Sprint("s", i), ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "debian-12"}, PlacementGroup: group,
		})
		return err
	}
	for i := range 10 {
		noError(t, create(i))
	}
	wantCode(t, create(10), "placement_group_member_limit_reached")
	s, _, err := c.Server.GetByName(t.Context(), "s3")
	noError(t, err)
	group, _, err = c.PlacementGroup.GetByID(t.Context(), group.ID)
	noError(t, err)
	if s.PlacementGroup == nil || s.PlacementGroup.ID != group.ID || len(group.Servers) != 10 {
		t.Errorf("server is in %+v, the group is %+v", s.PlacementGroup, group)
	}
	_, _, err = c.Server.AddToPlacementGroup(t.Context(), s, group)
	wantCode(t, err, "server_not_stopped")
	_, _, err = c.Server.Poweroff(t.Context(), s)
	noError(t, err)
	_, _, err = c.Server.AddToPlacementGroup(t.Context(), s, group)
	wantCode(t, err, "already_in_placement_group")
	_, err = c.PlacementGroup.Delete(t.Context(), group)
	wantCode(t, err, "resource_in_use")
	for _, s := range group.Servers {
		noError(t, sim.DeleteServer(s))
	}
	_, err = c.PlacementGroup.Delete(t.Context(), group)
	noError(t, err)
}

func TestFirewalls(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		ctx := t.Context()
		bySelector := hcloud.FirewallResource{
			Type: hcloud.FirewallResourceTypeLabelSelector, LabelSelector: &hcloud.FirewallResourceLabelSelector{Selector: "role=web"},
		}
		toA := hcloud.FirewallResource{
			Type: hcloud.FirewallResourceTypeServer, Server: &hcloud.FirewallResourceServer{ID: w.a.ID},
		}
		made, _, err := w.c.Firewall.Create(ctx, hcloud.FirewallCreateOpts{Name: "web", ApplyTo: []hcloud.FirewallResource{bySelector, toA}})
		noError(t, err)
		f := made.Firewall
		w.wantFirewalls(t, w.a, "pending")
		noError(t, w.c.Action.WaitFor(ctx, made.Actions...))
		w.wantFirewalls(t, w.a, "applied")
		w.wantFirewalls(t, w.b, "")

		_, _, err = w.c.Server.Update(ctx, w.b, hcloud.ServerUpdateOpts{Labels: map[string]string{"role": "web"}})
		noError(t, err)
		w.wantFirewalls(t, w.b, "applied")
		toB := toA
		toB.Server = &hcloud.FirewallResourceServer{ID: w.b.ID}
		_, _, err = w.c.Firewall.RemoveResources(ctx, f, []hcloud.FirewallResource{toB})
		wantCode(t, err, "firewall_managed_by_label_selector")
		_, _, err = w.c.Firewall.ApplyResources(ctx, f, []hcloud.FirewallResource{toA})
		wantCode(t, err, "firewall_already_applied")
		f, _, err = w.c.Firewall.GetByID(ctx, f.ID)
		noError(t, err)
		if len(f.AppliedTo) != 2 || len(f.AppliedTo[0].AppliedToResources) != 1 ||
			f.AppliedTo[0].AppliedToResources[0].Server.ID != w.b.ID {
			t.Errorf("firewall is applied to %+v", f.AppliedTo)
		}

		_, err = w.c.Firewall.Delete(ctx, f)
		wantCode(t, err, "resource_in_use")
		noError(t, w.sim.DeleteServer(w.a.ID))
		removed, _, err := w.c.Firewall.RemoveResources(ctx, f, []hcloud.FirewallResource{bySelector})
		noError(t, err)
		noError(t, w.c.Action.WaitFor(ctx, removed...))
		w.wantFirewalls(t, w.b, "")
		_, err = w.c.Firewall.Delete(ctx, f)
		noError(t, err)
	})
}

// wantFirewalls compares the status of a server's only firewall; "" is none.
func (w world) wantFirewalls(t *testing.T, on *hcloud.Server, status string) {
	t.Helper()
	s, _ := w.sim.Server(on.ID)
	got := ""
	for _, f := range s.PublicNet.Firewalls {
		got += f.Status
	}
	if got != status {
		t.Errorf("firewalls of %s are %q, want %q", s.Name, got, status)
	}
}

func TestMetrics(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		created := time.Now()
		time.Sleep(40 * 24 * time.Hour)
		tests := []struct {
			start, end time.Time
			step       int
			want       int // samples
			wantStep   float64
		}{
			{time.Now().Add(-200 * time.Second), time.Now(), 0, 200, 1},
			{time.Now().Add(-time.Hour), time.Now(), 0, 200, 18},
			{time.Now().Add(-time.Hour), time.Now(), 1, 450, 8},
			{time.Now().Add(-time.Hour), time.Now().Add(time.Hour), 60, 60, 60},
			{time.Now().Add(-time.Hour), time.Now(), 1 << 60, 1, 3600},
			{created.Add(-time.Hour), created.Add(time.Hour), 60, 0, 60}, // too old
			{created.AddDate(-900, 0, 0), created.AddDate(900, 0, 0), 1, 500, 5184},
		}
		for _, test := range tests {
			got, _, err := w.c.Server.GetMetrics(t.Context(), w.a, hcloud.ServerGetMetricsOpts{
				Types: []hcloud.ServerMetricType{hcloud.ServerMetricCPU, hcloud.ServerMetricNetwork},
				Start: test.start, End: test.end, Step: test.step,
			})
			noError(t, err)
			if cpu := got.TimeSeries["cpu"]; len(cpu) != test.want || got.Step != test.wantStep || len(got.TimeSeries) != 5 {
				t.Errorf("from %s to %s by %d: %d samples of %d series, a step of %g", test.start, test.end, test.step, len(cpu), len(got.TimeSeries), got.Step)
			}
		}
	})
}

func TestRefusalsOfKinds(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	on := seedServer(t, sim, hcloudsim.ServerSeed{Name: "on"})
	off := seedServer(t, sim, hcloudsim.ServerSeed{Name: "off", Status: "off", NoIPv4: true, NoIPv6: true, Location: "nbg1"})
	volume := fmt.Sprint("/v1/volumes/", int64(send(t, sim, "POST", "/v1/volumes", `{"name": "v", "size": 10, "location": "fsn1"}`).object["volume"].(map[string]any)["id"].(float64)))
	wall := fmt.Sprint("/v1/firewalls/", int64(send(t, sim, "POST", "/v1/firewalls", `{"name": "w"}`).object["firewall"].(map[string]any)["id"].(float64)))
	running, stopped := fmt.Sprintf("/v1/servers/%d/actions/", on.ID), fmt.Sprintf("/v1/servers/%d/actions/", off.ID)
	rule := func(fields string) string { return `{"name": "r", "rules": [{` + fields + `}]}` }
	tests := []struct {
		method, path, body string
		status             int
		code, field        string
	}{
		{"POST", "/v1/volumes", `{"name": "-v", "size": 10, "location": "fsn1"}`, 422, "invalid_input", "name"},
		{"POST", "/v1/volumes", `{"name": "a", "size": 9, "location": "fsn1"}`, 422, "invalid_input", "size"},
		{"POST", "/v1/volumes", `{"name": "a", "size": 10241, "location": "fsn1"}`, 422, "invalid_input", "size"},
		{"POST", "/v1/volumes", `{"name": "a", "size": 10}`, 422, "invalid_input", "location"},
		{"POST", "/v1/volumes", `{"name": "a", "size": 10, "location": "moon"}`, 422, "invalid_input", "location"},
		{"POST", "/v1/volumes", `{"name": "a", "size": 10, "location": "fsn1", "format": "fat"}`, 422, "invalid_input", "format"},
		{"POST", "/v1/volumes", `{"name": "a", "size": 10, "server": 7}`, 404, "not_found", ""},
		{"GET", "/v1/volumes?status=full", "", 422, "invalid_input", "status"},
		{"POST", volume + "/actions/attach", fmt.Sprintf(`{"server": %d}`, off.ID), 422, "invalid_input", "server"},
		{"POST", volume + "/actions/detach", "", 422, "invalid_input", "server"},
		{"POST", volume + "/actions/resize", `{"size": 10}`, 422, "invalid_input", "size"},
		{"POST", volume + "/actions/shrink", "", 404, "not_found", ""},

		{"POST", "/v1/placement_groups", `{"name": "g", "type": "pack"}`, 422, "invalid_input", "type"},
		{"POST", "/v1/placement_groups", `{"type": "spread"}`, 422, "invalid_input", "name"},
		{"POST", stopped + "add_to_placement_group", `{"placement_group": 7}`, 404, "not_found", ""},
		{"POST", stopped + "remove_from_placement_group", "", 422, "invalid_input", "placement_group"},

		{"POST", "/v1/firewalls", `{"name": "w"}`, 409, "uniqueness_error", "name"},
		{"POST", "/v1/firewalls", rule(`"direction": "up", "protocol": "icmp", "source_ips": ["::/0"]`), 422, "invalid_input", "rules.direction"},
		{"POST", "/v1/firewalls", rule(`"direction": "in", "protocol": "igmp", "source_ips": ["::/0"]`), 422, "invalid_input", "rules.protocol"},
		{"POST", "/v1/firewalls", rule(`"direction": "in", "protocol": "icmp"`), 422, "invalid_input", "rules"},
		{"POST", "/v1/firewalls", rule(`"direction": "out", "protocol": "icmp", "source_ips": ["::/0"]`), 422, "invalid_input", "rules"},
		{"POST", "/v1/firewalls", rule(`"direction": "in", "protocol": "icmp", "source_ips": ["10.0.0.1/24"]`), 422, "invalid_input", "rules"},
		{"POST", "/v1/firewalls", rule(`"direction": "in", "protocol": "tcp", "source_ips": ["::/0"]`), 422, "invalid_input", "rules.port"},
		{"POST", "/v1/firewalls", rule(`"direction": "in", "protocol": "gre", "port": "1", "source_ips": ["::/0"]`), 422, "invalid_input", "rules.port"},
		{"POST", "/v1/firewalls", rule(`"direction": "in", "protocol": "udp", "port": "9-8", "source_ips": ["::/0"]`), 422, "invalid_input", "rules.port"},
		{"POST", "/v1/firewalls", rule(`"direction": "in", "protocol": "udp", "port": "65536", "source_ips": ["::/0"]`), 422, "invalid_input", "rules.port"},
		{"POST", "/v1/firewalls", `{"name": "a", "apply_to": [{"type": "server", "server": {"id": 7}}]}`, 422, "firewall_resource_not_found", ""},
		{"POST", wall + "/actions/apply_to_resources", `{"apply_to": [{"type": "server", "server": {"id": 7}}]}`, 404, "firewall_resource_not_found", ""},
		{"POST", wall + "/actions/apply_to_resources", `{"apply_to": [{"type": "server"}]}`, 422, "invalid_input", "apply_to"},
		{"POST", wall + "/actions/apply_to_resources", `{"apply_to": [{"type": "label_selector", "label_selector": {"selector": "a in"}}]}`, 422, "invalid_input", "apply_to"},
		{"POST", wall + "/actions/apply_to_resources", fmt.Sprintf(`{"apply_to": [{"type": "server", "server": {"id": %d}}]}`, off.ID), 422, "private_net_only_server", ""},
		{"POST", wall + "/actions/apply_to_resources", strings.ReplaceAll(`{"apply_to": [X, X]}`, "X", fmt.Sprintf(`{"type": "server", "server": {"id": %d}}`, on.ID)), 422, "server_already_added", ""},
		{"POST", wall + "/actions/remove_from_resources", `{"remove_from": [{"type": "server", "server": {"id": 7}}]}`, 404, "firewall_resource_not_found", ""},

		{"POST", running + "change_type", `{"server_type": "cx32"}`, 422, "server_not_stopped", ""},
		{"POST", stopped + "change_type", `{"server_type": "cax21"}`, 422, "invalid_server_type", ""},
		{"POST", stopped + "change_type", `{"server_type": "cx99"}`, 422, "invalid_input", "server_type"},
		{"POST", running + "create_image", `{"type": "backup"}`, 422, "invalid_input", "type"},
		{"POST", running + "create_image", `{"type": "system"}`, 422, "invalid_input", "type"},
		{"POST", running + "rebuild", `{"image": "beos"}`, 422, "invalid_input", "image"},
		{"POST", running + "enable_rescue", `{"type": "freebsd64"}`, 422, "invalid_input", "type"},
		{"POST", running + "enable_rescue", `{"ssh_keys": [7]}`, 404, "not_found", ""},
		{"POST", running + "attach_iso", `{"iso": "beos"}`, 422, "invalid_input", "iso"},
		{"POST", stopped + "reset_password", "", 422, "service_error", ""},
		{"DELETE", "/v1/images/1", "", 422, "invalid_input", "id"},
		{"PUT", "/v1/images/1", `{"description": "mine"}`, 422, "invalid_input", "id"},
		{"GET", fmt.Sprintf("/v1/servers/%d/metrics?type=heat&start=2026-01-01T00:00:00Z&end=2026-01-02T00:00:00Z", on.ID), "", 422, "invalid_input", "type"},
		{"GET", fmt.Sprintf("/v1/servers/%d/metrics?type=cpu&start=2026-01-01T00:00:00Z&end=x", on.ID), "", 422, "invalid_input", "end"},
		{"GET", fmt.Sprintf("/v1/servers/%d/metrics?type=cpu&start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z", on.ID), "", 422, "invalid_input", "end"},
		{"POST", running + "hibernate", "", 404, "not_found", ""},
		{"POST", "/v1/zones", `{"name": "example.com"}`, 405, "method_not_allowed", ""},
	}
	for _, test := range tests {
		t.Run(test.method+" "+test.path+" "+test.body, func(t *testing.T) {
			before := sim.Snapshot()
			got := send(t, sim, test.method, test.path, test.body)
			got.want(t, test.status, test.code)
			if got.field() != test.field {
				t.Errorf("field is %q, want %q", got.field(), test.field)
			}
			if after := sim.Snapshot(); string(after) != string(before) {
				t.Errorf("it left\n%s\nof\n%s", after, before)
			}
		})
	}
}
