package robot_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	webservice "github.com/underlay-ccm/underlay/internal/robot"

	"github.com/underlay-ccm/underlay/internal/measure/robot"
)

const (
	user, password = "robot", "a-password-that-is-shown-nowhere"
	run            = "k3v9"
	ours           = 321 // the dedicated server
	theirs         = 4321
)

// account is one with a dedicated server that is in a vSwitch of the user's.
func account(t *testing.T, o robotsim.Options) *robotsim.Simulator {
	t.Helper()
	o.User, o.Password = user, password
	sim := robotsim.New(o)
	_, err := sim.CreateServer(robotsim.ServerSeed{
		Number: ours, IPv4: netip.MustParseAddr("192.0.2.7"), IPv6: netip.MustParsePrefix("2001:db8:d::/64"),
	})
	if err == nil {
		_, err = sim.CreateVSwitch(robotsim.VSwitchSeed{
			ID: theirs, Name: "theirs", VLAN: 4091, Servers: []robotsim.MemberSeed{{Number: ours}},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

func client(t *testing.T, sim *robotsim.Simulator, change func(*robot.Options)) *robot.Client {
	t.Helper()
	right, err := webservice.NewCredentials(user, password)
	if err != nil {
		t.Fatal(err)
	}
	o := robot.Options{Endpoint: "https://robot.test", Credentials: right, Run: run, Transport: sim.Transport()}
	if change != nil {
		change(&o)
	}
	c, err := robot.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wrongPassword(t *testing.T) func(*robot.Options) {
	t.Helper()
	wrong, err := webservice.NewCredentials(user, "another-"+password)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *robot.Options) { o.Credentials = wrong }
}

// The password goes to nobody who could read it on the way, and is in no error.
func TestEndpoint(t *testing.T) {
	right, err := webservice.NewCredentials(user, password)
	if err != nil {
		t.Fatal(err)
	}
	for endpoint, says := range map[string]string{
		"":                            "",
		"https://robot.example/":      "",
		"http://127.0.0.1:8080":       "",
		"http://[::1]:8080":           "",
		"http://localhost:8080":       "",
		"http://robot.example":        "https",
		"http://192.0.2.1:8080":       "https",
		"HTTP://robot.example":        "https",
		"http://localhost.example":    "https",
		"ftp://127.0.0.1":             "not a URL",
		"robot.example":               "not a URL",
		"https://:8080":               "not a URL",
		"https://me:hunter2@robot/":   "ROBOT_PASSWORD",
		"https://me:hunter2@robot:x/": "ROBOT_PASSWORD",
		"me:hunter2@robot.example":    "ROBOT_PASSWORD",
		"http://me@127.0.0.1:8080":    "ROBOT_PASSWORD",
	} {
		_, err := robot.New(robot.Options{Endpoint: endpoint, Credentials: right, Run: run})
		switch {
		case (err == nil) != (says == ""), err != nil && !strings.Contains(err.Error(), says):
			t.Errorf("%q: error is %v, want %q", endpoint, err, says)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%q: the password is shown: %v", endpoint, err)
		}
	}
}

func TestRefusedLoginEndsTheRun(t *testing.T) {
	for _, forbidden := range []bool{false, true} {
		sim := account(t, robotsim.Options{ForbiddenLogin: forbidden})
		c := client(t, sim, wrongPassword(t))
		for range 3 {
			_, err := c.Ping(t.Context())
			if !errors.As(err, new(*robot.LoginError)) {
				t.Errorf("error of a refused login: %v", err)
			}
			if strings.Contains(fmt.Sprintf("%v %+v", err, c), password) {
				t.Error("the password is shown")
			}
		}
		if _, err := c.WrongLogin(t.Context()); err == nil {
			t.Error("a login that must fail was tried after one that failed")
		}
		if n := len(sim.Requests()); n != 1 {
			t.Errorf("%d requests were sent with refused credentials, want 1", n)
		}
	}
}

func TestWrongLogin(t *testing.T) {
	for status, o := range map[int]robotsim.Options{401: {}, 403: {ForbiddenLogin: true}} {
		sim := account(t, o)
		c := client(t, sim, nil)
		if _, err := c.WrongLogin(t.Context()); err == nil {
			t.Error("it was tried before any login was accepted")
		}
		if _, err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := c.WrongLogin(t.Context()); err != nil || got != status {
			t.Errorf("status is %d, %v, want %d", got, err, status)
		}
		if _, err := c.Ping(t.Context()); err != nil || len(sim.Blocked()) > 0 {
			t.Errorf("afterwards: %v, blocked are %v", err, sim.Blocked())
		}
	}
}

func TestUsedUpQuotaIsNoRefusedLogin(t *testing.T) {
	sim := account(t, robotsim.Options{Quotas: map[string]int{"GET /vswitch": 1}})
	c := client(t, sim, nil)
	if _, err := c.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Ping(t.Context()); !webservice.IsCode(err, webservice.CodeRateLimit) {
		t.Errorf("error is %v", err)
	}
	if _, err := c.Servers(t.Context()); err != nil {
		t.Errorf("another operation: %v", err)
	}
}

func TestServers(t *testing.T) {
	c := client(t, account(t, robotsim.Options{}), nil)
	all, err := c.Servers(t.Context())
	if err != nil || len(all) != 1 || all[0].Number != ours {
		t.Fatalf("servers are %v, %v", all, err)
	}
	for text, has := range map[string]bool{
		"192.0.2.7": true, "192.0.2.8": false, "2001:db8:d::99": true, "2001:db8:e::1": false,
	} {
		if all[0].Has(netip.MustParseAddr(text)) != has {
			t.Errorf("has %s: %v", text, !has)
		}
	}
	empty := robotsim.New(robotsim.Options{})
	if all, err := client(t, empty, nil).Servers(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("an account without servers has %v, %v", all, err)
	}
}

func TestWhatWasNotMadeIsNotChanged(t *testing.T) {
	sim := account(t, robotsim.Options{})
	c := client(t, sim, nil)
	if _, err := c.VSwitches(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(sim.Requests())
	changes := map[string]func(context.Context, int64) error{
		"remove the vSwitch":  c.Cancel,
		"add a server to it":  func(ctx context.Context, id int64) error { return c.AddServer(ctx, id, ours) },
		"take one out of it":  func(ctx context.Context, id int64) error { return c.RemoveServer(ctx, id, ours) },
		"remove one unlisted": func(ctx context.Context, _ int64) error { return c.Cancel(ctx, 99) },
	}
	for what, change := range changes {
		if err := change(t.Context(), theirs); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if n := len(sim.Requests()) - before; n > 0 {
		t.Errorf("%d requests were sent", n)
	}
	if removed, err := c.Sweep(t.Context(), run, "", "theirs"); removed > 0 || err != nil {
		t.Errorf("a sweep removed %d, %v", removed, err)
	}
	v, err := c.VSwitch(t.Context(), theirs)
	if err != nil || v.Status(ours) != robot.Ready {
		t.Errorf("the vSwitch of the user's is %+v, %v", v, err)
	}
}
