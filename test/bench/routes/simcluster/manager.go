package simcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/controller"
)

// Options configure a manager. The zero value is the shipped one, with a limit of 100 routes and
// without upstream's node controllers.
type Options struct {
	Limit, Reserve int
	Ranges         []routes.Range
	Departed       func() ([]kube.Departed, bool)
	// Node and Lifecycle run upstream's controllers with their default periods.
	Node, Lifecycle bool
	// Servers, if set, wraps the cloud client for the controllers.
	Servers func(cloud.Servers) cloud.Servers
	// Routes, if set, runs instead of the route controller, until the context
	// ends.
	Routes func(context.Context, *Manager)
}

// Upstream's default periods.
const (
	statusPeriod    = 5 * time.Minute
	lifecyclePeriod = 5 * time.Second
	statusWorkers   = 1
)

// Manager is one running manager with clients and caches of its own.
type Manager struct {
	Informers  informers.SharedInformerFactory
	Table      routes.Table
	Gateways   *cloud.Machines
	Controller *controller.Controller
	State      controller.State
	Registry   metrics.KubeRegistry
	Events     *record.FakeRecorder

	cluster *Cluster
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Range is the pool of PodRange.
func Range() routes.Range {
	return routes.Range{Prefix: netip.MustParsePrefix(PodRange), NodeBits: 24}
}

// Start starts a manager, which runs until Stop. The error is the one with which a real manager
// would exit at its start.
func (l *Cluster) Start(ctx context.Context, o Options) (*Manager, error) {
	if o.Limit == 0 {
		o.Limit = 100
	}
	if o.Ranges == nil {
		o.Ranges = []routes.Range{Range()}
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &Manager{
		Informers: informers.NewSharedInformerFactory(l.API.Client, 0),
		Registry:  metrics.NewKubeRegistry(),
		Events:    record.NewFakeRecorder(10_000), cluster: l, cancel: cancel,
	}
	network, err := l.connect(ctx, m.Registry)
	if err != nil {
		cancel()
		return nil, err
	}
	servers := network.Servers()
	if o.Servers != nil {
		servers = o.Servers(servers)
	}
	m.Table, m.Gateways = network, &cloud.Machines{Cloud: servers}
	if err := m.begin(ctx, o); err != nil {
		cancel()
		return nil, err
	}
	return m, nil
}

// connect acts as cmd: it creates a client, finds the network by its name, and follows the network.
func (l *Cluster) connect(
	ctx context.Context, registry metrics.KubeRegistry,
) (*hetzner.Network, error) {
	transport := l.Sim.Transport()
	if l.Meddle != nil {
		transport = l.Meddle(transport)
	}
	client, err := hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.test/v1", Token: l.token, Registry: registry, Transport: transport,
	})
	if err != nil {
		return nil, err
	}
	var network *hetzner.Network
	for { // as when a real manager starts, temporary errors are retried
		network, err = client.Network(ctx, NetworkName)
		if err == nil || ctx.Err() != nil || errors.Is(err, hetzner.ErrNoNetwork) ||
			hetzner.Unauthorized(err) {
			break
		}
		pause(ctx, 10*time.Second)
	}
	if err != nil {
		return nil, fmt.Errorf("looking up the network: %w", err)
	}
	return network, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (m *Manager) begin(ctx context.Context, o Options) error {
	nodes := m.Informers.Core().V1().Nodes()
	provider := cloud.Provider{Name: "hcloud", V2: &cloud.Instances{
		Machines: m.Gateways, Nodes: nodes.Lister(), Recorder: m.Events,
		Family: cloud.IPv4, InNetwork: true, Gated: true,
	}}
	run, err := m.routes(o)
	if err != nil {
		return err
	}
	others, err := m.nodeControllers(o, provider)
	if err != nil {
		return err
	}
	nodes.Informer() // so that the factory starts it
	m.Informers.Start(ctx.Done())
	m.Informers.WaitForCacheSync(ctx.Done())
	for _, one := range append(others, run) {
		m.running.Go(func() { one(ctx) })
	}
	return nil
}

// routes returns the writer of routes.
func (m *Manager) routes(o Options) (func(context.Context), error) {
	if o.Routes != nil {
		return func(ctx context.Context) { o.Routes(ctx, m) }, nil
	}
	var err error
	m.Controller, err = controller.New(controller.Config{
		Client: m.cluster.API.Client, Nodes: m.Informers.Core().V1().Nodes(), Table: m.Table,
		Gateways: m.Gateways,
		Ranges:   o.Ranges, Limit: o.Limit, Reserve: o.Reserve, MaxDeletions: 25, Period: time.Minute,
		Lease:    kube.DefaultLease,
		Departed: o.Departed, State: &m.State, Recorder: m.Events, Registry: m.Registry,
	})
	return func(ctx context.Context) { _ = m.Controller.Run(ctx) }, err
}

// nodeControllers are upstream's.
func (m *Manager) nodeControllers(
	o Options, provider cloudprovider.Interface,
) ([]func(context.Context), error) {
	var out []func(context.Context)
	nodes, client := m.Informers.Core().V1().Nodes(), m.cluster.API.Client
	counted := controllers.NewControllerManagerMetrics("simcluster")
	if o.Node {
		c, err := node.NewCloudNodeController(nodes, client, provider, statusPeriod, 1, statusWorkers)
		if err != nil {
			return nil, err
		}
		out = append(out, func(ctx context.Context) { c.RunWithContext(ctx, counted) })
	}
	if o.Lifecycle {
		c, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, client, provider, lifecyclePeriod,
			1)
		if err != nil {
			return nil, err
		}
		out = append(out, func(ctx context.Context) { c.Run(ctx, counted) })
	}
	return out, nil
}

// Stop ends the manager at any time, as the loss of leadership does.
func (m *Manager) Stop() {
	m.cancel()
	m.running.Wait()
	m.Informers.Shutdown()
}

// Said returns the reasons of the Events since the last call, with their counts.
func (m *Manager) Said() map[string]int {
	said := map[string]int{}
	for {
		select {
		case e := <-m.Events.Events:
			var kind, reason string
			_, _ = fmt.Sscan(e, &kind, &reason) // FakeRecorder's "Type Reason message"
			said[reason]++
		default:
			return said
		}
	}
}
