package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/underlay-ccm/underlay/addresses"
	addresscontroller "github.com/underlay-ccm/underlay/addresses/controller"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/robot"
)

// addressRouters returns the movers that use an API and that pools name.
func (m *manager) addressRouters(
	nodes corelisters.NodeLister,
) map[addresses.Mover]addresscontroller.Routing {
	routers := make(map[addresses.Mover]addresscontroller.Routing)
	if ranges := rangesOf(m.config.Addresses, addresses.FloatingIP); len(ranges) > 0 {
		router := m.client.FloatingIPs(hetzner.FloatingIPOptions{
			Cluster: m.config.ClusterName, Ranges: ranges, Nodes: machines(nodes, kube.ParseProviderID),
		})
		routers[addresses.FloatingIP] = addresscontroller.Routing{
			Router: router, Serves: serves(kube.ParseProviderID), Answering: true,
		}
	}
	if ranges := rangesOf(m.config.Addresses, addresses.Failover); len(ranges) > 0 {
		router := robot.NewFailovers(robot.FailoverOptions{
			Client: m.robot, Servers: m.account, Ranges: ranges,
			Nodes: machines(nodes, kube.ParseDedicatedID),
		})
		routers[addresses.Failover] = addresscontroller.Routing{
			Router: router, Serves: serves(kube.ParseDedicatedID), Scarce: true,
		}
	}
	return routers
}

func rangesOf(a config.Addresses, mover addresses.Mover) (ranges []addresses.Range) {
	for _, p := range a.Pools {
		if p.Mover == mover {
			ranges = append(ranges, p.Ranges...)
		}
	}
	return ranges
}

// serves returns a predicate for the provider IDs that a mover can route addresses to.
func serves(parse func(string) (int64, error)) func(string) bool {
	return func(providerID string) bool {
		_, err := parse(providerID)
		return err == nil
	}
}

// machines returns a getter of the Nodes' provider IDs that a mover serves, by number.
func machines(
	nodes corelisters.NodeLister, parse func(string) (int64, error),
) func(context.Context) (map[int64]string, error) {
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
