package hcloudsim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// change is a client's change of the world.
type change struct {
	name string
	do   func(t *testing.T, w world) error
}

var (
	addsRoute  = change{"add route", func(t *testing.T, w world) error { return addRoute(t, w.c, w.net, "10.244.9.0/24", "10.0.0.2") }}
	addsSubnet = change{"add subnet", func(t *testing.T, w world) error {
		_, _, err := w.c.Network.AddSubnet(t.Context(), w.net, hcloud.NetworkAddSubnetOpts{
			Subnet: hcloud.NetworkSubnet{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: "eu-central", IPRange: ipNet("10.9.0.0/16")},
		})
		return err
	}}
	updates = change{"update network", func(t *testing.T, w world) error {
		_, _, err := w.c.Network.Update(t.Context(), w.net, hcloud.NetworkUpdateOpts{Name: "renamed"})
		return err
	}}
	deletes  = change{"delete network", func(t *testing.T, w world) error { _, err := w.c.Network.Delete(t.Context(), w.net); return err }}
	attaches = change{"attach server", func(t *testing.T, w world) error {
		_, _, err := w.c.Server.AttachToNetwork(t.Context(), w.b, hcloud.ServerAttachToNetworkOpts{
			Network: w.net,
		})
		return err
	}}
	detaches = change{"detach server", func(t *testing.T, w world) error {
		_, _, err := w.c.Server.DetachFromNetwork(t.Context(), w.a, hcloud.ServerDetachFromNetworkOpts{
			Network: w.net,
		})
		return err
	}}
	creates = change{"create server in network", func(t *testing.T, w world) error {
		_, _, err := w.c.Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: "c", ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "ubuntu-24.04"}, Networks: []*hcloud.Network{w.net},
		})
		return err
	}}
	balances = change{"create load balancer in network", func(t *testing.T, w world) error {
		_, _, err := w.c.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
			Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, NetworkZone: "eu-central", Network: w.net,
		})
		return err
	}}
	powersB  = change{"power b off", func(t *testing.T, w world) error { _, _, err := w.c.Server.Poweroff(t.Context(), w.b); return err }}
	deletesA = change{"delete a", func(t *testing.T, w world) error {
		_, _, err := w.c.Server.DeleteWithResult(t.Context(), w.a)
		return err
	}}
)

// TestLocks runs each change against each one that it must wait for.
func TestLocks(t *testing.T) {
	ofNetwork := []change{addsRoute, addsSubnet, attaches, detaches, creates, balances}
	type pair struct {
		first, second change
		refused       bool
	}
	var pairs []pair
	for _, first := range ofNetwork {
		for _, second := range append([]change{updates, deletes}, ofNetwork...) {
			pairs = append(pairs, pair{first, second, true})
		}
	}
	pairs = append(
		pairs,
		pair{attaches, powersB, true},
		pair{powersB, attaches, true},
		pair{detaches, deletesA, true},
		pair{addsRoute, powersB, false},
		pair{powersB, addsRoute, false},
		pair{addsRoute, deletesA, false},
	)
	for code, busy := range map[string]hcloudsim.Busy{"conflict": hcloudsim.BusyConflict, "locked": hcloudsim.BusyLocked} {
		for _, p := range pairs {
			t.Run(fmt.Sprintf("%s/%s while %s", code, p.second.name, p.first.name), func(t *testing.T) {
				inBubble(t, hcloudsim.Options{Busy: busy}, func(t *testing.T, w world) {
					noError(t, p.first.do(t, w))
					time.Sleep(actionTime - 1)
					if !p.refused {
						noError(t, p.second.do(t, w))
						return
					}
					wantCode(t, p.second.do(t, w), code)
					time.Sleep(time.Nanosecond)
					if err := p.second.do(t, w); hcloud.IsError(err, "conflict", "locked") {
						t.Errorf("after the action, still %v", err)
					}
				})
			})
		}
	}
}

// A load balancer is locked by each of its changes, its network only by attachments and
// detachments.
func TestLoadBalancerIsLocked(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		lb := createWhole(t, w.c, w.net).LoadBalancer
		addTarget := func() error {
			_, _, err := w.c.LoadBalancer.AddServerTarget(t.Context(), lb,
				hcloud.LoadBalancerAddServerTargetOpts{Server: w.a})
			return err
		}
		wantCode(t, addTarget(), "conflict") // it is still being created
		time.Sleep(actionTime)
		noError(t, addTarget())
		_, _, err := w.c.LoadBalancer.DeleteService(t.Context(), lb, 80)
		wantCode(t, err, "conflict")
		noError(t, addRoute(t, w.c, w.net, "10.244.0.0/24", "10.0.0.2"))
		time.Sleep(actionTime)
		_, _, err = w.c.LoadBalancer.DetachFromNetwork(t.Context(), lb,
			hcloud.LoadBalancerDetachFromNetworkOpts{Network: w.net})
		noError(t, err)
		wantCode(t, addRoute(t, w.c, w.net, "10.244.1.0/24", "10.0.0.2"), "conflict")
	})
}
