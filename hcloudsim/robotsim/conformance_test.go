package robotsim_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syself/hrobot-go/models"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

// step is a request with its expected response.
type step struct {
	operation string // as in robotsim.Operations
	path      string // the operation's path with values; empty: unchanged
	form      string
	status    int
	code      string // of the error
	// body is compared with the whole response, if it is set.
	body string
	// before prepares the account.
	before func(t *testing.T, sim *robotsim.Simulator)
}

func fail(code string) func(*testing.T, *robotsim.Simulator) {
	return func(t *testing.T, sim *robotsim.Simulator) {
		t.Helper()
		noError(t, sim.Inject(robotsim.Fault{Code: code}))
	}
}

func seedServer(seed robotsim.ServerSeed) func(*testing.T, *robotsim.Simulator) {
	return func(t *testing.T, sim *robotsim.Simulator) {
		t.Helper()
		_, err := sim.CreateServer(seed)
		noError(t, err)
	}
}

func seedVSwitch(seed robotsim.VSwitchSeed) func(*testing.T, *robotsim.Simulator) {
	return func(t *testing.T, sim *robotsim.Simulator) {
		t.Helper()
		_, err := sim.CreateVSwitch(seed)
		noError(t, err)
	}
}

// do sends requests that must succeed.
func do(lines ...string) func(*testing.T, *robotsim.Simulator) {
	return func(t *testing.T, sim *robotsim.Simulator) {
		t.Helper()
		for _, line := range lines {
			fields := strings.Fields(line)
			method, path, form := fields[0], fields[1], strings.Join(fields[2:], " ")
			if got := send(t, sim, method, path, form); got.status >= 300 {
				t.Fatalf("%s: %d %s", line, got.status, got.body)
			}
		}
	}
}

// members98 adds the server 7, and 98 members to the vSwitch.
func members98(t *testing.T, sim *robotsim.Simulator) {
	t.Helper()
	seedServer(robotsim.ServerSeed{Number: 7})(t, sim)
	for number := range int64(98) {
		seedServer(robotsim.ServerSeed{Number: 1000 + number})(t, sim)
		noError(t, sim.SetMember(4321, 1000+number, "ready"))
	}
}

func empty(t *testing.T, sim *robotsim.Simulator) {
	t.Helper()
	for _, number := range []int64{321, 421} {
		noError(t, sim.RemoveServer(number))
	}
	do("DELETE /vswitch/4321 cancellation_date=now")(t, sim)
}

const server321 = `"server_ip":"203.0.113.1","server_ipv6_net":"2001:db8:1::","server_number":321`

// Every documented operation has its documented response, and every documented error. Each step has
// an account of its own, see seeded.
var steps = slices.Concat(serverSteps, resetSteps, failoverSteps, vSwitchSteps)

var serverSteps = []step{
	{operation: "GET /server", status: 200},
	{operation: "GET /server", status: 404, code: "SERVER_NOT_FOUND", before: empty},
	{operation: "GET /server/{server}", path: "/server/321", status: 200, body: `{"server":{` + server321 + `,"server_name":"node-1","product":"AX41-NVMe",` +
		`"dc":"FSN1-DC14","traffic":"unlimited","status":"ready","cancelled":false,"paid_until":"2000-02-01","ip":["203.0.113.1"],` +
		`"subnet":[{"ip":"2001:db8:1::","mask":"64"}],"reset":true,"rescue":true,"vnc":false,"windows":false,"plesk":false,"cpanel":false,"wol":false,` +
		`"hot_swap":false,"linked_storagebox":null}}`},
	{operation: "GET /server/{server}", path: "/server/203.0.113.2", status: 200},
	{operation: "GET /server/{server}", path: "/server/5", status: 404, code: "SERVER_NOT_FOUND"},
	{operation: "POST /server/{server}", path: "/server/321", form: "server_name=other", status: 200},
	{
		operation: "POST /server/{server}", path: "/server/321", status: 400, code: "INVALID_INPUT",
		body: `{"error":{"code":"INVALID_INPUT","invalid":null,"message":"invalid input","missing":["server_name"],"status":400}}`,
	},
	{operation: "POST /server/{server}", path: "/server/5", form: "server_name=other", status: 404, code: "SERVER_NOT_FOUND"},
}

