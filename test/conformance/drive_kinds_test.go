package conformance_test

import (
	"net"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// serverActions changes a server that is off, and leaves it so.
func (d *driver) serverActions(s *hcloud.Server) {
	ctx := d.Context()
	image, _, err := d.c.Image.GetForArchitecture(ctx, "debian-13", hcloud.ArchitectureARM)
	d.must(err)
	iso, _, err := d.c.ISO.GetByName(ctx, "debian-13.1.0-arm64.iso")
	d.must(err)
	d.must(d.c.Server.ChangeType(ctx, s, hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: "cax21"}}))
	d.must(d.c.Server.ResetPassword(ctx, s))
	d.must(d.c.Server.RequestConsole(ctx, s))
	d.must(d.c.Server.RebuildWithResult(ctx, s, hcloud.ServerRebuildOpts{Image: image}))
	d.must(d.c.Server.EnableBackup(ctx, s, ""))
	d.must(d.c.Server.CreateImage(ctx, s, &hcloud.ServerCreateImageOpts{Type: hcloud.ImageTypeBackup}))
	made, _, err := d.c.Server.CreateImage(ctx, s, &hcloud.ServerCreateImageOpts{
		Type: hcloud.ImageTypeSnapshot, Description: hcloud.Ptr("before"), Labels: map[string]string{"a": "b"},
	})
	d.must(err)
	d.must(d.c.Image.Update(ctx, made.Image, hcloud.ImageUpdateOpts{Description: hcloud.Ptr("after")}))
	d.must(d.c.Image.ChangeProtection(ctx, made.Image, hcloud.ImageChangeProtectionOpts{
		Delete: hcloud.Ptr(true),
	}))
	d.refused(hcloud.ErrorCodeProtected)(d.c.Image.Delete(ctx, made.Image))
	d.must(d.c.Image.ChangeProtection(ctx, made.Image, hcloud.ImageChangeProtectionOpts{
		Delete: hcloud.Ptr(false),
	}))
	actions, _, err := d.c.Image.Action.ListFor(ctx, made.Image, hcloud.ActionListOpts{})
	d.must(err)
	d.must(d.c.Image.Action.List(ctx, hcloud.ActionListOpts{}))
	d.must(d.c.Image.Action.GetByID(ctx, actions[0].ID))
	d.must(d.c.Image.Delete(ctx, made.Image))
	d.must(d.c.Server.DisableBackup(ctx, s))
	d.must(d.c.Server.EnableRescue(ctx, s, hcloud.ServerEnableRescueOpts{
		Type: hcloud.ServerRescueTypeLinux64,
	}))
	d.must(d.c.Server.AttachISO(ctx, s, iso))
	d.must(d.c.Server.GetByID(ctx, s.ID))
	d.must(d.c.Server.DetachISO(ctx, s))
	d.must(d.c.Server.DisableRescue(ctx, s))
	d.must(d.c.Server.Poweroff(ctx, s))
}

func (d *driver) placementGroups(s *hcloud.Server) {
	ctx := d.Context()
	made, _, err := d.c.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{
		Name: "spread", Type: hcloud.PlacementGroupTypeSpread, Labels: map[string]string{"a": "b"},
	})
	d.must(err)
	group := made.PlacementGroup
	d.must(d.c.PlacementGroup.List(ctx, hcloud.PlacementGroupListOpts{
		Name: "spread", Type: hcloud.PlacementGroupTypeSpread, ListOpts: filters("x"), Sort: []string{"created"},
	}))
	d.must(d.c.PlacementGroup.Update(ctx, group, hcloud.PlacementGroupUpdateOpts{Name: "spreads"}))
	d.must(d.c.Server.AddToPlacementGroup(ctx, s, group))
	d.must(d.c.Server.GetByID(ctx, s.ID))
	d.must(d.c.PlacementGroup.GetByID(ctx, group.ID))
	d.refused(hcloud.ErrorCodeResourceInUse)(d.c.PlacementGroup.Delete(ctx, group))
	d.must(d.c.Server.RemoveFromPlacementGroup(ctx, s))
	d.must(d.c.PlacementGroup.Delete(ctx, group))
}

