package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

// What Robot says, or that it says nothing, keeps nobody waiting at the start.
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
				if n := len(robot.Requests()); n != 0 {
					t.Errorf("a replica that doesn't lead asked Robot %d times", n)
				}
				begin := time.Now()
				if err := m.lookAgain(t.Context()); err != nil || time.Since(begin) != 0 {
					t.Errorf("%v after %s", err, time.Since(begin))
				}
				time.Sleep(2 * time.Hour)
				if n := len(robot.Requests()); n != 1 {
					t.Errorf("%d requests at the start, want 1", n)
				}
			})
		})
	}
}

// Without either, dedicated servers are another provider's, as ever.
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
		if m.dedicated != nil && m.dedicated.Account == nil && len(m.dedicated.Inventory) == 1 {
			got = "inventory"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