var resetSteps = []step{
	{operation: "GET /reset", status: 200},
	{operation: "GET /reset", status: 404, code: "NOT_FOUND", before: empty},
	{
		operation: "GET /reset/{server}", path: "/reset/321", status: 200,
		body: `{"reset":{` + server321 + `,"type":["power","power_long","hw","man"],"operating_status":"running"}}`,
	},
	{operation: "GET /reset/{server}", path: "/reset/5", status: 404, code: "SERVER_NOT_FOUND"},
	{operation: "GET /reset/{server}", path: "/reset/7", status: 404, code: "RESET_NOT_AVAILABLE", before: seedServer(robotsim.ServerSeed{Number: 7, NoReset: true})},
	{operation: "POST /reset/{server}", path: "/reset/321", form: "type=hw", status: 200, body: `{"reset":{` + server321 + `,"type":"hw"}}`},
	{operation: "POST /reset/{server}", path: "/reset/321", form: "type=sw", status: 400, code: "INVALID_INPUT"},
	{operation: "POST /reset/{server}", path: "/reset/5", form: "type=hw", status: 404, code: "SERVER_NOT_FOUND"},
	{operation: "POST /reset/{server}", path: "/reset/7", form: "type=hw", status: 404, code: "RESET_NOT_AVAILABLE", before: seedServer(robotsim.ServerSeed{Number: 7, NoReset: true})},
	{operation: "POST /reset/{server}", path: "/reset/321", form: "type=man", status: 409, code: "RESET_MANUAL_ACTIVE", before: do("POST /reset/321 type=man")},
	{operation: "POST /reset/{server}", path: "/reset/321", form: "type=hw", status: 500, code: "RESET_FAILED", before: fail("RESET_FAILED")},
}

var failoverSteps = []step{
	{operation: "GET /failover", status: 200, body: `[{"failover":{"ip":"203.0.113.100","netmask":"255.255.255.255",` + server321 + `,"active_server_ip":"203.0.113.1"}},` +
		`{"failover":{"ip":"2001:db8:f::","netmask":"ffff:ffff:ffff:ffff::",` + server321 + `,"active_server_ip":"2001:db8:1::"}}]`},
	{operation: "GET /failover", status: 404, code: "NOT_FOUND", before: empty},
	{operation: "GET /failover/{ip}", path: "/failover/203.0.113.100", status: 200},
	{operation: "GET /failover/{ip}", path: "/failover/203.0.113.101", status: 404, code: "NOT_FOUND"},
	{
		operation: "POST /failover/{ip}", path: "/failover/203.0.113.100", form: "active_server_ip=203.0.113.2", status: 200,
		body: `{"failover":{"ip":"203.0.113.100","netmask":"255.255.255.255",` + server321 + `,"active_server_ip":"203.0.113.2"}}`,
	},
	{operation: "POST /failover/{ip}", path: "/failover/2001:db8:f::", form: "active_server_ip=2001:db8:2::", status: 200},
	{operation: "POST /failover/{ip}", path: "/failover/203.0.113.100", status: 400, code: "INVALID_INPUT"},
	{operation: "POST /failover/{ip}", path: "/failover/203.0.113.100", form: "active_server_ip=2001:db8:2::", status: 400, code: "INVALID_INPUT"},
	{operation: "POST /failover/{ip}", path: "/failover/203.0.113.101", form: "active_server_ip=203.0.113.2", status: 404, code: "NOT_FOUND"},
	{operation: "POST /failover/{ip}", path: "/failover/203.0.113.100", form: "active_server_ip=203.0.113.9", status: 404, code: "FAILOVER_NEW_SERVER_NOT_FOUND"},
	{operation: "POST /failover/{ip}", path: "/failover/203.0.113.100", form: "active_server_ip=203.0.113.1", status: 409, code: "FAILOVER_ALREADY_ROUTED"},
	{
		operation: "POST /failover/{ip}", path: "/failover/203.0.113.100", form: "active_server_ip=203.0.113.2", status: 500, code: "FAILOVER_FAILED",
		before: func(t *testing.T, sim *robotsim.Simulator) {
			noError(t, sim.Inject(robotsim.Fault{FailAction: "failed"}))
		},
	},
	{operation: "POST /failover/{ip}", path: "/failover/203.0.113.100", form: "active_server_ip=203.0.113.2", status: 500, code: "FAILOVER_NOT_COMPLETE", before: fail("FAILOVER_NOT_COMPLETE")},
	{
		operation: "DELETE /failover/{ip}", path: "/failover/203.0.113.100", status: 200,
		body: `{"failover":{"ip":"203.0.113.100","netmask":"255.255.255.255",` + server321 + `,"active_server_ip":null}}`,
	},
	{operation: "DELETE /failover/{ip}", path: "/failover/203.0.113.101", status: 404, code: "NOT_FOUND"},
	{operation: "DELETE /failover/{ip}", path: "/failover/203.0.113.100", status: 500, code: "FAILOVER_FAILED", before: fail("FAILOVER_FAILED")},
	{operation: "DELETE /failover/{ip}", path: "/failover/203.0.113.100", status: 500, code: "FAILOVER_NOT_COMPLETE", before: fail("FAILOVER_NOT_COMPLETE")},
}

