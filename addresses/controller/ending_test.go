package controller

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/underlay-ccm/underlay/addresses"
)

// kube-proxy serves with terminating endpoints if there are no others, and reports at the Service's
// port that it does not serve. The address stays at the serving node.
func TestOnlyEndingEndpointsAreLeft(t *testing.T) {
	inWorld(t, func(w *world) {
		nodes := []string{"a", "b", "c"}
		for _, n := range nodes {
			w.node(n)
		}
		w.start()
		w.service("one", localOnly)
		w.endpoints("one", "a", "b")
		w.settle()
		first := w.holder("one")
		w.endpoints("one", "-a", "-b")
		w.settle()
		for range 6 {
			holder := w.holder("one")
			for _, n := range nodes {
				w.report(n, addresses.Report{})
			}
			w.after(10 * time.Second)
			w.silences(30999, nodes, holder)
			w.settle()
		}
		if e := w.api.ledger().Entries()[0]; e.Epoch != 1 {
			t.Errorf("%s holds it in epoch %d, want %s in 1", e.Holder, e.Epoch, first)
		}
		// An address leaves a machine that is down nevertheless.
		w.silences(addresses.ProxyPort, nodes, first)
		w.settle()
		if now := w.holder("one"); now == first || now == "c" {
			t.Errorf("%s holds it", now)
		}
	})
}

// With any changes of endpoints, and the responses of kube-proxy for them, an address moves only to
// a better node: one with ready endpoints before one with terminating ones, and that before one
// with none.
func TestNoMoveToANodeThatIsNoBetter(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 38))
		names := []string{"a", "b", "c", "d"}
		f := fleet{health: health{}, now: time.Unix(0, 0)}
		for _, n := range names {
			f.members = append(f.members, member{name: n, ready: true, reports: true})
		}
		states := map[string]string{}
		e := addresses.Entry{
			Address: netip.MustParseAddr("192.0.2.1"),
			Shares:  []addresses.Share{{UID: "u", Local: true, Check: 30999}},
		}
		rank := func(node string) int {
			return slices.Index([]string{"gone", "ending", "ready"}, states[node])
		}
		var log []string
		for range 60 {
			node := names[r.IntN(len(names))]
			states[node] = []string{"ready", "ending", "gone"}[r.IntN(3)]
			if r.IntN(3) == 0 { // long enough for watchers to report an unresponsive port
				f.now = f.now.Add(restarted)
			}
			var nodes []string
			for n, state := range states {
				nodes = append(nodes, map[string]string{"ready": n, "ending": "-" + n}[state])
			}
			nodes = slices.DeleteFunc(nodes, func(n string) bool { return n == "" })
			s := servingOf([]*discoveryv1.EndpointSlice{sliceOf("one", nodes...)}, addresses.IPv4)
			for i := range f.members {
				f.members[i].report.Silent = nil
			}
			if e.Holder != "" && states[e.Holder] != "ready" { // it responds with 503
				for i := range f.members {
					f.members[i].report.Silent = []addresses.Endpoint{{Node: e.Holder, Port: 30999}}
				}
			}
			f.health.learn(&f)
			may := f.eligible(e, Pool{Mover: addresses.Layer2}, s)
			before := e
			l := ledgerOf(t, e)
			placed, moves := l.Place(map[netip.Addr]addresses.Eligible{e.Address: may})
			e, _ = placed.Entry(e.Address)
			log = append(log, fmt.Sprint(states, before.Holder, "->", e.Holder))
			if len(moves) > 0 && before.Holder != "" && rank(e.Holder) <= rank(before.Holder) {
				t.Fatalf("seed %d: it moves to a node that is no better\n%s", seed, strings.Join(log, "\n"))
			}
		}
	}
}

// A node that was unresponsive lately and has a ready pod is preferred over nodes that have only
// terminating endpoints.
func TestARecoveringNodeWithAReadyPodBeforeTerminatingEndpoints(t *testing.T) {
	names := []string{"a", "b", "c"}
	f := fleet{health: health{}, now: time.Unix(0, 0)}
	for _, n := range names {
		f.members = append(f.members, member{name: n, ready: true, reports: true})
	}
	for _, watcher := range []int{1, 2} {
		f.members[watcher].report.Silent = []addresses.Endpoint{{Node: "a", Port: addresses.ProxyPort}}
	}
	f.health.learn(&f)
	for i := range f.members {
		f.members[i].report.Silent = nil
	}
	f.now = f.now.Add(time.Second)
	f.health.learn(&f)
	e := addresses.Entry{
		Address: netip.MustParseAddr("192.0.2.1"), Holder: "gone", Epoch: 1,
		Shares: []addresses.Share{{UID: "u", Local: true, Check: 30999}},
	}
	for _, c := range []struct {
		endpoints []string
		want      string
	}{
		{[]string{"a", "-b"}, "a"},
		{[]string{"-a", "-b"}, "a or b"},
		{[]string{"a", "-b", "c"}, "c"},
	} {
		s := servingOf([]*discoveryv1.EndpointSlice{sliceOf("one", c.endpoints...)}, addresses.IPv4)
		may := f.eligible(e, Pool{Mover: addresses.Layer2}, s)
		placed, _ := ledgerOf(t, e).Place(map[netip.Addr]addresses.Eligible{e.Address: may})
		if now, _ := placed.Entry(e.Address); !strings.Contains(c.want, now.Holder) {
			t.Errorf("endpoints on %v: %q holds it, want %s", c.endpoints, now.Holder, c.want)
		}
	}
}

// restarted is longer than watchers wait for a port that reports that it does not serve.
const restarted = 11 * time.Second

func ledgerOf(t *testing.T, e addresses.Entry) addresses.Ledger {
	t.Helper()
	text := fmt.Sprintf(`{"version":1,"addresses":[{"address":%q,"services":[{"uid":"u","local":true,"check":30999}],"node":%q,"epoch":%d}]}`,
		e.Address, e.Holder, e.Epoch)
	l, err := addresses.ParseLedger([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A pool that is the prefix of the machines' segment never assigns an address that no machine can
// have, and a Node that reports all its addresses leaves enough for others.
func TestReportsOfNodesAboutAPool(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.node("evil", func(n *corev1.Node) {
			for i := range 16 {
				n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{
					Type: corev1.NodeInternalIP, Address: fmt.Sprint("192.0.2.", i),
				})
			}
		})
		segments := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28"), netip.MustParsePrefix("2001:db8::/64")}
		w.report("a", addresses.Report{Segments: segments})
		w.start(func(cfg *Config) { cfg.Pools = []Pool{poolNamed("segment", "192.0.2.0/28", "2001:db8::/64")} })
		for i := range 10 { // 16 except the edges and five of evil's, one of them an edge
			name := fmt.Sprint("s", i)
			if i == 0 {
				w.service(name, requiresBoth)
			} else {
				w.service(name)
			}
			w.settle()
			if i == 0 {
				w.has(name, "192.0.2.5, 2001:db8::1")
			} else {
				w.has(name, fmt.Sprint("192.0.2.", 5+i))
			}
		}
		w.service("last")
		w.settle()
		w.has("last", "")
	})
}
