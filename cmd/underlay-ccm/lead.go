package main

import (
	"context"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/leadership"
)

const (
	// holdTimeout is well within any lease duration, so the new holder can't have changed yet.
	holdTimeout = 3 * time.Second
	// stepDownTimeout is well within a pod's termination grace period. Held changes don't
	// outlast the lease either: the gate covers its renewals too, and an elector that can't
	// renew exits the process before the lease expires.
	stepDownTimeout = 10 * time.Second
)

// warm starts the informers that node IPAM needs before this replica leads, because listing the
// Nodes of a large cluster takes seconds. Without controllers, events only fill the caches.
func (m *manager) warm(c *appconfig.CompletedConfig) {
	if m.config.IPAM.Enabled && enabled(c, nodeIPAMController) {
		// An error is ignored here; the leader retries.
		if ranges, err := serviceCIDRs(c, c.Client.Discovery()); err == nil && ranges != nil {
			ranges.Informer()
		}
	}
	// The Node informer exists since connect. All run until the process ends, as in the leader.
	c.SharedInformers.Start(wait.NeverStop)
}

func (m *manager) lead(ctx context.Context, c *appconfig.CompletedConfig) {
	m.once.Do(func() {
		m.hold(ctx, c)
		m.checkRobot(ctx)
		m.lookAsLeader(ctx)
		if m.network != nil && !m.routesRun(c) {
			go m.follow(ctx)
		}
	})
}

// hold records the lease, so that stepDown can release it. Without it the lease expires.
func (m *manager) hold(ctx context.Context, c *appconfig.CompletedConfig) {
	election := c.ComponentConfig.Generic.LeaderElection
	// With separate credentials per controller, the gate does not cover their clients.
	if !election.LeaderElect || c.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	host, err := os.Hostname()
	if err == nil {
		var lease *leadership.Lease
		if lease, err = leadership.Held(ctx, m.plain.CoordinationV1(), election.ResourceNamespace,
			election.ResourceName, host); err == nil {
			m.lease.Store(lease)
			return
		}
	}
	klog.FromContext(ctx).Error(err, "The lease will not be given back at the end; it will expire")
}

// leading returns an error if another process holds the lease, as far as hold has recorded it.
func (m *manager) leading(ctx context.Context) error {
	if lease := m.lease.Load(); lease != nil {
		return lease.Check(ctx)
	}
	return nil
}

// stepDown waits for held changes, with or without a lease, and then releases the lease, so that
// the next leader can start at once. A replica that doesn't lead has no held changes.
func (m *manager) stepDown() {
	ctx, cancel := context.WithTimeout(context.Background(), stepDownTimeout)
	defer cancel()
	closed, lease := m.gate.Close(ctx, lastWords), m.lease.Load()
	switch {
	case closed != nil && lease != nil:
		klog.FromContext(ctx).Error(closed, "The lease is not given back; it will expire")
		return
	case closed != nil:
		klog.FromContext(ctx).Error(closed, "The process ends, and a change may be half done")
		return
	case lease == nil:
		return
	}
	if err := lease.Release(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The lease could not be given back; it will expire")
		return
	}
	klog.FromContext(ctx).Info("The lease was given back")
}
