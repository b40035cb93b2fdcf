package schedule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/ipam"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	"github.com/underlay-ccm/underlay/routes"
	routecontroller "github.com/underlay-ccm/underlay/routes/controller"
)

// The configuration of every manager. The pools are a little larger than the cluster, so that
// released prefixes are soon assigned again.
const (
	podRange   = "10.244.0.0/21"
	podRange6  = "fd00:10:244::/61"
	period     = time.Minute
	quarantine = 90 * time.Second
	// leaseTime is how long a lease outlives its holder; lastWords how long a process that lost it
	// may continue until it notices.
	leaseTime, lastWords = 15 * time.Second, time.Second
	namespace            = "kube-system"
)

// manager is one run of the real controllers, with clients and caches of its own, wired as in
// cmd/underlay-ccm.
type manager struct {
	*process
	name    string
	running sync.WaitGroup
	stop    func()

	mu  sync.Mutex
	err error
}

// way is the transport of a manager's requests to the API server and to the cloud.
type way struct{ api, cloud *line }

// start creates a manager. It fails with the errors at which a real one would exit.
func start(
	parent context.Context, name string, first bool, leading func(context.Context) error,
	road func(*process) way,
) (*manager, error) {
	ctx, cancel := context.WithCancel(parent)
	m := &manager{process: newProcess(cancel), name: name}
	to := road(m.process)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://api.test", Transport: to.api, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	m.stop = sync.OnceFunc(func() {
		cancel()
		m.thaw()
		m.running.Wait()
		factory.Shutdown()
	})
	network, err := findNetwork(ctx, to.cloud)
	if err != nil {
		cancel()
		return nil, err
	}
	if err := m.assemble(ctx, client, factory, network, first, leading); err != nil {
		cancel()
		return nil, err
	}
	factory.StartWithContext(ctx)
	return m, nil
}

// findNetwork looks the network up, as a manager does at its start.
func findNetwork(ctx context.Context, transport http.RoundTripper) (*hetzner.Network, error) {
	client, err := hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.test/v1", Token: func() (string, error) { return token, nil },
		Registry: metrics.NewKubeRegistry(), Transport: transport,
	})
	if err != nil {
		return nil, err
	}
	network, err := client.Network(ctx, networkName)
	if err != nil {
		return nil, fmt.Errorf("looking up the network: %w", err)
	}
	return network, nil
}

// assemble creates the controllers, connects them, and runs them.
func (m *manager) assemble(
	ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory,
	network *hetzner.Network, first bool, leading func(context.Context) error,
) error {
	recorder, registry := &record.FakeRecorder{}, metrics.NewKubeRegistry()
	nodes := factory.Core().V1().Nodes()
	var state routecontroller.State
	pools := []ipamcontroller.Pool{
		{PoolConfig: ipam.PoolConfig{Name: "v4", Prefix: netip.MustParsePrefix(podRange), NodeMask: 24}},
		{PoolConfig: ipam.PoolConfig{Name: "v6", Prefix: netip.MustParsePrefix(podRange6), NodeMask: 64}},
	}
	allocator, err := ipamcontroller.New(ipamcontroller.Config{
		Client: client, Nodes: nodes, Pools: pools, Quarantine: quarantine, Namespace: namespace,
		Routed: state.Routed, Routes: state.Destinations,
		Fence:    leaseTime + lastWords + lateness,
		First:    func(context.Context) (bool, error) { return first, nil },
		Recorder: recorder, Registry: registry,
	})
	if err != nil {
		return err
	}
	router, err := routecontroller.New(routecontroller.Config{
		Client: client, Nodes: nodes, Table: network,
		Gateways: &cloud.Machines{Cloud: network.Servers()},
		Ranges:   []routes.Range{{Prefix: netip.MustParsePrefix(podRange), NodeBits: 24}},
		Limit:    100, MaxDeletions: 25, Period: period, Lease: leaseTime, Leading: leading,
		Departed: allocator.Departed, State: &state,
		Recorder: recorder, Registry: registry,
	})
	if err != nil {
		return err
	}
	for _, run := range []func(context.Context) error{allocator.Run, router.Run} {
		m.running.Go(func() { m.ended(ctx, run(ctx)) })
	}
	return nil
}

// ended records the error of a controller that wasn't stopped, which ends the process.
func (m *manager) ended(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	m.err = errors.Join(m.err, fmt.Errorf("a controller ended: %w", err))
	m.mu.Unlock()
	m.cancel()
}

// failed returns the error that ended the manager without a stop, or nil.
func (m *manager) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}
