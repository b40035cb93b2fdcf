package hcloudsim_test

import (
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// acts runs actions of a server one after the other.
func (w world) acts(t *testing.T, actions ...func() (*hcloud.Action, *hcloud.Response, error)) {
	t.Helper()
	for _, act := range actions {
		a, _, err := act()
		noError(t, err)
		noError(t, w.c.Action.WaitFor(t.Context(), a))
	}
}

func (w world) server(t *testing.T, s *hcloud.Server) *hcloud.Server {
	t.Helper()
	s, _, err := w.c.Server.GetByID(t.Context(), s.ID)
	noError(t, err)
	return s
}

func TestChangeType(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		off := func() (*hcloud.Action, *hcloud.Response, error) {
			return w.c.Server.Poweroff(t.Context(), w.a)
		}
		to := func(name string, disk bool) func() (*hcloud.Action, *hcloud.Response, error) {
			return func() (*hcloud.Action, *hcloud.Response, error) {
				return w.c.Server.ChangeType(t.Context(), w.a, hcloud.ServerChangeTypeOpts{
					ServerType: &hcloud.ServerType{Name: name}, UpgradeDisk: disk,
				})
			}
		}
		w.acts(t, off)
		_, _, err := to("cx32", false)()
		noError(t, err)
		if s := w.server(t, w.a); s.Status != hcloud.ServerStatusMigrating || s.ServerType.Name != "cx22" {
			t.Errorf("during the change, the server is %s, and a %s", s.Status, s.ServerType.Name)
		}
		time.Sleep(actionTime)
		if s := w.server(t, w.a); s.Status != hcloud.ServerStatusRunning || s.ServerType.Name != "cx32" || s.PrimaryDiskSize != 40 {
			t.Errorf("server is %s, a %s with a disk of %d", s.Status, s.ServerType.Name, s.PrimaryDiskSize)
		}
		w.acts(t, off, to("cx22", false), off, to("cx42", true), off)
		_, _, err = to("cx22", false)()
		wantCode(t, err, "invalid_server_type")
	})
}

func TestImagesOfServers(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		ctx := t.Context()
		create := func(kind hcloud.ImageType) *hcloud.Image {
			made, _, err := w.c.Server.CreateImage(ctx, w.a, &hcloud.ServerCreateImageOpts{Type: kind, Labels: map[string]string{"a": "b"}})
			noError(t, err)
			if made.Image.Status != hcloud.ImageStatusCreating || made.Image.CreatedFrom.ID != w.a.ID {
				t.Errorf("new image is %+v", made.Image)
			}
			noError(t, w.c.Action.WaitFor(ctx, made.Action))
			return made.Image
		}
		w.acts(t, func() (*hcloud.Action, *hcloud.Response, error) { return w.c.Server.EnableBackup(ctx, w.a, "") })
		if s := w.server(t, w.a); s.BackupWindow == "" {
			t.Error("backups are enabled, and have no window")
		}
		snapshot, kept := create(hcloud.ImageTypeSnapshot), create(hcloud.ImageTypeBackup)
		create(hcloud.ImageTypeBackup)
		backups, err := w.c.Image.AllWithOpts(ctx, hcloud.ImageListOpts{BoundTo: w.a, ListOpts: hcloud.ListOpts{LabelSelector: "a=b"}})
		noError(t, err)
		_, _, err = w.c.Image.Update(ctx, kept, hcloud.ImageUpdateOpts{Type: hcloud.ImageTypeSnapshot})
		noError(t, err)
		w.acts(t,
			func() (*hcloud.Action, *hcloud.Response, error) { return w.c.Server.DisableBackup(ctx, w.a) },
			func() (*hcloud.Action, *hcloud.Response, error) {
				result, response, err := w.c.Server.RebuildWithResult(ctx, w.a, hcloud.ServerRebuildOpts{
					Image: snapshot,
				})
				return result.Action, response, err
			},
		)
		left, err := w.c.Image.AllWithOpts(ctx, hcloud.ImageListOpts{
			Type: []hcloud.ImageType{hcloud.ImageTypeSnapshot, hcloud.ImageTypeBackup},
		})
		noError(t, err)
		if s := w.server(t, w.a); len(backups) != 2 || len(left) != 2 || s.BackupWindow != "" || s.Image.ID != snapshot.ID || s.Status != hcloud.ServerStatusRunning {
			t.Errorf("%d backups, %d images are left, the server is %s from %d, its window %q", len(backups), len(left), s.Status, s.Image.ID, s.BackupWindow)
		}
		_, err = w.c.Image.Delete(ctx, snapshot)
		noError(t, err)
	})
}

