//go:build linux

package netlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// The vSwitch of dedicated servers: a bridge at the cloud router, which is its
// gateway, in a subnet of the cloud's network.
const (
	vSwitch        = "vswitch" // the bridge, and each server's interface on it
	vSwitchSubnet  = "10.1.0.0/16"
	vSwitchGateway = "10.1.0.1"
	vSwitchPods    = "10.1.128.0/17"
	vSwitchMTU     = "1400"
	// dedicatedLabel is on the Nodes of dedicated servers.
	dedicatedLabel = "dedicated"
)

// vSwitchConfig are the lines of the configuration file, before the pools and
// among them.
const (
	vSwitchConfig = "vswitch: {subnet: " + vSwitchSubnet + ", exposeRoutes: true}\n"
	vSwitchPool   = "  - {name: dedicated, source: vswitch, cidr: " + vSwitchPods + ", nodeMask: 24, nodeSelector: " + dedicatedLabel + "=true}\n"
)

// addVSwitch makes the vSwitch.
func (c *cloudRouter) addVSwitch(ctx context.Context) error {
	// What stays on it is none of the router's business. A kernel without the setting
	// has no such idea.
	for _, family := range []string{"ip", "ip6"} {
		if err := c.ns.Sysctl("net/bridge/bridge-nf-call-"+family+"tables", "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	err := c.batch(ctx, fmt.Sprintf("link add %[1]s type bridge\nlink set %[1]s mtu %[2]s up\naddress add %[3]s/%[4]d dev %[1]s\n",
		vSwitch, vSwitchMTU, vSwitchGateway, prefix(vSwitchSubnet).Bits()))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vSwitch = true
	return c.set(ctx, c.layout())
}

// join gives a dedicated server a cable to the vSwitch.
func (c *cloudRouter) join(ctx context.Context, port string, ns *netns.Namespace, addr netip.Addr) error {
	if err := netns.Connect(ctx, ns, vSwitch, c.ns, port); err != nil {
		return err
	}
	if err := c.batch(ctx, fmt.Sprintf("link set %s mtu %s master %s\n", port, vSwitchMTU, vSwitch)); err != nil {
		return err
	}
	_, err := ns.Feed(ctx, fmt.Sprintf("link set %[1]s mtu %[2]s\n%[3]s", vSwitch, vSwitchMTU, vSwitchAddresses(addr)), "ip", "-batch", "-")
	return err
}

// vSwitchAddresses are the commands that give a dedicated server its place, with a
// way to cloud servers, and none to their pods.
func vSwitchAddresses(addr netip.Addr) string {
	return fmt.Sprintf("address replace %[2]s/%[3]d dev %[1]s\nlink set %[1]s up\nroute replace %[4]s via %[5]s dev %[1]s\n",
		vSwitch, addr, prefix(vSwitchSubnet).Bits(), cluster.SubnetRange, vSwitchGateway)
}

// Neighbor returns the hardware address by which the vSwitch's gateway knows an
// address, or nothing.
func (f *Lab) Neighbor(ctx context.Context, addr netip.Addr) (string, error) {
	out, err := f.cloud.ns.Run(ctx, "ip", "neighbor", "show", addr.String(), "dev", vSwitch)
	_, mac, _ := strings.Cut(out, "lladdr ")
	if words := strings.Fields(mac); err == nil && len(words) > 0 {
		return words[0], nil
	}
	return "", err
}

// ForgetNeighbors has the vSwitch's gateway look for every host anew.
func (f *Lab) ForgetNeighbors(ctx context.Context) error {
	_, err := f.cloud.ns.Run(ctx, "ip", "neighbor", "flush", "dev", vSwitch)
	return err
}

// RentDedicated makes a dedicated server on the vSwitch that no cluster knows yet.
func (f *Lab) RentDedicated(ctx context.Context, name string) (*Machine, error) {
	return f.rent(ctx, &Machine{Name: name, Dedicated: true})
}

// AddDedicated lets dedicated servers of these names join, one after the other, and
// returns when they are ready for pods.
func (f *Lab) AddDedicated(ctx context.Context, names ...string) error {
	for _, name := range names {
		m, err := f.RentDedicated(ctx, name)
		if err != nil {
			return err
		}
		for _, step := range []func(context.Context) error{
			m.Join,
			func(ctx context.Context) error { return m.StartAgent(ctx) },
			m.AwaitReady, m.StartProxy, m.AwaitReady,
		} {
			if err := step(ctx); err != nil {
				return fmt.Errorf("dedicated server %s: %w", name, err)
			}
		}
	}
	return nil
}

// plugDedicated gives a dedicated server its addresses: the cloud knows nothing of
// them.
func (m *Machine) plugDedicated(ctx context.Context) error {
	subnet := prefix(vSwitchSubnet).Addr().As4()
	m.Private = netip.AddrFrom4([4]byte{subnet[0], subnet[1], 0, byte(10 + m.number)})
	return m.connect(ctx)
}

// register makes the Node of a dedicated server, with its addresses and podCIDRs: an
// IPv4 prefix of the pool, and one cut from its own /64.
func (m *Machine) register(ctx context.Context) error {
	pool, own := prefix(vSwitchPods).Addr().As4(), m.Public.IPv6Prefix.Addr().As16()
	pool[2] += byte(m.number)
	own[9] = 1
	podCIDRs := []string{netip.PrefixFrom(netip.AddrFrom4(pool), 24).String(), netip.PrefixFrom(netip.AddrFrom16(own), 80).String()}
	nodes := m.lab.Client.CoreV1().Nodes()
	_, err := nodes.Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, Labels: map[string]string{dedicatedLabel: "true", corev1.LabelHostname: m.Name}},
		Spec: corev1.NodeSpec{
			ProviderID: fmt.Sprintf("hrobot://%d", 1000+m.number), PodCIDR: podCIDRs[0], PodCIDRs: podCIDRs,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// Others write to its status already.
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: m.Private.String()},
		{Type: corev1.NodeExternalIP, Address: m.Public.IPv4.String()},
		{Type: corev1.NodeExternalIP, Address: m.Public.IPv6.String()},
	}}})
	if err != nil {
		return err
	}
	_, err = nodes.Patch(ctx, m.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// SetVSwitch switches a dedicated server's interface on the vSwitch off, which costs
// it every route there, or on again.
func (m *Machine) SetVSwitch(ctx context.Context, up bool) error {
	if !up {
		_, err := m.Namespace.Run(ctx, "ip", "link", "set", vSwitch, "down")
		return err
	}
	_, err := m.Namespace.Feed(ctx, vSwitchAddresses(m.Private), "ip", "-batch", "-")
	return err
}
