//go:build linux

package packets

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// overlay creates the state of flannel on machines, and what flannel leaves when it ends:
// interfaces, routes, packet filter and files as in its source (v0.27: pkg/backend,
// pkg/trafficmngr/nftables, and the CNI plugin's README). Flannel itself doesn't run: it has
// nothing more to do once every node has its podCIDR.
type overlay struct {
	tunnel   bool   // the backend is vxlan, and not host-gw
	uplink   string // the interface between machines
	machines []*netlab.Machine
	subnets  map[*netlab.Machine]netip.Prefix
}

const (
	podRange    = "10.244.0.0/16"
	flannelConf = "10-flannel.conflist"
	// flannelPlugin is the CNI plugin: it calls host-local, and does what flannel delegates to the
	// plugin bridge. Its configuration names the file that flannel writes for it.
	flannelPlugin = `#!/bin/sh
set -eu
config=$(cat)
. "$(echo "$config" | sed -n 's/.*"subnetFile":"\([^"]*\)".*/\1/p')"
state=$(echo "$config" | sed -n 's/.*"dataDir":"\([^"]*\)".*/\1/p')
veth=veth$(printf %s "$CNI_CONTAINERID" | cksum | cut -d' ' -f1)
subnet=$(echo "$FLANNEL_SUBNET" | sed 's,\.1/,.0/,')
said=$(printf '{"cniVersion":"1.0.0","name":"cbr0","ipam":{"type":"host-local","dataDir":"%s","ranges":[[{"subnet":"%s"}]]}}' \
	"$state" "$subnet" | "$CNI_PATH/host-local")
if [ "$CNI_COMMAND" = DEL ]; then
	ip link delete "$veth" 2>/dev/null || true
	exit 0
fi
address=$(echo "$said" | tr -d ' \n' | sed 's/.*"address":"\([^"]*\)".*/\1/')
if ! ip link show cni0 >/dev/null 2>&1; then
	ip link add cni0 mtu "$FLANNEL_MTU" type bridge
	ip address add "$FLANNEL_SUBNET" dev cni0
	ip link set cni0 up
fi
ip link add "$veth" mtu "$FLANNEL_MTU" type veth peer name "$CNI_IFNAME" mtu "$FLANNEL_MTU" netns "$CNI_NETNS"
ip link set "$veth" master cni0 up
nsenter --net="$CNI_NETNS" ip -batch - <<EOF
address add $address dev $CNI_IFNAME
link set $CNI_IFNAME up
route add default via ${FLANNEL_SUBNET%/*}
EOF
echo "$said"
`
)

