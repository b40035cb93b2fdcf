package cloud_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

// looks calls InstanceExists repeatedly as upstream does, and returns its results.
func looks(t *testing.T, i *cloud.Instances, n *corev1.Node, times int) (configured []string) {
	t.Helper()
	for range times {
		_, _ = i.InstanceMetadata(t.Context(), n)
		time.Sleep(5 * time.Minute)
	}
	events := i.Recorder.(*record.FakeRecorder).Events
	for len(events) > 0 {
		configured = append(configured, <-events)
	}
	return configured
}

// A server that was replaced under the Node's name while the Node remained is reported as long as
// that lasts.
func TestServerReplacedUnderItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := withCondition(corev1.NodeReady, corev1.ConditionTrue)
		n, other := node("a", withID("hcloud://1"), ready), node("b", withID("hcloud://2"), ready)
		n.UID, other.UID = types.UID("a"), types.UID("b")
		p := &project{servers: []cloud.Machine{server(2, "b", "10.0.0.3"), server(7, "a", "10.0.0.2")}}
		i := instances(p, n, other)
		configured := looks(t, i, n, 4)
		if len(configured) != 4 || configured[0] != configured[3] || !strings.Contains(configured[0], "Warning ServerMissing the project has no server with the ID 1") || !strings.Contains(configured[0], "7 has the Node's name") {
			t.Errorf("said %q", configured)
		}
		if configured := looks(t, i, other, 4); len(configured) != 0 {
			t.Errorf("of the other: %q", configured)
		}
		p.servers = append([]cloud.Machine{server(1, "a", "10.0.0.2")}, p.servers[0])
		if configured := looks(t, i, n, 1); len(configured) != 0 {
			t.Errorf("found again: %q", configured)
		}
		p.servers = slices.Clone(p.servers[1:])
		p.cached = p.servers
		if configured := looks(t, i, n, 4); len(configured) != 4 {
			t.Errorf("again: %q", configured)
		}
	})
}

// Nothing is reported about a Node that isn't Ready, which its own controller handles, nor by
// another project's list or a failed one.
func TestMissingServerIsDoubted(t *testing.T) {
	for name, c := range map[string]struct {
		condition nodeOption
		change    func(*project)
	}{
		"not Ready":       {withCondition(corev1.NodeReady, corev1.ConditionUnknown), func(*project) {}},
		"another project": {withCondition(corev1.NodeReady, corev1.ConditionTrue), func(p *project) { p.servers = []cloud.Machine{server(9, "c", "10.0.0.9")} }},
		"no answer":       {withCondition(corev1.NodeReady, corev1.ConditionTrue), func(p *project) { p.listErr = errors.New("unavailable") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, other := node("a", withID("hcloud://1"), c.condition), node("b", withID("hcloud://2"))
				p := &project{servers: []cloud.Machine{server(2, "b", "10.0.0.3")}}
				c.change(p)
				if configured := looks(t, instances(p, n, other), n, 5); len(configured) != 0 {
					t.Errorf("said %q", configured)
				}
				if len(p.asked) > 5 {
					t.Errorf("%d lists for 5 looks", len(p.asked))
				}
			})
		})
	}
}

// Doubt requests a new list, and none if no Node has a provider ID of the cloud.
func TestDoubt(t *testing.T) {
	ours, theirs := []cloud.Machine{server(1, "a", "10.0.0.2")}, []cloud.Machine{server(9, "z", "10.0.0.9")}
	initialized := []*corev1.Node{node("x"), node("a", withID("hcloud://1")), node("b", withID("hcloud://2"))}
	for name, c := range map[string]struct {
		project project
		nodes   []*corev1.Node
		want    string
		lists   int
	}{
		"ours":                   {project{servers: ours}, initialized, "", 1},
		"theirs":                 {project{servers: theirs}, initialized, "check that the token belongs to this cluster's project", 1},
		"ours until just now":    {project{cached: ours, servers: theirs}, initialized, "check that the token", 1},
		"none":                   {project{}, initialized, "2 of 2 Nodes", 1},
		"no answer":              {project{cached: ours, listErr: errors.New("unavailable")}, initialized, "unavailable", 0},
		"no Node":                {project{servers: theirs}, nil, "", 0},
		"none is initialized":    {project{servers: theirs}, initialized[:1], "", 0},
		"dedicated servers only": {project{servers: theirs}, []*corev1.Node{node("d", withID("hrobot://1"))}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&cloud.Machines{Cloud: &c.project}).Doubt(t.Context(), c.nodes)
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if len(c.project.asked) != c.lists {
				t.Errorf("asked %q, want %d lists", c.project.asked, c.lists)
			}
		})
	}
}
