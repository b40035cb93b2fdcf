package robot_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/robot"
	"github.com/underlay-ccm/underlay/internal/vswitch"
)

const user, password = "robot", "s3cr3t-s3cr3t"

// account is a simulated account, with a client and its log.
type account struct {
	sim      *robotsim.Simulator
	client   *robot.Client
	registry metrics.KubeRegistry
	// given are the credentials that the client reads, as user:password, and reads is how often it
	// did.
	given atomic.Value
	reads atomic.Int32
	// way is the transport of the requests to the service.
	way way
}

// newAccount has the servers 321 and 421, a vSwitch 4321 with the first as its member, and a
// failover address of each family that belongs to the first.
func newAccount(t *testing.T, o robotsim.Options) *account {
	t.Helper()
	o.User, o.Password = user, password
	a := &account{sim: robotsim.New(o), registry: metrics.NewKubeRegistry()}
	a.way.next = a.sim.Transport()
	a.given.Store(user + ":" + password)
	for i, number := range []int64{321, 421} {
		_, err := a.sim.CreateServer(robotsim.ServerSeed{
			Number: number, Name: fmt.Sprintf("node-%d", i+1), DC: "FSN1-DC14",
			IPv4: netip.AddrFrom4([4]byte{203, 0, 113, byte(i + 1)}), IPv6: netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::/64", i+1)),
		})
		noError(t, err)
	}
	_, err := a.sim.CreateVSwitch(robotsim.VSwitchSeed{ID: 4321, Name: "cluster", VLAN: 4001, Servers: []robotsim.MemberSeed{{Number: 321}, {Number: 421, Status: "failed"}}})
	noError(t, err)
	for _, net := range []string{"203.0.113.100/32", "203.0.113.101/32", "203.0.113.102/32", "2001:db8:f::/64"} {
		noError(t, a.sim.CreateFailover(robotsim.FailoverSeed{
			Net: netip.MustParsePrefix(net), Server: 321,
		}))
	}
	a.client, err = robot.New(robot.Options{
		Endpoint: "http://robot.test", Version: "test", Registry: a.registry, Transport: &a.way,
		Credentials: func() (robot.Credentials, error) {
			a.reads.Add(1)
			user, password, _ := strings.Cut(a.given.Load().(string), ":")
			return robot.NewCredentials(user, password)
		},
	})
	noError(t, err)
	return a
}

// outage expects the metric of an outage.
func (a *account) outage(t *testing.T, want bool) {
	t.Helper()
	families, err := a.registry.Gather()
	noError(t, err)
	for _, f := range families {
		if f.GetName() == "underlay_robot_requests_unavailable" && (f.GetMetric()[0].GetGauge().GetValue() == 1) != want {
			t.Errorf("an outage: %t, want %t", !want, want)
		}
	}
}

// countRequests counts requests by their status.
func (a *account) countRequests(status int) (count int) {
	for _, r := range a.sim.Requests() {
		if r.Status == status {
			count++
		}
	}
	return count
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{})
		servers, err := a.client.Servers(t.Context())
		noError(t, err)
		want := cloud.Machine{
			Dedicated: true, ID: 321, Name: "node-1", PublicIPv4: netip.MustParseAddr("203.0.113.1"), PublicIPv6: netip.MustParsePrefix("2001:db8:1::/64"),
			Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.1")}, Type: "AX41-NVMe", Zone: "fsn1-dc14", Region: "fsn1",
		}
		if len(servers) != 2 || fmt.Sprint(servers[0]) != fmt.Sprint(want) {
			t.Errorf("servers are %+v, want %+v first", servers, want)
		}
		one, err := a.client.Server(t.Context(), 321)
		noError(t, err)
		if fmt.Sprint(one) != fmt.Sprint(want) {
			t.Errorf("server is %+v", one)
		}
		if _, err := a.client.Server(t.Context(), 5); !robot.IsCode(err, robot.CodeServerNotFound) ||
			!strings.Contains(err.Error(), "server 5") {
			t.Errorf("got %v, want that there is none", err)
		}
		members, err := a.client.Members(t.Context(), 4321)
		noError(t, err)
		if got := fmt.Sprint(members); got != "map[321:2 421:3]" {
			t.Errorf("vSwitch has %s", got)
		}
		if _, err := a.client.Members(t.Context(), 5); !robot.IsCode(err, robot.CodeNotFound) {
			t.Errorf("got %v, want that there is none", err)
		}
		failovers, err := a.client.Failovers(t.Context())
		noError(t, err)
		if len(failovers) != 4 || fmt.Sprint(failovers[3]) != "{2001:db8:f:: 321 2001:db8:1::}" {
			t.Errorf("failover addresses are %+v", failovers)
		}
		a.outage(t, false)
	})
}

