package hcloudsim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// furnished is a project with one resource of each kind and no default values.
func furnished(t *testing.T) *hcloudsim.Simulator {
	t.Helper()
	sim := newSim(hcloudsim.Options{})
	c, n := client(sim), seedNetwork(t, sim)
	a := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: n.ID, Labels: map[string]string{"x": "y"}})
	b := seedServer(t, sim, hcloudsim.ServerSeed{Name: "b", NoIPv4: true, Status: "off"})
	noError(t, addRoute(t, c, n, "10.244.0.0/24", "10.0.0.2"))
	send(t, sim, "POST", fmt.Sprintf("/v1/networks/%d/actions/add_subnet", n.ID), `{"type": "vswitch", "vswitch_id": 5, "network_zone": "eu-central", "ip_range": "10.9.0.0/24"}`).want(t, 201, "")
	send(t, sim, "POST", fmt.Sprintf("/v1/networks/%d/actions/change_protection", n.ID), `{"delete": true}`).want(t, 201, "")
	now, _ := sim.Server(b.ID)
	_, _, err := c.Server.ChangeDNSPtr(t.Context(), b, strings.TrimSuffix(now.PublicNet.IPv6.IP, "/64")+"2", hcloud.Ptr("b.example.com"))
	noError(t, err)
	_, _, err = c.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: "me", PublicKey: publicKey})
	noError(t, err)
	made, _, err := c.Certificate.CreateCertificate(t.Context(), hcloud.CertificateCreateOpts{Name: "c", Type: hcloud.CertificateTypeManaged, DomainNames: []string{"example.com"}})
	noError(t, err)
	lb := createWhole(t, c, n, a).LoadBalancer
	path := fmt.Sprintf("/v1/load_balancers/%d/actions/", lb.ID)
	send(t, sim, "POST", path+"add_service", fmt.Sprintf(`{"protocol": "https", "http": {"certificates": [%d], "sticky_sessions": true}}`, made.Certificate.ID)).want(t, 201, "")
	send(t, sim, "POST", path+"add_target", fmt.Sprintf(`{"type": "server", "server": {"id": %d, "ip": "%s2"}}`, b.ID, strings.TrimSuffix(now.PublicNet.IPv6.IP, "/64"))).want(t, 201, "")
	send(t, sim, "POST", path+"add_target", `{"type": "label_selector", "label_selector": {"selector": "x in (y, z)"}}`).want(t, 201, "")
	address := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "kept", Labels: map[string]string{"x": "y"}})
	other := createAt(t, c, "kept", address.ID, 0)
	_, _, err = c.LoadBalancer.ChangeDNSPtr(t.Context(), other, address.IP, hcloud.Ptr("kept.example.com"))
	noError(t, err)
	spare := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "b", Location: now.Location.Name})
	_, _, err = c.PrimaryIP.Assign(t.Context(), hcloud.PrimaryIPAssignOpts{ID: spare.ID, AssigneeID: b.ID, AssigneeType: "server"})
	noError(t, err)
	seedFloatingIP(t, sim, hcloudsim.FloatingIPSeed{Name: "spare", Labels: map[string]string{"x": "y"}, HomeLocation: "hel1"})
	floating := seedFloatingIP(t, sim, hcloudsim.FloatingIPSeed{Type: "ipv6", Description: "of a", Server: a.ID})
	_, _, err = c.FloatingIP.ChangeDNSPtr(t.Context(), &hcloud.FloatingIP{ID: floating.ID}, strings.TrimSuffix(floating.IP, "/64")+"9", hcloud.Ptr("f.example.com"))
	noError(t, err)
	group := send(t, sim, "POST", "/v1/placement_groups", `{"name": "g", "type": "spread"}`).object["placement_group"].(map[string]any)["id"].(float64)
	send(t, sim, "POST", fmt.Sprintf("/v1/servers/%d/actions/add_to_placement_group", b.ID), fmt.Sprintf(`{"placement_group": %.0f}`, group)).want(t, 201, "")
	for _, action := range []string{"enable_backup", "enable_rescue", "attach_iso", "create_image", "change_type"} {
		send(t, sim, "POST", fmt.Sprintf("/v1/servers/%d/actions/%s", b.ID, action), `{"iso": 1, "server_type": "cx32"}`).want(t, 201, "")
	}
	send(t, sim, "POST", "/v1/volumes", fmt.Sprintf(`{"name": "v", "size": 10, "server": %d, "format": "xfs"}`, a.ID)).want(t, 201, "")
	send(t, sim, "POST", "/v1/firewalls", fmt.Sprintf(`{"name": "w", "apply_to": [{"type": "server", "server": {"id": %d}},
		{"type": "label_selector", "label_selector": {"selector": "x=y"}}],
		"rules": [{"direction": "in", "protocol": "icmp", "source_ips": ["::/0"]}]}`, a.ID)).want(t, 201, "")
	return sim
}

