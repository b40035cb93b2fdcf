//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// Options shape a lab.
type Options struct {
	// Metal is a lab of machines without a provider: one segment, kernel routes on every machine,
	// no cloud. Otherwise they are servers of the simulated cloud.
	Metal bool
	// MachinesOnly is a lab without control plane, manager and programs: its machines have their
	// cables only. The cloud, if it isn't Metal, listens at CloudAddress.
	MachinesOnly bool
	// Machines are the names of the machines that join before Start returns.
	Machines []string
	// Dedicated are the names of dedicated servers that join after Machines, on a vSwitch that is
	// coupled with the cloud's network. VSwitch creates the vSwitch, and an account at Robot, also
	// without dedicated servers.
	Dedicated []string
	VSwitch   bool
	// Dir holds all files and logs. It must exist, and the caller removes it.
	Dir string
	// Manager and Agent are the paths of underlay-ccm and underlay-agent.
	Manager, Agent string
	// Plugins is the folder of the CNI plugins; empty: the value of CNI_PATH.
	Plugins string
	// WireGuard is the path of wireguard-go, which serves as the WireGuard device of every machine,
	// because the kernel that runs the tests has none. It requires /dev/net/tun.
	WireGuard string
	// IPv4Only is a cluster whose pods have no IPv6.
	IPv4Only bool
	// WithoutManager lets the caller start the manager. Machines that join before wait for it.
	WithoutManager bool
	// Settings are further lines for the configuration file that manager and
	// agents share.
	Settings string
	// NodePortAddresses are the addresses at which kube-proxies open node ports; empty: their
	// machine's Addresses.
	NodePortAddresses []netip.Prefix
	// NodeGrace is how long a Node may be unresponsive before it is marked as lost; zero: seconds.
	NodeGrace time.Duration
	// Balancing is a further line of the section loadBalancers there; not on metal.
	Balancing string
	// ManagerArgs are appended to the manager's usual arguments, and override them.
	ManagerArgs []string
	// Cloud configures the simulator. Its OnChange is called after the cloud router and the load
	// balancers have followed. With a vSwitch, its Owned is set to the addresses of the account at
	// Robot.
	Cloud hcloudsim.Options
	// Network is the treatment of packets on the cloud. A measured profile fills the fields left
	// out, see package measured; otherwise the documented interfaces are the limit.
	Network profile.Network
	// Progress receives the output of the control plane; nil: it is discarded.
	Progress io.Writer
}

// Binaries builds underlay-ccm and underlay-agent into a folder and sets the options.
func (o *Options) Binaries(ctx context.Context, folder string) (err error) {
	if o.Manager, err = cluster.BuildManager(ctx, folder); err != nil {
		return err
	}
	o.Agent, err = cluster.BuildAgent(ctx, folder)
	return err
}

// Lab is a running cluster. Its methods may be called from several
// goroutines, Stop once.
type Lab struct {
	*cluster.Cluster
	// Manager is the underlay-ccm that was started last.
	Manager *cluster.Manager

	options  Options
	behaves  behavior
	host     *netns.Namespace // the namespace that Enter created
	internet *internet
	cloud    *cloudNetwork // nil on metal
	// robot is the account of the dedicated servers; nil without a vSwitch.
	robot *robotAccount
	// aging empties the neighbor table of the vSwitch's gateway, if it is configured; guarded by
	// mu.
	aging *aging
	// balancers carry the traffic of the cloud's load balancers; nil on metal.
	balancers *balancers
	// proxyKubeconfig is the path of the kubeconfig of all kube-proxies.
	proxyKubeconfig string

	mu       sync.Mutex
	machines map[string]*Machine
	joined   int // machines created so far, for their numbers
	// neighbors are the hosts that AddNeighbor created.
	neighbors []*Neighbor
	echoes    []*Echo
	pods      map[string]*Pod
}

// The management network.
const (
	mgmt       = "mgmt"
	mgmtPrefix = 24
)

// CloudAddress is the address of the simulated cloud in a lab that is MachinesOnly.
const CloudAddress = "192.168.250.1:8470"

func mgmtAddr(last byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 250, last}) }

var counter = regexp.MustCompile(`counter packets (\d+) `)

