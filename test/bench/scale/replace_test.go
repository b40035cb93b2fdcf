package scale_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/faultproxy"
)

const (
	// lost is how many of a hundred requests are lost, and how many replies to those that arrive.
	lost = 4
	// stall is how long watches are stalled, every stallEvery.
	stall, stallEvery = 2 * time.Second, 15 * time.Second
	// ledgerName is the prefix of the names of the ConfigMaps with the stored ledger.
	ledgerName = "underlay-node-ipam"
	// managerUser is the managers' user at the API server.
	managerUser = "system:serviceaccount:kube-system:underlay-ccm"
)

// replacement is a plan: a Node is deleted and another created, repeatedly, while requests, replies
// and leaders are lost.
type replacement struct {
	every, lasts time.Duration
	kills        int // leaders, at even distances
	election     election
	quarantine   time.Duration
	seed         uint64
}

// replaced is the result of a replacement.
type replaced struct {
	replaced int
	waits    []time.Duration // of the new Nodes
	wrong    []string
	reused   int
	lost     int // requests and replies
	killed   int
	requests requests
	// bare are new Nodes whose metadata lacks fields that their kubelets set.
	bare []string
}

func (r replaced) String() string {
	return fmt.Sprintf("%d Nodes replaced, %d leaders killed, %d requests or replies lost, %d ranges used again; podCIDRs after %s (median), %s (longest); requests: %s",
		r.replaced, r.killed, r.lost, r.reused, median(r.waits).Round(time.Millisecond),
		longest(r.waits).Round(time.Millisecond), r.requests)
}

// check asserts the results that don't depend on the machine.
func (r replaced) check(tb testing.TB) {
	tb.Helper()
	for _, text := range r.wrong[:min(len(r.wrong), 20)] {
		tb.Error(text)
	}
	if r.lost == 0 || r.killed == 0 {
		tb.Errorf("no trouble was made: %s", r)
	}
	if len(r.bare) > 0 {
		tb.Errorf("%d new Nodes lack what their kubelets set, or the record of it, such as %v", len(r.bare), r.bare[0])
	}
	q := r.requests
	// Each of them has its podCIDRs, otherwise replace would not have returned.
	if q.patched+q.cut != r.replaced || q.repeated > 0 {
		tb.Errorf("podCIDRs were written into %d of %d new Nodes, into %d by a write that was broken off, and again into %d", q.patched, r.replaced, q.cut, q.repeated)
	}
	// A Node is added, and one is removed: two lines. Others are written with them.
	if q.ledger > 3*r.replaced {
		tb.Errorf("%d writes of the stored ledger for %d replaced Nodes, want at most three each", q.ledger, r.replaced)
	}
}

// replace executes the plan, and returns when every new Node has its podCIDRs.
func (f *field) replace(ctx context.Context, tb testing.TB, plan replacement) replaced {
	tb.Helper()
	proxy, err := f.StartProxy()
	if err != nil {
		tb.Fatal(err)
	}
	defer proxy.Close()
	defer f.stopManagers()
	t := &trouble{random: rand.New(rand.NewPCG(plan.seed, 0))}
	master, config := "--master="+proxy.URL(), fmt.Sprintf("quarantine: %s\n", plan.quarantine)
	f.watch.mu.Lock()
	f.watch.quarantine = plan.quarantine
	f.watch.mu.Unlock()
	begin := func() { f.start(ctx, tb, plan.election, config, master) }
	begin()
	begin()
	first := f.join(ctx, tb, "replacement-first")
	f.served(ctx, tb, first)
	before := f.requests(tb)
	present := f.nodes(ctx, tb)

	proxy.Set(t.fate)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go t.stallWatches(ctx, proxy)
	var r replaced
	var coming []*served
	names := map[string]bool{}
	began := time.Now()
	tick := time.NewTicker(plan.every)
	defer tick.Stop()
	for time.Since(began) < plan.lasts {
		i := t.below(len(present))
		f.remove(ctx, tb, &present[i])
		name := fmt.Sprintf("replacement-%05d", r.replaced)
		names[name] = true
		coming = append(coming, f.join(ctx, tb, name))
		present = slices.Delete(present, i, i+1)
		r.replaced++
		if due := plan.lasts * time.Duration(r.killed+1) / time.Duration(plan.kills+
			1); r.killed < plan.kills && time.Since(began) >= due {
			leader := f.leader(ctx, tb, begin)
			leader.Kill()
			f.managers = slices.DeleteFunc(f.managers, func(m *cluster.Manager) bool { return m == leader })
			begin()
			r.killed++
		}
		f.restart(tb, begin)
		<-tick.C
	}
	for _, s := range coming {
		f.until(ctx, tb, "every new Node has podCIDRs", func(context.Context) bool {
			f.restart(tb, begin)
			select {
			case <-s.served:
				return true
			default:
				return false
			}
		})
		r.waits = append(r.waits, s.waited())
	}
	proxy.Set(nil)
	r.bare = f.bare(ctx, tb, names)
	r.requests = f.requests(tb).since(before, names)
	r.wrong, r.reused = f.watch.found()
	r.lost = t.count()
	return r
}

