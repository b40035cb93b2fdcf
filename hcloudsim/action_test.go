package hcloudsim_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

const actionTime = 2 * time.Second

// inBubble runs a test with a simulator whose actions take time, one network and two servers in it,
// on the clock of a synctest bubble.
func inBubble(t *testing.T, options hcloudsim.Options, do func(t *testing.T, w world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		options.ActionTime = actionTime
		sim := newSim(options)
		w := world{sim: sim, c: client(sim), net: seedNetwork(t, sim)}
		w.a = seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: w.net.ID})
		w.b = seedServer(t, sim, hcloudsim.ServerSeed{Name: "b"})
		do(t, w)
	})
}

type world struct {
	sim  *hcloudsim.Simulator
	c    *hcloud.Client
	net  *hcloud.Network
	a, b *hcloud.Server // a is in net
}

// routes counts the network's routes.
func (w world) routes() int {
	n, _ := w.sim.Network(w.net.ID)
	return len(n.Routes)
}

func TestActionRunsItsTime(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		started := time.Now()
		a, _, err := w.c.Network.AddRoute(t.Context(), w.net, hcloud.NetworkAddRouteOpts{Route: route("10.244.0.0/24", "10.0.0.2")})
		noError(t, err)
		if a.Status != hcloud.ActionStatusRunning || a.Progress != 0 || a.Command != "add_route" || a.Resources[0].ID != w.net.ID {
			t.Errorf("action is %+v", a)
		}
		time.Sleep(actionTime / 2)
		a, _, err = w.c.Action.GetByID(t.Context(), a.ID)
		noError(t, err)
		if a.Status != hcloud.ActionStatusRunning || a.Progress != 50 || w.routes() != 0 {
			t.Errorf("halfway, the action is %+v, and the network shows %d routes", a, w.routes())
		}
		noError(t, w.c.Action.WaitFor(t.Context(), a))
		a, _, err = w.c.Action.GetByID(t.Context(), a.ID)
		noError(t, err)
		if !a.Finished.Equal(started.Add(actionTime)) || a.Progress != 100 || w.routes() != 1 {
			t.Errorf("at its end, the action is %+v, and the network shows %d routes", a, w.routes())
		}
	})
}

func TestEffectsAtOnce(t *testing.T) {
	inBubble(t, hcloudsim.Options{EffectsAtOnce: true}, func(t *testing.T, w world) {
		noError(t, addRoute(t, w.c, w.net, "10.244.0.0/24", "10.0.0.2"))
		if w.routes() != 1 {
			t.Errorf("network shows %d routes, want the new one", w.routes())
		}
		wantCode(t, addRoute(t, w.c, w.net, "10.244.1.0/24", "10.0.0.2"), "conflict") // locked all the same
	})
}

// The effect of a running action is not shown yet, but no other change can take its place.
func TestPendingHoldsItsPlace(t *testing.T) {
	inBubble(t, hcloudsim.Options{AttachmentLimit: 3}, func(t *testing.T, w world) {
		_, _, err := w.c.Server.AttachToNetwork(t.Context(), w.b, hcloud.ServerAttachToNetworkOpts{
			Network: w.net,
		})
		noError(t, err)
		if now, _ := w.sim.Server(w.b.ID); len(now.PrivateNet) != 0 || !now.Locked {
			t.Errorf("server shows %+v and locked=%v while it is attached", now.PrivateNet, now.Locked)
		}
		// Seeding ignores locks.
		c, err := w.sim.CreateServer(hcloudsim.ServerSeed{Name: "c", Network: w.net.ID})
		noError(t, err)
		_, err = w.sim.CreateServer(hcloudsim.ServerSeed{Name: "d", Network: w.net.ID})
		if err == nil {
			t.Error("the attachment limit does not count what is being attached")
		}
		time.Sleep(actionTime)
		b, _ := w.sim.Server(w.b.ID)
		if len(b.PrivateNet) != 1 || b.PrivateNet[0].IP == c.PrivateNet[0].IP || b.Locked {
			t.Errorf("servers have %+v and %+v", b.PrivateNet, c.PrivateNet)
		}
	})
}

