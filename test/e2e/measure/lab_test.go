//go:build linux

// Package measure measures a cloud that is known: the simulated one with its servers, networks and
// load balancers in network namespaces, the real program inside the servers, and every switch in
// every position. Each must be found.
package measure

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/experiment"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// lab is a cloud in namespaces, with a run that measures it.
type lab struct {
	*netlab.CloudLab
	t     *testing.T
	run   *project.Project
	bench *experiment.Bench
}

// start starts a cloud for a test, which is skipped where there can be none. When the test ends
// the run is swept, and nothing may be left in the cloud.
func start(t *testing.T, o netlab.CloudLabOptions) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: a lab is made of network namespaces")
	}
	o.Dir = t.TempDir()
	started, err := netlab.StartCloudLab(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{CloudLab: started, t: t}
	t.Cleanup(func() {
		if err := started.Err(); err != nil {
			t.Error(err)
		}
		started.Stop()
		if t.Failed() {
			t.Log(netlab.Logs(o.Dir, 15))
		}
	})
	l.run = project.New(project.Options{
		Token: secret.New("any"), Endpoint: started.Endpoint(), Transport: &http.Transport{DialContext: started.DialContext},
		Version: "test", Progress: func(s string) { t.Log(s) },
	})
	t.Cleanup(l.expectSwept)
	l.bench = &experiment.Bench{
		Project: l.run, Location: "fsn1", ServerType: "cx22", Image: "debian-12",
		LoadBalancerType: "lb11", Programs: experiment.InsidePrograms{Dial: started.DialContext},
		Progress: func(s string) { t.Log(s) },
		Found:    func(o measure.Observation) { t.Logf("%s: %s (%s%s)", o.Fact, o.Seen, o.Note, o.Why) },
	}
	return l
}

// expectSwept removes what the run has made, and fails the test if anything is left.
func (l *lab) expectSwept() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), 2*time.Minute)
	defer cancel()
	if _, err := l.run.Sweep(ctx); err != nil {
		l.t.Errorf("sweeping: %v", err)
	}
	if err := l.run.Emptied(ctx); err != nil {
		l.t.Errorf("after sweeping: %v", err)
	}
}

// expect measures facts, and fails the test where one is not what a cloud with this profile has, or
// not these words. What was recorded is returned.
func (l *lab) expect(facts []measure.FactID, like profile.Profile, words map[measure.FactID]string) profile.Profile {
	l.t.Helper()
	seen := experiment.Run(l.t.Context(), l.bench, facts)
	for _, o := range seen {
		fact, known := measure.Of(o.Fact)
		if !known {
			l.t.Fatalf("there is no fact %s", o.Fact)
		}
		want, ok := words[o.Fact]
		if !ok {
			want = fact.Assumed(like)
		}
		if o.Seen != want && !fact.Quantity {
			l.t.Errorf("%s: saw %q (%s), want %q", o.Fact, o.Seen, o.Why, want)
		}
	}
	return measure.Recorded(profile.Profile{}, seen)
}

// with is the default profile with another one's values where it has any.
func with(is profile.Profile) profile.Profile {
	out := profile.Default()
	put(&out.Cloud.ServeUnjudged, is.Cloud.ServeUnjudged)
	put(&out.Cloud.ProxyHeaderInChecks, is.Cloud.ProxyHeaderInChecks)
	put(&out.Cloud.IPv6Source, is.Cloud.IPv6Source)
	put(&out.Network.PrivateMTU, is.Network.PrivateMTU)
	put(&out.Network.PublicMTU, is.Network.PublicMTU)
	put(&out.Network.AnySource, is.Network.AnySource)
	put(&out.Network.ProxyProtocol, is.Network.ProxyProtocol)
	put(&out.Cloud.RefuseIPv6Targets, is.Cloud.RefuseIPv6Targets)
	put(&out.Cloud.OneVSwitchSubnet, is.Cloud.OneVSwitchSubnet)
	put(&out.Network.VSwitchMTU, is.Network.VSwitchMTU)
	put(&out.Network.VSwitchAnySource, is.Network.VSwitchAnySource)
	put(&out.Network.RefuseProxied, is.Network.RefuseProxied)
	put(&out.Network.Neighbors, is.Network.Neighbors)
	put(&out.Robot.ForbiddenLogin, is.Robot.ForbiddenLogin)
	put(&out.Robot.Processing, is.Robot.Processing)
	return out
}

func put[T any](field **T, is *T) {
	if is != nil {
		*field = is
	}
}
