package routes_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
)

// An idle hour, with all controllers that list Nodes, servers or routes and their default periods.
func TestAnHourAtRest(t *testing.T) {
	const nodes, networkReads, pagesPer50 = 100, 60, 12
	for _, c := range []struct {
		name       string
		notReady   int
		pagesPer50 int
	}{{"all Ready", 0, pagesPer50}, {"ten NotReady", 10, 60}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := setUp(t, simcluster.Pace(), nodes)
				m := start(t, l, simcluster.Options{Node: true, Lifecycle: true})
				defer m.Stop()
				rest(10 * time.Minute)
				expectAll(t, l, reachable, nodes)
				for i := range c.notReady {
					if err := l.API.SetReady(fmt.Sprintf("node-%03d", i), false); err != nil {
						t.Fatal(err)
					}
				}
				rest(10 * time.Minute)
				l.Sim.ResetRequests()
				l.API.Told()
				rest(time.Hour)
				spent := l.Spent()
				t.Logf("an hour at rest with %d Nodes, %d of them NotReady: %+v", nodes, c.notReady, spent)
				recordRest(t, c.notReady, spent)
				if spent.NetworkReads > networkReads || spent.ServerPages > c.pagesPer50*nodes/50 {
					t.Errorf("%d network reads and %d server pages, want at most %d and %d",
						spent.NetworkReads, spent.ServerPages, networkReads, c.pagesPer50*nodes/50)
				}
				if other := spent.All - spent.NetworkReads - spent.ServerPages; other > 0 {
					t.Errorf("%d requests that are neither: %+v", other, spent)
				}
				if told := l.API.Told(); len(told) > 0 {
					t.Errorf("conditions were written: %v", told)
				}
			})
		})
	}
}

// A deleted server's Node is deleted within a minute after it became NotReady, at any age of the
// server list, and then its route.
func TestADeletedServersNodeGoesWithinAMinute(t *testing.T) {
	const nodes, most = 20, time.Minute
	synctest.Test(t, func(t *testing.T) {
		l := setUp(t, simcluster.Pace(), nodes)
		m := start(t, l, simcluster.Options{Node: true, Lifecycle: true})
		defer m.Stop()
		rest(10 * time.Minute)
		slowest := time.Duration(0)
		for i := range nodes / 2 {
			name := fmt.Sprintf("node-%03d", i)
			node, err := l.API.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			server, _ := l.ServerOf(node)
			if err := l.Sim.DeleteServer(server.ID); err != nil {
				t.Fatal(err)
			}
			rest(time.Duration(37*i) * time.Second) // somewhere between two lists
			if err := l.API.SetReady(name, false); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for {
				rest(time.Second)
				_, err := l.API.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) || time.Since(began) > 10*most {
					break
				}
			}
			slowest = max(slowest, time.Since(began))
			rest(2 * time.Minute)
		}
		t.Logf("the slowest of %d Nodes went after %s", nodes/2, slowest)
		if slowest > most {
			t.Errorf("a Node went after %s, want at most %s", slowest, most)
		}
		if n := len(l.Routes()); n != nodes/2 || len(l.Harm()) > 0 {
			t.Errorf("%d routes stand, want %d; harm %q", n, nodes/2, l.Harm())
		}
	})
}

// 150 Nodes, a limit of 100, 20 foreign routes and 5 reserved: 75 Nodes are routed and 75 show the
// reason why not; no request is sent that must fail, and waiting costs nothing. When the limit is
// raised, the rest join.
func TestMoreNodesThanTheLimit(t *testing.T) {
	const nodes, foreign = 150, 20
	synctest.Test(t, func(t *testing.T) {
		pace := simcluster.Pace()
		pace.AttachmentLimit, pace.RouteLimit = hcloudsim.Unlimited, 200
		l := setUp(t, pace, nodes)
		for i := range foreign {
			if err := l.Sim.AddRoute(l.Network.ID, foreignRoute(i)); err != nil {
				t.Fatal(err)
			}
		}
		m := start(t, l, simcluster.Options{Limit: 100, Reserve: 5, Node: true, Lifecycle: true})
		rest(10 * time.Minute)
		if got := countConditions(t, l); got[reachable] != 75 || got["True RouteTableFull"] != 75 || len(got) != 2 {
			t.Fatalf("conditions %v, want 75 reachable and 75 refused", got)
		}
		if said := m.Said(); said["RouteTableFull"] != 75 || said["RouteTableNearlyFull"] != 1 {
			t.Errorf("events %v, want one for each of the 75 and one about the table", said)
		}
		expectMetrics(t, m, map[string]float64{
			"limit": 100, "ours": 75, "foreign": foreign, "ambiguous": 0,
			"refused": 75, "headroom": 0, "attachments": nodes,
		})
		l.Sim.ResetRequests()
		rest(time.Hour)
		spent := l.Spent()
		t.Logf("an hour with 75 Nodes waiting: %+v", spent)
		if spent.Refused > 0 || spent.Writes > 0 || spent.NetworkReads > 60 ||
			spent.ServerPages > 12*nodes/50 || spent.All != spent.NetworkReads+spent.ServerPages {
			t.Errorf("waiting costs requests: %+v", spent)
		}
		if said := m.Said(); len(said) > 0 {
			t.Errorf("events again: %v", said)
		}
		m.Stop()

		raised := start(t, l, simcluster.Options{Limit: 200, Reserve: 5})
		defer raised.Stop()
		rest(5 * time.Minute)
		expectAll(t, l, reachable, nodes)
		if len(l.Routes()) != nodes+foreign || len(l.Harm()) > 0 || l.Vanished() > 0 {
			t.Errorf("%d routes, %d vanished, harm %q", len(l.Routes()), l.Vanished(), l.Harm())
		}
	})
}

// A server that is never attached, and one that matches no Node: their Nodes wait with a reason,
// and waiting becomes cheap.
func TestWaitingForAttachmentIsCheap(t *testing.T) {
	// An idle hour, twelve updates of the waiting Nodes' status, and the reads of the route
	// controller: seconds apart at first, minutes later.
	const nodes, mostPages, mostReads = 40, 12 + 12 + 10, 60 + 20
	synctest.Test(t, func(t *testing.T) {
		l := setUp(t, simcluster.Pace(), nodes)
		m := start(t, l, simcluster.Options{Node: true, Lifecycle: true})
		defer m.Stop()
		rest(10 * time.Minute)
		l.Sim.ResetRequests()
		add(t, l, simcluster.Machine{Name: "detached", Detached: true})
		if _, err := l.Register(t.Context(), simcluster.Machine{Name: "unmatched"}, 4711); err != nil {
			t.Fatal(err)
		}
		rest(time.Hour)
		spent := l.Spent()
		t.Logf("an hour with two Nodes that wait: %+v", spent)
		if spent.ServerPages > mostPages || spent.NetworkReads > mostReads || spent.Writes > 0 {
			t.Errorf("waiting costs %+v, want at most %d server pages and %d network reads", spent, mostPages, mostReads)
		}
		if got := countConditions(t, l); got[reachable] != nodes || got["True NotAttached"] != 2 {
			t.Errorf("conditions %v", got)
		}
		if said := m.Said(); said["NotAttached"] != 2 {
			t.Errorf("events %v, want one for each of the two", said)
		}

		server, ok := serverNamed(l, "detached")
		if !ok {
			t.Fatal("the server is gone")
		}
		attach(t, l, server)
		rest(6 * time.Minute)
		if got := countConditions(t, l); got[reachable] != nodes+1 {
			t.Errorf("conditions %v after the server was attached", got)
		}
	})
}
