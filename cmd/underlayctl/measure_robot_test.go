package main

import (
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

// What a killed run left at Robot is shown and removed, and nothing else; a wrong password is tried
// once.
func TestMeasureCleanAtRobot(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c := newMeasuredCloud(t, hcloudsim.Options{})
	account := robotsim.New(robotsim.Options{User: "robot", Password: "robots-password"})
	web := httptest.NewServer(account)
	t.Cleanup(web.Close)
	for _, seed := range []robotsim.VSwitchSeed{
		{Name: "underlay-measure-20261124-0930-aaaaaa", VLAN: 4091}, {Name: "underlay-measure-20261124-0930-bbbbbb", VLAN: 4090}, {Name: "theirs", VLAN: 4000},
	} {
		if _, err := account.CreateVSwitch(seed); err != nil {
			t.Fatal(err)
		}
	}
	clean := func(password string, args ...string) (said string, code int) {
		var out bytes.Buffer
		env := map[string]string{
			"HCLOUD_TOKEN": measureToken, "HCLOUD_ENDPOINT": c.endpoint, "ROBOT_USER": "robot", "ROBOT_PASSWORD": password,
		}
		code = run(context.WithoutCancel(t.Context()), process{
			name: "underlayctl", args: append([]string{"measure", "clean", "--yes", "--robot-endpoint", web.URL}, args...), stdout: &out, stderr: &out, stdin: strings.NewReader(""),
			readFile: os.ReadFile, getenv: func(name string) string { return env[name] },
		})
		if strings.Contains(out.String(), password) {
			t.Errorf("the password is shown:\n%s", out.String())
		}
		return out.String(), code
	}
	left := func() (names string) {
		for _, name := range []string{"-aaaaaa", "-bbbbbb", "theirs"} {
			if bytes.Contains(account.Snapshot(), []byte(name)) {
				names += name
			}
		}
		return names
	}
	const run = "20261124-0930-cccccc"
	_, err := c.sim.CreateServer(hcloudsim.ServerSeed{Name: "underlay-measure-" + run + "-server-0", Labels: map[string]string{project.Label: run}})
	if err != nil {
		t.Fatal(err)
	}
	said, code := clean("another-password", "--run", run)
	c.expectUntouched() // what costs is removed, whatever Robot says
	if code == 0 || !strings.Contains(said, "refuses the user and the password") || len(account.Requests()) != 1 {
		t.Errorf("exit code %d after %d requests: %s", code, len(account.Requests()), said)
	}
	if said, code := clean("robots-password", "--run", "20261124-0930-aaaaaa"); code != 0 || left() != "-bbbbbbtheirs" {
		t.Errorf("exit code %d, left is %s: %s", code, left(), said)
	}
	if said, code := clean("robots-password"); code != 0 || left() != "theirs" {
		t.Errorf("exit code %d, left is %s: %s", code, left(), said)
	}
	c.expectUntouched()
}