// Start starts the lab and returns when its machines are ready for pods. If it fails, everything is
// stopped; the logs in Dir remain.
func Start(ctx context.Context, o Options) (_ *Lab, err error) {
	if !Entered() {
		return nil, errors.New("start a lab: call Enter first, so that it has a namespace of its own")
	}
	if o, err = o.complete(); err != nil {
		return nil, fmt.Errorf("start a lab: %w", err)
	}
	f := &Lab{options: o, machines: map[string]*Machine{}, pods: map[string]*Pod{}}
	if f.behaves, err = behaviorOf(o.Network); err != nil {
		return nil, fmt.Errorf("start a lab: %w", err)
	}
	defer func() {
		if err != nil {
			f.Stop()
		}
	}()
	steps := []func(context.Context) error{
		f.startNetwork, f.startCluster, f.startRouter, f.startBalancers,
	}
	if !o.WithoutManager && !o.MachinesOnly {
		steps = append(steps, f.StartManager)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("start a lab in %s: %w", o.Dir, err)
		}
	}
	if err := f.AddMachines(ctx, o.Machines...); err != nil {
		return nil, fmt.Errorf("start a lab in %s: %w", o.Dir, err)
	}
	if err := f.AddDedicated(ctx, o.Dedicated...); err != nil {
		return nil, fmt.Errorf("start a lab in %s: %w", o.Dir, err)
	}
	return f, nil
}

// startNetwork creates the networks of the machines.
func (f *Lab) startNetwork(ctx context.Context) (err error) {
	if f.host, err = netns.Current(); err != nil {
		return err
	}
	_, err = f.host.Feed(ctx, fmt.Sprintf("link add %[1]s type bridge\nlink set %[1]s up\naddress add %[2]s/%[3]d dev %[1]s\n",
		mgmt, mgmtAddr(1), mgmtPrefix), "ip", "-batch", "-")
	if err != nil {
		return fmt.Errorf("the management network, of which there is one at a time: %w", err)
	}
	f.internet, err = newInternet(ctx)
	switch {
	case err != nil:
		return err
	case f.options.Metal:
		return f.internet.addSegment(ctx)
	case f.behaves.publicMTU != 0:
		return f.internet.limit(ctx, f.behaves.publicMTU)
	}
	return nil
}

func (f *Lab) startCluster(ctx context.Context) (err error) {
	cloud := f.options.Cloud
	cloud.Foretell = len(f.behaves.routes) > 0
	reported := cloud.OnChange
	cloud.OnChange = func(now hcloudsim.DataPlane) {
		f.mu.Lock()
		router, balancers, internet := f.cloud, f.balancers, f.internet
		f.mu.Unlock()
		internet.follow(context.WithoutCancel(ctx), now.FloatingIPs)
		if router != nil {
			router.follow(context.WithoutCancel(ctx), firstNetwork(now))
		}
		if balancers != nil {
			balancers.follow(context.WithoutCancel(ctx), now)
		}
		if reported != nil {
			reported(now)
		}
	}
	switch {
	case f.options.MachinesOnly && f.options.Metal:
		return nil
	case f.options.MachinesOnly:
		f.Cluster, err = cluster.StartCloud(context.WithoutCancel(ctx), cloud, CloudAddress)
		return err
	}
	var coupled netip.Prefix
	if f.options.VSwitch {
		coupled = prefix(vSwitchSubnet)
		if f.robot, err = f.newRobotAccount(); err != nil {
			return err
		}
		cloud.Owned = f.robot.Owns
	}
	f.Cluster, err = cluster.Start(context.WithoutCancel(ctx), cluster.Options{
		Manager: f.options.Manager, Cloud: cloud, VSwitch: coupled,
		ControlPlane: controlplane.Options{
			Dir: f.options.Dir, Address: mgmtAddr(1), Progress: f.options.Progress,
			NodeMonitorGracePeriod:     f.options.NodeGrace,
			ExtraControllerManagerArgs: []string{"--controllers=daemonset-controller"}, // see ShowAgents
		},
	})
	if err != nil {
		return err
	}
	if f.robot != nil {
		if err := f.robot.listen(context.WithoutCancel(ctx), f.options.Dir); err != nil {
			return err
		}
	}
	return f.accounts(ctx)
}

