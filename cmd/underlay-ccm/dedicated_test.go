package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/config"
)

// The start never waits for Robot, whatever its response, or without any.
func TestNothingWaitsForRobot(t *testing.T) {
	dir := t.TempDir()
	user, password := filepath.Join(dir, "user"), filepath.Join(dir, "password")
	if err := errors.Join(os.WriteFile(user, []byte("user"), 0o600), os.WriteFile(password, []byte("wrong"), 0o600)); err != nil {
		t.Fatal(err)
	}
	file := "network: cluster\nrobot: {userFile: " + user + ", passwordFile: " + password + "}\n"
	for name, prepare := range map[string]func(*robotsim.Simulator) error{
		"refused": func(*robotsim.Simulator) error { return nil },
		"away":    func(s *robotsim.Simulator) error { s.SetMaintenance(true); return nil },
		"slow":    func(s *robotsim.Simulator) error { return s.Inject(robotsim.Fault{Times: -1, Delay: 20 * time.Second}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				robot := robotsim.New(robotsim.Options{User: "user", Password: "right"})
				if err := prepare(robot); err != nil {
					t.Fatal(err)
				}
				_, m := starting(t, file)
				if err := m.configureDedicated(robot.Transport(), metrics.NewKubeRegistry()); err != nil {
					t.Fatal(err)
				}
				if err := m.reach(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := len(robot.Requests()); n != 0 {
					t.Errorf("a replica that doesn't lead asked Robot %d times", n)
				}
				begin := time.Now()
				m.lead(t.Context(), alone())
				if time.Since(begin) != 0 {
					t.Errorf("after %s", time.Since(begin))
				}
				time.Sleep(2 * time.Hour)
				if n := len(robot.Requests()); n != 1 {
					t.Errorf("%d requests at the start, want 1", n)
				}
			})
		})
	}
}

// A replica that has released its lease no longer reroutes failover addresses.
func TestRobotIsBehindTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := robotsim.New(robotsim.Options{User: "user", Password: "right"})
		dir := t.TempDir()
		user, password := filepath.Join(dir, "user"), filepath.Join(dir, "password")
		if err := errors.Join(os.WriteFile(user, []byte("user"), 0o600), os.WriteFile(password, []byte("right"), 0o600)); err != nil {
			t.Fatal(err)
		}
		_, m := starting(t, "network: cluster\nrobot: {userFile: "+user+", passwordFile: "+password+"}\n")
		if err := m.configureDedicated(service.Transport(), metrics.NewKubeRegistry()); err != nil {
			t.Fatal(err)
		}
		if err := m.gate.Close(t.Context(), lastWords); err != nil {
			t.Fatal(err)
		}
		_, err := m.robot.RouteFailover(t.Context(), netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8"))
		if err == nil || len(service.Requests()) > 0 {
			t.Errorf("%d requests, %v", len(service.Requests()), err)
		}
	})
}

// Without either, dedicated servers belong to another provider, as before.
func TestDedicatedServersAreWantedOrNot(t *testing.T) {
	for file, want := range map[string]string{
		"network: cluster\n": "nothing",
		"network: cluster\ninventory: [{name: bm, number: 7, addresses: [192.0.2.7]}]\n": "inventory",
	} {
		_, m := starting(t, file)
		if err := m.configureDedicated(nil, metrics.NewKubeRegistry()); err != nil {
			t.Fatal(err)
		}
		got := "nothing"
		if m.machines.Robot == nil && len(m.machines.Configured) == 1 {
			got = "inventory"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

// Members of the vSwitch are not checked if no pods are reached over it, or without Robot.
func TestMembersAreWantedOrNot(t *testing.T) {
	const robot = "robot: {userFile: %s, passwordFile: %s}\n"
	dir := t.TempDir()
	user, password := filepath.Join(dir, "user"), filepath.Join(dir, "password")
	if err := errors.Join(os.WriteFile(user, []byte("user"), 0o600), os.WriteFile(password, []byte("right"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"no Robot": "network: cluster\nvswitch: {subnet: 10.1.0.0/16}\n" + dedicatedPool,
		"no pool":  "network: cluster\nvswitch: {subnet: 10.1.0.0/16}\n" + fmt.Sprintf(robot, user, password),
	} {
		_, m := starting(t, file)
		if err := m.configureDedicated(nil, metrics.NewKubeRegistry()); err != nil {
			t.Fatal(err)
		}
		if r, err := m.vSwitchMembers(nil); r != nil || err != nil {
			t.Errorf("%s: %v, %v, want no controller", name, r, err)
		}
	}
}

// User and password each come from a file or from a variable, and files are read again.
func TestRobotCredentials(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fixed := func(text string) config.Secret {
		token, err := config.NewToken(text)
		if err != nil {
			t.Fatal(err)
		}
		return config.Secret{Fixed: token}
	}
	user, password, none := config.Secret{File: write("user", "u\n")}, config.Secret{File: write("password", "p")}, config.Secret{File: dir + "/none"}
	for name, c := range map[string]struct {
		robot config.Robot
		works bool
	}{
		"files":                {config.Robot{User: user, Password: password}, true},
		"variables":            {config.Robot{User: fixed("u"), Password: fixed("p")}, true},
		"a variable, a file":   {config.Robot{User: fixed("u"), Password: password}, true},
		"a file, a variable":   {config.Robot{User: user, Password: fixed("p")}, true},
		"no file":              {config.Robot{User: user, Password: none}, false},
		"a variable, no file":  {config.Robot{User: fixed("u"), Password: none}, false},
		"no file, a variable":  {config.Robot{User: none, Password: fixed("p")}, false},
		"a file that is empty": {config.Robot{User: fixed("u"), Password: config.Secret{File: write("empty", "")}}, false},
	} {
		if _, err := robotCredentials(c.robot)(); (err == nil) != c.works {
			t.Errorf("%s: %v", name, err)
		}
	}
}
