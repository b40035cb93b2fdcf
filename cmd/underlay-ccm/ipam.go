package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	appconfig "k8s.io/cloud-provider/app/config"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/wiring"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	routecontroller "github.com/underlay-ccm/underlay/routes/controller"
)

const (
	ledgerNamespace = metav1.NamespaceSystem
	// lastWords is how long requests of the allocator may arrive after its process lost the lease.
	lastWords = 30 * time.Second
)

func (m *manager) nodeIPAM(c *appconfig.CompletedConfig) (runner, error) {
	ipamConfig := m.config.IPAM
	if !ipamConfig.Enabled {
		return nil, nil
	}
	client := clientOf(c, nodeIPAMController, ipamConfig.QPS, ipamConfig.QPS)
	serviceCIDRs, err := serviceCIDRs(c, client)
	if err != nil {
		return nil, err
	}
	cfg := ipamcontroller.Config{
		Client:       client,
		Nodes:        c.SharedInformers.Core().V1().Nodes(),
		ServiceCIDRs: serviceCIDRs,
		Pools:        pools(m.config),
		Exclusions:   m.exclusions(m.layout),
		Quarantine:   ipamConfig.Quarantine,
		Own:          &m.machines,
		Namespace:    ledgerNamespace,
		Fence:        lease(c) + lastWords,
		Recorder:     c.EventRecorder,
		Registry:     registry{},
	}
	if m.routesRun(c) {
		cfg.Routed, cfg.Routes = m.routeState.Routed, m.routeState.Destinations
	}
	if election := c.ComponentConfig.Generic.LeaderElection; election.LeaderElect {
		cfg.First = func(ctx context.Context) (bool, error) {
			return firstLeader(ctx, client, election.ResourceNamespace, election.ResourceName)
		}
	}
	r, err := ipamcontroller.New(cfg)
	if err != nil {
		return nil, err
	}
	m.ipamController.Store(r)
	return r, nil
}

// clientOf returns a client with its own rate limit: that of the shared clients would bound how
// fast Nodes get their podCIDRs, and addresses fail over.
func clientOf(
	c *appconfig.CompletedConfig, controller string, qps, burst int,
) *kubernetes.Clientset {
	rest := c.ClientBuilder.ConfigOrDie(controller)
	rest.QPS, rest.Burst = float32(qps), burst
	return kubernetes.NewForConfigOrDie(rest)
}

// firstLeader reports whether the lease has never changed hands and no route was ever recorded.
func firstLeader(
	ctx context.Context, client kubernetes.Interface, namespace, name string,
) (bool, error) {
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("reading the lease %s/%s: %w", namespace, name, err)
	}
	if transitions := lease.Spec.LeaseTransitions; transitions != nil && *transitions > 0 {
		return false, nil
	}
	_, err = client.CoreV1().ConfigMaps(ledgerNamespace).Get(ctx, routecontroller.RecordName,
		metav1.GetOptions{})
	if absent := kube.Absent(err, "configmaps", routecontroller.RecordName); err == nil || absent {
		return absent, nil
	}
	return false,
		fmt.Errorf("reading ConfigMap %s/%s: %w", ledgerNamespace, routecontroller.RecordName, err)
}

// serviceCIDRs returns the informer of ServiceCIDRs, or nil if the API server lacks them.
func serviceCIDRs(
	c *appconfig.CompletedConfig, client discovery.DiscoveryInterface,
) (networkinginformers.ServiceCIDRInformer, error) {
	var served bool
	// A single lost response must not end a new leader.
	err := retry.OnError(wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 6},
		func(error) bool { return true }, func() (err error) {
			served, err = discovery.IsResourceEnabled(client,
				networkingv1.SchemeGroupVersion.WithResource("servicecidrs"))
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("asking whether the API server has ServiceCIDRs: %w", err)
	}
	if !served {
		return nil, nil
	}
	return c.SharedInformers.Networking().V1().ServiceCIDRs(), nil
}

func pools(c config.Config) []ipamcontroller.Pool {
	var out []ipamcontroller.Pool
	for i, p := range wiring.Pools(c) {
		given := c.IPAM.Pools[i]
		out = append(out, ipamcontroller.Pool{
			PoolConfig: p, Selector: given.Selector, Exclusive: given.VSwitch,
		})
	}
	return out
}

// exclusions returns the prefixes that no podCIDR may overlap; network may be nil.
func (m *manager) exclusions(network *hetzner.NetworkDetails) []netip.Prefix {
	out := slices.Concat(m.config.IPAM.ServiceRanges, m.config.IPAM.Exclude)
	if network != nil {
		out = append(out, network.Reserved(m.config.VSwitch.Subnet)...)
	}
	return out
}

// checkPools refuses to start if the stored ledger or the exclusions conflict with the pools, so
// that a running process with a working configuration continues.
func (m *manager) checkPools(ctx context.Context, client kubernetes.Interface) error {
	if !m.config.IPAM.Enabled {
		return nil
	}
	removed, err := ipamcontroller.Check(ctx, client, ledgerNamespace, pools(m.config),
		m.exclusions(m.layout))
	if err != nil {
		return config.Errors{
			{
				Field: "pools", Problem: err.Error(),
				Remedy: "see the network's subnets, the service ranges and exclude", Cause: err,
			},
		}
	}
	var wrong config.Errors
	for _, pool := range removed {
		wrong = append(wrong, &config.Error{
			Field: "pools", Value: pool.Pool, Problem: pool.Problem(), Remedy: pool.Remedy(), Cause: pool,
		})
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}

func (m *manager) departed() (departed []kube.Departed, known bool) {
	c := m.ipamController.Load()
	if c == nil {
		return nil, false
	}
	return c.Departed()
}

func (m *manager) fieldOf(p netip.Prefix) string {
	for _, pool := range m.config.IPAM.Pools {
		if pool.Prefix == p {
			return pool.Field
		}
	}
	return "--cluster-cidr"
}
