package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/controller"
)

func entry(dst, via string) routes.Route {
	return routes.Route{Dst: netip.MustParsePrefix(dst), Via: netip.MustParseAddr(via)}
}

// A route that is not recorded, of a Node that was deleted while no manager ran and that has a
// running server, is adopted only if the ledger has that Node's podCIDR and server.
func TestTheLedgerKnowsDepartedNodes(t *testing.T) {
	for _, c := range []struct {
		name     string
		departed []kube.Departed
		want     []string
	}{
		{"no ledger", nil, []string{"10.244.8.0/24 via 10.0.0.9", "10.244.9.0/24 via 10.0.0.9"}},
		{"the ledger knows the Node", []kube.Departed{
			{Name: "left", ProviderID: "id-left", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.9.0/24")}},
		}, []string{"10.244.8.0/24 via 10.0.0.9"}},
		{"the ledger knows another server", []kube.Departed{
			{Name: "left", ProviderID: "id-other", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.9.0/24")}},
		}, []string{"10.244.8.0/24 via 10.0.0.9", "10.244.9.0/24 via 10.0.0.9"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			withFixture(t, func(w *fixture) {
				w.servers.attach("a", "10.0.0.2")
				w.join("a", "10.244.1.0/24")
				w.servers.attach("left", "10.0.0.9")
				w.table.routes = []routes.Route{entry("10.244.1.0/24", "10.0.0.2"), entry("10.244.8.0/24", "10.0.0.9"), entry("10.244.9.0/24", "10.0.0.9")}
				w.cfg.Departed = func() ([]kube.Departed, bool) { return c.departed, true }
				defer w.start()()
				rest(10 * time.Minute)
				w.expectTable(append([]string{"10.244.1.0/24 via 10.0.0.2"}, c.want...)...)
			})
		})
	}
}

// A new leader's cache of Nodes, and so its ledger, may lack a new Node: the controller lists the
// Nodes live before it deletes routes.
func TestAnOldCacheDeletesNothing(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.client.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			list, ok := action.(clienttesting.ListActionImpl)
			if !ok || list.ListOptions.ResourceVersion != "0" {
				return false, nil, nil
			}
			all, err := w.client.Tracker().List(action.GetResource(), list.GetKind(), "")
			if err != nil {
				return true, nil, err
			}
			nodes := all.(*corev1.NodeList)
			nodes.Items = slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == "young" })
			return true, nodes, nil
		})
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		w.servers.attach("young", "10.0.0.3")
		w.join("young", "10.244.2.0/24")
		w.table.routes = []routes.Route{entry("10.244.1.0/24", "10.0.0.2"), entry("10.244.2.0/24", "10.0.0.3")}
		w.cfg.Departed = func() ([]kube.Departed, bool) {
			return []kube.Departed{{Name: "young", ProviderID: "id-young", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24")}}}, true
		}
		defer w.start()()
		rest(10 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.2", "10.244.2.0/24 via 10.0.0.3")
	})
}

// After a failed write the table is listed again, and the list of servers is older than it: a
// gateway that the list lacks may be another cluster's newest server.
func TestAnotherClustersNewServerIsNotMissing(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.cfg.MaxDeletions = 100
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		w.wrote(entry("10.244.1.0/24", "10.0.0.2"), stale(7), stale(8))
		failed := false
		w.table.fail = func(write string) (error, bool) {
			if failed || !strings.HasPrefix(write, "delete") {
				return nil, false
			}
			failed = true
			w.servers.change(func(p *project) { p.strangers = append(p.strangers, netip.MustParseAddr("10.0.0.99")) })
			w.table.routes = append(w.table.routes, entry("10.244.3.0/24", "10.0.0.99"))
			return errBroken, false
		}
		defer w.start()()
		rest(10 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.2", "10.244.3.0/24 via 10.0.0.99")
	})
}

// State has the routes of the last list and those added since; a deleted route counts until a
// list lacks it.
func TestRouted(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.cfg.State = new(controller.State)
		defer w.start()()
		var since time.Time
		expect := func(when, prefix string, routed, known bool) {
			t.Helper()
			if r, k := w.cfg.State.Routed(netip.MustParsePrefix(prefix), since); r != routed || k != known {
				t.Errorf("%s: %s is routed %v, known %v; want %v, %v", when, prefix, r, k, routed, known)
			}
		}
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(100 * time.Millisecond)
		expect("the write is under way", "10.244.1.0/24", true, true)
		rest(2 * time.Second)
		expect("it stands", "10.244.1.0/24", true, true)
		expect("a part of it", "10.244.1.128/25", true, true)
		expect("another one", "10.244.2.0/24", false, true)
		w.leave("a")
		rest(2 * time.Second)
		w.expectTable("")
		expect("deleted, not listed yet", "10.244.1.0/24", true, true)
		rest(time.Minute)
		expect("a list misses it", "10.244.1.0/24", false, true)
		w.table.mu.Lock()
		w.table.listErr = errBroken
		w.table.mu.Unlock()
		rest(90 * time.Second)
		expect("the last list is 90 s old", "10.244.1.0/24", false, true)
		since = time.Now().Add(-time.Minute)
		expect("nothing was listed in the last minute", "10.244.1.0/24", false, false)
		since = time.Time{}
		rest(time.Minute)
		expect("the last list is too old", "10.244.1.0/24", false, false)
	})
}

// A problem of the whole table is reported once, when it begins.
func TestEventsAboutTheTable(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.cfg.Limit, w.table.limit = 20, 20
		for i := range 16 {
			w.wrote(stale(i))
		}
		stop := w.start()
		rest(30 * time.Second)
		if got, want := w.drainEvents(), []string{"Warning RouteDeletionsCapped"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		rest(time.Hour)
		w.expectTable("")
		if got := w.drainEvents(); len(got) > 0 {
			t.Errorf("events again: %q", got)
		}
		stop()
		if w.cfg.Limit = 5; len(w.drainEvents()) > 0 {
			t.Error("events at the end")
		}
		defer w.start()()
		for i := range 3 {
			w.servers.attach(fmt.Sprint("n", i), fmt.Sprintf("10.0.0.%d", i+2))
			w.join(fmt.Sprint("n", i), fmt.Sprintf("10.244.%d.0/24", i))
		}
		rest(time.Minute)
		if got := w.drainEvents(); len(got) > 0 {
			t.Errorf("events at 60%%: %q", got)
		}
		w.servers.attach("n3", "10.0.0.9")
		w.join("n3", "10.244.3.0/24")
		rest(time.Hour)
		if got, want := w.drainEvents(), []string{"Warning RouteTableNearlyFull"}; !slices.Equal(got, want) {
			t.Errorf("events at 80%%: %q, want %q", got, want)
		}
	})
}

// A pass over a table at rest takes one decision.
func TestAnIdlePassDecidesOnce(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(30 * time.Second) // and the search for changes of a former leader
		before := w.servers.callCount()
		rest(time.Hour)
		if n := w.servers.callCount() - before; n > 60 {
			t.Errorf("the servers were asked for %d times in 60 passes", n)
		}
	})
}
