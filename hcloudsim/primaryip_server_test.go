package hcloudsim_test

import (
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// A server's public addresses are ordinary primary IPs, which are deleted with it unless they were
// unassigned, or existed before it.
func TestPrimaryIPsOfServers(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		create := func(name string, net *hcloud.ServerCreatePublicNet) *hcloud.Server {
			made, _, err := w.c.Server.Create(t.Context(), hcloud.ServerCreateOpts{
				Name: name, ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "debian-12"},
				Location: &hcloud.Location{Name: "fsn1"}, PublicNet: net, StartAfterCreate: hcloud.Ptr(false),
			})
			noError(t, err)
			noError(t, w.c.Action.WaitFor(t.Context(), made.Action))
			s, _, err := w.c.Server.GetByID(t.Context(), made.Server.ID)
			noError(t, err)
			return s
		}
		run := func(a *hcloud.Action, _ *hcloud.Response, err error) {
			t.Helper()
			noError(t, err)
			noError(t, w.c.Action.WaitFor(t.Context(), a))
		}
		first := create("first", nil)
		for _, text := range []string{
			first.PublicNet.IPv4.IP.String(), first.PublicNet.IPv6.IP.String(),
		} {
			ip, _, err := w.c.PrimaryIP.GetByIP(t.Context(), text)
			noError(t, err)
			switch {
			case ip == nil:
				t.Fatalf("there is no primary IP %s", text)
			case ip.ID != first.PublicNet.IPv4.ID && ip.ID != first.PublicNet.IPv6.ID,
				ip.AssigneeID != first.ID, ip.AssigneeType != "server", !ip.AutoDelete, ip.Location.Name != "fsn1":
				t.Errorf("the server has %+v, the primary IP is %+v", first.PublicNet, ip)
			}
		}

		// One of them is moved, while both servers are off.
		second := create("second", &hcloud.ServerCreatePublicNet{EnableIPv6: true})
		if net := second.PublicNet; net.IPv4.ID != 0 || net.IPv6.ID == 0 {
			t.Errorf("a server without IPv4 has %+v", net)
		}
		moved := first.PublicNet.IPv4.ID
		run(w.c.Server.ChangeDNSPtr(t.Context(), first, first.PublicNet.IPv4.IP.String(), hcloud.Ptr("a.example.com")))
		run(w.c.Server.Poweron(t.Context(), first))
		_, _, err := w.c.PrimaryIP.Unassign(t.Context(), moved)
		wantCode(t, err, "server_not_stopped")
		run(w.c.Server.Poweroff(t.Context(), first))
		run(w.c.PrimaryIP.Unassign(t.Context(), moved))
		if now, _ := w.sim.Server(first.ID); now.PublicNet.IPv4.ID != 0 ||
			now.PublicNet.IPv6.ID != first.PublicNet.IPv6.ID {
			t.Errorf("without its IPv4 address the server has %+v", now.PublicNet)
		}
		run(w.c.PrimaryIP.Assign(t.Context(), hcloud.PrimaryIPAssignOpts{ID: moved, AssigneeID: second.ID, AssigneeType: "server"}))
		now, _ := w.sim.Server(second.ID)
		if got := now.PublicNet.IPv4; got.ID != moved || got.IP != first.PublicNet.IPv4.IP.String() || got.DNSPtr != "a.example.com" {
			t.Errorf("the other server has %+v", got)
		}

		// With auto_delete they are deleted with their server.
		_, _, err = w.c.PrimaryIP.Update(t.Context(), &hcloud.PrimaryIP{ID: moved},
			hcloud.PrimaryIPUpdateOpts{AutoDelete: hcloud.Ptr(false)})
		noError(t, err)
		noError(t, w.sim.DeleteServer(first.ID))
		noError(t, w.sim.DeleteServer(second.ID))
		for _, id := range []int64{first.PublicNet.IPv6.ID, second.PublicNet.IPv6.ID} {
			if ip, there := w.sim.PrimaryIP(id); there {
				t.Errorf("left is %+v", ip)
			}
		}
		if ip, there := w.sim.PrimaryIP(moved); !there || ip.AssigneeID != nil {
			t.Errorf("without auto_delete: %+v, %t", ip, there)
		}
	})
}