func (d *driver) volumes(s *hcloud.Server) {
	ctx := d.Context()
	made, _, err := d.c.Volume.Create(ctx, hcloud.VolumeCreateOpts{
		Name: "data", Size: 10, Server: s, Automount: hcloud.Ptr(false), Format: hcloud.Ptr("ext4"), Labels: map[string]string{"a": "b"},
	})
	d.must(err)
	v := made.Volume
	d.must(d.c.Volume.List(ctx, hcloud.VolumeListOpts{
		Name: "data", Status: []hcloud.VolumeStatus{hcloud.VolumeStatusAvailable}, ListOpts: filters("x"), Sort: []string{"name"},
	}))
	d.must(d.c.Volume.Update(ctx, v, hcloud.VolumeUpdateOpts{Name: "more-data"}))
	d.must(d.c.Volume.GetByID(ctx, v.ID))
	d.must(d.c.Server.GetByID(ctx, s.ID))
	d.refused(hcloud.ErrorCodeServiceError)(d.c.Volume.Delete(ctx, v))
	d.must(d.c.Volume.Detach(ctx, v))
	d.must(d.c.Volume.AttachWithOpts(ctx, v, hcloud.VolumeAttachOpts{
		Server: s, Automount: hcloud.Ptr(true),
	}))
	d.refused(hcloud.ErrorCodeVolumeAlreadyAttached)(d.c.Volume.Attach(ctx, v, s))
	d.must(d.c.Volume.Detach(ctx, v))
	d.must(d.c.Volume.Resize(ctx, v, 20))
	d.must(d.c.Volume.ChangeProtection(ctx, v, hcloud.VolumeChangeProtectionOpts{
		Delete: hcloud.Ptr(false),
	}))
	actions, _, err := d.c.Volume.Action.ListFor(ctx, v, hcloud.ActionListOpts{})
	d.must(err)
	d.must(d.c.Volume.Action.List(ctx, hcloud.ActionListOpts{}))
	d.must(d.c.Volume.Action.GetByID(ctx, actions[0].ID))
	d.must(d.c.Volume.Delete(ctx, v))
}

func (d *driver) firewalls(s *hcloud.Server) {
	ctx := d.Context()
	anywhere := []net.IPNet{*ipNet("0.0.0.0/0"), *ipNet("::/0")}
	rules := []hcloud.FirewallRule{
		{Direction: hcloud.FirewallRuleDirectionIn, Protocol: hcloud.FirewallRuleProtocolTCP, Port: hcloud.Ptr("80-85"), SourceIPs: anywhere},
		{Direction: hcloud.FirewallRuleDirectionOut, Protocol: hcloud.FirewallRuleProtocolICMP, DestinationIPs: anywhere, Description: hcloud.Ptr("ping")},
	}
	server := hcloud.FirewallResource{
		Type: hcloud.FirewallResourceTypeServer, Server: &hcloud.FirewallResourceServer{ID: s.ID},
	}
	workers := hcloud.FirewallResource{
		Type: hcloud.FirewallResourceTypeLabelSelector, LabelSelector: &hcloud.FirewallResourceLabelSelector{Selector: "role=worker"},
	}
	made, _, err := d.c.Firewall.Create(ctx, hcloud.FirewallCreateOpts{
		Name: "web", Labels: map[string]string{"a": "b"}, Rules: rules, ApplyTo: []hcloud.FirewallResource{workers},
	})
	d.must(err)
	f := made.Firewall
	d.must(d.c.Firewall.List(ctx, hcloud.FirewallListOpts{Name: "web", ListOpts: filters("x"), Sort: []string{"id"}}))
	d.must(d.c.Firewall.Update(ctx, f, hcloud.FirewallUpdateOpts{Name: "webs"}))
	d.refused(hcloud.ErrorCodeFirewallManagedByLabelSelector)(d.c.Firewall.RemoveResources(ctx, f,
		[]hcloud.FirewallResource{server}))
	d.must(d.c.Firewall.ApplyResources(ctx, f, []hcloud.FirewallResource{server}))
	d.must(d.c.Firewall.GetByID(ctx, f.ID))
	d.must(d.c.Server.GetByID(ctx, s.ID))
	d.must(d.c.Firewall.SetRules(ctx, f, hcloud.FirewallSetRulesOpts{Rules: rules[:1]}))
	d.refused(hcloud.ErrorCodeResourceInUse)(d.c.Firewall.Delete(ctx, f))
	d.must(d.c.Firewall.RemoveResources(ctx, f, []hcloud.FirewallResource{server, workers}))
	actions, _, err := d.c.Firewall.Action.ListFor(ctx, f, hcloud.ActionListOpts{})
	d.must(err)
	d.must(d.c.Firewall.Action.List(ctx, hcloud.ActionListOpts{}))
	d.must(d.c.Firewall.Action.GetByID(ctx, actions[0].ID))
	d.must(d.c.Firewall.Delete(ctx, f))
}
