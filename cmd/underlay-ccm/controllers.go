package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/klog/v2"

	addresscontroller "github.com/underlay-ccm/underlay/addresses/controller"
	"github.com/underlay-ccm/underlay/internal/directory"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/vswitch"
	"github.com/underlay-ccm/underlay/internal/wiring"
	"github.com/underlay-ccm/underlay/lb"
	lbcontroller "github.com/underlay-ccm/underlay/lb/controller"
	routecontroller "github.com/underlay-ccm/underlay/routes/controller"
)

// nodeIPAMController is upstream's name in kube-controller-manager.
const nodeIPAMController = "node-ipam-controller"

const vSwitchMemberController = "vswitch-member-controller"

const nodeDirectoryController = "node-directory-controller"

// runner is a controller of Underlay. Run blocks until the context is done.
type runner interface{ Run(context.Context) error }

func (m *manager) controllers() map[string]app.ControllerInitFuncConstructor {
	upstream := app.DefaultInitFuncConstructors
	all := map[string]app.ControllerInitFuncConstructor{
		names.CloudNodeController:          upstream[names.CloudNodeController],
		names.CloudNodeLifecycleController: upstream[names.CloudNodeLifecycleController],
		nodeIPAMController:                 m.constructor(nodeIPAMController, m.nodeIPAM),
		names.NodeRouteController:          m.constructor(names.NodeRouteController, m.routes),
		names.ServiceLBController:          m.constructor(names.ServiceLBController, m.loadBalancers),
		vSwitchMemberController:            m.constructor(vSwitchMemberController, m.vSwitchMembers),
		nodeDirectoryController:            m.constructor(nodeDirectoryController, m.nodeDirectory),
		addresscontroller.Name:             m.constructor(addresscontroller.Name, m.serviceAddresses),
	}
	ipamFirst(all, m.awaitIPAM)
	return all
}

// build creates a controller, or returns nil if it is not configured.
type build func(*appconfig.CompletedConfig) (runner, error)

func (m *manager) constructor(name string, construct build) app.ControllerInitFuncConstructor {
	return app.ControllerInitFuncConstructor{
		InitContext: app.ControllerInitContext{ClientName: name},
		Constructor: func(
			_ app.ControllerInitContext, c *appconfig.CompletedConfig, _ cloudprovider.Interface,
		) app.InitFunc {
			return func(
				ctx context.Context, _ controllermanager.ControllerContext,
			) (controller.Interface, bool, error) {
				m.lead(ctx, c)
				r, err := construct(c)
				if err != nil || r == nil {
					return nil, false, err
				}
				go func() {
					if err := r.Run(ctx); err != nil && ctx.Err() == nil {
						klog.FromContext(ctx).Error(err, "Controller stopped", "controller", name)
						klog.FlushAndExit(klog.ExitFlushTimeout, 1)
					}
				}()
				return nil, true, nil
			}
		},
	}
}

func (m *manager) routes(c *appconfig.CompletedConfig) (runner, error) {
	if !m.config.Routes.Enabled {
		return nil, nil
	}
	cfg := routecontroller.Config{
		Client:       c.ClientBuilder.ClientOrDie(names.NodeRouteController),
		Nodes:        c.SharedInformers.Core().V1().Nodes(),
		Table:        m.network,
		Gateways:     &m.machines,
		Ranges:       wiring.Ranges(m.config),
		VSwitch:      wiring.VSwitch(m.config),
		Tunnels:      wiring.Tunnels(m.config),
		Limit:        m.config.Routes.Limit,
		Reserve:      m.config.Routes.Reserve,
		MaxDeletions: m.config.Routes.MaxDeletionsPercent,

		Period:   m.config.Routes.ReconciliationPeriod,
		Lease:    lease(c),
		Leading:  m.leading,
		State:    &m.routeState,
		Recorder: c.EventRecorder,
		Registry: registry{},
	}
	if m.config.IPAM.Enabled && enabled(c, nodeIPAMController) {
		cfg.Departed = m.departed
	}
	return routecontroller.New(cfg)
}

