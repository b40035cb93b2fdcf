//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/kubelet"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// Names of a machine's interfaces, beside "mgmt".
const (
	private = "private" // on the cloud: to its router
	public  = "public"  // on the cloud: to the internet
	uplink  = "uplink"  // on metal: to the segment
)

// Machine is a namespace that acts as a node.
type Machine struct {
	Name      string
	Namespace *netns.Namespace
	// Dedicated is a server on the vSwitch, which is no server of the cloud.
	Dedicated bool
	// Outside is a server of the cloud that is not attached to the network.
	Outside bool
	// BehindNAT is a machine of no provider, whose Private address a gateway replaces by Public's.
	BehindNAT bool
	// RobotNumber is the dedicated server's number; 0 for others.
	RobotNumber int64
	// Private is the address in the cloud's network; zero on metal.
	Private netip.Addr
	// Public are the other addresses: on metal those on the segment.
	Public Public
	// Server is the ID in the simulated cloud; 0 on metal and for dedicated servers.
	Server int64
	// DetectLocal are lines of kube-proxy's configuration, used from its next start, by which it
	// recognizes packets of local pods; empty: by the names of their interfaces.
	DetectLocal string
	// NodePortAddresses are the addresses at which kube-proxy opens node ports from its next start;
	// empty: at Addresses.
	NodePortAddresses []netip.Prefix

	lab     *Lab
	number  int
	dir     string
	gateway *netns.Namespace // of a machine BehindNAT
	kubelet *kubelet.Kubelet
	tunnels map[string]*process.Process // by their devices
	agent   *process.Process
	proxy   *process.Process
	others  []*process.Process // the programs that Start started
}

// AddMachines joins machines with these names concurrently, and returns when they are ready for
// pods.
func (f *Lab) AddMachines(ctx context.Context, names ...string) error {
	return f.add(ctx, f.Rent, names)
}

// AddOutside is AddMachines for servers outside the network.
func (f *Lab) AddOutside(ctx context.Context, names ...string) error {
	return f.add(ctx, func(ctx context.Context, name string) (*Machine, error) {
		return f.rent(ctx, &Machine{Name: name, Outside: true})
	}, names)
}

func (f *Lab) add(
	ctx context.Context, rent func(context.Context, string) (*Machine, error), names []string,
) error {
	together, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		m, err := rent(ctx, name)
		if err != nil {
			return err
		}
		together.Go(func() error {
			if err := m.Join(ctx); err != nil {
				return err
			}
			if err := m.StartAgent(ctx); err != nil {
				return err
			}
			if err := m.AwaitReady(ctx); err != nil {
				return err
			}
			// Last: it exits when its Node gets other addresses, and nothing restarts it here, as a
			// kubelet would.
			if err := m.StartProxy(ctx); err != nil {
				return err
			}
			return m.AwaitReady(ctx)
		})
	}
	return together.Wait()
}

// Rent creates a machine that is not in the cluster yet: on the cloud, a server. Join, StartAgent
// and StartProxy make it a node.
func (f *Lab) Rent(ctx context.Context, name string) (*Machine, error) {
	return f.rent(ctx, &Machine{Name: name})
}

func (f *Lab) rent(ctx context.Context, m *Machine) (*Machine, error) {
	name := m.Name
	f.mu.Lock()
	f.joined++
	m.NodePortAddresses = f.options.NodePortAddresses
	m.lab, m.number, m.dir = f, f.joined, filepath.Join(f.options.Dir, "machine-"+name)
	taken := f.machines[name] != nil
	f.mu.Unlock()
	if taken || m.number > 200 {
		return nil, fmt.Errorf("machine %s: there is one, or 200 already", name)
	}
	var err error
	if m.Namespace, err = netns.Open(); err != nil {
		return nil, fmt.Errorf("machine %s: %w", name, err)
	}
	f.mu.Lock()
	f.machines[name] = m
	f.mu.Unlock()
	if err := m.plug(ctx); err != nil {
		return nil, fmt.Errorf("machine %s: %w", name, err)
	}
	for _, folder := range []string{"net.d", "run"} {
		if err := os.MkdirAll(m.path(folder), 0o755); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// path is the path of a file of the machine.
func (m *Machine) path(name string) string { return filepath.Join(m.dir, name) }

// plug gives a machine addresses and cables, and creates its server on the cloud.
func (m *Machine) plug(ctx context.Context) error {
	m.Public.IPv4 = netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + m.number)})
	if m.lab.options.Metal {
		m.Public.IPv6 = netip.MustParseAddr(fmt.Sprintf("2001:db8:1::%x", 10+m.number))
		return m.connect(ctx)
	}
	if m.Dedicated {
		return m.plugDedicated(ctx)
	}
	if m.BehindNAT {
		return m.connect(ctx)
	}
	m.Public.IPv6Prefix = prefix(fmt.Sprintf("2001:db8:0:%x::/64", m.number))
	m.Public.IPv6 = m.Public.IPv6Prefix.Addr().Next()
	if err := m.rent(); err != nil {
		return err
	}
	return m.connect(ctx)
}

