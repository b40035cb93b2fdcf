package robotsim_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	hrobot "github.com/syself/hrobot-go"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

func TestSeedErrorsNameTheMistake(t *testing.T) {
	sim := seeded(t, robotsim.Options{})
	server := func(seed robotsim.ServerSeed) error { _, err := sim.CreateServer(seed); return err }
	vSwitch := func(seed robotsim.VSwitchSeed) error { _, err := sim.CreateVSwitch(seed); return err }
	for want, err := range map[string]error{
		"number is taken":        server(robotsim.ServerSeed{Number: 321}),
		"that of server 321":     server(robotsim.ServerSeed{IPv4: netip.MustParseAddr("203.0.113.1")}),
		"no_ipv4 and no_ipv6":    server(robotsim.ServerSeed{NoIPv4: true, NoIPv6: true}),
		"must be a /64":          server(robotsim.ServerSeed{IPv6: netip.MustParsePrefix("2001:db8::/56")}),
		"must be an IPv4":        server(robotsim.ServerSeed{IPv4: netip.MustParseAddr("2001:db8::1")}),
		"the ID is taken":        vSwitch(robotsim.VSwitchSeed{ID: 4321}),
		"vlan 3999":              vSwitch(robotsim.VSwitchSeed{VLAN: 3999}),
		"server 5: there is":     vSwitch(robotsim.VSwitchSeed{Servers: []robotsim.MemberSeed{{Number: 5}}}),
		"VLAN 4001 already":      vSwitch(robotsim.VSwitchSeed{VLAN: 4001, Servers: []robotsim.MemberSeed{{Number: 321}}}),
		`status "lost"`:          vSwitch(robotsim.VSwitchSeed{Servers: []robotsim.MemberSeed{{Number: 421, Status: "lost"}}}),
		"with /64":               sim.CreateFailover(robotsim.FailoverSeed{Net: netip.MustParsePrefix("203.0.113.0/24"), Server: 321}),
		"server 6: there is":     sim.CreateFailover(robotsim.FailoverSeed{Net: netip.MustParsePrefix("203.0.113.5/32"), Server: 6}),
		"exists already":         sim.CreateFailover(robotsim.FailoverSeed{Net: netip.MustParsePrefix("203.0.113.100/32"), Server: 321}),
		"active 203.0.113.9: is": sim.CreateFailover(robotsim.FailoverSeed{Net: netip.MustParsePrefix("203.0.113.5/32"), Server: 321, Active: netip.MustParseAddr("203.0.113.9")}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
}

func TestAdmin(t *testing.T) {
	sim := seeded(t, robotsim.Options{})
	admin := func(method, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		sim.Admin().ServeHTTP(w, httptest.NewRequest(method, "/_sim/robot/"+path, strings.NewReader(body)))
		return w
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", "maintenance", `{"maintenance": true}`, 204},
		{"PUT", "maintenance", `{"maintenance": false}`, 204},
		{"POST", "faults", `{"match": "GET /server", "code": "INTERNAL_ERROR", "delay": "0s"}`, 204},
		{"POST", "faults", `{"mach": "GET /server"}`, 400},
		{"POST", "faults", `{"delay": "soon"}`, 400},
		{"POST", "faults", `{"match": "server"}`, 400},
		{"PUT", "vswitches/4321/servers/321", `{"status": "failed"}`, 204},
		{"PUT", "vswitches/4321/servers/321", `{"status": "lost"}`, 400},
		{"PUT", "vswitches/4321/servers/5", `{"status": "failed"}`, 400},
		{"PUT", "vswitches/5/servers/321", `{"status": "failed"}`, 400},
		{"PUT", "vswitches/x/servers/321", `{"status": "failed"}`, 400},
		{"DELETE", "servers/421", "", 204},
		{"DELETE", "servers/421", "", 404},
		{"DELETE", "servers/x", "", 404},
	} {
		if got := admin(c.method, c.path, c.body); got.Code != c.status {
			t.Errorf("%s %s %s: %d %s, want %d", c.method, c.path, c.body, got.Code, got.Body, c.status)
		}
	}
	send(t, sim, "GET", "/server", "").want(t, http.StatusInternalServerError, "INTERNAL_ERROR")
	if got := admin("GET", "requests", "").Body.String(); !strings.Contains(got, `"code":"INTERNAL_ERROR"`) || strings.Contains(got, password) {
		t.Errorf("log is %s", got)
	}
	admin("DELETE", "requests", "")
	admin("POST", "faults", `{}`)
	admin("DELETE", "faults", "")
	send(t, sim, "GET", "/server/321", "").want(t, 200, "")
}

// ServeHTTP works over a socket.
func TestServeHTTP(t *testing.T) {
	sim := seeded(t, robotsim.Options{})
	server := httptest.NewServer(sim)
	defer server.Close()
	c := hrobot.NewBasicAuthClient(user, password)
	c.SetBaseURL(server.URL)
	if _, err := c.FailoverGet("2001:db8:f::"); err != nil {
		t.Error(err)
	}
	noError(t, sim.Inject(robotsim.Fault{DropBeforeApply: true, Times: 2})) // Go repeats a GET once
	if _, err := c.ServerGetList(); err == nil {
		t.Error("an answer came over a dropped connection")
	}
	if got := sim.Requests(); got[0].From != "127.0.0.1" {
		t.Errorf("logged %+v", got[0])
	}
}