func TestRescueAndISO(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		ctx := t.Context()
		rescue := func() (*hcloud.Action, *hcloud.Response, error) {
			result, response, err := w.c.Server.EnableRescue(ctx, w.a, hcloud.ServerEnableRescueOpts{
				Type: hcloud.ServerRescueTypeLinux64,
			})
			if err == nil && result.RootPassword == "" {
				t.Error("no password")
			}
			return result.Action, response, err
		}
		w.acts(t, rescue, func() (*hcloud.Action, *hcloud.Response, error) {
			return w.c.Server.AttachISO(ctx, w.a, &hcloud.ISO{ID: 1})
		})
		if s := w.server(t, w.a); !s.RescueEnabled || s.ISO == nil || s.ISO.ID != 1 {
			t.Errorf("rescue is %v, ISO %+v", s.RescueEnabled, s.ISO)
		}
		w.acts(t,
			func() (*hcloud.Action, *hcloud.Response, error) { return w.c.Server.Reboot(ctx, w.a) },
			func() (*hcloud.Action, *hcloud.Response, error) { return w.c.Server.DetachISO(ctx, w.a) },
		)
		nothing, _, err := w.c.Server.DetachISO(ctx, w.a)
		noError(t, err)
		if s := w.server(t, w.a); s.RescueEnabled || s.ISO != nil ||
			nothing.Status != hcloud.ActionStatusSuccess {
			t.Errorf("after a boot, rescue is %v, ISO %+v", s.RescueEnabled, s.ISO)
		}
		w.acts(t, rescue, func() (*hcloud.Action, *hcloud.Response, error) {
			return w.c.Server.DisableRescue(ctx, w.a)
		})
		if s := w.server(t, w.a); s.RescueEnabled {
			t.Error("rescue is still enabled")
		}
	})
}

// A server is created with all of its parts, or none of them is changed.
func TestCreationWithParts(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		ctx := t.Context()
		volume, _, err := w.c.Volume.Create(ctx, hcloud.VolumeCreateOpts{Name: "v", Size: 10, Location: &hcloud.Location{Name: "fsn1"}})
		noError(t, err)
		wall, _, err := w.c.Firewall.Create(ctx, hcloud.FirewallCreateOpts{Name: "w"})
		noError(t, err)
		group, _, err := w.c.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{Name: "g", Type: hcloud.PlacementGroupTypeSpread})
		noError(t, err)
		noError(t, w.c.Action.WaitFor(ctx, volume.Action))
		opts := hcloud.ServerCreateOpts{
			Name: "new", ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "debian-12"}, Location: &hcloud.Location{Name: "fsn1"},
			Volumes: []*hcloud.Volume{volume.Volume}, Networks: []*hcloud.Network{w.net},
			PlacementGroup: group.PlacementGroup,
			Firewalls:      []*hcloud.ServerCreateFirewall{{Firewall: *wall.Firewall}},
		}
		elsewhere := opts
		elsewhere.Location, elsewhere.Networks = &hcloud.Location{Name: "nbg1"}, nil
		_, _, err = w.c.Server.Create(ctx, elsewhere)
		wantCode(t, err, "invalid_input")
		private := opts
		private.PublicNet = &hcloud.ServerCreatePublicNet{}
		_, _, err = w.c.Server.Create(ctx, private)
		wantCode(t, err, "private_net_only_server")

		noError(t, w.sim.Inject(hcloudsim.Fault{Match: "POST /servers", FailAction: "placement_error"}))
		made, _, err := w.c.Server.Create(ctx, opts)
		noError(t, err)
		if err := w.c.Action.WaitFor(ctx, append(made.NextActions, made.Action)...); err == nil {
			t.Error("the creation did not fail")
		}
		free := func() bool {
			f, _, err := w.c.Firewall.GetByID(ctx, wall.Firewall.ID)
			noError(t, err)
			g, _, err := w.c.PlacementGroup.GetByID(ctx, group.PlacementGroup.ID)
			noError(t, err)
			return w.attached(t, volume.Volume) == 0 && len(f.AppliedTo) == 0 && len(g.Servers) == 0
		}
		if !free() {
			t.Error("a failed creation left parts attached")
		}
		made, _, err = w.c.Server.Create(ctx, opts)
		noError(t, err)
		noError(t, w.c.Action.WaitFor(ctx, append(made.NextActions, made.Action)...))
		s := w.server(t, made.Server)
		if len(made.NextActions) != 4 || len(s.Volumes) != 1 || len(s.PrivateNet) != 1 ||
			len(s.PublicNet.Firewalls) != 1 || s.PlacementGroup == nil {
			t.Errorf("server is %+v, its actions %v", s, made.NextActions)
		}
		_, _, err = w.c.Server.DeleteWithResult(ctx, s)
		noError(t, err)
		if !free() {
			t.Error("a deleted server left parts attached")
		}
	})
}