var vSwitchSteps = []step{
	{operation: "GET /vswitch", status: 200, body: `[{"id":4321,"name":"cluster","vlan":4001,"cancelled":false}]`},
	{operation: "GET /vswitch", status: 200, body: `[]`, before: empty},
	{
		operation: "POST /vswitch", form: "name=new&vlan=4002", status: 201,
		body: `{"id":4322,"name":"new","vlan":4002,"cancelled":false,"server":[],"subnet":[],"cloud_network":[]}`,
	},
	{
		operation: "POST /vswitch", form: "vlan=3999", status: 400, code: "INVALID_INPUT",
		body: `{"error":{"code":"INVALID_INPUT","invalid":["vlan"],"message":"invalid input","missing":["name"],"status":400}}`,
	},
	{operation: "POST /vswitch", form: "name=new&vlan=4002", status: 409, code: "VSWITCH_LIMIT_REACHED", before: fail("VSWITCH_LIMIT_REACHED")},
	{
		operation: "GET /vswitch/{id}", path: "/vswitch/4321", status: 200,
		body: `{"id":4321,"name":"cluster","vlan":4001,"cancelled":false,"server":[{` + server321 + `,"status":"ready"}],"subnet":[],"cloud_network":[]}`,
	},
	{operation: "GET /vswitch/{id}", path: "/vswitch/5", status: 404, code: "NOT_FOUND"},
	{operation: "POST /vswitch/{id}", path: "/vswitch/4321", form: "name=new&vlan=4003", status: 200, body: " "},
	{operation: "POST /vswitch/{id}", path: "/vswitch/4321", form: "name=new&vlan=x", status: 400, code: "INVALID_INPUT"},
	{operation: "POST /vswitch/{id}", path: "/vswitch/5", form: "name=new&vlan=4003", status: 404, code: "NOT_FOUND"},
	{operation: "POST /vswitch/{id}", path: "/vswitch/4321", form: "name=new&vlan=4003", status: 409, code: "VSWITCH_IN_PROCESS", before: do("POST /vswitch/4321/server server=421")},
	{
		operation: "POST /vswitch/{id}", path: "/vswitch/4321", form: "name=new&vlan=4003", status: 409, code: "VSWITCH_VLAN_NOT_UNIQUE",
		before: seedVSwitch(robotsim.VSwitchSeed{
			VLAN: 4003, Servers: []robotsim.MemberSeed{{Number: 321}},
		}),
	},
	{operation: "DELETE /vswitch/{id}", path: "/vswitch/4321", form: "cancellation_date=now", status: 200, body: " "},
	{operation: "DELETE /vswitch/{id}", path: "/vswitch/4321", form: "cancellation_date=yesterday", status: 400, code: "INVALID_INPUT"},
	{operation: "DELETE /vswitch/{id}", path: "/vswitch/5", form: "cancellation_date=now", status: 404, code: "NOT_FOUND"},
	{operation: "DELETE /vswitch/{id}", path: "/vswitch/4321", form: "cancellation_date=now", status: 409, code: "CONFLICT", before: do("DELETE /vswitch/4321 cancellation_date=2000-03-01")},

	{operation: "POST /vswitch/{id}/server", path: "/vswitch/4321/server", form: "server[]=421", status: 201, body: " "},
	{operation: "POST /vswitch/{id}/server", path: "/vswitch/4321/server", form: "server[]=203.0.113.2", status: 201},
	{operation: "POST /vswitch/{id}/server", path: "/vswitch/4321/server", status: 400, code: "INVALID_INPUT"},
	{operation: "POST /vswitch/{id}/server", path: "/vswitch/5/server", form: "server=421", status: 404, code: "NOT_FOUND"},
	{operation: "POST /vswitch/{id}/server", path: "/vswitch/4321/server", form: "server[]=421&server[]=5", status: 404, code: "SERVER_NOT_FOUND"},
	{operation: "POST /vswitch/{id}/server", path: "/vswitch/4321/server", form: "server=7", status: 404, code: "VSWITCH_NOT_AVAILABLE", before: seedServer(robotsim.ServerSeed{Number: 7, NoVSwitch: true})},
	{
		operation: "POST /vswitch/{id}/server", path: "/vswitch/4321/server", form: "server=7", status: 409, code: "VSWITCH_IN_PROCESS",
		before: func(t *testing.T, sim *robotsim.Simulator) {
			seedServer(robotsim.ServerSeed{Number: 7})(t, sim)
			do("POST /vswitch/4321/server server=421")(t, sim)
		},
	},
	{
		operation: "POST /vswitch/{id}/server", path: "/vswitch/4321/server", form: "server=421", status: 409, code: "VSWITCH_VLAN_NOT_UNIQUE",
		before: seedVSwitch(robotsim.VSwitchSeed{
			VLAN: 4001, Servers: []robotsim.MemberSeed{{Number: 421}},
		}),
	},
	{operation: "POST /vswitch/{id}/server", path: "/vswitch/4321/server", form: "server[0]=421&server[1]=7", status: 409, code: "VSWITCH_SERVER_LIMIT_REACHED", before: members98},
	{
		operation: "POST /vswitch/{id}/server", path: "/vswitch/4321/server", form: "server=421", status: 409, code: "VSWITCH_PER_SERVER_LIMIT_REACHED",
		before: func(t *testing.T, sim *robotsim.Simulator) {
			for vlan := range 5 {
				seedVSwitch(robotsim.VSwitchSeed{
					VLAN: 4002 + vlan, Servers: []robotsim.MemberSeed{{Number: 421}},
				})(t, sim)
			}
		},
	},
	{operation: "DELETE /vswitch/{id}/server", path: "/vswitch/4321/server", form: "server=321", status: 200, body: " "},
	{operation: "DELETE /vswitch/{id}/server", path: "/vswitch/4321/server", status: 400, code: "INVALID_INPUT"},
	{operation: "DELETE /vswitch/{id}/server", path: "/vswitch/5/server", form: "server=321", status: 404, code: "NOT_FOUND"},
	{operation: "DELETE /vswitch/{id}/server", path: "/vswitch/4321/server", form: "server=421", status: 404, code: "SERVER_NOT_FOUND"},
	{operation: "DELETE /vswitch/{id}/server", path: "/vswitch/4321/server", form: "server=321", status: 409, code: "VSWITCH_IN_PROCESS", before: do("POST /vswitch/4321/server server=421")},
}