func TestNewServerIsLocked(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		made, _, err := w.c.Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: "new", ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "ubuntu-24.04"}, Networks: []*hcloud.Network{w.net},
		})
		noError(t, err)
		s := made.Server
		if s.Status != hcloud.ServerStatusInitializing || !s.Locked || len(s.PrivateNet) != 0 ||
			len(made.NextActions) != 2 {
			t.Errorf("new server is %s, locked=%v, in %+v, with the next actions %+v", s.Status, s.Locked, s.PrivateNet, made.NextActions)
		}
		noError(t, w.c.Action.WaitFor(t.Context(), append(made.NextActions, made.Action)...))
		s, _, err = w.c.Server.GetByID(t.Context(), s.ID)
		noError(t, err)
		if s.Status != hcloud.ServerStatusRunning || s.Locked || len(s.PrivateNet) != 1 {
			t.Errorf("server is %s, locked=%v, in %+v", s.Status, s.Locked, s.PrivateNet)
		}
	})
}

func TestPowerTakesTime(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		_, _, err := w.c.Server.Shutdown(t.Context(), w.a)
		noError(t, err)
		if now, _ := w.sim.Server(w.a.ID); now.Status != "stopping" {
			t.Errorf("server is %s at first", now.Status)
		}
		time.Sleep(actionTime)
		if now, _ := w.sim.Server(w.a.ID); now.Status != "off" {
			t.Errorf("server is %s in the end", now.Status)
		}
	})
}

// The waiter requests up to 25 actions at once, and more in several requests.
func TestWaitingForManyActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := newSim(hcloudsim.Options{ActionTime: actionTime, ActionJitter: 5 * time.Second, Seed: 1})
		c := client(sim)
		var actions []*hcloud.Action
		for i := range 60 {
			s := seedServer(t, sim, hcloudsim.ServerSeed{Name: fmt.Sprintf("node-%d", i)})
			a, _, err := c.Server.Poweroff(t.Context(), s)
			noError(t, err)
			actions = append(actions, a)
		}
		noError(t, c.Action.WaitFor(t.Context(), actions...))
		ends := map[time.Time]bool{}
		for _, a := range sim.Actions() {
			took := a.Finished.Sub(a.Started)
			if took < actionTime || took >= actionTime+5*time.Second {
				t.Errorf("action took %v", took)
			}
			ends[*a.Finished] = true
		}
		if len(ends) < 50 {
			t.Errorf("actions end at only %d different times", len(ends))
		}
	})
}

// Ended actions are removed at some time, running ones never.
func TestActionsAreBounded(t *testing.T) {
	sim := newSim(hcloudsim.Options{RateLimit: hcloudsim.Unlimited})
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
	path := fmt.Sprintf("/v1/servers/%d/actions/poweroff", s.ID)
	for range 26_000 {
		send(t, sim, "POST", path, "")
	}
	if kept := len(sim.Actions()); kept < 20_000 || kept > 25_000 {
		t.Errorf("%d of 26,000 actions are remembered", kept)
	}
}

func TestActionsOfAServer(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	a := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
	b := seedServer(t, sim, hcloudsim.ServerSeed{Name: "b"})
	var last *hcloud.Action
	for _, s := range []*hcloud.Server{a, a, b} {
		action, _, err := c.Server.Poweroff(t.Context(), s)
		noError(t, err)
		last = action
	}
	for path, want := range map[string]int{
		fmt.Sprintf("/v1/servers/%d/actions", a.ID):                           2,
		fmt.Sprintf("/v1/servers/%d/actions?status=running", a.ID):            0,
		"/v1/servers/actions":                                                 3,
		"/v1/networks/actions":                                                0,
		fmt.Sprintf("/v1/actions?id=%d&id=%d&id=99999", last.ID, last.ID):     1,
		fmt.Sprintf("/v1/servers/actions?id=%d", last.ID):                     1,
		fmt.Sprintf("/v1/servers/%d/actions?sort=command&sort=id:desc", a.ID): 2,
	} {
		got := send(t, sim, "GET", path, "")
		if list, _ := got.object["actions"].([]any); len(list) != want {
			t.Errorf("%s has %d actions, want %d: %s", path, len(list), want, got.body)
		}
	}
	for path, status := range map[string]int{
		fmt.Sprintf("/v1/actions/%d", last.ID):                  http.StatusOK,
		fmt.Sprintf("/v1/servers/actions/%d", last.ID):          http.StatusOK,
		fmt.Sprintf("/v1/networks/actions/%d", last.ID):         http.StatusNotFound,
		fmt.Sprintf("/v1/servers/%d/actions/%d", b.ID, last.ID): http.StatusOK,
		fmt.Sprintf("/v1/servers/%d/actions/%d", a.ID, last.ID): http.StatusNotFound,
		"/v1/actions/99999": http.StatusNotFound,
	} {
		if got := send(t, sim, "GET", path, ""); got.status != status {
			t.Errorf("%s answers %d, want %d", path, got.status, status)
		}
	}
}
