package hetzner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/leadership"
	"github.com/underlay-ccm/underlay/lb"
)

// claim labels a floating IP as the cluster's own. If that fails, nothing is wrong but that it is
// tried again at the next reading, so nobody is told: the request is counted.
//
// The API replaces all labels at once, so they are read again just before: what somebody else
// labeled since the list stays. It happens once for each floating IP.
func (f *FloatingIPs) claim(ctx context.Context, ip floatingIP) {
	if _, labeled := ip.labels[lb.LabelCluster]; labeled || f.o.Cluster == "" {
		return
	}
	var labels map[string]string
	err := retry(ctx, write, func(ctx context.Context) error {
		now, _, err := f.client.api.FloatingIP.GetByID(ctx, ip.id)
		if err != nil || now == nil || now.Server == nil || now.Server.ID != ip.server {
			return err // it isn't there any more
		}
		labels = map[string]string{lb.LabelCluster: f.o.Cluster}
		maps.Copy(labels, now.Labels)
		_, _, err = f.client.api.FloatingIP.Update(ctx, &hcloud.FloatingIP{ID: ip.id},
			hcloud.FloatingIPUpdateOpts{Labels: labels})
		return err
	})
	if err == nil && labels != nil {
		f.note(ip.id, func(ip *floatingIP) { ip.labels = labels })
	}
}

// move leads a floating IP to another server, or nowhere for 0.
func (f *FloatingIPs) move(ctx context.Context, ip floatingIP, server int64) error {
	if server == 0 {
		return f.unassign(ctx, ip)
	}
	if ip.server == 0 || !f.unassignsFirst.Load() {
		err := f.assign(ctx, ip.id, server)
		if ip.server == 0 || !hcloud.IsError(err, "floating_ip_assigned") {
			return err
		}
		f.unassignsFirst.Store(true)
	}
	ctx, release := leadership.Hold(ctx)
	defer release()
	if err := f.unassign(ctx, ip); err != nil {
		return err
	}
	// It leads nowhere now: this is not the moment to stop.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return f.assign(ctx, ip.id, server)
}

func (f *FloatingIPs) assign(ctx context.Context, id, server int64) error {
	err := f.change(ctx, server, func(ctx context.Context) (*hcloud.Action, error) {
		action, _, err := f.client.api.FloatingIP.Assign(ctx, &hcloud.FloatingIP{ID: id},
			&hcloud.Server{ID: server})
		return action, err
	})
	if err == nil {
		return nil
	}
	if aboutServer(err) {
		err = &addresses.Unrouted{About: addresses.AboutNode, Err: err}
	}
	return fmt.Errorf("assigning it to server %d: %w", server, err)
}

// aboutServer reports whether an assignment was refused, or failed, such that one to another server
// may be done: not for a token that may not write, or an API that is away.
func aboutServer(err error) bool {
	return errors.As(err, new(hcloud.ActionError)) || hcloud.IsError(err,
		hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound, hcloud.ErrorCodeConflict,
		hcloud.ErrorCodeLocked, hcloud.ErrorCodeResourceLocked, hcloud.ErrorCodeResourceUnavailable,
		hcloud.ErrorCodeResourceLimitExceeded, hcloud.ErrorUnsupportedError)
}

func (f *FloatingIPs) unassign(ctx context.Context, ip floatingIP) error {
	err := f.change(ctx, ip.server, func(ctx context.Context) (*hcloud.Action, error) {
		action, _, err := f.client.api.FloatingIP.Unassign(ctx, &hcloud.FloatingIP{ID: ip.id})
		return action, err
	})
	if err != nil {
		return fmt.Errorf("unassigning it from server %d: %w", ip.server, err)
	}
	return nil
}

// change sends a write and waits until its action is over. No source tells whether a server gets
// several floating IPs at the same time; so the first try goes at once, and those that are refused
// for what is under way go one after the other for each server.
func (f *FloatingIPs) change(
	ctx context.Context, server int64, send func(context.Context) (*hcloud.Action, error),
) error {
	action, err := send(ctx)
	if err != nil && !refusedForNow(err) {
		return err
	}
	if err == nil {
		return f.client.actions.wait(ctx, action)
	}
	return f.turnOf(server).run(ctx, func(ctx context.Context) error {
		var action *hcloud.Action
		err := retry(ctx, write, func(ctx context.Context) error {
			var err error
			action, err = send(ctx)
			return err
		})
		if err != nil {
			return err
		}
		return f.client.actions.wait(ctx, action)
	})
}

func (f *FloatingIPs) turnOf(server int64) writer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.turns[server] == nil {
		f.turns[server] = newWriter()
	}
	return f.turns[server]
}
