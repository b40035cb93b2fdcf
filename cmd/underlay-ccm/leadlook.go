package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/internal/wiring"
	"github.com/underlay-ccm/underlay/ipam"
)

const (
	// lookTimeout limits how long the controllers of a new leader wait for the cloud.
	lookTimeout = 10 * time.Second
	// followPeriod is the time between two reads of a network without managed routes. Load
	// balancers reread its subnets only if they are older than 5 minutes.
	followPeriod = 4 * time.Minute
)

// lookAsLeader reads the current network, which may have changed since the start: podCIDRs must
// not overlap its current subnets. Upstream starts the controllers sequentially, so no Underlay
// controller runs before it returns. If the cloud is unresponsive, the controllers use the network
// as read at start, as those of the previous leader did. No finding exits the process, since every
// replica would exit in turn. Only a start refuses a configuration.
func (m *manager) lookAsLeader(ctx context.Context) {
	if m.client == nil || m.config.Network == "" {
		return
	}
	looking, cancel := context.WithTimeout(requests.WithPriority(ctx, requests.Urgent), lookTimeout)
	defer cancel()
	err := backoff().DelayFunc().Until(looking, true, true, func(ctx context.Context) (bool, error) {
		err := m.network.Find(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(m.explain(err), "The network can't be looked at; trying again",
				"endpoint", m.config.Endpoint)
		}
		return err == nil, nil
	})
	if err != nil {
		klog.FromContext(ctx).Info("The cloud doesn't respond; leading with the state of the network at the start; podCIDRs keep clear of the subnets of that moment until the next leader or restart", "network", m.config.Network)
	} else {
		network := m.network.Last()
		for _, unfit := range m.checkLayout(ctx, network) {
			klog.FromContext(ctx).Error(unfit,
				"Nodes with such podCIDRs get no routes; the next start will fail")
		}
		for _, unfit := range m.checkVSwitch(network) {
			klog.FromContext(ctx).Error(unfit,
				"Dedicated servers' pods are not reached; the next start will fail")
		}
		m.useAsLeader(ctx, network)
	}
	if m.config.VSwitch.ExposeRoutes {
		go m.exposeRoutes(ctx)
	}
}

// useAsLeader uses the network as read, unless its subnets fill a pool, which no Ledger allows.
func (m *manager) useAsLeader(ctx context.Context, network *hetzner.NetworkDetails) {
	if m.config.IPAM.Enabled {
		if _, err := ipam.NewLedger(wiring.Pools(m.config), m.exclusions(network)); err != nil {
			klog.FromContext(ctx).Error(err,
				"podCIDRs keep clear only of the subnets that the network had at the start")
			return
		}
	}
	m.layout = network
}

// follow reads the network periodically if no route controller does, so that a network that was
// deleted and recreated under its name is found again.
func (m *manager) follow(ctx context.Context) {
	ctx = requests.WithPriority(ctx, requests.Background)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if _, err := m.network.List(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The network can't be looked at; trying again", "network",
				m.config.Network)
		}
	}, followPeriod)
}

// exposeRoutes makes the network expose its routes to the vSwitch, retrying until it succeeds.
func (m *manager) exposeRoutes(ctx context.Context) {
	backoff := wait.Backoff{
		Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 12, Cap: 10 * time.Minute,
	}
	_ = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := m.network.Find(ctx)
		if err == nil && m.network.Last().Coupling.Exposed {
			return true, nil
		}
		if err == nil {
			err = m.network.ExposeRoutes(ctx)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "The network doesn't tell its routes to the vSwitch, so pods of dedicated servers don't reach those of cloud servers; trying again", "network", m.config.Network)
			return false, nil
		}
		klog.FromContext(ctx).Info("The network exposes its routes to the vSwitch from now on", "network",
			m.config.Network, "subnet", m.config.VSwitch.Subnet)
		return true, nil
	})
}
