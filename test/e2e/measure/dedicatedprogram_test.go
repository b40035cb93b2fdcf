//go:build linux

package measure

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// A person writes the program by the command line, starts it on a dedicated server, and measures
// with it: what is found is in the profile, the program has ended, and no secret is shown.
func TestTheProgramMeasuresWithADedicatedServer(t *testing.T) {
	l := start(t, netlab.CloudLabOptions{
		Cloud:   hcloudsim.Options{ActionTime: 300 * time.Millisecond, RefuseIPv6Targets: true},
		Robot:   robotsim.Options{User: robotUser, Password: robotPassword, VSwitchTime: 4 * time.Second, Processing: true},
		Network: profile.Network{RefuseProxied: new(true)},
	})
	path, err := cluster.BuildSimulator(t.Context(), t.TempDir())
	l.noError(err)
	dir := t.TempDir()
	script, file := filepath.Join(dir, "program.py"), filepath.Join(dir, "cloud.json")
	said := l.measure(path, "program", "--out", script)
	if !strings.Contains(said, script+".key") {
		t.Errorf("measure program says %s", said)
	}
	text, err := os.ReadFile(script)
	l.noError(err)
	made, err := l.RentDedicated(t.Context(), "owned")
	l.noError(err)
	d := dedicated{made, t}
	_, err = made.RunScript(string(text))
	l.noError(err)
	before := d.state()

	said = l.measure(
		path, "--robot-endpoint", l.RobotEndpoint(), "--yes", "--profile", file, "--time-limit", "10m",
		"--only", "ipv6-targets,vswitch-source,proxy-arp,robot-login,robot-members",
		"--dedicated", made.Public.IPv4.String(), "--dedicated-key", script+".key",
		"--dedicated-interface", netlab.VSwitchInterface, "--vswitch", strconv.Itoa(cluster.VSwitchID),
	)
	l.quiet(made)
	if after := d.state(); after != before {
		t.Errorf("the dedicated server had\n%s\nand has\n%s", before, after)
	}
	profileText, err := os.ReadFile(file)
	l.noError(err)
	found, err := profile.Read(bytes.NewReader(profileText))
	l.noError(err)
	for what, ok := range map[string]bool{
		"refuse_ipv6_targets": isTrue(found.Cloud.RefuseIPv6Targets), "refuse_proxied": isTrue(found.Network.RefuseProxied),
		"processing": isTrue(found.Robot.Processing), "vswitch_any_source": found.Network.VSwitchAnySource != nil && !*found.Network.VSwitchAnySource,
		"forbidden_login": found.Robot.ForbiddenLogin != nil && !*found.Robot.ForbiddenLogin,
	} {
		if !ok {
			t.Errorf("%s is missing or wrong in the profile:\n%s", what, profileText)
		}
	}
	if strings.Contains(said+string(profileText), robotPassword) {
		t.Error("the password is shown")
	}
	if !strings.Contains(said, "your dedicated server is in it for a moment") {
		t.Error("it doesn't say beforehand what it does at Robot")
	}
	if blocked := l.Robot.Blocked(); len(blocked) > 0 {
		t.Errorf("blocked at Robot: %v", blocked)
	}
}

func isTrue(p *bool) bool { return p != nil && *p }

// measure runs a command of measure on the host outside, and returns what it says.
func (l *lab) measure(path string, args ...string) string {
	l.t.Helper()
	program, err := l.RunOutside(process.Command{
		Name: "hcloud-sim", Path: path, Args: append([]string{"measure"}, args...),
		Env: append(os.Environ(), "HCLOUD_TOKEN=any", "HCLOUD_ENDPOINT="+l.Endpoint(),
			"ROBOT_USER="+robotUser, "ROBOT_PASSWORD="+robotPassword),
	})
	l.noError(err)
	<-program.Done()
	text, _ := os.ReadFile(program.Log)
	l.t.Logf("%s", text)
	if code := program.ExitCode(); code != 0 {
		l.t.Fatalf("exit code %d", code)
	}
	return string(text)
}
