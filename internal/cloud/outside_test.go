package cloud_test

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodehelpers "k8s.io/cloud-provider/node/helpers"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// With tunnels, a server outside the network joins if its kubelet has its public address, which
// then is its InternalIP; a server that is not attached yet still waits.
func TestServersOutsideTheNetwork(t *testing.T) {
	detached := server(1, "a", "10.0.0.2")
	detached.PrivateIP, detached.PublicIPv4 = netip.Addr{}, netip.MustParseAddr("198.51.100.1")
	for _, c := range []struct {
		name, node, given string
		tunnels           bool
		want              string // InternalIP; empty: it waits
	}{
		{"on purpose", "a", "198.51.100.1", true, "198.51.100.1"},
		{"without tunnels", "a", "198.51.100.1", false, ""},
		{"not attached yet", "a", "", true, ""},
		{"another address", "a", "198.51.100.2", true, ""},
		{"a dedicated server", "bm", "198.51.100.7", true, "198.51.100.7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i, _ := mixed(&project{servers: []cloud.Machine{detached}}, &cloud.Machines{Robot: &account{servers: []cloud.Machine{dedicated(7, "bm")}}})
			i.Family, i.InNetwork, i.Tunnels = cloud.IPv4, true, c.tunnels
			got, err := i.InstanceMetadata(t.Context(), node(c.node, withAnnotation(c.given)))
			if c.want == "" {
				if err == nil || !strings.Contains(err.Error(), "not attached") {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			kept, err := nodehelpers.GetNodeAddressesFromNodeIP(c.given, got.NodeAddresses)
			if err != nil {
				t.Fatal(err)
			}
			internal := kube.InternalIPs(&corev1.Node{Status: corev1.NodeStatus{Addresses: kept}})
			if len(internal) != 1 || internal[0].String() != c.want {
				t.Errorf("InternalIPs %v, want %s", internal, c.want)
			}
		})
	}
}
