package hcloudsim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// A key whose bytes count up, and its MD5.
const (
	publicKey   = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me"
	fingerprint = "0f:a2:0a:d7:38:3e:65:45:08:6b:63:84:1c:ff:dc:ba"
)

// The types that can be ordered today, and those of running clusters.
func TestServerTypes(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	all, err := c.ServerType.All(t.Context())
	noError(t, err)
	ids := map[int64]string{}
	for _, s := range all {
		if other, twice := ids[s.ID]; twice {
			t.Errorf("%s and %s have the ID %d", s.Name, other, s.ID)
		}
		ids[s.ID] = s.Name
	}
	for _, name := range []string{
		"cx22", "cx23", "cx33", "cx43", "cx53", "cax11", "cax21", "cax31", "cax41",
		"cpx11", "cpx51", "cpx12", "cpx22", "cpx32", "cpx42", "cpx52", "cpx62",
		"ccx13", "ccx23", "ccx33", "ccx43", "ccx53", "ccx63",
	} {
		body := fmt.Sprintf(`{"name": "of-%s", "server_type": %q, "image": "ubuntu-24.04", "location": "hel1"}`, name, name)
		if got := send(t, sim, "POST", "/v1/servers", body); got.status != 201 {
			t.Errorf("%s: answer is %d %s", name, got.status, got.body)
		}
	}
	send(t, sim, "POST", "/v1/servers", `{"name": "odd", "server_type": "cpx99", "image": "ubuntu-24.04"}`).want(t, 422, "invalid_input")
}

func TestImages(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	arm, _, err := c.Image.GetForArchitecture(t.Context(), "debian-12", hcloud.ArchitectureARM)
	noError(t, err)
	if arm == nil || arm.Architecture != hcloud.ArchitectureARM || arm.OSFlavor != "debian" || arm.OSVersion != "12" {
		t.Fatalf("image is %+v", arm)
	}
	seedServer(t, sim, hcloudsim.ServerSeed{Name: "origin"})
	origin, _, err := c.Server.GetByName(t.Context(), "origin")
	noError(t, err)
	made, _, err := c.Server.CreateImage(t.Context(), origin, &hcloud.ServerCreateImageOpts{
		Description: hcloud.Ptr("mine"), Labels: map[string]string{"os": "talos"},
	})
	noError(t, err)
	own := made.Image
	found, err := c.Image.AllWithOpts(t.Context(), hcloud.ImageListOpts{
		Type: []hcloud.ImageType{hcloud.ImageTypeSnapshot}, ListOpts: hcloud.ListOpts{LabelSelector: "os=talos"},
	})
	noError(t, err)
	if len(found) != 1 || found[0].ID != own.ID || found[0].Description != "mine" {
		t.Errorf("snapshots are %+v", found)
	}
	tests := []struct {
		serverType, image string
		status            int
	}{
		{"cx22", `"debian-12"`, 201},
		{"cax11", `"debian-12"`, 201},
		{"cx22", fmt.Sprint(own.ID), 201},
		{"cax11", fmt.Sprint(own.ID), 422},
		{"cx22", fmt.Sprint(arm.ID), 422},
		{"cx22", `"plan-9"`, 422},
		{"cx22", `""`, 422},
		{"cx22", `99999`, 422},
	}
	for i, test := range tests {
		got := send(t, sim, "POST", "/v1/servers", fmt.Sprintf(`{"name": "s%d", "server_type": %q, "image": %s}`, i, test.serverType, test.image))
		if got.status != test.status || (got.status == 422 && got.field() != "image") {
			t.Errorf("%+v: answer is %d %s", test, got.status, got.body)
		}
	}
}

