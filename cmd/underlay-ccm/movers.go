package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	addresscontroller "github.com/underlay-ccm/underlay/addresses/controller"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/dedicated"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// addressRouters are the movers that act through an API, where pools have them.
func (m *manager) addressRouters(nodes corelisters.NodeLister) map[string]addresscontroller.Routing {
	routers := make(map[string]addresscontroller.Routing)
	if ranges := rangesOf(m.config.Addresses, config.FloatingIP); len(ranges) > 0 {
		router := m.client.FloatingIPs(hetzner.FloatingIPOptions{
			Cluster: m.config.ClusterName, Ranges: ranges, Nodes: machines(nodes, kube.ParseProviderID),
		})
		routers[string(config.FloatingIP)] = addresscontroller.Routing{
			Router: &checked{mover: router}, Serves: serves(kube.ParseProviderID), Answering: true,
		}
	}
	if ranges := rangesOf(m.config.Addresses, config.Failover); len(ranges) > 0 {
		router := dedicated.NewFailovers(dedicated.FailoverOptions{
			Robot: m.robot, Servers: m.account, Ranges: ranges, Nodes: machines(nodes, kube.ParseDedicatedID),
		})
		routers[string(config.Failover)] = addresscontroller.Routing{
			Router: &checked{mover: router}, Serves: serves(kube.ParseDedicatedID), Scarce: true,
		}
	}
	return routers
}

// rangesOf are the ranges of all pools that have a mover.
func rangesOf(a config.Addresses, mover config.Mover) (ranges []addresses.Range) {
	for _, p := range a.Pools {
		if p.Mover == mover {
			ranges = append(ranges, p.Ranges...)
		}
	}
	return ranges
}

// serves reports whether a provider ID is one that a mover leads addresses to.
func serves(parse func(string) (int64, error)) func(string) bool {
	return func(providerID string) bool {
		_, err := parse(providerID)
		return err == nil
	}
}

// machines are the provider IDs of the Nodes that a mover leads addresses to, by their numbers.
func machines(nodes corelisters.NodeLister, parse func(string) (int64, error)) func(context.Context) (map[int64]string, error) {
	return func(context.Context) (map[int64]string, error) {
		list, err := nodes.List(labels.Everything())
		if err != nil {
			return nil, fmt.Errorf("listing Nodes: %w", err)
		}
		found := make(map[int64]string)
		for _, n := range list {
			if id, err := parse(n.Spec.ProviderID); err == nil {
				found[id] = n.Spec.ProviderID
			}
		}
		return found, nil
	}
}

// mover is a Router that knows which addresses of its pools the provider doesn't have.
type mover interface {
	addresscontroller.Router
	Missing(context.Context) ([]netip.Addr, error)
}

// checked tells of addresses that are in a pool by mistake once it knows what there is, and not only
// when a Service gets one.
type checked struct {
	mover
	once sync.Once
}

// Routed implements addresscontroller.Router.
func (c *checked) Routed(ctx context.Context) (map[netip.Addr]string, error) {
	routed, err := c.mover.Routed(ctx)
	if err != nil {
		return nil, err
	}
	c.once.Do(func() {
		// It has just been listed: nobody is asked again.
		missing, err := c.Missing(ctx)
		if err == nil && len(missing) > 0 {
			klog.FromContext(ctx).Info("Pools have addresses that the provider doesn't have, the first of each range is named; Services that get one are not reached: order them, or take them out of addresses.pools",
				"addresses", missing)
		}
	})
	return routed, nil
}
