//go:build linux

// Package measure measures a cloud with known behavior: the simulated one with its servers,
// networks and load balancers in network namespaces, the real program inside the servers, and every
// option with every value. Each must be found.
package measure

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// start starts a cloud for a test, which is skipped on hosts that can't run one.
func start(t *testing.T, o netlab.CloudLabOptions) *netlab.CloudLab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: a lab is made of network namespaces")
	}
	o.Dir = t.TempDir()
	lab, err := netlab.StartCloudLab(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Err(); err != nil {
			t.Error(err)
		}
		lab.Stop()
		if t.Failed() {
			t.Log(netlab.Logs(o.Dir, 15))
		}
	})
	return lab
}

// The program determines every fact, in a cloud with the simulator's defaults and in one with the
// opposite of everything, and deletes all its resources.
func TestTheProgramMeasures(t *testing.T) {
	path, err := cluster.BuildSimulator(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	other := profile.Profile{
		Cloud: profile.Cloud{
			Busy: new(profile.Locked), EffectsAtOnce: new(true),
			RefuseReassign: new(true), OneTargetPerServer: new(true),
			ServeUnjudged: new(true), ProxyHeaderInChecks: new(true), IPv6Source: new("2001:db8:ffff:1::9"),
		},
		Network: profile.Network{
			PrivateMTU: new(1371), PublicMTU: new(1442), AnySource: new(true),
			RouteSeconds: []float64{1.5}, ProxyProtocol: new(1),
		},
	}
	tests := map[string]struct {
		only  string
		is    profile.Profile
		takes time.Duration // each action
		// led are limits of the median delay between the end of an action and the effect of its
		// route: single ones depend on the machine's load. The ranges of the cases are disjoint.
		led [2]float64
	}{
		"as the simulator has it": {led: [2]float64{-0.5, 0.9}},
		"the other way round":     {is: other, led: [2]float64{0.9, 2.5}},
		"routes lead from the start of their action": {
			only: "route-effect", takes: 2 * time.Second, led: [2]float64{-2.6, -1.5},
			is: profile.Profile{Cloud: profile.Cloud{EffectsAtOnce: new(true)}},
		},
		"routes lead before their action ends": {
			only: "route-effect", takes: 2 * time.Second, led: [2]float64{-1.5, -0.5},
			is: profile.Profile{Network: profile.Network{RouteSeconds: []float64{-1}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takes := cmp.Or(tt.takes, 300*time.Millisecond)
			l := start(t, netlab.CloudLabOptions{
				Cloud: hcloudsim.Options{ActionTime: takes}.With(tt.is.Cloud), Network: tt.is.Network,
			})
			file := filepath.Join(t.TempDir(), "cloud.json")
			args := []string{"measure", "--yes", "--profile", file}
			if tt.only != "" {
				args = append(args, "--only", tt.only)
			}
			program, err := l.RunOutside(process.Command{
				Name: "hcloud-sim", Path: path, Args: args,
				Env: append(os.Environ(), "HCLOUD_TOKEN=the-token", "HCLOUD_ENDPOINT="+l.Endpoint()),
			})
			if err != nil {
				t.Fatal(err)
			}
			<-program.Done()
			said, _ := os.ReadFile(program.Log)
			text, _ := os.ReadFile(file)
			t.Logf("%s\n%s", said, text)
			if code := program.ExitCode(); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			if strings.Contains(string(said)+string(text), "the-token") {
				t.Error("the token is shown")
			}
			n := len(l.Cloud.Servers()) + len(l.Cloud.Networks()) + len(l.Cloud.LoadBalancers()) +
				len(l.Cloud.FloatingIPs()) + len(l.Cloud.PrimaryIPs())
			if n > 0 {
				t.Errorf("%d things are left", n)
			}
			expect(t, text, tt.is, tt.only)
			found, _ := profile.Read(bytes.NewReader(text))
			led := slices.Sorted(slices.Values(found.Network.RouteSeconds))
			if n := len(led); n == 0 || led[n/2] < tt.led[0] || led[n/2] > tt.led[1] {
				t.Errorf("routes led packets after %v s, want the median between %v", led, tt.led)
			}
		})
	}
}

// expect fails unless a file contains a profile in which all facts, or the only given one, have the
// values of is.
func expect(t *testing.T, file []byte, is profile.Profile, only string) {
	t.Helper()
	found, err := profile.Read(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want, err := measure.Complete(is)
	if err != nil {
		t.Fatal(err)
	}
	got, err := measure.Complete(found)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range measure.Facts() {
		if f.Quantity || only != "" && f.ID != only {
			continue
		}
		if g, w := f.Words(got), f.Words(want); g != w {
			t.Errorf("%s: %s, want %s", f.ID, g, w)
		}
	}
	if only == "" && (found.Cloud.Busy == nil || found.Cloud.ActionSeconds == nil) {
		t.Errorf("not everything was measured:\n%s", file)
	}
}
