package routes_test

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
)

// Most servers of a cluster are deleted, and new ones are created: the dead Nodes are deleted, and
// the new ones are routed.
func TestMostServersAreGivenBack(t *testing.T) {
	const before, gone, came = 13, 10, 3
	synctest.Test(t, func(t *testing.T) {
		l := setUp(t, simcluster.Pace(), before)
		m := start(t, l, simcluster.Options{Node: true, Lifecycle: true})
		defer m.Stop()
		rest(10 * time.Minute)
		expectAll(t, l, reachable, before)
		for i := range gone {
			name := fmt.Sprintf("node-%03d", i)
			server, _ := serverNamed(l, name)
			if err := l.Sim.DeleteServer(server); err != nil {
				t.Fatal(err)
			}
			if err := l.API.SetReady(name, false); err != nil {
				t.Fatal(err)
			}
		}
		for i := range came {
			add(t, l, simcluster.Machine{Name: fmt.Sprint("new-", i)})
		}
		rest(time.Minute)
		if got := countConditions(t, l); got[reachable] < before-gone+came {
			t.Errorf("after a minute: %v, want the new Nodes reachable too", got)
		}
		rest(20 * time.Minute)
		expectAll(t, l, reachable, before-gone+came)
		if n := len(l.Routes()); n != before-gone+came || len(l.Harm()) > 0 {
			t.Errorf("%d routes, harm %q; want one for each living Node", n, l.Harm())
		}
	})
}

// More Nodes join than there were, and the cached list lacks all of them.
func TestMoreNodesJoinThanThereWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := setUp(t, simcluster.Pace(), 5)
		m := start(t, l, simcluster.Options{})
		defer m.Stop()
		rest(10*time.Minute + 30*time.Second)
		for i := range 10 {
			add(t, l, simcluster.Machine{Name: fmt.Sprint("new-", i), PodCIDRs: []string{}})
		}
		rest(time.Second)
		for i := range 10 {
			if err := l.API.Edit(fmt.Sprint("new-", i), func(n *corev1.Node) {
				n.Spec.PodCIDRs = l.NextPodCIDRs()
				n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
			}); err != nil {
				t.Fatal(err)
			}
		}
		rest(10 * time.Second)
		expectAll(t, l, reachable, 15)
	})
}

// The project has no server of any Node, as with a token of another project: nothing is deleted or
// replaced, no Node is deleted, and a Node with a server in the project is routed.
func TestDoubtForbidsNoAddition(t *testing.T) {
	const nodes = 4
	synctest.Test(t, func(t *testing.T) {
		l := setUp(t, simcluster.Pace(), nodes)
		stray := hcloudsim.RouteSeed{Destination: netip.MustParsePrefix("10.244.99.0/24"), Gateway: netip.MustParseAddr("10.0.99.9")}
		m := start(t, l, simcluster.Options{Lifecycle: true})
		defer m.Stop()
		rest(10 * time.Minute)
		for i := range nodes {
			name := fmt.Sprintf("node-%03d", i)
			server, _ := serverNamed(l, name)
			if err := l.Sim.DeleteServer(server); err != nil {
				t.Fatal(err)
			}
			if err := l.API.SetReady(name, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Sim.AddRoute(l.Network.ID, stray); err != nil {
			t.Fatal(err)
		}
		l.Sim.ResetRequests()
		rest(10 * time.Second)
		add(t, l, simcluster.Machine{Name: "new", Unnamed: true})
		rest(time.Hour)
		if got := countConditions(t, l); got[reachable] != nodes+1 || len(got) != 1 {
			t.Errorf("conditions %v, want the %d as they were, and the new one", got, nodes)
		}
		if n := len(l.Routes()); n != nodes+2 || l.Vanished() > 0 {
			t.Errorf("%d routes, %d went; want all that stood, and one more", n, l.Vanished())
		}
		if said := m.Said(); said["RouteTableUnreadable"] != 1 {
			t.Errorf("events %v, want one that says that the servers can't be this project's", said)
		}
		if spent := l.Spent(); spent.All > 400 {
			t.Errorf("an hour in doubt costs %+v", spent)
		}
	})
}

// Servers are created continuously in a project with more than a page of them; a Node is
// initialized all the same, with few requests.
func TestANodeJoinsWhileServersAreCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace := simcluster.Pace()
		pace.AttachmentLimit = hcloudsim.Unlimited
		l := setUp(t, pace, 60)
		made := 0
		create := func(seconds int) {
			for range seconds {
				made++
				if _, err := l.Sim.CreateServer(hcloudsim.ServerSeed{Name: fmt.Sprint("other-", made)}); err != nil {
					t.Fatal(err)
				}
				rest(time.Second)
			}
		}
		create(10)
		m := start(t, l, simcluster.Options{Node: true, Lifecycle: true})
		defer m.Stop()
		create(90)
		expectAll(t, l, reachable, 60)
		add(t, l, simcluster.Machine{Name: "new"})
		create(5)
		expectAll(t, l, reachable, 61)
		l.Sim.ResetRequests()
		create(900)
		if spent := l.Spent(); spent.All > 200 {
			t.Errorf("15 minutes cost %+v", spent)
		}
	})
}