// connect connects the machine's namespace to its networks.
func (m *Machine) connect(ctx context.Context) error {
	f, port := m.lab, m.port()
	if err := netns.Connect(ctx, m.Namespace, mgmt, f.host, mgmt+"-"+port); err != nil {
		return err
	}
	_, out := f.host.Run(ctx, "ip", "link", "set", mgmt+"-"+port, "master", mgmt)
	_, in := m.Namespace.Run(ctx, "ip", "address", "add", fmt.Sprintf("%s/%d", mgmtAddr(byte(10+m.number)), mgmtPrefix), "dev", mgmt)
	// A half-closed connection of a killed program to the API server keeps the namespace until its
	// last FIN is acknowledged or abandoned: with this setting within a second or two.
	patience := m.Namespace.Sysctl("net/ipv4/tcp_orphan_retries", "2")
	if err := errors.Join(out, in, patience); err != nil {
		return err
	}
	if f.options.Metal {
		return f.internet.join(ctx, port, m.Namespace, uplink, m.Public)
	}
	if m.BehindNAT {
		return m.connectBehindNAT(ctx)
	}
	if err := f.internet.plug(ctx, port, m.Namespace, public, m.Public); err != nil {
		return err
	}
	if !m.Dedicated {
		if err := f.internet.serve(ctx, m.Server, port); err != nil {
			return err
		}
	}
	if m.Outside {
		return nil
	}
	network, err := netip.ParsePrefix(f.Network.IPRange)
	if err != nil {
		return fmt.Errorf("range of the cloud's network: %w", err)
	}
	if m.Dedicated {
		return f.cloud.join(ctx, port, m.Namespace, m.Private)
	}
	return f.cloud.plug(ctx, Member{"server", m.Server}, m.Namespace, private, m.Private, network)
}

// Unplug removes a server's cables before its programs end, so that packets with which its kernel
// closes their connections are lost. Renew connects a server of the cloud again.
func (m *Machine) Unplug(ctx context.Context) error {
	f := m.lab
	if f.options.Metal {
		return fmt.Errorf("machine %s: only rented servers are unplugged", m.Name)
	}
	private := func() error { return f.cloud.unplug(ctx, Member{"server", m.Server}) }
	if m.Dedicated {
		private = func() error { return f.cloud.leave(ctx, m.port()) }
	}
	_, down := f.host.Run(ctx, "ip", "link", "set", mgmt+"-"+m.port(), "down")
	err := errors.Join(
		down,
		f.internet.unplug(ctx, m.port()),
		private(),
	)
	if err != nil {
		return fmt.Errorf("machine %s: taking its cables away: %w", m.Name, err)
	}
	return nil
}

// Renew gives a server whose programs have ended a new namespace, as after a reboot: it has cables
// with the addresses that the provider configures, and nothing else.
func (m *Machine) Renew(ctx context.Context) error {
	if m.Dedicated {
		return fmt.Errorf("machine %s: only servers of the cloud are rebooted", m.Name)
	}
	if err := errors.Join(m.Unplug(ctx), m.release(ctx)); err != nil {
		return err
	}
	var err error
	if m.Namespace, err = netns.Open(); err == nil {
		err = m.connect(ctx)
	}
	if err != nil {
		return fmt.Errorf("machine %s: %w", m.Name, err)
	}
	return nil
}

