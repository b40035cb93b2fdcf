package main

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/klog/v2"

	addresscontroller "github.com/underlay-ccm/underlay/addresses/controller"
	"github.com/underlay-ccm/underlay/internal/config"
)

// addressQPS limits the address controller, which writes once per failed node or new Service.
const addressQPS = 50

// serviceAddresses creates the controller of addresses that nodes hold for Services.
func (m *manager) serviceAddresses(c *appconfig.CompletedConfig) (runner, error) {
	wanted := m.config.Addresses
	if !wanted.Enabled() {
		return nil, nil
	}
	cfg := addresscontroller.Config{
		Client:    clientOf(c, addresscontroller.Name, addressQPS, 2*addressQPS),
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
	selective := func(p addresscontroller.Pool) bool { return p.Namespaces != nil }
	if slices.ContainsFunc(cfg.Pools, selective) {
		cfg.Namespaces = c.SharedInformers.Core().V1().Namespaces()
	}
	return addresscontroller.New(cfg)
}

func addressPools(a config.Addresses) []addresscontroller.Pool {
	var pools []addresscontroller.Pool
	for _, p := range a.Pools {
		pools = append(pools, addresscontroller.Pool{
			Pool: p.Pool, Namespaces: p.Namespaces, Mover: p.Mover,
		})
	}
	return pools
}

// checkAddresses refuses to start with a configuration that lacks addresses of existing
// Services, so that a running process with the old configuration continues. It waits for an
// unavailable API server, as on a control plane that starts. Without pools, an unreadable ledger
// is no error: most clusters never had one.
func (m *manager) checkAddresses(ctx context.Context, client kubernetes.Interface) error {
	backoff := wait.Backoff{
		Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 5, Cap: 10 * time.Second,
	}
	return backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		orphans, err := addresscontroller.Check(ctx, client, ledgerNamespace,
			addressPools(m.config.Addresses))
		switch {
		case err == nil:
			return true, addressesInUse(orphans)
		case !m.config.Addresses.Enabled():
			return true, nil
		}
		klog.FromContext(ctx).Error(err,
			"Whether pools lack addresses that Services have is not known; trying again")
		return false, nil
	})
}

func addressesInUse(orphans []addresscontroller.Orphan) error {
	var wrong config.Errors
	for _, o := range orphans {
		wrong = append(wrong, &config.Error{
			Field: "addresses.pools", Value: o.Address.String(), Problem: o.Problem(), Remedy: o.Remedy(),
		})
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}
