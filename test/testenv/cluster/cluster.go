// Package cluster starts the parts of a cluster on rented machines, for tests and the demo: a real
// control plane, the simulated cloud over HTTP, the real underlay-ccm with exactly the credentials
// of deploy/, and machines whose kubelets join.
//
// Everything listens on loopback and needs no root. Nothing outlives Stop.
package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/kubelet"
	"github.com/underlay-ccm/underlay/test/testenv/measured"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// Token is the simulated project's API token. Tests search for it where no secret may be.
const Token = "the-token-that-must-never-be-shown-0123456789"

// Ranges of the cluster, as in docs and examples.
const (
	NetworkRange = "10.0.0.0/8"
	SubnetRange  = "10.0.0.0/16"
	PodRanges    = "10.244.0.0/16,fd00:10:244::/56"
	ServiceRange = "10.96.0.0/16,fd00:96::/112"
)

// VSwitchID is the ID of the vSwitch that a network can be coupled with.
const VSwitchID = 4321

// Options shape a cluster.
type Options struct {
	// Manager is the path of the underlay-ccm binary; see BuildManager.
	Manager string
	// Cloud configures the simulator; its token is set. A measured profile fills zero fields and
	// sets other times, see package measured.
	Cloud hcloudsim.Options
	// VSwitch, if valid, is a further subnet of the network, coupled with the vSwitch
	// VSwitchID.
	VSwitch netip.Prefix
	// ControlPlane configures the control plane.
	ControlPlane controlplane.Options
}

// Cluster is a control plane and a cloud, with or without a manager between
// them.
type Cluster struct {
	ControlPlane *controlplane.ControlPlane
	Cloud        *hcloudsim.Simulator
	// CloudURL is the simulator's API including its version path.
	CloudURL string
	Network  schema.Network
	Client   kubernetes.Interface

	options    Options
	server     *http.Server
	kubeconfig string

	mu       sync.Mutex
	kubelets map[string]*kubelet.Kubelet
	servers  map[string]schema.Server
	managers []*process.Process
}

// Start starts control plane and cloud and gives the manager's ServiceAccount
// its permissions. The manager itself is started by StartManager.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	c := &Cluster{
		options: o, kubelets: map[string]*kubelet.Kubelet{}, servers: map[string]schema.Server{},
	}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if err := c.startCloud(ctx, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if c.ControlPlane, err = controlplane.Start(ctx, o.ControlPlane); err != nil {
		return nil, err
	}
	if c.Client, err = kubernetes.NewForConfig(c.ControlPlane.AdminConfig()); err != nil {
		return nil, fmt.Errorf("client of the control plane: %w", err)
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	deploy := filepath.Join(root, "deploy")
	if err := c.ControlPlane.Apply(ctx, filepath.Join(deploy, "ccm", "rbac.yaml"), filepath.Join(deploy, "ccm", "directory.yaml")); err != nil {
		return nil, fmt.Errorf("applying the manager's permissions: %w", err)
	}
	if c.kubeconfig, err = c.ControlPlane.Kubeconfig(ctx, "kube-system", "underlay-ccm"); err != nil {
		return nil, fmt.Errorf("credentials of the manager: %w", err)
	}
	return c, nil
}

// StartCloud starts only the simulated cloud, at an address with its port. Control plane and
// manager are left to the caller.
func StartCloud(ctx context.Context, o hcloudsim.Options, address string) (*Cluster, error) {
	c := &Cluster{options: Options{Cloud: o}}
	if err := c.startCloud(ctx, address); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Cluster) startCloud(ctx context.Context, address string) error {
	options, err := measured.Cloud(c.options.Cloud)
	if err != nil {
		return err
	}
	options.Token = Token
	c.Cloud = hcloudsim.New(options)
	subnets := []hcloudsim.SubnetSeed{{IPRange: netip.MustParsePrefix(SubnetRange)}}
	if c.options.VSwitch.IsValid() {
		subnets = append(subnets, hcloudsim.SubnetSeed{IPRange: c.options.VSwitch, Type: "vswitch", VSwitch: VSwitchID})
	}
	network, err := c.Cloud.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "cluster", IPRange: netip.MustParsePrefix(NetworkRange), Subnets: subnets,
	})
	if err != nil {
		return fmt.Errorf("creating the network: %w", err)
	}
	c.Network = network
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for the simulated cloud: %w", err)
	}
	c.CloudURL = "http://" + listener.Addr().String() + "/v1"
	c.server = &http.Server{Handler: c.Cloud, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = c.server.Serve(listener) }()
	return nil
}

// Machine describes a machine that joins.
type Machine struct {
	Name     string
	Type     string // server type; empty: the simulator's default
	Location string
}

// AddMachine creates a server, attaches it to the network, and starts its kubelet, which joins the
// cluster.
func (c *Cluster) AddMachine(ctx context.Context, m Machine) error {
	server, err := c.Cloud.CreateServer(hcloudsim.ServerSeed{
		Name: m.Name, Type: m.Type, Location: m.Location, Network: c.Network.ID,
	})
	if err != nil {
		return err
	}
	return c.Join(ctx, server)
}