// startRouter runs after the cloud has started, so it reads the current state once.
func (f *Lab) startRouter(ctx context.Context) error {
	if f.options.Metal {
		return nil
	}
	router, err := newCloudNetwork(context.WithoutCancel(ctx), firstNetwork(f.Cloud.DataPlane()),
		f.behaves)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.cloud = router
	f.mu.Unlock()
	router.follow(ctx, firstNetwork(f.Cloud.DataPlane()))
	if err := router.failed(); err != nil || !f.options.VSwitch {
		return err
	}
	return router.addVSwitch(ctx, f.behaves.gateway)
}

// StartManager starts an underlay-ccm without waiting for it.
func (f *Lab) StartManager(ctx context.Context) error {
	m, err := f.Cluster.StartManager(ctx, cluster.ManagerOptions{
		Config: f.config(), Args: append([]string{"--cluster-cidr=" + f.podRanges()}, f.options.ManagerArgs...),
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Manager = m
	return nil
}

// cloudPods is the range of the pods' IPv4 addresses on the cloud.
const cloudPods = "10.244.0.0/16"

func (f *Lab) podRanges() string {
	if f.options.Metal && !f.options.IPv4Only {
		return cluster.PodRanges
	}
	return cloudPods
}

// families is the number of podCIDRs of a Node.
func (f *Lab) families() int {
	if f.options.IPv4Only {
		return 1
	}
	return 2
}

// config is the file that manager and agents share.
func (f *Lab) config() string {
	ipv4Only := f.options.IPv4Only
	switch {
	case f.options.Metal && ipv4Only:
		return metalConfig + "families: {ipv4: node, ipv6: none}\n" + f.options.Settings
	case f.options.Metal:
		return metalConfig + "families: {ipv4: node, ipv6: node}\n" + f.options.Settings
	case ipv4Only:
		return f.cloudConfig() + "families: {ipv4: cloud, ipv6: none}\n" + f.options.Settings
	}
	pools := `families: {ipv4: cloud, ipv6: native}
pools:
  - {name: private, cidr: ` + cloudPods + `}
  - {name: own, source: node, nodeMask: 80}
`
	if f.options.VSwitch {
		pools = f.robot.section + vSwitchConfig + pools + vSwitchPool
	}
	return f.cloudConfig() + pools + f.options.Settings
}

// cloudConfig ends with the section loadBalancers.
func (f *Lab) cloudConfig() string {
	if f.options.Balancing == "" {
		return f.CloudConfig()
	}
	return f.CloudConfig() + "  " + f.options.Balancing + "\n"
}

// Configure replaces Options.Settings for managers and agents that are started later. It must not
// be called while one is being started.
func (f *Lab) Configure(settings string) { f.options.Settings = settings }

const metalConfig = "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nprovider: metal\n"

// Outside returns the namespace of the external host, which has OutsideIPv4 and OutsideIPv6.
func (f *Lab) Outside() *netns.Namespace { return f.internet.outside }

// Stop ends every program and removes every namespace and interface. Only the lab's files remain.
func (f *Lab) Stop() {
	f.mu.Lock()
	pods, echoes, machines, aging, neighbors := f.pods, f.echoes, f.machines, f.aging, f.neighbors
	f.pods, f.echoes, f.machines, f.aging, f.neighbors = nil, nil, nil, nil, nil
	f.mu.Unlock()
	aging.stop()
	for _, e := range echoes {
		e.Close()
	}
	for _, p := range pods {
		p.release()
	}
	for _, m := range machines {
		m.stop()
	}
	if f.Cluster != nil {
		f.Cluster.Stop()
	}
	if f.robot != nil {
		f.robot.close()
	}
	if f.balancers != nil {
		f.balancers.close()
	}
	for _, m := range machines {
		_ = m.release(context.Background()) // it may have no cable yet
	}
	for _, n := range neighbors {
		n.Namespace.Close()
	}
	if f.cloud != nil {
		f.cloud.close()
	}
	if f.internet != nil {
		f.internet.close()
	}
	if f.host != nil {
		// On an error the interface was never created, or the process can do nothing more and ends.
		_, _ = f.host.Run(context.Background(), "ip", "link", "delete", mgmt)
		f.host.Close()
	}
}