func TestEveryOperationAndError(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range steps {
		method, path, _ := strings.Cut(s.operation, " ")
		if s.path != "" {
			path = s.path
		}
		seen[s.operation+" "+s.code] = true
		t.Run(strings.TrimSpace(s.operation+" "+s.code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := seeded(t, robotsim.Options{VSwitchTime: time.Minute})
				if s.before != nil {
					s.before(t, sim)
				}
				got := send(t, sim, method, path, s.form)
				got.want(t, s.status, s.code)
				if s.body != "" && got.body != strings.TrimSpace(s.body) {
					t.Errorf("answer is\n%s, want\n%s", got.body, s.body)
				}
				if s.code != "" && (got.at("error.status") != float64(s.status) || got.at("error.message") == "") {
					t.Errorf("error is %s: wants its status and a message", got.body)
				}
			})
		})
	}
	// FAILOVER_LOCKED needs a second request, see TestFailoverTakesItsTime.
	for _, op := range robotsim.Operations() {
		for _, code := range append([]string{""}, op.Errors...) {
			if !seen[op.Name()+" "+code] && code != "FAILOVER_LOCKED" {
				t.Errorf("%s: no step answers with %q", op.Name(), code)
			}
		}
	}
}

// hrobot-go, as other programs use it, reads every response.
func TestHRobotGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := seeded(t, robotsim.Options{})
		c := client(sim)
		noError(t, c.ValidateCredentials())
		servers, err := c.ServerGetList()
		noError(t, err)
		if len(servers) != 2 || servers[0].ServerNumber != 321 || servers[0].Name != "node-1" || servers[0].ServerIPv6Net != "2001:db8:1::" ||
			servers[0].Dc != "FSN1-DC14" || servers[0].Status != "ready" || len(servers[0].Subnet) != 1 || servers[0].Subnet[0].Mask != "64" {
			t.Errorf("servers are %+v", servers)
		}
		renamed, err := c.ServerSetName(421, &models.ServerSetNameInput{Name: "renamed"})
		noError(t, err)
		one, err := c.ServerGet(421)
		noError(t, err)
		if renamed.Name != "renamed" || one.Name != "renamed" || !one.Reset {
			t.Errorf("server is %+v", one)
		}
		reset, err := c.ResetGet(421)
		noError(t, err)
		if reset.OperatingStatus != "running" || len(reset.Type) != 4 {
			t.Errorf("reset is %+v", reset)
		}
		done, err := c.ResetSet(421, &models.ResetSetInput{Type: models.ResetTypePowerLong})
		noError(t, err)
		if done.Type != "power_long" {
			t.Errorf("reset is %+v", done)
		}
		if reset, err = c.ResetGet(421); err != nil || reset.OperatingStatus != "shut off" {
			t.Errorf("reset is %+v, %v", reset, err)
		}
		failovers, err := c.FailoverGetList()
		noError(t, err)
		if len(failovers) != 2 || failovers[1].ActiveServerIP != "2001:db8:1::" {
			t.Errorf("failover addresses are %+v", failovers)
		}
		if _, err := c.FailoverGet("203.0.113.100"); err != nil {
			t.Error(err)
		}

		wantCode(t, func() error { _, err := c.ServerGet(5); return err }, models.ErrorCodeServerNotFound)
		wantCode(t, func() error { _, err := c.FailoverGet("203.0.113.9"); return err }, models.ErrorCodeNotFound)
		wantCode(t, func() error {
			for range 200 {
				if _, err := c.ServerGet(321); err != nil {
					return err
				}
			}
			return nil
		}, models.ErrorCodeRateLimitExceeded)
		noError(t, c.SetCredentials(user, "wrong"))
		wantCode(t, c.ValidateCredentials, models.ErrorCodeUnauthorized)
	})
}