// notFound reports whether the web service replied that the object doesn't exist.
func notFound(err error) bool {
	return robot.IsCode(err, robot.CodeNotFound, robot.CodeServerNotFound)
}

// Over HTTP, with the service's words: members in process, in either word, and members in an
// unknown state, have not failed.
func TestMembers(t *testing.T) {
	for name, o := range map[string]robotsim.Options{"documented": {}, "as clients saw it": {Processing: true}} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t, o)
			server := httptest.NewServer(a.sim)
			defer server.Close()
			c, err := robot.New(robot.Options{
				Endpoint: server.URL, Registry: metrics.NewKubeRegistry(),
				Credentials: func() (robot.Credentials, error) { return robot.NewCredentials(user, password) },
			})
			noError(t, err)
			for status, want := range map[string]string{
				"in process": fmt.Sprint(map[int64]vswitch.Status{321: vswitch.InProcess}),
				"ready":      fmt.Sprint(map[int64]vswitch.Status{321: vswitch.Ready}),
				"failed":     fmt.Sprint(map[int64]vswitch.Status{321: vswitch.Failed}),
				"":           fmt.Sprint(map[int64]vswitch.Status{}),
			} {
				noError(t, a.sim.SetMember(4321, 321, status))
				noError(t, a.sim.SetMember(4321, 421, ""))
				members, err := c.Members(t.Context(), 4321)
				if err != nil || fmt.Sprint(members) != want {
					t.Errorf("%q: %v, %v, want %s", status, members, err, want)
				}
			}
		})
	}
	for body, whole := range map[string]bool{
		`{"id": 4321, "server": []}`:   true,
		`{"id": 4321, "server": null}`: false,
		`{"id": 4321}`:                 false,
		`{"id": 4322, "server": []}`:   false,
	} {
		if _, err := answering(t, http.StatusOK, "application/json", body).Members(t.Context(), 4321); (err == nil) != whole {
			t.Errorf("%s: %v", body, err)
		}
	}
	const moving = `{"id": 1, "server": [{"server_number": 7, "status": "moving"}]}`
	members, err := answering(t, http.StatusOK, "application/json", moving).Members(t.Context(), 1)
	if err != nil || len(members) != 1 || members[7] != vswitch.InProcess {
		t.Errorf("a status that isn't known is %v, %v", members, err)
	}
}

// An empty account is a complete response, and half of a list is an error.
func TestListsAreWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{})
		for _, number := range []int64{321, 421} { // with the failover addresses
			noError(t, a.sim.RemoveServer(number))
		}
		if got, err := a.client.Servers(t.Context()); len(got) > 0 || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
		if got, err := a.client.Failovers(t.Context()); len(got) > 0 || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
	for _, body := range []string{
		`[{"server": {"server_number": 1}}, {"server": {"server_number": "x"}}]`,
		`[{"server": {"server_number": 1}}, {}]`,
		`[{"server": {"server_number": 1, "server_ip": "somewhere"}}]`,
		`[{"server": {"server_number": 1, "server_ipv6_net": "203.0.113.1"}}]`,
		`[{"server": {"server_number": 1, "ip": [""]}}]`,
		`[{"server": {"server_number": 1}}`,
		``,
		`<html></html>`,
		`null`,
		"\r\n null\n",
		`[null]`,
		`{}`,
	} {
		c := answering(t, http.StatusOK, "application/json", body)
		if got, err := c.Servers(t.Context()); err == nil || len(got) > 0 {
			t.Errorf("%s: got %v, %v", body, got, err)
		}
	}
	for _, body := range []string{`{"server": {"server_number": 2}}`, `{"server": null}`, `null`} {
		if _, err := answering(t, http.StatusOK, "", body).Server(t.Context(), 1); err == nil || notFound(err) {
			t.Errorf("%s as server 1: %v", body, err)
		}
	}
	null := answering(t, http.StatusOK, "application/json", "null")
	_, failovers := null.Failovers(t.Context())
	_, vSwitch := null.Members(t.Context(), 4321)
	_, failover := null.RouteFailover(t.Context(), netip.MustParseAddr("203.0.113.100"), netip.Addr{})
	for what, err := range map[string]error{
		"failover addresses": failovers, "a vSwitch": vSwitch, "a failover address": failover,
	} {
		if err == nil || notFound(err) || !strings.Contains(err.Error(), "it is null") {
			t.Errorf("null as %s: %v", what, err)
		}
	}
}