func TestSSHKeys(t *testing.T) {
	sim := newSim(hcloudsim.Options{Quotas: map[string]int{"ssh_key": 2}})
	c := client(sim)
	key, _, err := c.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: "me", PublicKey: publicKey})
	noError(t, err)
	if key.Fingerprint != fingerprint {
		t.Errorf("fingerprint is %s, want %s", key.Fingerprint, fingerprint)
	}
	byPrint, _, err := c.SSHKey.GetByFingerprint(t.Context(), fingerprint)
	noError(t, err)
	if byPrint == nil || byPrint.ID != key.ID {
		t.Errorf("key by its fingerprint is %+v", byPrint)
	}
	tests := []struct {
		body   string
		status int
		code   string
		field  string
	}{
		{`{"name": "me", "public_key": "` + publicKey + `"}`, 409, "uniqueness_error", "name"},
		{`{"name": "you", "public_key": "` + publicKey + `"}`, 409, "uniqueness_error", "public_key"},
		{`{"name": "", "public_key": "` + publicKey + `"}`, 422, "invalid_input", "name"},
		{`{"name": "you", "public_key": "ssh-ed25519"}`, 422, "invalid_input", "public_key"},
		{`{"name": "you", "public_key": "ssh-rsa ` + strings.Fields(publicKey)[1] + `"}`, 422, "invalid_input", "public_key"},
		{`{"name": "you", "public_key": "ssh-ed25519 !"}`, 422, "invalid_input", "public_key"},
	}
	for _, test := range tests {
		got := send(t, sim, "POST", "/v1/ssh_keys", test.body)
		got.want(t, test.status, test.code)
		if got.field() != test.field {
			t.Errorf("%s: answer is about %q, want %q", test.body, got.field(), test.field)
		}
	}
	server := func(keys string) response {
		return send(t, sim, "POST", "/v1/servers", fmt.Sprintf(`{"name": "s-%d", "server_type": "cx22", "image": "debian-12", "ssh_keys": %s}`, len(sim.Servers()), keys))
	}
	for _, keys := range []string{`["me"]`, fmt.Sprintf("[%d]", key.ID), fmt.Sprintf(`["%d"]`, key.ID)} {
		if got := server(keys); got.status != 201 || got.object["root_password"] != nil {
			t.Errorf("keys %s: answer is %s, want a server without a password", keys, got.body)
		}
	}
	if got := server("[]"); got.object["root_password"] == nil {
		t.Errorf("without keys there is no password: %s", got.body)
	}
	server(`["nobody"]`).want(t, 404, "not_found")
	noError(t, second(c.SSHKey.Delete(t.Context(), key)))
	if gone, _, err := c.SSHKey.Get(t.Context(), "me"); gone != nil || err != nil {
		t.Errorf("key is still there: %v, %v", gone, err)
	}
}

// second returns the error of a call whose result doesn't matter.
func second[T any](_ T, err error) error { return err }

func TestUserDataHasALimit(t *testing.T) {
	got := send(t, newSim(hcloudsim.Options{}), "POST", "/v1/servers",
		`{"name": "a", "server_type": "cx22", "image": "debian-12", "user_data": "`+strings.Repeat("x", 32<<10+1)+`"}`)
	got.want(t, 422, "invalid_input")
}