func wantCode(t *testing.T, do func() error, code models.ErrorCode) {
	t.Helper()
	if err := do(); !models.IsError(err, code) {
		t.Errorf("error is %v, want code %s", err, code)
	}
}

// Paths that the service doesn't have, or that aren't simulated, are not found.
func TestUnknownPaths(t *testing.T) {
	sim := seeded(t, robotsim.Options{})
	for _, line := range []string{"GET /servers", "PUT /server/321", "GET /server/", "GET //server", "GET /boot/321", "DELETE /vswitch", "POST /"} {
		method, path, _ := strings.Cut(line, " ")
		t.Run(line, func(t *testing.T) { send(t, sim, method, path, "").want(t, http.StatusNotFound, "NOT_FOUND") })
	}
	for i := range sim.Requests() {
		if r := sim.Requests()[i]; r.Code != "NOT_FOUND" || r.User != user {
			t.Errorf("logged %+v", r)
		}
	}
}

// Parameters must be a form: the service accepts no other encoding.
func TestOnlyForms(t *testing.T) {
	sim := seeded(t, robotsim.Options{})
	r := request(t, "POST", "/server/321", `{"server_name": "other"}`)
	r.Header.Set("Content-Type", "application/json")
	exchange(t, sim, r).want(t, http.StatusBadRequest, "INVALID_INPUT")
	if got := send(t, sim, "GET", "/server/321", ""); got.at("server.server_name") != "node-1" {
		t.Errorf("server is %s", got.body)
	}
}