// rent creates the server.
func (m *Machine) rent() error {
	f := m.lab
	seed := hcloudsim.ServerSeed{
		Name: m.Name, PublicIPv4: m.Public.IPv4, PublicIPv6: m.Public.IPv6Prefix,
	}
	if !m.Outside {
		seed.Network = f.Network.ID
	}
	server, err := f.Cloud.CreateServer(seed)
	if err != nil {
		return err
	}
	m.Server = server.ID
	if m.Outside {
		return nil
	}
	if m.Private, err = netip.ParseAddr(server.PrivateNet[0].IP); err != nil {
		return fmt.Errorf("private address of server %s: %w", m.Name, err)
	}
	return nil
}

// Join starts the machine's kubelet. It stops a previous one first, and an existing Node is kept.
func (m *Machine) Join(ctx context.Context) error {
	if m.kubelet != nil {
		m.kubelet.Stop()
	}
	var labels map[string]string
	if m.Dedicated {
		labels = map[string]string{dedicatedLabel: "true"}
	}
	config, err := m.lab.ControlPlane.KubeletConfig(ctx, m.Name)
	if err != nil {
		return fmt.Errorf("credentials of the kubelet of %s: %w", m.Name, err)
	}
	o := kubelet.Options{
		Name: m.Name, InternalIPs: m.InternalIPs(), Labels: labels, ReadyWithPodCIDR: true,
	}
	if m.BehindNAT {
		o.ProviderID, o.WithoutProvider = "home://"+m.Name, true
	}
	m.kubelet, err = kubelet.Join(context.WithoutCancel(ctx), config, o)
	return err
}

// SetUplink switches the interface "uplink" of a machine on metal off, which removes all its routes
// and IPv6 addresses, or on again, with the addresses and default routes as a network daemon would
// restore them.
func (m *Machine) SetUplink(ctx context.Context, up bool) error {
	if !up {
		_, err := m.Namespace.Run(ctx, "ip", "link", "set", uplink, "down")
		return err
	}
	_, err := m.Namespace.Feed(ctx, segmentAddresses(uplink, m.Public), "ip", "-batch", "-")
	return err
}

// Readdress gives a machine on metal, whose uplink is off, other addresses. Its kubelet updates the
// Node.
func (m *Machine) Readdress(ctx context.Context, a Public) error {
	m.Public = a
	if _, err := m.Namespace.Run(ctx, "ip", "address", "flush", "dev", uplink); err != nil {
		return err
	}
	return kubelet.Report(ctx, m.lab.Client, m.Name, m.InternalIPs())
}

// Silence stops the machine's kubelet, as if the machine were off. Pods keep running.
func (m *Machine) Silence() { m.kubelet.Stop() }

// stop ends the machine's programs.
func (m *Machine) stop() {
	for _, p := range append([]*process.Process{m.agent, m.proxy}, append(m.others,
		slices.Collect(maps.Values(m.tunnels))...)...) {
		if p != nil {
			p.Kill()
		}
	}
	if m.kubelet != nil {
		m.kubelet.Stop()
	}
}

// Remove deletes the machine: its pods, programs, cables and server are removed at once. Its Node
// is left to the cluster.
func (m *Machine) Remove(ctx context.Context) error {
	f := m.lab
	f.mu.Lock()
	delete(f.machines, m.Name)
	for name, p := range f.pods {
		if p.Machine == m {
			delete(f.pods, name)
			p.release()
		}
	}
	f.mu.Unlock()
	m.stop()
	var err error
	switch {
	case m.RobotNumber != 0:
		err = f.robot.RemoveServer(m.RobotNumber)
	case m.Outside:
		err = f.Cloud.DeleteServer(m.Server)
	case m.Server != 0:
		err = errors.Join(f.Cloud.DeleteServer(m.Server), f.cloud.unplug(ctx, Member{"server", m.Server}))
	}
	return errors.Join(err, m.release(ctx))
}

// release removes the machine's cable to the management network, and closes the process's handles
// of the machine. The kernel removes the namespace later if connections in it were not closed
// properly.
func (m *Machine) release(ctx context.Context) error {
	_, err := m.lab.host.Run(ctx, "ip", "link", "delete", mgmt+"-"+m.port())
	if m.gateway != nil {
		m.gateway.Close()
	}
	m.Namespace.Close()
	return err
}

// port is the name of the machine's ports.
func (m *Machine) port() string { return fmt.Sprintf("m%d", m.number) }

// Machine returns the machine of that name; nil if there is none.
func (f *Lab) Machine(name string) *Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machines[name]
}