func TestServerPointersAndProtection(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
	now, _ := sim.Server(s.ID)
	ipv4, ipv6 := now.PublicNet.IPv4.IP, strings.TrimSuffix(now.PublicNet.IPv6.IP, "/64")+"1"
	for _, ip := range []string{ipv4, ipv6} {
		_, _, err := c.Server.ChangeDNSPtr(t.Context(), s, ip, hcloud.Ptr("a.example.com"))
		noError(t, err)
	}
	now, _ = sim.Server(s.ID)
	if now.PublicNet.IPv4.DNSPtr != "a.example.com" || len(now.PublicNet.IPv6.DNSPtr) != 1 || now.PublicNet.IPv6.DNSPtr[0].IP != ipv6 {
		t.Errorf("public network is %+v", now.PublicNet)
	}
	for _, ip := range []string{ipv4, ipv6} {
		_, _, err := c.Server.ChangeDNSPtr(t.Context(), s, ip, nil)
		noError(t, err)
	}
	now, _ = sim.Server(s.ID)
	if !strings.HasSuffix(now.PublicNet.IPv4.DNSPtr, "clients.your-server.de") || len(now.PublicNet.IPv6.DNSPtr) != 0 {
		t.Errorf("after the reset, the public network is %+v", now.PublicNet)
	}
	_, _, err := c.Server.ChangeDNSPtr(t.Context(), s, "192.0.2.1", hcloud.Ptr("x.example.com"))
	wantCode(t, err, "invalid_input")
	_, _, err = c.Server.ChangeDNSPtr(t.Context(), s, ipv4, hcloud.Ptr("not a name"))
	wantCode(t, err, "invalid_input")

	protect := func(on bool) error {
		_, _, err := c.Server.ChangeProtection(t.Context(), s, hcloud.ServerChangeProtectionOpts{
			Delete: &on, Rebuild: &on,
		})
		return err
	}
	noError(t, protect(true))
	_, _, err = c.Server.ChangeProtection(t.Context(), s, hcloud.ServerChangeProtectionOpts{
		Delete: hcloud.Ptr(false),
	})
	wantCode(t, err, "invalid_input")
	_, _, err = c.Server.DeleteWithResult(t.Context(), s)
	wantCode(t, err, "protected")
	noError(t, protect(false))
	_, _, err = c.Server.DeleteWithResult(t.Context(), s)
	noError(t, err)
}

func TestReboot(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		a, _, err := w.c.Server.Reboot(t.Context(), w.a)
		noError(t, err)
		_, _, err = w.c.Server.Poweroff(t.Context(), w.a)
		wantCode(t, err, "conflict")
		noError(t, w.c.Action.WaitFor(t.Context(), a))
		off, _, err := w.c.Server.Poweroff(t.Context(), w.a)
		noError(t, err)
		noError(t, w.c.Action.WaitFor(t.Context(), off))
		reset, _, err := w.c.Server.Reset(t.Context(), w.a)
		noError(t, err)
		noError(t, w.c.Action.WaitFor(t.Context(), reset))
		if now, _ := w.sim.Server(w.a.ID); now.Status != "running" {
			t.Errorf("server is %s", now.Status)
		}
	})
}

func TestMembers(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		statuses := func(opts hcloud.NetworkMemberListOpts) string {
			t.Helper()
			members, err := w.c.Network.AllMembersWithOpts(t.Context(), w.net, opts)
			noError(t, err)
			var out []string
			for _, m := range members {
				out = append(out, fmt.Sprintf("%s %s %s", m.Type, m.IP, m.Status))
			}
			return strings.Join(out, ", ")
		}
		expect := func(want string) {
			t.Helper()
			if got := statuses(hcloud.NetworkMemberListOpts{}); got != want {
				t.Errorf("members are %s, want %s", got, want)
			}
		}
		expect("server 10.0.0.2 ok")
		attach, _, err := w.c.Server.AttachToNetwork(t.Context(), w.b, hcloud.ServerAttachToNetworkOpts{
			Network: w.net,
		})
		noError(t, err)
		expect("server 10.0.0.2 ok, server 10.0.0.3 attaching")
		noError(t, w.c.Action.WaitFor(t.Context(), attach))
		_, _, err = w.c.Server.DetachFromNetwork(t.Context(), w.a, hcloud.ServerDetachFromNetworkOpts{
			Network: w.net,
		})
		noError(t, err)
		expect("server 10.0.0.2 detaching, server 10.0.0.3 ok")
		if got := statuses(hcloud.NetworkMemberListOpts{Status: []hcloud.NetworkMemberStatus{hcloud.NetworkMemberStatusOK}}); got != "server 10.0.0.3 ok" {
			t.Errorf("members that are ok are %s", got)
		}
		if got := statuses(hcloud.NetworkMemberListOpts{Type: []hcloud.NetworkMemberType{hcloud.NetworkMemberTypeLoadBalancer}}); got != "" {
			t.Errorf("load balancers are %s", got)
		}
	})
}
