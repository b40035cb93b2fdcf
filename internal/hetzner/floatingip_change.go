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

// claim labels a floating IP with the cluster's name. A failure is not returned, since the next
// call of Routed retries it; the request is counted.
//
// The API replaces all labels at once, so they are read just before, to keep labels that other
// clients have set since the list. It happens once for each floating IP.
func (f *FloatingIPs) claim(ctx context.Context, ip floatingIP) {
	if _, labeled := ip.labels[lb.LabelCluster]; labeled || f.o.Cluster == "" {
		return
	}
	var labels map[string]string
	err := retry(ctx, write, func(ctx context.Context) error {
		now, _, err := f.client.api.FloatingIP.GetByID(ctx, ip.id)
		if err != nil || now == nil || now.Server == nil || now.Server.ID != ip.server {
			return err // deleted or reassigned
		}
		labels = map[string]string{lb.LabelCluster: f.o.Cluster}
		maps.Copy(labels, now.Labels)
		_, _, err = f.client.api.FloatingIP.Update(ctx, &hcloud.FloatingIP{ID: ip.id},
			hcloud.FloatingIPUpdateOpts{Labels: labels})
		return err
	})
	if err == nil && labels != nil {
		f.note(ctx, ip.id, func(ip *floatingIP) { ip.labels = labels })
	}
}

// move assigns a floating IP to another server, or unassigns it for 0.
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
	// The floating IP is unassigned now, so its assignment must not be canceled.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return f.assign(ctx, ip.id, server)
}

func (f *FloatingIPs) assign(ctx context.Context, id, server int64) error {
	err := f.client.change(ctx, time.Time{}, func(ctx context.Context) (*hcloud.Action, error) {
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

// aboutServer reports whether another server may be accepted after an assignment was refused or
// failed: not if the token may not write or the API is unavailable.
func aboutServer(err error) bool {
	return errors.As(err, new(hcloud.ActionError)) || hcloud.IsError(err,
		hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound, hcloud.ErrorCodeConflict,
		hcloud.ErrorCodeLocked, hcloud.ErrorCodeResourceLocked, hcloud.ErrorCodeResourceUnavailable,
		hcloud.ErrorCodeResourceLimitExceeded, hcloud.ErrorUnsupportedError)
}

func (f *FloatingIPs) unassign(ctx context.Context, ip floatingIP) error {
	err := f.client.change(ctx, time.Time{}, func(ctx context.Context) (*hcloud.Action, error) {
		action, _, err := f.client.api.FloatingIP.Unassign(ctx, &hcloud.FloatingIP{ID: ip.id})
		return action, err
	})
	if err != nil {
		return fmt.Errorf("unassigning it from server %d: %w", ip.server, err)
	}
	return nil
}
