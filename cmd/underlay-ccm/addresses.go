package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	appconfig "k8s.io/cloud-provider/app/config"

	addresscontroller "github.com/underlay-ccm/underlay/addresses/controller"
	"github.com/underlay-ccm/underlay/internal/config"
)

// addressQPS bounds the requests of the controller of addresses. A node that dies costs one write,
// and many Services that come cost one each.
const addressQPS = 50

// serviceAddresses makes the controller that gives Services addresses which nodes hold.
func (m *manager) serviceAddresses(c *appconfig.CompletedConfig) (runner, error) {
	wanted := m.config.Addresses
	if !wanted.Enabled() {
		return nil, nil
	}
	// Its own client: the gap when a node dies must not wait for requests of others.
	rest, err := c.ClientBuilder.Config(addresscontroller.Name)
	if err != nil {
		return nil, fmt.Errorf("client of the controller of addresses: %w", err)
	}
	rest.QPS, rest.Burst = addressQPS, 2*addressQPS
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("client of the controller of addresses: %w", err)
	}
	cfg := addresscontroller.Config{
		Client:    client,
		Services:  c.SharedInformers.Core().V1().Services(),
		Nodes:     c.SharedInformers.Core().V1().Nodes(),
		Slices:    c.SharedInformers.Discovery().V1().EndpointSlices(),
		Pools:     addressPools(wanted),
		Routers:   m.addressRouters(c.SharedInformers.Core().V1().Nodes().Lister()),
		Classless: wanted.Classless,
		Balancers: m.config.LoadBalancers.Enabled,
		Namespace: ledgerNamespace,
		Recorder:  c.EventRecorder,
		Registry:  registry{},
	}
	if selectsNamespaces(wanted) {
		cfg.Namespaces = c.SharedInformers.Core().V1().Namespaces()
	}
	return addresscontroller.New(cfg)
}

func addressPools(a config.Addresses) []addresscontroller.Pool {
	var pools []addresscontroller.Pool
	for _, p := range a.Pools {
		pools = append(pools, addresscontroller.Pool{Pool: p.Pool, Namespaces: p.Namespaces, Mover: string(p.Mover)})
	}
	return pools
}

func selectsNamespaces(a config.Addresses) bool {
	for _, p := range a.Pools {
		if p.Namespaces != nil {
			return true
		}
	}
	return false
}

// checkAddresses refuses at start a configuration that lacks addresses which Services have, so that
// a process that knows them goes on instead of this one. Where there are no pools at all, a ledger
// that cannot be read stops nothing: most clusters never had one.
func (m *manager) checkAddresses(ctx context.Context, client kubernetes.Interface) error {
	orphans, err := addresscontroller.Check(ctx, client, ledgerNamespace, addressPools(m.config.Addresses))
	if err != nil && !m.config.Addresses.Enabled() {
		return nil
	}
	if err != nil {
		return err
	}
	var wrong config.Errors
	for _, o := range orphans {
		wrong = append(wrong, &config.Error{Field: "addresses.pools", Value: o.Address.String(), Problem: o.Problem(), Remedy: o.Remedy()})
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}