// pluginFolder returns a folder with flannel's plugin beside those that the agent needs.
func pluginFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"ptp", "host-local", "portmap"} {
		if err := os.Symlink(filepath.Join(os.Getenv("CNI_PATH"), name), filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "flannel"), []byte(flannelPlugin), 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// between is the address at which other machines reach a machine.
func between(m *netlab.Machine) netip.Addr { return m.InternalIPs()[0] }

// mac is the hardware address of a machine's tunnel interface.
func (o *overlay) mac(m *netlab.Machine) string {
	a := between(m).As4()
	return fmt.Sprintf("02:f1:%02x:%02x:%02x:%02x", a[0], a[1], a[2], a[3])
}

// install sets a machine up as flannel does when every Node has a podCIDR.
func (o *overlay) install(t *testing.T, f *netlab.Lab, m *netlab.Machine) {
	t.Helper()
	// kubeadm's requirement, and RHEL's reverse path filter.
	for _, key := range []string{"net/ipv4/ip_forward", "net/ipv4/conf/all/rp_filter"} {
		if err := m.Namespace.Sysctl(key, "1"); err != nil {
			t.Fatal(err)
		}
	}
	o.configure(t, m)
	o.connect(t, m)
	o.filter(t, m)
	o.tell(t, f, m)
}

// configure writes the files.
func (o *overlay) configure(t *testing.T, m *netlab.Machine) {
	t.Helper()
	own, dir := o.subnets[m], filepath.Dir(m.ConfigDir())
	env := fmt.Sprintf("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=%s/%d\nFLANNEL_MTU=%d\nFLANNEL_IPMASQ=true\n", own.Addr().Next(), own.Bits(), o.mtu(t, m))
	conf := fmt.Sprintf(`{"name":"cbr0","cniVersion":"1.0.0","plugins":[`+
		`{"type":"flannel","subnetFile":%q,"dataDir":%q,"delegate":{"hairpinMode":true,"isDefaultGateway":true}},`+
		`{"type":"portmap","capabilities":{"portMappings":true}}]}`, filepath.Join(dir, "subnet.env"), filepath.Join(dir, "flannel"))
	for path, content := range map[string]string{filepath.Join(dir, "subnet.env"): env, filepath.Join(m.ConfigDir(), flannelConf): conf} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// mtu is the MTU of pods with flannel.
func (o *overlay) mtu(t *testing.T, m *netlab.Machine) int {
	t.Helper()
	_, rest, _ := strings.Cut(run(t, m, "ip", "link", "show", o.uplink), " mtu ")
	var mtu int
	if _, err := fmt.Sscan(rest, &mtu); err != nil {
		t.Fatal(err)
	}
	if o.tunnel {
		mtu -= 50
	}
	return mtu
}

// connect creates the interface and the routes to the other machines' pods.
func (o *overlay) connect(t *testing.T, m *netlab.Machine) {
	t.Helper()
	var ip, fdb strings.Builder
	if o.tunnel {
		fmt.Fprintf(&ip, "link add flannel.1 address %s mtu %d type vxlan id 1 local %s dev %s dstport 8472 nolearning\n"+
			"address add %s/32 dev flannel.1\nlink set flannel.1 up\n", o.mac(m), o.mtu(t, m), between(m), o.uplink, o.subnets[m].Addr())
	}
	for _, peer := range o.machines {
		switch pods := o.subnets[peer]; {
		case peer == m:
		case o.tunnel:
			fmt.Fprintf(&ip, "neighbor replace %[1]s lladdr %[2]s dev flannel.1 nud permanent\nroute replace %[3]s via %[1]s dev flannel.1 onlink\n",
				pods.Addr(), o.mac(peer), pods)
			fmt.Fprintf(&fdb, "fdb replace %s dev flannel.1 dst %s self permanent\n", o.mac(peer), between(peer))
		default:
			fmt.Fprintf(&ip, "route replace %s via %s dev %s\n", pods, between(peer), o.uplink)
		}
	}
	o.feed(t, m, ip.String(), "ip", "-batch", "-")
	o.feed(t, m, fdb.String(), "bridge", "-batch", "-")
}

func (o *overlay) feed(t *testing.T, m *netlab.Machine, text, program string, args ...string) {
	t.Helper()
	if _, err := m.Namespace.Feed(t.Context(), text, program, args...); err != nil {
		t.Fatalf("on %s: %v", m.Name, err)
	}
}

// filter creates the masquerade and forward rules.
func (o *overlay) filter(t *testing.T, m *netlab.Machine) {
	t.Helper()
	o.feed(t, m, fmt.Sprintf(`table ip flannel-ipv4 {
	chain forward {
		type filter hook forward priority filter;
		ip saddr 10.244.0.0/16 accept
		ip daddr 10.244.0.0/16 accept
	}
	chain postrtg {
		type nat hook postrouting priority srcnat;
		meta mark 0x4000 return
		ip saddr %[1]s ip daddr 10.244.0.0/16 return
		ip saddr 10.244.0.0/16 ip daddr %[1]s return
		ip saddr != %[1]s ip daddr 10.244.0.0/16 return
		ip saddr 10.244.0.0/16 ip daddr != 224.0.0.0/4 masquerade fully-random
		ip saddr != 10.244.0.0/16 ip daddr 10.244.0.0/16 masquerade fully-random
	}
}`, o.subnets[m]), "nft", "-f", "-")
}

// tell annotates the machine's Node, for other machines' flannel, and sets the condition that its
// network is available.
func (o *overlay) tell(t *testing.T, f *netlab.Lab, m *netlab.Machine) {
	t.Helper()
	backend := "host-gw"
	if o.tunnel {
		backend = "vxlan"
	}
	patchNode(t, f, m, "", map[string]any{"metadata": metav1.ObjectMeta{Annotations: map[string]string{
		"flannel.alpha.coreos.com/backend-data":        fmt.Sprintf(`{"VNI":1,"VtepMAC":%q}`, o.mac(m)),
		"flannel.alpha.coreos.com/backend-type":        backend,
		"flannel.alpha.coreos.com/kube-subnet-manager": "true",
		"flannel.alpha.coreos.com/public-ip":           between(m).String(),
	}}})
	patchNode(t, f, m, "status", map[string]any{"status": corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "FlannelIsUp", Message: "Flannel is running on this node",
	}}}})
}

func patchNode(t *testing.T, f *netlab.Lab, m *netlab.Machine, subresource string, patch any) {
	t.Helper()
	data, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	var sub []string
	if subresource != "" {
		sub = []string{subresource}
	}
	if _, err := f.Client.CoreV1().Nodes().Patch(t.Context(), m.Name, types.StrategicMergePatchType,
		data, metav1.PatchOptions{}, sub...); err != nil {
		t.Fatal(err)
	}
}

// end does what flannel does when it ends.
func (o *overlay) end(t *testing.T, m *netlab.Machine) {
	t.Helper()
	run(t, m, "nft", "delete", "table", "ip", "flannel-ipv4")
}