// answering is a client whose requests all get the same response.
func answering(t *testing.T, status int, kind, body string) *robot.Client {
	t.Helper()
	c, err := robot.New(robot.Options{
		Registry:    metrics.NewKubeRegistry(),
		Credentials: func() (robot.Credentials, error) { return robot.NewCredentials(user, password) },
		Transport: transport(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Request: r, Header: http.Header{"Content-Type": {kind}}, Body: content(body)}, nil
		}),
	})
	noError(t, err)
	return c
}

// Responses of another server don't show that something is deleted.
func TestOthersAnswers(t *testing.T) {
	for _, status := range []int{301, 404, 502} {
		c := answering(t, status, "text/html", "<html></html>")
		if _, err := c.Server(t.Context(), 321); err == nil || notFound(err) ||
			!strings.Contains(err.Error(), fmt.Sprint(status)) {
			t.Errorf("%d: got %v", status, err)
		}
	}
	if _, err := robot.New(robot.Options{Endpoint: "robot-ws", Registry: metrics.NewKubeRegistry()}); err == nil || !strings.Contains(err.Error(), `"robot-ws"`) {
		t.Errorf("got %v, want that the endpoint is no URL", err)
	}
}

// Routing takes a minute, and several addresses move concurrently.
func TestFailoverAddressesMoveTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{FailoverTime: 50 * time.Second})
		_, err := a.client.Servers(t.Context())
		noError(t, err)
		began := time.Now()
		results := make(chan error)
		for _, ip := range []string{"203.0.113.100", "203.0.113.101", "203.0.113.102"} {
			go func() {
				_, err := a.client.RouteFailover(t.Context(), netip.MustParseAddr(ip), netip.MustParseAddr("203.0.113.2"))
				results <- err
			}()
		}
		time.Sleep(25 * time.Second) // and other requests are served at the same time
		if _, err := a.client.Servers(t.Context()); err != nil {
			t.Error(err)
		}
		for range 3 {
			noError(t, <-results)
		}
		if took := time.Since(began); took > 61*time.Second {
			t.Errorf("three took %s, want little more than one", took)
		}
		if n := a.way.most("POST"); n != 3 {
			t.Errorf("%d were on their way together", n)
		}
		if moves := a.way.sent("POST"); moves[1].began.Sub(began) > 0 {
			t.Errorf("the second began %s after the first", moves[1].began.Sub(began))
		}
		_, err = a.client.RouteFailover(t.Context(), netip.MustParseAddr("203.0.113.100"), netip.MustParseAddr("203.0.113.2"))
		if !robot.IsCode(err, robot.CodeAlreadyRouted) {
			t.Errorf("got %v, want that it is there", err)
		}
		f, err := a.client.RouteFailover(t.Context(), netip.MustParseAddr("2001:db8:f::"), netip.MustParseAddr("2001:db8:2::"))
		if err != nil || f.Active != netip.MustParseAddr("2001:db8:2::") {
			t.Errorf("got %+v, %v", f, err)
		}
		if f, err = a.client.RouteFailover(t.Context(), f.IP, netip.Addr{}); err != nil ||
			f.Active.IsValid() {
			t.Errorf("got %+v, %v", f, err)
		}
		all, err := a.client.Failovers(t.Context())
		if err != nil || !slices.Contains(all, f) {
			t.Errorf("got %+v, %v; want %+v among them", all, err, f)
		}
		noError(t, a.sim.Inject(robotsim.Fault{Match: "POST /failover/{ip}", FailAction: "failed"}))
		if _, err := a.client.RouteFailover(t.Context(), f.IP, netip.MustParseAddr("2001:db8:2::")); !robot.IsCode(err, "FAILOVER_FAILED") {
			t.Errorf("got %v", err)
		}
		a.outage(t, false)
	})
}