// Join starts the kubelet of an existing server.
func (c *Cluster) Join(ctx context.Context, server schema.Server) error {
	config, err := c.ControlPlane.KubeletConfig(ctx, server.Name)
	if err != nil {
		return fmt.Errorf("credentials of the kubelet %s: %w", server.Name, err)
	}
	var ips []netip.Addr
	for _, private := range server.PrivateNet {
		if ip, err := netip.ParseAddr(private.IP); err == nil {
			ips = append(ips, ip)
		}
	}
	k, err := kubelet.Join(ctx, config, kubelet.Options{
		Name: server.Name, InternalIPs: ips, ReadyWithPodCIDR: true,
		LeasePeriod: c.options.ControlPlane.NodeMonitorGracePeriod / 6, // 0 if none is set: 2 s
	})
	if err != nil {
		return fmt.Errorf("machine %s: %w", server.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kubelets[server.Name], c.servers[server.Name] = k, server
	return nil
}

// DeleteServer deletes a server in the cloud and stops its kubelet.
func (c *Cluster) DeleteServer(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	server, ok := c.servers[name]
	if !ok {
		return fmt.Errorf("no machine %q", name)
	}
	c.kubelets[name].Stop()
	delete(c.kubelets, name)
	delete(c.servers, name)
	return c.Cloud.DeleteServer(server.ID)
}

// Manager is one running underlay-ccm.
type Manager struct {
	*process.Process
	// URL is the base of its health checks and metrics.
	URL string
}

// ManagerOptions configure the start of a manager.
type ManagerOptions struct {
	// Config is the content of --cloud-config; empty: Cluster.CloudConfig.
	Config string
	// Args are appended to the usual arguments, and override them.
	Args []string
	// Env is added to the environment.
	Env []string
	// Token is the API token; empty: the valid one.
	Token string
}

// CloudConfig is the configuration file that managers get by default. It ends with
// the section loadBalancers.
func (c *Cluster) CloudConfig() string {
	return fmt.Sprintf(`apiVersion: underlay.dev/v1alpha1
kind: CloudConfig
network: %s
endpoint: %s
tokenFile: %s
loadBalancers:
  location: fsn1
  usePrivateIP: true
`, c.Network.Name, c.CloudURL, c.TokenFile())
}

// TokenFile is the path of the API token's file.
func (c *Cluster) TokenFile() string { return filepath.Join(c.ControlPlane.Dir(), "cloud-token") }

// Lease is how soon another manager takes over from one that was killed. A manager exits if the API
// server is unresponsive for half of it, and on busy processors the API server can be for two
// seconds.
const Lease = 8 * time.Second

// StartManager starts underlay-ccm as its Deployment does, with short leases. It doesn't wait until
// it is ready.
func (c *Cluster) StartManager(ctx context.Context, o ManagerOptions) (*Manager, error) {
	if o.Config == "" {
		o.Config = c.CloudConfig()
	}
	if o.Token == "" {
		o.Token = Token
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := fmt.Sprintf("underlay-ccm-%d", len(c.managers)+1)
	config := filepath.Join(c.ControlPlane.Dir(), name+".yaml")
	if err := errors.Join(os.WriteFile(c.TokenFile(), []byte(o.Token), 0o600), os.WriteFile(config,
		[]byte(o.Config), 0o600)); err != nil {
		return nil, err
	}
	port, err := FreePort(ctx)
	if err != nil {
		return nil, err
	}
	p, err := process.Start(process.Command{
		Name: name, Path: c.options.Manager, Dir: c.ControlPlane.Dir(), Env: o.Env,
		Args: append([]string{
			"--kubeconfig=" + c.kubeconfig,
			"--authentication-kubeconfig=" + c.kubeconfig,
			"--authorization-kubeconfig=" + c.kubeconfig,
			"--cloud-config=" + config,
			"--allocate-node-cidrs",
			"--configure-cloud-routes",
			"--cluster-cidr=" + PodRanges,
			"--service-cluster-ip-range=" + ServiceRange,
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			fmt.Sprint("--leader-elect-lease-duration=", Lease),
			fmt.Sprint("--leader-elect-renew-deadline=", Lease-time.Second),
			"--leader-elect-retry-period=500ms",
			"-v=1",
		}, o.Args...),
	})
	if err != nil {
		return nil, err
	}
	c.managers = append(c.managers, p)
	return &Manager{Process: p, URL: fmt.Sprintf("https://127.0.0.1:%d", port)}, nil
}

// Health returns the manager's response to a health check: the status, 0 if it doesn't listen, and
// the body.
func (m *Manager) Health(ctx context.Context) (status int, says string) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		// Its certificate is self-signed.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL+"/healthz", nil)
	if err != nil {
		return 0, err.Error()
	}
	reply, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, 1<<16))
	if err != nil {
		return 0, err.Error()
	}
	return reply.StatusCode, string(body)
}

// Stop ends everything, the last started first.
func (c *Cluster) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kubelets {
		k.Stop()
	}
	for _, m := range c.managers {
		m.Kill()
	}
	if c.ControlPlane != nil {
		c.ControlPlane.Stop()
	}
	if c.server != nil {
		_ = c.server.Close()
	}
}

// FreePort finds a port that is free, and that the kernel doesn't assign to a socket without a
// fixed port: it takes ports of outgoing connections from 32768 on. So the port is still free a
// moment later, while other tests run.
func FreePort(ctx context.Context) (int, error) {
	const tries = 100
	var last error
	for range tries {
		port := 20_000 + rand.N(10_000)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err == nil {
			return port, listener.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("finding a free port: %w", last)
}
