package routes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
)

// The network is deleted, and later another one with its name exists, to which the servers are
// attached again: while there is none no condition is changed without evidence, one Event reports
// the fault, and then everything is restored without a restart.
func TestANetworkIsDeletedAndCreatedAgain(t *testing.T) {
	const nodes = 10
	synctest.Test(t, func(t *testing.T) {
		l := setUp(t, simcluster.Pace(), nodes)
		m := start(t, l, simcluster.Options{Node: true, Lifecycle: true})
		defer m.Stop()
		rest(5 * time.Minute)
		expectAll(t, l, reachable, nodes)
		m.Said()
		l.API.Told()

		if err := l.ByHand(func() error { return l.Sim.DeleteNetwork(l.Network.ID) }); err != nil {
			t.Fatal(err)
		}
		l.Sim.ResetRequests()
		rest(time.Hour)
		expectAll(t, l, reachable, nodes)
		if said := m.Said(); said["RouteTableUnreadable"] != 1 || len(said) != 1 {
			t.Errorf("events %v, want one that says that the table can't be read", said)
		}
		spent := l.Spent()
		t.Logf("an hour without a network: %+v", spent)
		if spent.All > 400 || spent.Writes > 0 {
			t.Errorf("an hour without a network costs %+v", spent)
		}
		if _, known := m.State.Routed(simcluster.Range().Prefix, time.Time{}); known {
			t.Error("the table's content is said to be known")
		}

		if err := l.CreateNetwork(); err != nil {
			t.Fatal(err)
		}
		for _, server := range l.Sim.Servers() {
			attach(t, l, server.ID)
		}
		rest(10 * time.Minute)
		expectAll(t, l, reachable, nodes)
		if n := len(l.Routes()); n != nodes {
			t.Errorf("%d routes in the new network, want %d", n, nodes)
		}
		for dst, via := range l.Routes() {
			if node, address := l.NodeAt(dst); node == nil || address != via {
				t.Errorf("route %s via %s, its Node is at %s", dst, via, address)
			}
		}
		if _, known := m.State.Routed(simcluster.Range().Prefix, time.Time{}); !known {
			t.Error("the table's content is not known again")
		}
	})
}

// attach attaches a server to the network as an administrator does.
func attach(t *testing.T, l *simcluster.Cluster, server int64) {
	t.Helper()
	action, _, err := administrator(l).Server.AttachToNetwork(t.Context(), &hcloud.Server{ID: server},
		hcloud.ServerAttachToNetworkOpts{Network: &hcloud.Network{ID: l.Network.ID}})
	if err != nil || action == nil {
		t.Fatalf("attaching server %d: %v", server, err)
	}
	rest(time.Second)
}

// The token on disk is revoked, and replaced by another one.
func TestATokenIsRevokedAndRotated(t *testing.T) {
	const nodes = 10
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(simcluster.Token)
	synctest.Test(t, func(t *testing.T) {
		l := setUp(t, simcluster.Pace(), nodes)
		l.UseToken(func() (string, error) {
			token, err := os.ReadFile(file)
			return string(token), err
		})
		m := start(t, l, simcluster.Options{Node: true, Lifecycle: true})
		defer m.Stop()
		rest(5 * time.Minute)
		expectAll(t, l, reachable, nodes)
		m.Said()

		l.Sim.SetToken("rotated")
		l.Sim.ResetRequests()
		add(t, l, simcluster.Machine{Name: "late"})
		rest(time.Hour)
		if got := countConditions(t, l); got[reachable] != nodes || len(got) != 2 {
			t.Errorf("conditions %v without a token, want the %d as they were and one that waits", got, nodes)
		}
		said := m.Said()
		if said["RouteTableUnreadable"] != 1 {
			t.Errorf("events %v, want one that says that the table can't be read", said)
		}
		spent := l.Spent()
		t.Logf("an hour without a token: %+v", spent)
		if spent.All > 400 {
			t.Errorf("an hour without a token costs %+v", spent)
		}

		write("rotated")
		rest(2 * time.Minute)
		expectAll(t, l, reachable, nodes+1)
		if len(l.Harm()) > 0 || l.Vanished() > 0 {
			t.Errorf("%d routes went, harm %q", l.Vanished(), l.Harm())
		}
	})
}

// A write in flight when leadership is lost is completed by the cloud or not at all, and the next
// leader accepts either state.
func TestLeadershipIsLostInMidWrite(t *testing.T) {
	const nodes = 20
	synctest.Test(t, func(t *testing.T) {
		l := setUp(t, simcluster.Pace(), nodes)
		for range nodes { // each time in the middle of another write
			m := start(t, l, simcluster.Options{})
			rest(550 * time.Millisecond)
			began := time.Now()
			m.Stop()
			if took := time.Since(began); took > time.Second {
				t.Errorf("the manager took %s to stop", took)
			}
		}
		m := start(t, l, simcluster.Options{})
		defer m.Stop()
		rest(time.Minute)
		expectAll(t, l, reachable, nodes)
		sent := 0
		for _, r := range l.Sim.Requests() {
			if strings.HasSuffix(r.Path, "/add_route") && r.Status < 400 {
				sent++
			}
		}
		if sent != nodes || l.Vanished() > 0 || len(l.Harm()) > 0 {
			t.Errorf("%d additions for %d Nodes, %d routes went, harm %q", sent, nodes, l.Vanished(), l.Harm())
		}
	})
}