// vSwitchMembers creates the controller that reports the vSwitch membership of dedicated servers
// on their Nodes, if pods are reached over a vSwitch and Robot is configured.
func (m *manager) vSwitchMembers(c *appconfig.CompletedConfig) (runner, error) {
	reached := wiring.VSwitch(m.config)
	if len(reached.Ranges) == 0 || m.account == nil {
		return nil, nil
	}
	return vswitch.New(vswitch.Config{
		Client:   c.ClientBuilder.ClientOrDie(vSwitchMemberController),
		Nodes:    c.SharedInformers.Core().V1().Nodes(),
		Members:  m.robot,
		VSwitch:  func() int64 { return m.network.Last().VSwitches[reached.Subnet] },
		Holds:    reached.Holds,
		Recorder: c.EventRecorder,
		Registry: registry{},
	})
}

func (m *manager) nodeDirectory(c *appconfig.CompletedConfig) (runner, error) {
	client := clientOf(c, nodeDirectoryController, m.config.IPAM.QPS, m.config.IPAM.QPS)
	return directory.NewPublisher(client, c.SharedInformers.Core().V1().Nodes())
}

func (m *manager) loadBalancers(c *appconfig.CompletedConfig) (runner, error) {
	if !m.config.LoadBalancers.Enabled {
		return nil, nil
	}
	nodes := c.SharedInformers.Core().V1().Nodes().Lister()
	doubt := func(ctx context.Context) error {
		all, err := nodes.List(labels.Everything())
		if err != nil {
			return fmt.Errorf("listing Nodes: %w", err)
		}
		return m.machines.Doubt(ctx, all)
	}
	cfg := lbcontroller.Config{
		Client:    c.ClientBuilder.ClientOrDie(names.ServiceLBController).CoreV1(),
		Services:  c.SharedInformers.Core().V1().Services(),
		Nodes:     c.SharedInformers.Core().V1().Nodes(),
		Slices:    c.SharedInformers.Discovery().V1().EndpointSlices(),
		Backend:   m.client.LoadBalancers(),
		Defaults:  wiring.Defaults(m.config, 0, nil),
		Reachable: m.reachableTargets,
		Doubt:     doubt,
		Recorder:  c.EventRecorder,
		Registry:  registry{},
		Workers:   int(c.ComponentConfig.ServiceController.ConcurrentServiceSyncs),
	}
	if m.network != nil {
		cfg.Defaults.Network, cfg.RefreshRanges = m.layout.ID, m.network.RefreshDedicatedRanges
		cfg.Network = func() int64 { return m.network.Last().ID }
		cfg.DedicatedRanges = func() []netip.Prefix { return m.network.Last().DedicatedRanges }
	}
	return lbcontroller.New(cfg)
}

// reachableTargets returns the server targets with an address. Dedicated servers are not
// included: the load balancer controller gets their addresses from Nodes.
func (m *manager) reachableTargets(
	ctx context.Context, notBefore time.Time,
) (map[lb.Target]bool, error) {
	servers, err := m.machines.Cloud.List(ctx, notBefore)
	if err != nil {
		return nil, err
	}
	reachable := make(map[lb.Target]bool)
	for _, s := range servers {
		reachable[lb.Target{Server: s.ID, Private: true}] = s.PrivateIP.IsValid()
		reachable[lb.Target{Server: s.ID}] = s.PublicIPv4.IsValid()
	}
	return reachable, nil
}

// lease returns how long another process may act as the leader after it lost the lease. Without an
// election it is the default: the manifests set a shorter lease.
func lease(c *appconfig.CompletedConfig) time.Duration {
	if election := c.ComponentConfig.Generic.LeaderElection; election.LeaderElect {
		return election.LeaseDuration.Duration
	}
	return kube.DefaultLease
}

type registry struct{}

func (registry) Register(m metrics.Registerable) error { return legacyregistry.Register(m) }

func (registry) CustomRegister(c metrics.StableCollector) error {
	return legacyregistry.CustomRegister(c)
}
