package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/faultproxy"
)

const (
	leaseName        = "cloud-controller-manager"
	nodesPath        = "/api/v1/nodes"
	serviceCIDRsPath = "/apis/networking.k8s.io/v1/servicecidrs"
	leasePath        = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/" + leaseName
)

// passed are the requests that a proxy forwarded.
type passed struct {
	mu     sync.Mutex
	reads  map[string]int // by path, without watches that continue from a version
	writes []string
}

func (p *passed) note(r *http.Request) faultproxy.Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch query := r.URL.Query(); {
	case r.Method != http.MethodGet:
		p.writes = append(p.writes, r.Method+" "+r.URL.Path)
	case query.Get("watch") == "" || query.Get("sendInitialEvents") == "true":
		p.reads[r.URL.Path]++
	}
	return faultproxy.Pass
}

func (p *passed) seen() (reads map[string]int, writes []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.reads), slices.Clone(p.writes)
}

// pair is a leader and a standby behind a proxy, in a cluster of one initialized Node.
type pair struct {
	*cluster.Cluster
	leader, standby *cluster.Manager
	proxy           *faultproxy.Proxy
	passed          passed
}

// startPair returns when the standby has filled its caches.
func startPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{Cluster: start(t, hcloudsim.Options{}), passed: passed{reads: map[string]int{}}}
	p.leader = startManager(t, p.Cluster, cluster.ManagerOptions{})
	addMachine(t, p.Cluster, "node-1")
	eventually(t, time.Minute, "the Node is served", allServed(t, p.Cluster, 1))
	var err error
	if p.proxy, err = p.StartProxy(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.proxy.Close)
	p.proxy.Set(p.passed.note)
	p.Cloud.ResetRequests()
	master := []string{"--master=" + p.proxy.URL()}
	p.standby = startManager(t, p.Cluster, cluster.ManagerOptions{Args: master})
	eventually(t, 30*time.Second, "the standby has Nodes", func(context.Context) (bool, string) {
		reads, _ := p.passed.seen()
		for _, path := range []string{nodesPath, serviceCIDRsPath, leasePath} {
			if reads[path] == 0 {
				return false, fmt.Sprint(reads)
			}
		}
		return true, ""
	})
	return p
}

// A standby has the Nodes in its cache before it leads: it doesn't list them again when it takes
// over. Until then no change of a Node causes a write, neither to the API server nor to the cloud.
func TestAStandbyHasTheNodesAndWritesNothing(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	label := []byte(`{"metadata": {"labels": {"changed": "meanwhile"}}}`)
	nodes := p.Client.CoreV1().Nodes()
	_, err := nodes.Patch(t.Context(), "node-1", types.MergePatchType, label, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whileNothingNeedsToHappen(t, 3*time.Second)
	before, writes := p.passed.seen()
	if len(writes) > 0 {
		t.Errorf("before it leads the standby wrote %q", writes)
	}
	for _, r := range p.Cloud.Requests() {
		if r.Method != http.MethodGet {
			t.Errorf("the cloud got %s %s, and nothing was to be done", r.Method, r.Path)
		}
	}

	signal(t, p.leader, syscall.SIGTERM)
	awaitEnd(t, p.leader)
	addMachine(t, p.Cluster, "node-2")
	eventually(t, time.Minute, "the new leader serves a new Node", allServed(t, p.Cluster, 2))
	after, writes := p.passed.seen()
	for _, path := range []string{nodesPath, serviceCIDRsPath} {
		if before[path] != after[path] {
			t.Errorf("%s was listed %d times by the standby, and %d times when it had taken over",
				path, before[path], after[path])
		}
	}
	if len(writes) == 0 || writes[0] != "PUT "+leasePath {
		t.Errorf("the new leader wrote %.300q, want the lease first", writes)
	}
	if p.standby.Ended() {
		t.Fatal(p.standby.Failure(p.standby.Died()))
	}
}

// A standby with stalled watches takes over with a cache that lacks a Node. Neither is that Node's
// podCIDR assigned to another one, nor its route deleted.
func TestAStandbyTakesOverWithAnOldCache(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	p.proxy.StallWatches()
	addMachine(t, p.Cluster, "node-2")
	eventually(t, time.Minute, "the leader serves another Node", allServed(t, p.Cluster, 2))
	routes := routeTable(t, p.Cluster)
	p.Cloud.ResetRequests()
	p.leader.Kill()
	eventually(t, time.Minute, "the standby leads", func(context.Context) (bool, string) {
		_, writes := p.passed.seen()
		return slices.Contains(writes, "PUT "+leasePath), fmt.Sprint(writes)
	})
	addMachine(t, p.Cluster, "node-3")
	// Longer than the lease, after which the route table is listed a second time.
	whileNothingNeedsToHappen(t, cluster.Lease+4*time.Second)
	if now := routeTable(t, p.Cluster); !maps.Equal(now, routes) {
		t.Errorf("the routes were %v before, and are %v", routes, now)
	}
	p.proxy.ResumeWatches()
	eventually(t, time.Minute, "the new leader serves all Nodes", allServed(t, p.Cluster, 3))
	expectSound(t, p.Cluster)
	for _, r := range p.Cloud.Requests() {
		if strings.HasSuffix(r.Path, "/actions/delete_route") {
			t.Errorf("the new leader deleted a route: %+v", r)
		}
	}
	if p.standby.Ended() {
		t.Fatal(p.standby.Failure(p.standby.Died()))
	}
}
