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
	// holdTimeout is well within any lease, so that who holds it then is who got it.
	holdTimeout = 3 * time.Second
	// stepDownTimeout is well within the time that Kubernetes gives a pod to end. What is held
	// goes on no longer than the lease either: renewals of the lease are behind the gate, too, and
	// an elector that can't renew ends the process before the lease expires.
	stepDownTimeout = 10 * time.Second
)

// warm starts, before this replica leads, the informers that node IPAM waits for when it does: to
// list the Nodes of a large cluster takes seconds. Controllers subscribe only when it leads, so
// until then events fill the caches and nothing else.
func (m *manager) warm(c *appconfig.CompletedConfig) {
	if m.config.IPAM.Enabled && enabled(c, nodeIPAMController) {
		// The leader tries again.
		if ranges, err := serviceCIDRs(c, c.Client.Discovery()); err == nil && ranges != nil {
			ranges.Informer()
		}
	}
	// Those of Nodes are there since connect. They end with the process, as the leader's do.
	c.SharedInformers.Start(wait.NeverStop)
}

// lead begins what this replica does as the leader.
func (m *manager) lead(ctx context.Context, c *appconfig.CompletedConfig) {
	m.once.Do(func() {
		m.hold(ctx, c)
		m.askRobot(ctx)
		m.lookAsLeader(ctx)
		if m.table != nil && !m.routesRun(c) {
			go m.follow(ctx)
		}
	})
}

// hold remembers the lease, to give it back in the end. Without that it expires.
func (m *manager) hold(ctx context.Context, c *appconfig.CompletedConfig) {
	election := c.ComponentConfig.Generic.LeaderElection
	// With credentials of its own for each controller, their clients are not behind the gate.
	if !election.LeaderElect || c.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	host, err := os.Hostname()
	if err == nil {
		var lease *leadership.Lease
		if lease, err = leadership.Held(ctx, m.plain.CoordinationV1(), election.ResourceNamespace, election.ResourceName, host); err == nil {
			m.lease.Store(lease)
			return
		}
	}
	klog.FromContext(ctx).Error(err, "The lease will not be given back at the end; it will expire")
}

// stepDown ends what is held, whether there is a lease or not, and lets the next leader begin at
// once if there is one. On a replica that doesn't lead nothing is held.
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