// nodes are those of the cluster, without their images.
func (f *field) nodes(ctx context.Context, tb testing.TB) []corev1.Node {
	tb.Helper()
	list, err := f.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range list.Items {
		list.Items[i] = corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: list.Items[i].Name, UID: list.Items[i].UID},
		}
	}
	return list.Items
}

// bare waits until the new Nodes are initialized, and returns those of which a write removed fields
// of their kubelets, or the record of them.
func (f *field) bare(ctx context.Context, tb testing.TB, names map[string]bool) (bare []string) {
	tb.Helper()
	f.until(ctx, tb, "every new Node is initialized", func(ctx context.Context) bool {
		list, err := f.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false
		}
		bare = nil
		for i := range list.Items {
			n := &list.Items[i]
			if !names[n.Name] {
				continue
			}
			if n.Spec.ProviderID == "" || kube.Tainted(n, cloudproviderapi.TaintExternalCloudProvider) {
				return false
			}
			want := machine(n.Name, 0)
			registers := func(e metav1.ManagedFieldsEntry) bool { return e.Manager == kubelet && e.Subresource == "" }
			reports := func(e metav1.ManagedFieldsEntry) bool { return e.Manager == kubelet && e.Subresource == "status" }
			if len(n.Status.Images) != imageCount || len(n.Annotations) != len(want.Annotations) || n.Status.NodeInfo.KubeletVersion == "" ||
				!slices.ContainsFunc(n.ManagedFields, registers) ||
				!slices.ContainsFunc(n.ManagedFields, reports) {
				bare = append(bare, n.Name)
			}
		}
		return true
	})
	return bare
}

// trouble loses requests and replies, each at random.
type trouble struct {
	mu     sync.Mutex
	random *rand.Rand
	lost   int
}

// fate decides on one request. Watches are stalled instead.
func (t *trouble) fate(r *http.Request) faultproxy.Fate {
	if r.URL.Query().Get("watch") != "" {
		return faultproxy.Pass
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := t.random.IntN(100); {
	case n < lost:
		t.lost++
		return faultproxy.LoseRequest
	case n < 2*lost:
		t.lost++
		return faultproxy.LoseReply
	default:
		return faultproxy.Pass
	}
}

func (t *trouble) stallWatches(ctx context.Context, proxy *faultproxy.Proxy) {
	tick := time.NewTicker(stallEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			proxy.StallWatches()
			time.AfterFunc(stall, proxy.ResumeWatches)
		case <-ctx.Done():
		}
	}
}

func (t *trouble) below(n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.random.IntN(n)
}

func (t *trouble) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

// requests are writes of the managers from the API server's audit log.
type requests struct {
	patches  map[string]int  // of podCIDRs by Node, executed
	unsure   map[string]bool // Nodes with a failed one, which may have been executed
	patched  int             // Nodes with written podCIDRs
	repeated int             // more than once
	cut      int             // only by a failed one, as when its leader is killed
	ledger   int
	leases   int
	nodes    int // initializing and conditions
	events   int
	other    int
}

func (q requests) all() int {
	return q.patched + q.repeated + q.ledger + q.nodes + q.events +
		q.other
}

func (q requests) String() string {
	return fmt.Sprintf("%d podCIDRs written, %d again, %d ledger writes, %d of Nodes otherwise, %d Events, %d other; %d of the lease", q.patched, q.repeated, q.ledger, q.nodes, q.events, q.other, q.leases)
}

// requests counts all so far.
func (f *field) requests(tb testing.TB) requests {
	tb.Helper()
	events, err := f.ControlPlane.Audit()
	if err != nil {
		tb.Fatal(err)
	}
	q := requests{patches: map[string]int{}, unsure: map[string]bool{}}
	for _, e := range events {
		switch {
		case e.User != managerUser:
		case e.Resource == "nodes" && e.Verb == "patch" && e.Subresource == "" && strings.HasPrefix(e.UserAgent, "underlay-ccm/") && strings.HasSuffix(e.UserAgent, "node-ipam-controller"):
			switch {
			case e.Code == http.StatusOK:
				q.patches[e.Name]++
			case e.Code >= http.StatusInternalServerError:
				q.unsure[e.Name] = true
			}
		case e.Resource == "nodes":
			q.nodes++
		case e.Resource == "configmaps" && strings.HasPrefix(e.Name, ledgerName):
			q.ledger++
		case e.Resource == "leases":
			q.leases++
		case e.Resource == "events":
			q.events++
		default:
			q.other++
		}
	}
	return q
}

// since returns those after others, and of podCIDRs those that were written into these Nodes.
func (q requests) since(before requests, names map[string]bool) requests {
	q.ledger -= before.ledger
	q.leases -= before.leases
	q.nodes -= before.nodes
	q.events -= before.events
	q.other -= before.other
	for name, n := range q.patches {
		if !names[name] {
			continue
		}
		q.patched++
		if n > 1 {
			q.repeated++
		}
	}
	for name := range q.unsure {
		if names[name] && q.patches[name] == 0 {
			q.cut++
		}
	}
	return q
}