// A snapshot restored elsewhere is the same project, to the last byte.
func TestSnapshotAndRestore(t *testing.T) {
	sim := furnished(t)
	snapshot := sim.Snapshot()
	other := newSim(hcloudsim.Options{})
	noError(t, other.Restore(snapshot))
	if got := other.Snapshot(); !bytes.Equal(got, snapshot) {
		t.Errorf("restored:\n%s\nwas:\n%s", got, snapshot)
	}
	for _, path := range []string{"/v1/servers", "/v1/networks", "/v1/load_balancers", "/v1/primary_ips", "/v1/floating_ips", "/v1/certificates", "/v1/ssh_keys", "/v1/images", "/v1/volumes", "/v1/firewalls", "/v1/placement_groups", "/v1/servers/actions"} {
		if got, want := send(t, other, "GET", path, "").body, send(t, sim, "GET", path, "").body; got != want {
			t.Errorf("%s is\n%s\nwas\n%s", path, got, want)
		}
	}
	// The restored project continues: new resources get new IDs and new addresses.
	used := map[int64]bool{}
	for _, s := range other.Servers() {
		used[s.ID] = true
	}
	if made := seedServer(t, other, hcloudsim.ServerSeed{Name: "c"}); used[made.ID] {
		t.Errorf("ID %d is given away twice", made.ID)
	}
	if len(sim.Servers()) != 2 {
		t.Error("the snapshot is not independent of what it was made from")
	}
}

// Actions that run at the time of the snapshot are lost.
func TestSnapshotOfRunningActions(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		noError(t, addRoute(t, w.c, w.net, "10.244.0.0/24", "10.0.0.2"))
		noError(t, w.sim.Restore(w.sim.Snapshot()))
		noError(t, addRoute(t, w.c, w.net, "10.244.0.0/24", "10.0.0.2")) // the network isn't locked
		if running := w.sim.Actions(); len(running) != 1 {
			t.Errorf("actions are %+v, want the new one", running)
		}
	})
}

// An edited snapshot may have a state that the API would never allow.
func TestRestoreImpossibleState(t *testing.T) {
	sim := furnished(t)
	edited := bytes.ReplaceAll(sim.Snapshot(), []byte(`{"destination":"10.244.0.0/24","gateway":"10.0.0.2"}`),
		[]byte(`{"destination":"10.244.0.0/24","gateway":"10.0.0.2"},{"destination":"10.244.0.0/16","gateway":"10.0.0.1"}`))
	noError(t, sim.Restore(edited))
	if n := sim.Networks()[0]; len(n.Routes) != 2 || n.Routes[1].Gateway != "10.0.0.1" {
		t.Errorf("routes are %+v", n.Routes)
	}
	before := sim.Snapshot()
	for name, wrong := range map[string]string{
		"no JSON":         `{`,
		"no address":      `{"networks": [{"id": 1, "ip_range": "x"}]}`,
		"two of one ID":   `{"ssh_keys": [{"id": 1}, {"id": 1}]}`,
		"no ID":           `{"ssh_keys": [{"name": "x"}]}`,
		"no family":       `{"primary_ips": [{"id": 1, "ip": "1.2.3.4"}]}`,
		"half a target":   `{"load_balancers": [{"id": 1, "public_net": {"ipv4": {"ip": "1.2.3.4"}, "ipv6": {"ip": "::1"}}, "targets": [{"type": "server"}]}]}`,
		"wrong time":      `{"servers": [{"id": 1, "created": "yesterday"}]}`,
		"address in list": `{"servers": [{"id": 1, "private_net": [{"ip": "10.0.0.2", "alias_ips": ["x"]}]}]}`,
	} {
		if err := sim.Restore([]byte(wrong)); err == nil || !bytes.Equal(sim.Snapshot(), before) {
			t.Errorf("%s: error is %v, or something changed", name, err)
		}
	}
}

func TestAdminState(t *testing.T) {
	sim := furnished(t)
	admin := httptest.NewServer(sim.Admin())
	defer admin.Close()
	ask := func(method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, admin.URL+path, strings.NewReader(body))
		noError(t, err)
		got, err := admin.Client().Do(r)
		noError(t, err)
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		noError(t, err)
		return got.StatusCode, string(text)
	}
	_, snapshot := ask("GET", "/_sim/state", "")
	noError(t, sim.DeleteServer(sim.Servers()[0].ID))
	if status, text := ask("PUT", "/_sim/state", snapshot); status != http.StatusNoContent || len(sim.Servers()) != 2 {
		t.Errorf("restoring answers %d %s", status, text)
	}
	if status, _ := ask("PUT", "/_sim/state", "{"); status != http.StatusBadRequest {
		t.Errorf("a broken state answers %d", status)
	}
	var plane hcloudsim.DataPlane
	_, text := ask("GET", "/_sim/dataplane", "")
	noError(t, json.Unmarshal([]byte(text), &plane))
	if len(plane.Networks) != 1 || len(plane.Networks[0].Routes) != 1 ||
		len(plane.LoadBalancers[0].Targets) != 3 {
		t.Errorf("data plane is %s", text)
	}
	lb := sim.LoadBalancers()[0]
	path := fmt.Sprintf("/_sim/load_balancers/%d/health", lb.ID)
	if status, text := ask("PUT", path, fmt.Sprintf(`{"server": %d, "status": "unhealthy"}`, sim.Servers()[0].ID)); status != http.StatusNoContent {
		t.Errorf("setting the health answers %d %s", status, text)
	}
	if got := sim.LoadBalancers()[0].Targets[0].HealthStatus[0].Status; got != "unhealthy" {
		t.Errorf("target is %s", got)
	}
	for _, wrong := range []string{`{"servr": 1}`, `{"status": "sick"}`} {
		if status, _ := ask("PUT", path, wrong); status != http.StatusBadRequest {
			t.Errorf("%s answers %d", wrong, status)
		}
	}
}
