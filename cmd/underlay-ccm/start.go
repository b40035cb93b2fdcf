package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	appconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/vswitch"
	"github.com/underlay-ccm/underlay/internal/wiring"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	"github.com/underlay-ccm/underlay/routes"
)

// connect waits until the cloud is reachable, checks the configuration against it, and builds the
// provider. Until then nothing accepts connections of the secure port, so no health check succeeds.
func (m *manager) connect(
	ctx context.Context, c *appconfig.CompletedConfig,
) (cloudprovider.Interface, error) {
	if err := m.reach(ctx); err != nil {
		return nil, err
	}
	if err := m.checkPools(ctx, c.Client); err != nil {
		return nil, err
	}
	if err := m.config.Addresses.CheckServer(c.Kubeconfig.Host); err != nil {
		return nil, err
	}
	if err := m.checkAddresses(ctx, c.Client); err != nil {
		return nil, err
	}
	// The conditions are those that this program's controllers read, including upstream's.
	light := kube.Light(corev1.NodeReady, corev1.NodeNetworkUnavailable,
		ipamcontroller.PodCIDRsAllocated, vswitch.MemberCondition, kube.AddressesMatch)
	nodes := c.SharedInformers.Core().V1().Nodes()
	if err := nodes.Informer().SetTransform(light); err != nil {
		return nil, err
	}
	reported := func(v2 cloudprovider.InstancesV2) cloudprovider.InstancesV2 {
		return cloud.Mismatches{InstancesV2: v2, Client: c.Client, Recorder: c.EventRecorder}
	}
	if m.config.Provider == config.Metal {
		metal := cloud.NewMetal(wiring.Machines(m.config))
		return cloud.Provider{Name: "underlay", V2: reported(metal)}, nil
	}
	return cloud.Provider{Name: "hcloud", V2: reported(&cloud.Instances{
		Machines:  &m.machines,
		Nodes:     nodes.Lister(),
		Recorder:  c.EventRecorder,
		Family:    cloud.AddressFamily(m.config.InstancesAddressFamily),
		InNetwork: m.network != nil,
		Tunnels:   m.config.WireGuard.Enabled(),
		// Only the route controller sets the condition that gates scheduling.
		Gated:          m.routesRun(c),
		NetworkRange:   m.networkRange(),
		ForwardPrivate: m.config.Robot.ForwardInternalIPs,
	})}, nil
}

// networkRange returns a getter of the current network's range; nil without a network.
func (m *manager) networkRange() func() netip.Prefix {
	if m.network == nil {
		return nil
	}
	return func() netip.Prefix { return m.network.Last().IPRange }
}

// routesRun reports whether the route controller runs, which lists the network periodically.
func (m *manager) routesRun(c *appconfig.CompletedConfig) bool {
	return m.config.Routes.Enabled && enabled(c, names.NodeRouteController)
}

func enabled(c *appconfig.CompletedConfig, name string) bool {
	return controllermanager.IsControllerEnabled(name, app.ControllersDisabledByDefault,
		c.ComponentConfig.Generic.Controllers)
}

// reach retries look until the cloud is reachable. A configuration error is final.
func (m *manager) reach(ctx context.Context) error {
	return backoff().DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := m.look(ctx)
		var wrong *config.Error
		switch {
		case err == nil:
			return true, nil
		case errors.As(err, &wrong):
			return false, err
		}
		klog.FromContext(ctx).Error(err, "The cloud can't be reached; trying again", "endpoint",
			m.config.Endpoint)
		return false, nil
	})
}

// backoff returns the retry delays for an unreachable cloud: exponential, up to a minute.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: time.Minute}
}

// look reads the network, or without one the servers, which verifies the token, and the offered
// load balancers, and checks the configuration against them.
func (m *manager) look(ctx context.Context) error {
	if m.client == nil {
		return nil
	}
	if err := m.lookAtProject(ctx); err != nil {
		return m.explain(err)
	}
	wrong, err := m.checkOffer(ctx)
	if err != nil {
		return m.explain(err)
	}
	wrong = append(wrong, m.checkLayout(ctx, m.layout)...)
	wrong = append(wrong, m.checkVSwitch(m.layout)...)
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}

func (m *manager) lookAtProject(ctx context.Context) (err error) {
	if m.config.Network == "" {
		m.machines.Cloud = m.client.Servers(0)
		_, err = m.machines.Cloud.List(ctx, time.Time{})
		return err
	}
	network, err := m.client.Network(ctx, m.config.Network)
	if err == nil {
		m.network, m.layout, m.machines.Cloud = network, network.Last(), network.Servers()
	}
	return err
}

func (m *manager) checkLayout(ctx context.Context, network *hetzner.NetworkDetails) config.Errors {
	if network == nil || !m.config.Routes.Enabled {
		return nil
	}
	findings := routes.Check(routes.Layout{
		Pods:     wiring.Ranges(m.config),
		Services: m.config.IPAM.ServiceRanges,
		Network:  network.IPRange,
		Subnets:  network.Subnets,
	})
	var wrong config.Errors
	for _, f := range findings {
		if !f.Fatal {
			klog.FromContext(ctx).Error(nil, "Configuration warning", "field", m.fieldOf(f.Prefix), "value",
				f.Prefix, "problem", f.Problem, "remedy", f.Remedy)
			continue
		}
		wrong = append(wrong, &config.Error{
			Field: m.fieldOf(f.Prefix), Value: f.Prefix.String(), Problem: f.Problem, Remedy: f.Remedy,
		})
	}
	return wrong
}

// checkVSwitch checks the vSwitch settings against the network. If the network doesn't expose
// its routes but may, the leader corrects that later.
func (m *manager) checkVSwitch(network *hetzner.NetworkDetails) config.Errors {
	if network == nil {
		return nil
	}
	coupling := network.Coupling
	coupling.Exposed = coupling.Exposed || m.config.VSwitch.ExposeRoutes
	var wrong config.Errors
	for _, f := range wiring.VSwitch(m.config).Check(coupling) {
		key, value := "vswitch.exposeRoutes", "false"
		if f.Prefix.IsValid() {
			key, value = "vswitch.subnet", f.Prefix.String()
		}
		wrong = append(wrong, m.config.Wrong(key, value, f.Problem, f.Remedy, nil))
	}
	return wrong
}

// explain converts errors that the configuration caused to configuration errors.
func (m *manager) explain(err error) error {
	switch {
	case hetzner.Unauthorized(err):
		return &config.Error{
			Field: m.config.Token.String(), Problem: "the cloud rejected the token",
			Remedy: "put in a valid API token of the project, with permission to read and write", Cause: err,
		}
	case errors.Is(err, hetzner.ErrNoNetwork):
		return m.config.Wrong("network", m.config.Network, "the token's project has no such network",
			"give the ID or the name of the network that the servers are attached to", err)
	case hetzner.NotFound(err):
		return m.config.Wrong("endpoint", m.config.Endpoint, "the API is not there",
			"give the API's address with its version path, such as https://api.hetzner.cloud/v1", err)
	default:
		return err
	}
}