// One machine that joins a hundred costs few requests, all controllers together.
func TestOneNodeCostsFewRequests(t *testing.T) {
	const nodes, joins, most = 100, 10, 6
	for _, unnamed := range []bool{false, true} {
		t.Run(fmt.Sprint("without provider ID ", unnamed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pace := simcluster.Pace()
				pace.AttachmentLimit, pace.RouteLimit = hcloudsim.Unlimited, 200
				l := setUp(t, pace, nodes)
				m := start(t, l, simcluster.Options{Node: true, Lifecycle: true, Limit: 200})
				defer m.Stop()
				rest(10*time.Minute + 2*time.Second) // just after all periods
				for i := range joins {
					name := fmt.Sprint("new-", i)
					server, err := l.Rent(simcluster.Machine{Name: name})
					if err != nil {
						t.Fatal(err)
					}
					rest(20 * time.Second) // it boots
					l.Sim.ResetRequests()
					l.API.Told()
					began, machine := time.Now(), simcluster.Machine{Name: name, Unnamed: unnamed}
					if _, err := l.Register(t.Context(), machine, server.ID); err != nil {
						t.Fatal(err)
					}
					rest(10 * time.Second)
					spent, took := l.Spent(), time.Duration(0)
					for _, told := range l.API.Told() {
						if told.Says == reachable {
							took = told.At.Sub(began)
						}
					}
					action, _ := l.ActionTime(began, "add_route")
					if spent.All > most || took == 0 || took > action+500*time.Millisecond {
						t.Errorf("%s: reachable after %s, of which the action %s, at a cost of %+v; want at most %d requests", name, took, action, spent, most)
					}
					t.Logf("%s: %d requests, %s", name, spent.All, took)
					rest(270 * time.Second) // five minutes from one to the next
				}
				expectAll(t, l, reachable, nodes+joins)
			})
		})
	}
}

// A server gets another address in the network, and its kubelet reports it: the route follows at
// once.
func TestANewAddressIsNoticedAtOnce(t *testing.T) {
	const nodes = 60
	for name, report := range map[string]func(*corev1.Node, string){
		"InternalIP": func(n *corev1.Node, a string) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: a}}
		},
		"--node-ip": func(n *corev1.Node, a string) {
			n.Annotations = map[string]string{"alpha.kubernetes.io/provided-node-ip": a}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := setUp(t, simcluster.Pace(), nodes)
				m := start(t, l, simcluster.Options{Node: true, Lifecycle: true})
				defer m.Stop()
				rest(10*time.Minute + 30*time.Second)
				node, err := l.API.Client.CoreV1().Nodes().Get(t.Context(), "node-007", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				server, _ := l.ServerOf(node)
				api, ref := administrator(l), &hcloud.Server{ID: server.ID}
				if _, _, err := api.Server.DetachFromNetwork(t.Context(), ref,
					hcloud.ServerDetachFromNetworkOpts{Network: &hcloud.Network{ID: l.Network.ID}}); err != nil {
					t.Fatal(err)
				}
				rest(time.Second)
				to := netip.MustParseAddr("10.0.200.1")
				if _, _, err := api.Server.AttachToNetwork(t.Context(), ref,
					hcloud.ServerAttachToNetworkOpts{
						Network: &hcloud.Network{ID: l.Network.ID}, IP: to.AsSlice(),
					}); err != nil {
					t.Fatal(err)
				}
				rest(time.Second)
				if err := l.API.Edit("node-007", func(n *corev1.Node) { report(n, to.String()) }); err != nil {
					t.Fatal(err)
				}
				rest(5 * time.Second)
				dst := netip.MustParsePrefix(node.Spec.PodCIDR)
				if via := l.Routes()[dst]; via != to {
					t.Errorf("the route of %s leads to %s, want %s", kube.FormatProviderID(server.ID), via, to)
				}
				l.Sim.ResetRequests()
				rest(time.Hour)
				if spent := l.Spent(); spent.Writes > 0 || spent.ServerPages > 12*2 {
					t.Errorf("an hour after it costs %+v", spent)
				}
			})
		})
	}
}
