package project_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

// A change that is under way isn't cut short by the end of its context, and a read is.
func TestChangesAreNotCutShort(t *testing.T) {
	inProject(t, hcloudsim.Options{Latency: 5 * time.Second}, func(t *testing.T, w *world) {
		p := w.project(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := p.Client().Network.Create(ctx, hcloud.NetworkCreateOpts{
			Name: p.Name("net"), Labels: p.Labels(), IPRange: ipNet("10.0.0.0/8"),
		})
		if err != nil {
			t.Errorf("making a network: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := p.Client().Network.All(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("reading: %v after %s", err, time.Since(began))
		}
		_, err = p.Sweep(t.Context())
		noError(t, err)
		w.empty()
	})
}

// The API that never answers holds nobody for ever.
func TestRequestsAreBounded(t *testing.T) {
	inProject(t, hcloudsim.Options{}, func(t *testing.T, w *world) {
		p := w.project(nil)
		noError(t, w.sim.Inject(hcloudsim.Fault{Delay: 24 * time.Hour, Times: 2}))
		began := time.Now()
		_, _, err := p.Client().Network.Create(t.Context(), hcloud.NetworkCreateOpts{
			Name: p.Name("net"), Labels: p.Labels(), IPRange: ipNet("10.0.0.0/8"),
		})
		_, err2 := p.Client().Network.All(t.Context())
		if err == nil || err2 == nil || time.Since(began) != time.Minute {
			t.Errorf("%v, %v after %s", err, err2, time.Since(began))
		}
	})
}

// Nothing is taken away from what somebody has begun to use since it was seen last.
func TestGuardLooksBeforeItTakes(t *testing.T) {
	inProject(t, slow(), func(t *testing.T, w *world) {
		p := w.project(nil)
		made, err := furnish(t.Context(), p)
		noError(t, err)
		w.settle()
		w.make("/servers", fmt.Sprintf(`{"name": "prod-3", "server_type": "cx23", "image": "debian-12", "location": "nbg1", "networks": [%d]}`, made.net.ID))
		w.settle()
		w.direct("POST", fmt.Sprintf("/floating_ips/%d/actions/assign", made.floating.ID), fmt.Sprintf(`{"server": %d}`, w.server))
		w.settle()
		w.before = w.photo()
		c := p.Client()
		_, errNet := c.Network.Delete(t.Context(), made.net)
		_, _, errUnassign := c.FloatingIP.Unassign(t.Context(), made.floating)
		_, _, errAssign := c.FloatingIP.Assign(t.Context(), made.floating, made.servers[0])
		_, errFloating := c.FloatingIP.Delete(t.Context(), made.floating)
		for _, err := range []error{errNet, errUnassign, errAssign, errFloating} {
			if !errors.Is(err, project.ErrRefused) {
				t.Errorf("%v", err)
			}
		}
		w.empty() // nothing has changed

		// What is gone is gone, and what can't be looked at stays.
		w.direct("DELETE", fmt.Sprintf("/load_balancers/%d", made.balancer.ID), "")
		w.settle()
		if _, _, err := c.LoadBalancer.DeleteWithResult(t.Context(), made.balancer); !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
			t.Errorf("removing what is gone: %v", err)
		}
		noError(t, w.sim.Inject(hcloudsim.Fault{Match: "GET /servers/{id}", Code: "server_error"}))
		if _, _, err := c.Server.DeleteWithResult(t.Context(), made.servers[1]); !hcloud.IsError(err, hcloud.ErrorCodeServerError) {
			t.Errorf("removing what can't be looked at: %v", err)
		}
		if _, there := w.sim.Server(made.servers[1].ID); !there {
			t.Error("it was removed")
		}
	})
}
